/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

/*
 * Lines for people about switches, while the run lasts:
 *   switch at 3.21 s: GPU 0, rail0 -> rail1, gap 8.10 ms, 8 channels (link down)
 *   failback at 5.02 s: GPU 0, rail1 -> rail0, gap 10.2 ms, 8 channels
 * Invariants
 *  1. A switch is in one line at most: `told` of its row at this end. Those that a trial of the failover test explains
 *     are in none, but the failback after it.
 *  2. Switches of one batch that leave the same rail (failback: return to it) make one line, with the longest gap.
 *     A batch begins with the first new row and lasts HOLD_NS; after MANY lines LATER_NS, so that rails that flap
 *     for hours do not fill the screen.
 *  3. The receiver measures the gap. A client whose rows are the sender's waits for the server's, GAP_NS at most; the
 *     server sends its rows when it has made its own batch.
 */
#define HOLD_NS (100 * DR_NS_PER_MS)
#define LATER_NS DR_NS_PER_S
#define GAP_NS (2 * DR_NS_PER_S)
enum { MANY = 20 };

enum line_kind { LINE_SWITCH, LINE_LEAVE, LINE_FAILBACK, LINE_KINDS };

struct line {
	uint64_t gpus;	 /* by position */
	uint32_t others; /* rails at the other end of the arrow */
	unsigned channels, switches;
	int64_t at_ns, gap_ns;
	const char *cause;
	bool self; /* cause: of the end that detected it */
};

static enum line_kind kind_of(const struct dr_switch_row *r)
{
	return !r->rec.planned ? LINE_SWITCH : r->rec.to == 0 ? LINE_FAILBACK : LINE_LEAVE;
}

static struct dr_local_channel *channel_of(const struct dr_local *l, const struct dr_switch_row *r)
{
	return dr_local_channel_of(l, r->gpu, r->channel);
}

static const struct dr_switch_row *peers(const struct dr_local *l, const struct dr_switch_row *r)
{
	return dr_switch_at(l->rec, !r->side, r);
}

enum wanted { WANTED, LATER, NEVER };

static enum wanted wanted(const struct dr_local *l, const struct dr_switch_row *r)
{
	if (r->told || r->side != (int)l->side || !channel_of(l, r))
		return NEVER;
	if (r->unexpected == 1 || (r->rec.planned && dr_output_has_tables(l->out)))
		return WANTED;
	if (!r->rec.planned && l->side == DR_PLAN_SERVER) /* the trials are the client's */
		return NEVER;
	/* A trial tells its own. */
	return l->trial_open ? LATER : r->trial == DR_UNSET ? WANTED : NEVER;
}

static bool lacks_gap(const struct dr_local *l, const struct dr_switch_row *r)
{
	return l->side == DR_PLAN_CLIENT && r->receiver != 1 && !peers(l, r);
}

/* ---- one line ---- */

static unsigned rail_of(const struct dr_local_channel *ch, unsigned path)
{
	return path == 0 ? ch->rails.primary : ch->rails.shadow;
}

static void add(
	struct dr_local *l, struct line *line, const struct dr_switch_row *r, unsigned other)
{
	struct dr_local_channel *ch = channel_of(l, r);
	const struct dr_switch_row *o = peers(l, r), *receiver = r->receiver == 1 ? r : o;
	bool by_peer = o && o->rec.self_detected && !r->rec.self_detected && o->rec.cause[0];
	const char *cause = by_peer ? o->rec.cause : r->rec.cause;
	bool self = by_peer || r->rec.self_detected;

	if (!line->switches || r->rec.detect_ns < line->at_ns)
		line->at_ns = r->rec.detect_ns;
	if (receiver && receiver->gap_ns != DR_UNSET)
		line->gap_ns = DR_MAX(line->gap_ns, receiver->gap_ns);
	if (cause[0] && (!line->cause || (self && !line->self))) {
		line->cause = cause;
		line->self = self;
	}
	line->gpus |= (uint64_t)1 << ch->gpu->position;
	line->others |= 1u << other;
	line->switches++;
	line->channels += ch->line_batch != l->switch_lines.batch;
	ch->line_batch = l->switch_lines.batch;
}

/* "rail1", "rail1, rail2"; addresses where the NICs have one name (loopback). */
static void put_rails(
	const struct dr_local *l, uint32_t rails, bool addresses, char *buf, size_t len)
{
	const char *comma = "";

	for (unsigned i = 0; i < l->plan->n_rails; i++)
		if (rails & (1u << i)) {
			const struct dr_plan_rail *p = &l->plan->rail[i][l->side];

			dr_append(buf, len, "%s%s%s%s", comma, p->name, addresses ? " " : "",
				addresses ? p->address : "");
			comma = ", ";
		}
}

static bool same_name(const struct dr_local *l, unsigned rail, uint32_t others)
{
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		if ((others & (1u << i)) &&
			!strcmp(l->plan->rail[i][l->side].name, l->plan->rail[rail][l->side].name))
			return true;
	return false;
}

/* The GPU that the line is about; below 0: several. */
static int only_gpu(const struct dr_local *l, const struct line *x)
{
	return __builtin_popcountll(x->gpus) == 1 ? (int)l->gpu[__builtin_ctzll(x->gpus)].number
						  : -1;
}

static void put_line(const struct dr_local *l, const struct line *x, enum line_kind kind,
	unsigned rail, char *buf, size_t len)
{
	uint32_t from = kind == LINE_FAILBACK ? x->others : 1u << rail;
	uint32_t to = kind == LINE_FAILBACK ? 1u << rail : x->others;
	bool addresses = same_name(l, rail, x->others);
	double ms = (double)x->gap_ns / 1e6;

	buf[0] = '\0';
	dr_append(buf, len, "%s at %.2f s: ", kind == LINE_FAILBACK ? "failback" : "switch",
		(double)(x->at_ns - l->begin_ns) / 1e9);
	if (only_gpu(l, x) >= 0)
		dr_append(buf, len, "GPU %d, ", only_gpu(l, x));
	else
		dr_append(buf, len, "%d GPUs, ", __builtin_popcountll(x->gpus));
	put_rails(l, from, addresses, buf, len);
	dr_append(buf, len, " -> ");
	put_rails(l, to, addresses, buf, len);
	if (x->gap_ns >= 0)
		dr_append(buf, len, ", gap %.*f ms", ms < 1 ? 3 : ms < 100 ? 2 : 1, ms);
	dr_append(buf, len, ", %u channel%s", x->channels, x->channels == 1 ? "" : "s");
	if (x->switches > x->channels)
		dr_append(buf, len, ", %u switches", x->switches);
	if (kind != LINE_FAILBACK && x->cause)
		dr_append(buf, len, " (%s)", x->cause);
}

/* ---- a batch ---- */

static void tell_batch(struct dr_local *l)
{
	struct line lines[LINE_KINDS][DR_RAILS_MAX] = { 0 };
	struct dr_switch_lines *sl = &l->switch_lines;
	char text[400];

	sl->batch++;
	for (size_t i = sl->first; i < l->rec->switches.n; i++) {
		struct dr_switch_row *r = &l->rec->switches.v[i];

		if (wanted(l, r) != WANTED)
			continue;
		const struct dr_local_channel *ch = channel_of(l, r);
		enum line_kind kind = kind_of(r);
		unsigned from = rail_of(ch, r->rec.from), to = rail_of(ch, r->rec.to);
		struct line *x = &lines[kind][kind == LINE_FAILBACK ? to : from];

		if (!x->switches)
			x->gap_ns = DR_UNSET;
		add(l, x, r, kind == LINE_FAILBACK ? from : to);
		r->told = true;
	}
	for (int kind = 0; kind < LINE_KINDS; kind++)
		for (unsigned rail = 0; rail < l->plan->n_rails; rail++) {
			if (!lines[kind][rail].switches)
				continue;
			put_line(l, &lines[kind][rail], kind, rail, text, sizeof(text));
			dr_log_set_gpu(only_gpu(l, &lines[kind][rail]));
			dr_output_line(l->out, "switch", text);
			dr_log_set_gpu(-1);
			sl->lines++;
		}
}

/* Rows before `first` are in a line, or will be in none. */
static void advance(struct dr_local *l)
{
	struct dr_switch_lines *sl = &l->switch_lines;

	while (sl->first < l->rec->switches.n && wanted(l, &l->rec->switches.v[sl->first]) == NEVER)
		sl->first++;
}

static bool waits_for_gap(const struct dr_local *l, int64_t now_ns)
{
	for (size_t i = l->switch_lines.first; i < l->rec->switches.n; i++) {
		const struct dr_switch_row *r = &l->rec->switches.v[i];

		if (wanted(l, r) == WANTED && now_ns - r->rec.detect_ns < GAP_NS && lacks_gap(l, r))
			return true;
	}
	return false;
}

bool dr_switch_lines_tick(struct dr_local *l, int64_t now_ns)
{
	struct dr_switch_lines *sl = &l->switch_lines;

	if (sl->seen != l->rec->switches.n && !sl->due_ns)
		sl->due_ns = now_ns + (sl->lines < MANY ? HOLD_NS : LATER_NS);
	sl->seen = l->rec->switches.n;
	if (!sl->due_ns || now_ns < sl->due_ns)
		return false;
	sl->due_ns = 0;
	if (waits_for_gap(l, now_ns)) {
		sl->due_ns = now_ns + HOLD_NS;
		return false;
	}
	tell_batch(l);
	advance(l);
	return true;
}

void dr_switch_lines_trial(struct dr_local *l, bool open)
{
	l->trial_open = open;
	l->switch_lines.seen = 0; /* what was held is looked at again */
}

void dr_switch_lines_end(struct dr_local *l)
{
	l->trial_open = false;
	tell_batch(l);
	advance(l);
}
