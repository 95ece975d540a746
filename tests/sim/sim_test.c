/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded simulation of failover: two ChannelManagers, the objects that ship, over simulated rails in
 * virtual time. A seed draws everything: personality, channels, windows, parts, delays, the faults
 * and their times. Checked in each schedule:
 *
 *  - content by (seed, channel, seq, part): nothing lost, doubled, reordered or corrupted;
 *  - no write into, or read from, a buffer that its user has back (the simulator's shadow stamps);
 *  - while one rail works and faults have stopped, every message arrives within a bound;
 *  - a channel ends only when both rails were gone, and then it ends at both ends;
 *  - over all seeds (1000 and more) the rare states were reached (coverage counters).
 *
 * sim_test [--seeds N] [--seed S] [-v]; environment SEEDS and SEED. A failure prints the line that
 * replays it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "channel/manager.h"
#include "transport/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHANNELS_MAX = 4, PART_MAX = 256, FAULTS_MAX = 8, WINDOW_MAX = 16, PARTS = 3 };

enum fault_kind {
	F_CUT,
	F_CUT_ONE_WAY,
	F_LINK_DOWN,
	F_BREAK,
	F_CLOG,
	F_MUTE,
	F_STALL,
	F_COMPLETION,
	F_CREDIT,
	F_BOTH_CUT,
	F_KINDS
};
static const char *const fault_names[F_KINDS] = { "cut", "cut-one-way", "link-down", "break",
	"clog", "mute", "stall", "completion", "credit", "both-cut" };

struct fault {
	enum fault_kind kind;
	int64_t at, until;
	unsigned rail, mask;
	bool on, off;
};

struct app_channel {
	bool sender[2];
	unsigned window, parts;
	uint64_t total;		     /* messages to send; grows until the faults are over */
	uint64_t posted[2], done[2]; /* by end */
	uint8_t *mem[2];
	struct dr_mem reg[2];
	int err[2];
};

struct run {
	uint64_t seed;
	struct dr_rng rng;
	struct dr_sim_world *w;
	enum dr_sim_personality pers;
	struct dr_manager *m[2];
	unsigned n_channels;
	struct app_channel ch[CHANNELS_MAX];
	struct fault fault[FAULTS_MAX];
	unsigned n_faults;
	int64_t stalled_until[2];
	int64_t hard_stop;			     /* all must be over then */
	int64_t traffic_until, burst_ns, next_burst; /* a burst of a few messages so often */
	int64_t pause_from, pause_until;	     /* receivers post nothing */
	bool both_cut;
	char fail[400];
};

static struct coverage {
	uint64_t schedules, messages, switches, failbacks, replayed, duplicates, stale, deaths,
		rounds, heals, self_rx, self_tx, two_part, stalls, unplanned_during;
	uint64_t faults[F_KINDS], personality[3];
} cover;
static_assert(sizeof(cover) % sizeof(uint64_t) == 0, "counters only: they are added up");

static int verbose;

#define FAIL(r, ...)                                                                               \
	do {                                                                                       \
		if ((r)->fail[0] == '\0')                                                          \
			snprintf((r)->fail, sizeof((r)->fail), __VA_ARGS__);                       \
	} while (0)

static uint64_t word(const struct run *r, unsigned c, uint64_t seq, unsigned part, size_t i)
{
	return dr_mix64(r->seed ^ ((uint64_t)c << 56) ^ (seq << 16) ^ ((uint64_t)part << 12)) + i;
}

static uint32_t part_len(const struct run *r, unsigned c, uint64_t seq, unsigned part)
{
	return 8 * (1 + (uint32_t)(word(r, c, seq, part, 77) % (PART_MAX / 8)));
}

static uint8_t *part_addr(struct app_channel *a, unsigned end, uint64_t seq, unsigned part)
{
	return a->mem[end] + ((seq % a->window) * PARTS + part) * PART_MAX;
}

static void on_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	struct run *r = arg;
	int64_t sum;

	if (verbose)
		fprintf(stderr,
			"  %8.3f ms channel %u %s: epoch %u path %u -> %u %s (%s), gap %.3f ms, rounds %u\n",
			(double)dr_sim_world_now(r->w) / 1e6, dr_channel_id(ch),
			dr_channel_is_sender(ch) ? "sender" : "receiver", rec->epoch, rec->from,
			rec->to, rec->planned ? "failback" : "switch", rec->cause,
			(double)(rec->first_delivery_ns - rec->last_delivery_ns) / 1e6,
			rec->rounds);
	cover.switches += !rec->planned;
	cover.failbacks += rec->planned;
	cover.replayed += rec->replayed_messages;
	cover.rounds += rec->rounds > 1;
	if (rec->self_detected && !rec->planned) {
		cover.self_tx += dr_channel_is_sender(ch);
		cover.self_rx += !dr_channel_is_sender(ch);
	}
	if (dr_channel_is_sender(ch))
		return;
	sum = (rec->detect_ns - rec->last_delivery_ns) + (rec->fenced_ns - rec->detect_ns) +
	      (rec->answer_ns - rec->fenced_ns) + (rec->first_frame_ns - rec->answer_ns) +
	      (rec->first_delivery_ns - rec->first_frame_ns);
	if (sum != rec->first_delivery_ns - rec->last_delivery_ns ||
		rec->detect_ns < rec->last_delivery_ns || rec->fenced_ns < rec->detect_ns ||
		rec->answer_ns < rec->fenced_ns || rec->first_frame_ns < rec->answer_ns ||
		rec->first_delivery_ns < rec->first_frame_ns)
		FAIL(r, "channel %u: the parts of the gap do not add up", dr_channel_id(ch));
}

static void on_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now)
{
	struct run *r = arg;
	struct app_channel *a = &r->ch[dr_channel_id(ch)];
	unsigned end = a->sender[0] == dr_channel_is_sender(ch) ? 0 : 1;

	if (verbose)
		fprintf(stderr, "  %8.3f ms channel %u end %u failed: %s\n", (double)now / 1e6,
			dr_channel_id(ch), end, text);
	if (a->err[end] != 0)
		FAIL(r, "channel %u end %u failed twice", dr_channel_id(ch), end);
	a->err[end] = err;
	cover.deaths++;
	if (!r->both_cut)
		FAIL(r, "channel %u end %u failed though a rail worked: %s", dr_channel_id(ch), end,
			text);
}

static void on_silence(void *arg, bool stalled, int64_t ns, int64_t now)
{
	(void)arg, (void)ns, (void)now;
	cover.stalls += stalled;
}

static const struct dr_manager_ops ops = {
	.channel = { .switched = on_switched, .failed = on_failed },
	.silence = on_silence,
};

/* ---- the application: keeps both windows full, checks what comes ---- */

static void post(struct run *r, unsigned c, unsigned end, int64_t now)
{
	struct app_channel *a = &r->ch[c];
	struct dr_channel *ch = dr_manager_channel_at(r->m[end], c);
	bool sender = a->sender[end];

	while (a->posted[end] < a->total && a->posted[end] - a->done[end] < a->window) {
		struct dr_span s[PARTS];
		uint64_t seq = a->posted[end], got;

		if (!sender && now >= r->pause_from && now < r->pause_until)
			return;
		for (unsigned i = 0; i < a->parts; i++) {
			uint8_t *p = part_addr(a, end, seq, i);
			uint32_t len = sender ? part_len(r, c, seq, i) : PART_MAX;

			dr_sim_world_take(r->w, p, PART_MAX);
			if (sender)
				for (size_t k = 0; k < len / 8; k++)
					((uint64_t *)(void *)p)[k] = word(r, c, seq, i, k);
			s[i] = (struct dr_span){ &a->reg[end], (uint64_t)(p - a->mem[end]), len,
				i };
		}
		if ((sender ? dr_channel_send(ch, s, a->parts, &got, now)
			    : dr_channel_recv(ch, s, a->parts, &got, now)) != 0)
			return;
		if (got != seq)
			FAIL(r, "channel %u end %u: seq %" PRIu64 " for %" PRIu64, c, end, got,
				seq);
		a->posted[end]++;
	}
}

static void check(struct run *r, unsigned c, uint64_t seq)
{
	struct app_channel *a = &r->ch[c];
	unsigned end = a->sender[0] ? 1 : 0;
	struct dr_channel *ch = dr_manager_channel_at(r->m[end], c);

	for (unsigned i = 0; i < a->parts; i++) {
		uint32_t len = part_len(r, c, seq, i);
		const uint64_t *p = (void *)part_addr(a, end, seq, i);

		if (dr_channel_received_len(ch, seq, i) != len)
			FAIL(r, "channel %u seq %" PRIu64 " part %u: %u bytes instead of %u", c,
				seq, i, dr_channel_received_len(ch, seq, i), len);
		for (size_t k = 0; k < len / 8; k++)
			if (p[k] != word(r, c, seq, i, k)) {
				FAIL(r, "channel %u seq %" PRIu64 " part %u: wrong content at %zu",
					c, seq, i, k * 8);
				return;
			}
	}
}

static void consume(struct run *r, unsigned c, unsigned end, int64_t now)
{
	struct app_channel *a = &r->ch[c];
	struct dr_channel *ch = dr_manager_channel_at(r->m[end], c);

	(void)now;
	while (a->done[end] < a->posted[end] && dr_channel_test(ch, a->done[end]) == 1) {
		uint64_t seq = a->done[end];

		if (!a->sender[end]) {
			check(r, c, seq);
			cover.messages++;
		} else if (seq >= r->ch[c].done[!end] + 0 && a->done[!end] <= seq &&
			   dr_channel_test(dr_manager_channel_at(r->m[!end], c), seq) != 1) {
			FAIL(r, "channel %u: seq %" PRIu64 " completed before it was delivered", c,
				seq);
		}
		for (unsigned i = 0; i < a->parts; i++) {
			uint8_t *p = part_addr(a, end, seq, i);

			memset(p, 0xdb, PART_MAX); /* the user's again: scribble */
			dr_sim_world_give_back(r->w, p, PART_MAX);
		}
		a->done[end]++;
	}
}

static void app_step(struct run *r, unsigned end, int64_t now)
{
	for (unsigned c = 0; c < r->n_channels; c++) {
		consume(r, c, end, now);
		post(r, c, end, now);
		dr_channel_flush(dr_manager_channel_at(r->m[end], c), now);
	}
}

/* ---- faults ---- */

static struct dr_path *some_path(struct run *r, unsigned rail, bool sender_end)
{
	unsigned c = (unsigned)dr_rng_below(&r->rng, r->n_channels);

	for (unsigned node = 0; node < 2; node++)
		for (unsigned i = 0; i < DR_PATHS; i++) {
			struct dr_path *p = dr_sim_path_find(r->w, node, rail, c, i);

			if (p != NULL && r->ch[c].sender[node] == sender_end)
				return p;
		}
	return NULL;
}

static void fault_on(struct run *r, struct fault *f)
{
	struct dr_path *p;

	cover.faults[f->kind]++;
	if (verbose)
		fprintf(stderr, "  %8.3f ms fault %s rail %u mask %u until %.3f ms\n",
			(double)f->at / 1e6, fault_names[f->kind], f->rail, f->mask,
			(double)f->until / 1e6);
	switch (f->kind) {
	case F_CUT:
		dr_sim_cut(r->w, f->rail, DR_SIM_BOTH, true);
		break;
	case F_CUT_ONE_WAY:
		dr_sim_cut(r->w, f->rail, f->mask, true);
		break;
	case F_LINK_DOWN:
		dr_sim_link_down(r->w, f->rail, f->mask, 50 * DR_NS_PER_US, true);
		break;
	case F_BREAK:
		p = some_path(r, f->rail, dr_rng_chance(&r->rng, 1, 2));
		if (p != NULL)
			dr_sim_path_break(p, f->mask, -ECONNRESET);
		break;
	case F_CLOG:
		dr_sim_clog(r->w, f->rail, f->mask, f->until - f->at);
		break;
	case F_MUTE:
		dr_sim_mute_dgrams(r->w, f->rail, f->mask, true);
		break;
	case F_STALL:
		r->stalled_until[f->mask == DR_SIM_NODE0 ? 0 : 1] = f->until;
		break;
	case F_COMPLETION:
		p = some_path(r, f->rail, true);
		if (p != NULL)
			(void)dr_sim_next_completion(
				p, 1 + dr_rng_below(&r->rng, DR_SIM_WC_ERR_DROPPED), DR_NS_PER_MS);
		break;
	case F_CREDIT:
		p = some_path(r, f->rail, false);
		if (p != NULL)
			(void)dr_sim_drop_credit(p);
		break;
	case F_BOTH_CUT:
		dr_sim_cut(r->w, 0, DR_SIM_BOTH, true);
		dr_sim_cut(r->w, 1, DR_SIM_BOTH, true);
		break;
	default:
		break;
	}
	f->on = true;
}

static void fault_off(struct run *r, struct fault *f)
{
	switch (f->kind) {
	case F_CUT:
	case F_CUT_ONE_WAY:
		dr_sim_cut(r->w, f->rail, f->kind == F_CUT ? DR_SIM_BOTH : f->mask, false);
		break;
	case F_LINK_DOWN:
		dr_sim_link_up(r->w, f->rail);
		break;
	case F_MUTE:
		dr_sim_mute_dgrams(r->w, f->rail, f->mask, false);
		break;
	case F_BOTH_CUT:
		dr_sim_cut(r->w, 0, DR_SIM_BOTH, false);
		dr_sim_cut(r->w, 1, DR_SIM_BOTH, false);
		break;
	default:
		break;
	}
	f->off = true;
}

/* Faults never take both rails at once (F_BOTH_CUT apart): each begins when the one before on the
 * other rail is over, and the rail had time to heal. */
static void draw_faults(struct run *r)
{
	static const int64_t lengths_ms[] = { 1, 5, 20, 50, 120, 400, 1000 };
	int64_t t = DR_NS_PER_MS, free_at[2] = { 0, 0 };

	r->n_faults = (unsigned)dr_rng_below(&r->rng, FAULTS_MAX - 2);
	for (unsigned i = 0; i < r->n_faults; i++) {
		struct fault *f = &r->fault[i];

		f->kind = (enum fault_kind)dr_rng_below(&r->rng, F_BOTH_CUT);
		f->rail = (unsigned)dr_rng_below(&r->rng, 2);
		f->mask = 1u + (unsigned)dr_rng_below(&r->rng, 2);
		if (f->kind == F_LINK_DOWN || f->kind == F_BREAK)
			f->mask = 1u + (unsigned)dr_rng_below(&r->rng, 3);
		t += (int64_t)dr_rng_below(&r->rng, 100 * DR_NS_PER_MS);
		f->at = DR_MAX(t, free_at[!f->rail]);
		f->until = f->at + lengths_ms[dr_rng_below(&r->rng, DR_ARRAY_LEN(lengths_ms))] *
					   DR_NS_PER_MS;
		free_at[f->rail] = DR_MAX(free_at[f->rail], f->until + 3500 * DR_NS_PER_MS);
		t = f->at;
	}
	if (dr_rng_chance(&r->rng, 1, 25)) {
		r->both_cut = true;
		r->fault[r->n_faults++] = (struct fault){ .kind = F_BOTH_CUT,
			.at = t + 20 * DR_NS_PER_MS,
			.until = t + 12 * DR_NS_PER_S };
	}
	for (unsigned i = 0; i < r->n_faults; i++)
		r->hard_stop = DR_MAX(r->hard_stop, r->fault[i].until);
	r->traffic_until = r->hard_stop + (int64_t)dr_rng_below(&r->rng, 300 * DR_NS_PER_MS);
	r->burst_ns = DR_NS_PER_MS + (int64_t)dr_rng_below(&r->rng, 30 * DR_NS_PER_MS);
	r->hard_stop += 12 * DR_NS_PER_S;
	if (dr_rng_chance(&r->rng, 1, 4)) {
		r->pause_from = (int64_t)dr_rng_below(&r->rng, 50 * DR_NS_PER_MS);
		r->pause_until = r->pause_from + (int64_t)dr_rng_below(&r->rng, 3 * DR_NS_PER_S);
	}
}

static int64_t run_faults(struct run *r, int64_t now)
{
	int64_t next = DR_NEVER;

	for (unsigned i = 0; i < r->n_faults; i++) {
		struct fault *f = &r->fault[i];

		if (!f->on && now >= f->at)
			fault_on(r, f);
		if (f->on && !f->off && now >= f->until)
			fault_off(r, f);
		if (!f->on)
			next = DR_MIN(next, f->at);
		else if (!f->off)
			next = DR_MIN(next, f->until);
	}
	return next;
}

/* ---- one schedule ---- */

static void draw(struct run *r, struct dr_sim_opts *o)
{
	dr_sim_opts_init(o);
	r->pers = (enum dr_sim_personality)dr_rng_below(&r->rng, 3);
	o->personality = r->pers;
	cover.personality[r->pers]++;
	o->link.delay_min_ns = 2000 + (int64_t)dr_rng_below(&r->rng, 100 * DR_NS_PER_US);
	o->link.delay_exp_ns = 1000 + (int64_t)dr_rng_below(&r->rng, 100 * DR_NS_PER_US);
	o->link.dgram_loss_ppm = dr_rng_chance(&r->rng, 1, 4) ? 10000 : 0;
	o->link.dgram_dup_ppm = dr_rng_chance(&r->rng, 1, 4) ? 10000 : 0;
	o->qps = 1 + (unsigned)dr_rng_below(&r->rng, 3);
	r->n_channels = 1 + (unsigned)dr_rng_below(&r->rng, CHANNELS_MAX);
	draw_faults(r);
	for (unsigned c = 0; c < r->n_channels; c++) {
		struct app_channel *a = &r->ch[c];

		a->sender[0] = dr_rng_chance(&r->rng, 1, 2);
		a->sender[1] = !a->sender[0];
		a->parts = 1 + (unsigned)dr_rng_below(&r->rng, PARTS);
		cover.two_part += a->parts > 1;
		a->total = 40;
	}
}

static int setup(struct run *r, unsigned window, bool failback)
{
	struct dr_manager_params p = { .gpu = 3,
		.n_rails = 2,
		.n_channels = r->n_channels,
		.window = window,
		.heartbeat_ns = 10 * DR_NS_PER_MS,
		.failback = failback,
		.hold_down_ns = 100 * DR_NS_PER_MS,
		.ops = &ops,
		.arg = r };
	uint8_t h[2][CHANNELS_MAX + 2][DR_HANDLE_MAX];
	uint16_t len[2][CHANNELS_MAX + 2];
	struct dr_err e;
	int rc;

	p.transport = dr_sim_ops(r->pers);
	for (unsigned end = 0; end < 2; end++) {
		struct dr_sim_rail_params rp = { r->w, end };

		p.connector = end == 1;
		p.kind_params = &rp;
		for (unsigned c = 0; c < r->n_channels; c++)
			p.channel[c] = (struct dr_manager_channel){ c % 2, !(c % 2),
				r->ch[c].sender[end] };
		rc = dr_manager_create(&p, &r->m[end], &e);
		if (rc != 0) {
			FAIL(r, "create: %s", e.text);
			return rc;
		}
		for (unsigned i = 0; i < dr_manager_handle_count(r->m[end]); i++)
			len[end][i] =
				(uint16_t)dr_manager_handle(r->m[end], i, h[end][i], DR_HANDLE_MAX);
		for (unsigned c = 0; c < r->n_channels; c++) {
			struct app_channel *a = &r->ch[c];
			size_t size = (size_t)window * PARTS * PART_MAX;

			a->window = window;
			a->mem[end] = dr_calloc(1, size);
			rc = dr_channel_mem_reg(dr_manager_channel_at(r->m[end], c), a->mem[end],
				size, &a->reg[end], &e);
			dr_assert(rc == 0);
		}
	}
	for (unsigned end = 0; end < 2; end++) {
		rc = dr_manager_start(r->m[end], h[!end], len[!end],
			dr_manager_handle_count(r->m[end]), dr_sim_world_now(r->w), &e);
		if (rc != 0)
			FAIL(r, "start: %s", e.text);
	}
	return 0;
}

/* More messages for every channel, until the faults are over. */
static int64_t offer(struct run *r, int64_t now)
{
	if (now >= r->traffic_until)
		return DR_NEVER;
	if (now >= r->next_burst) {
		r->next_burst = now + 1 + (int64_t)dr_rng_below(&r->rng, 2 * (uint64_t)r->burst_ns);
		for (unsigned c = 0; c < r->n_channels; c++) {
			const struct app_channel *a = &r->ch[c];

			if (a->total < DR_MIN(a->done[0], a->done[1]) + 3 * a->window)
				r->ch[c].total += dr_rng_below(&r->rng, 2 * a->window + 1);
		}
	}
	return r->next_burst;
}

static bool over(const struct run *r)
{
	if (dr_sim_world_now(r->w) < r->traffic_until)
		return false;
	for (unsigned c = 0; c < r->n_channels; c++) {
		const struct app_channel *a = &r->ch[c];

		for (unsigned end = 0; end < 2; end++)
			if (a->done[end] < a->total && a->err[end] == 0)
				return false;
	}
	return true;
}

static void step_nodes(struct run *r)
{
	for (unsigned round = 0; round < 200; round++) {
		int64_t now = dr_sim_world_now(r->w);
		unsigned first = (unsigned)dr_rng_below(&r->rng, 2);
		bool again = false;

		for (unsigned k = 0; k < 2; k++) {
			unsigned end = first ^ k;

			if (now < r->stalled_until[end])
				continue;
			dr_manager_tick(r->m[end], now);
			app_step(r, end, now);
			again |= dr_sim_world_busy(r->w, end);
		}
		if (!again)
			return;
	}
}

static void simulate(struct run *r)
{
	while (!over(r) && r->fail[0] == '\0') {
		int64_t now = dr_sim_world_now(r->w), next = run_faults(r, now);

		next = DR_MIN(next, offer(r, now));
		step_nodes(r);
		if (now > r->hard_stop) {
			char text[2][400] = { "", "" };

			for (unsigned c = 0; c < r->n_channels; c++)
				for (unsigned end = 0;
					end < 2 && r->ch[c].done[end] < r->ch[c].total; end++)
					dr_channel_describe(dr_manager_channel_at(r->m[end], c),
						now, text[end], sizeof(text[end]));
			fprintf(stderr, "%s\n%s\n", text[0], text[1]);
			FAIL(r, "no end although the faults have stopped");
			return;
		}
		for (unsigned end = 0; end < 2; end++) {
			int64_t d = dr_manager_deadline(r->m[end]);

			next = DR_MIN(next, DR_MAX(d, r->stalled_until[end]));
		}
		if (r->pause_until > now)
			next = DR_MIN(next, r->pause_until);
		next = DR_MIN(next, dr_sim_world_next(r->w));
		if (next == DR_NEVER)
			next = now + DR_NS_PER_MS;
		dr_sim_world_step(r->w, DR_MAX(next, now + 1));
	}
}

static void collect(struct run *r)
{
	for (unsigned c = 0; c < r->n_channels; c++) {
		struct app_channel *a = &r->ch[c];

		for (unsigned end = 0; end < 2 && r->m[end] != NULL; end++) {
			struct dr_channel_stats s;

			dr_channel_stats(dr_manager_channel_at(r->m[end], c), &s);
			cover.duplicates += s.duplicates_dropped;
			cover.stale += s.stale_dropped;
			cover.heals += s.heals;
			/* One end may be through before the rails go; a sender that is not must hear. */
			if (a->err[end] != 0 && a->err[!end] == 0 && a->done[!end] < a->total)
				FAIL(r, "channel %u: end %u ended, the other did not", c, end);
		}
	}
	if (dr_sim_world_violations(r->w) != 0)
		FAIL(r, "%s", dr_sim_world_violation(r->w));
}

static int schedule(uint64_t seed)
{
	struct run *r = dr_calloc(1, sizeof(*r));
	struct dr_sim_opts o;
	int failed;

	r->seed = seed;
	dr_rng_seed(&r->rng, seed);
	draw(r, &o);
	if (dr_sim_world_create(seed, &o, &r->w) != 0)
		return 1;
	if (verbose)
		fprintf(stderr, "seed %" PRIu64 ": %s, %u channels, %u faults\n", seed,
			dr_sim_personality_name(r->pers), r->n_channels, r->n_faults);
	if (setup(r, 1 + (unsigned)dr_rng_below(&r->rng, WINDOW_MAX),
		    dr_rng_chance(&r->rng, 3, 4)) == 0)
		simulate(r);
	collect(r);
	cover.schedules++;
	for (unsigned end = 0; end < 2; end++)
		for (unsigned c = 0; c < r->n_channels && r->m[end] != NULL; c++)
			dr_channel_close(dr_manager_channel_at(r->m[end], c));
	for (unsigned end = 0; end < 2; end++)
		dr_manager_destroy(r->m[end]);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned c = 0; c < r->n_channels; c++)
			dr_free(r->ch[c].mem[end]);
	dr_sim_world_destroy(r->w);
	failed = r->fail[0] != '\0';
	if (failed)
		printf("FAIL seed %" PRIu64 ": %s\nreplay with: make sim SEED=%" PRIu64 "\n", seed,
			r->fail, seed);
	dr_free(r);
	return failed;
}

static int covered(void)
{
	const struct {
		const char *name;
		uint64_t n;
	} c[] = { { "messages", cover.messages }, { "switches", cover.switches },
		{ "failbacks", cover.failbacks }, { "replayed messages", cover.replayed },
		{ "deaths", cover.deaths }, { "switches of several rounds", cover.rounds },
		{ "heals", cover.heals }, { "detected by the sender", cover.self_tx },
		{ "detected by the receiver", cover.self_rx }, { "several parts", cover.two_part },
		{ "peer stalls", cover.stalls }, { "stream", cover.personality[0] },
		{ "remote write", cover.personality[1] }, { "plugin", cover.personality[2] } };
	int missing = 0;

	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		printf("  %-28s %" PRIu64 "\n", c[i].name, c[i].n);
		missing += c[i].n == 0;
	}
	printf("  %-28s %" PRIu64 " (may be none)\n", "stale dropped", cover.stale);
	for (unsigned i = 0; i < F_KINDS; i++)
		printf("  fault %-22s %" PRIu64 "\n", fault_names[i], cover.faults[i]);
	return missing;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS_DEFAULT = 150, COVER_MIN = 1000 };
#else
enum { SEEDS_DEFAULT = 1000, COVER_MIN = 1000 };
#endif

struct job {
	struct coverage cover;
	int failures;
};

/* Every `stride`-th seed from first on; stops after a few failures. */
static void run_seeds(uint64_t first, uint64_t end, uint64_t stride, struct job *out)
{
	for (uint64_t s = first; s < end && out->failures < 3; s += stride) {
		out->failures += schedule(s);
		fflush(stdout);
	}
	out->cover = cover;
}

/* One child a processor; their counters come back through shared memory. */
static int run_all(uint64_t first, uint64_t n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t k = cpus > 1 && n > 1 ? (uint64_t)DR_MIN(cpus, 16) : 1;
	struct job *jobs = mmap(
		NULL, k * sizeof(*jobs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failures = 0;

	dr_assert(jobs != MAP_FAILED);
	if (k == 1) {
		run_seeds(first, first + n, 1, &jobs[0]);
		return jobs[0].failures;
	}
	fflush(stdout);
	for (uint64_t i = 0; i < k; i++) {
		pid_t pid = fork();

		dr_assert(pid >= 0);
		if (pid == 0) {
			run_seeds(first + i, first + n, k, &jobs[i]);
			_exit(0);
		}
	}
	for (uint64_t i = 0; i < k; i++) {
		int status;

		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			printf("FAIL: a child crashed (status %#x); run with SEED= one by one\n",
				status);
			failures++;
		}
	}
	for (uint64_t i = 0; i < k; i++) {
		uint64_t *sum = (uint64_t *)&cover, *add = (uint64_t *)&jobs[i].cover;

		for (size_t w = 0; w < sizeof(cover) / sizeof(*sum); w++)
			sum[w] += add[w];
		failures += jobs[i].failures;
	}
	return failures;
}

static void parse_args(int argc, char **argv, uint64_t *n, uint64_t *first, bool *one)
{
	const char *env_seeds = getenv("SEEDS"), *env_seed = getenv("SEED");

	if (env_seeds != NULL && env_seeds[0])
		*n = strtoull(env_seeds, NULL, 0);
	if (env_seed != NULL && env_seed[0]) {
		*first = strtoull(env_seed, NULL, 0);
		*one = env_seeds == NULL || !env_seeds[0];
	}
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-v") == 0) {
			verbose = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
			*n = strtoull(argv[++i], NULL, 0);
		} else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
			*first = strtoull(argv[++i], NULL, 0);
			*one = true;
		}
	}
}

int main(int argc, char **argv)
{
	uint64_t n = SEEDS_DEFAULT, first = (uint64_t)dr_wall_ns() % 1000000007u;
	int64_t t0 = dr_now_ns();
	bool one = false;
	int failures;

	parse_args(argc, argv, &n, &first, &one);
	if (one)
		n = 1;
	dr_log_set_level(verbose && one ? DR_LOG_DEBUG : DR_LOG_ERROR);
	printf("sim: %" PRIu64 " schedules from seed %" PRIu64 "\n", n, first);
	failures = run_all(first, n);
	printf("sim: %" PRIu64 " schedules, %d failed, %.1f s\n", cover.schedules, failures,
		(double)(dr_now_ns() - t0) / 1e9);
	if (failures == 0 && n >= COVER_MIN && covered() != 0) {
		printf("FAIL: a rare state was never reached (0 above)\n");
		failures++;
	}
	return failures != 0;
}
