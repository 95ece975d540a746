/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <stdio.h>

/* Counterexamples for people. */

static const char *const END[] = { "sender", "receiver" };

static const char *item_text(const struct ex_item *it, char *buf, size_t len)
{
	if (it->kind == EX_IT_CREDIT)
		snprintf(buf, len, "credit epoch %u message %u, there already %x", it->epoch,
			it->seq, it->mask);
	else if (it->kind == EX_IT_DATA)
		snprintf(
			buf, len, "data epoch %u message %u part %u", it->epoch, it->seq, it->mask);
	else
		snprintf(buf, len, "%s epoch %u path %u gen %u seq %u mask %x%s",
			dr_frame_type_name(it->kind), it->epoch, it->path, it->gen, it->seq,
			it->mask, it->flags & DR_FRAME_PLANNED ? " planned" : "");
	return buf;
}

/* What an end does, where there is no more to tell. */
static const char *const DOES[EX_TR_KINDS] = {
	[EX_RETRY] = "dials again",
	[EX_DRAINED] = "has drained",
	[EX_HOLD] = "hold-down of the primary is over",
	[EX_WAITED] = "waits no longer for the proposed path",
	[EX_LOST] = "has had no path for too long",
	[EX_RESEND] = "repeats its frame",
	[EX_GONE] = "repeats GONE",
	[EX_DIAL_OUT] = "dial timed out",
	[EX_NO_ANSWER] = "SWITCH was not answered in time",
	[EX_PRIMARY_OUT] = "waits no longer for the primary",
	[EX_STUCK] = "no acknowledgement for too long",
	[EX_DRAIN_OUT] = "drain takes too long",
	[EX_TICK] = "ticks",
	[EX_WAKE] = "goes on",
	[EX_OWN] = "notices that it was stopped",
	[EX_TOLD] = "learns that its peer is stopped",
	[EX_UNTOLD] = "learns that its peer goes on",
	[EX_STOP] = "FAULT, is stopped",
};

static const char *does(enum ex_tr_kind k)
{
	return DOES[k] ? DOES[k] : "?";
}

void ex_tr_text(const struct ex_scope *sc, const struct ex_state *s, const struct ex_tr *t,
	char *buf, size_t len)
{
	const struct ex_path *pa = &s->path[t->p];
	const char *end = END[t->e];
	char item[96];
	int n = 0;

	switch ((enum ex_tr_kind)t->kind) {
	case EX_PUSH:
		n = snprintf(buf, len, "%s: the user posts message %u of %u part(s)", end,
			(unsigned)s->fo[t->e].tail, sc->parts[s->fo[t->e].tail]);
		break;
	case EX_DIAL:
		n = snprintf(buf, len, "path %u: the dial of gen %u gets to the %s", t->p,
			pa->end[sc->connector].gen, END[!sc->connector]);
		break;
	case EX_ACC:
		n = snprintf(buf, len, "%s: path %u is ready", end, t->p);
		break;
	case EX_TAKE:
		n = snprintf(buf, len, "%s: path %u brings %s", end, t->p,
			item_text(&pa->lane[t->e == EX_TX ? EX_L_BACK : EX_L_CTRL].it[0], item,
				sizeof(item)));
		break;
	case EX_DATA:
	case EX_LOSE_DATA:
		n = snprintf(buf, len, "%s: path %u %s %s", end, t->p,
			t->kind == EX_DATA ? "brings" : "FAULT, never reports",
			item_text(&pa->lane[EX_L_DATA].it[t->arg], item, sizeof(item)));
		break;
	case EX_SENT:
	case EX_LOSE_SENT:
		n = snprintf(buf, len, "%s: path %u %s part %u of all as sent", end, t->p,
			t->kind == EX_SENT ? "reports" : "FAULT, never reports", t->arg);
		break;
	case EX_FENCE_DONE:
		n = snprintf(buf, len, "%s: the fence of path %u is done", end, t->p);
		break;
	case EX_NOTICE:
		n = snprintf(
			buf, len, "%s: path %u fails (its peer is gone or unheard)", end, t->p);
		break;
	case EX_RAIL_DOWN:
	case EX_RAIL_UP:
		n = snprintf(buf, len, "%s: is told that rail %u is %s", end, t->p,
			t->kind == EX_RAIL_UP ? "back" : "down");
		break;
	case EX_HEAL:
		n = snprintf(buf, len, "rail %u is whole again", t->p);
		break;
	case EX_TIME:
		n = snprintf(
			buf, len, "%lld ms pass", (long long)(ex_clock_next(sc, s) / DR_NS_PER_MS));
		break;
	case EX_TICK:
	case EX_WAKE:
	case EX_OWN:
	case EX_TOLD:
	case EX_UNTOLD:
	case EX_STOP:
		n = snprintf(buf, len, "%s: %s", end, does((enum ex_tr_kind)t->kind));
		break;
	case EX_HANG:
		n = snprintf(buf, len, "%s: FAULT, the fence of path %u is never done", end, t->p);
		break;
	case EX_BREAK:
		n = snprintf(buf, len, "%s: FAULT, path %u fails", end, t->p);
		break;
	case EX_CUT:
		n = snprintf(buf, len, "FAULT, rail %u is cut", t->p);
		break;
	default:
		n = snprintf(buf, len, "%s: timer, path %u: %s", end, t->p,
			does((enum ex_tr_kind)t->kind));
		break;
	}
	if (n > 0 && (size_t)n < len && (t->dup || (t->fault && t->kind < EX_BREAK)))
		snprintf(buf + n, len - (size_t)n, " (early)");
}

static int core_text(const struct ex_state *s, unsigned e, char *buf, size_t len)
{
	const struct dr_fo *f = &s->fo[e];
	char at = f->active == DR_FO_NONE ? '-' : (char)('0' + f->active);

	return snprintf(buf, len, "%s %s epoch %u on %c (%s %u, %s %u) done %u posted %u", END[e],
		dr_fo_state_name(f->state), f->epoch, at, dr_fo_pstate_name(f->path[0].state),
		f->path[0].gen, dr_fo_pstate_name(f->path[1].state), f->path[1].gen,
		(unsigned)f->head, (unsigned)f->tail);
}

void ex_state_text(const struct ex_state *s, char *buf, size_t len)
{
	int n = core_text(s, EX_TX, buf, len);

	n += snprintf(buf + n, len - (size_t)n, "; ");
	core_text(s, EX_RX, buf + n, len - (size_t)n);
}
