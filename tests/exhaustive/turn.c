/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <string.h>

/* What channel.c and channel_ctl.c do after each event, on modelled paths. */

bool ex_peer_gone(const struct ex_path *pa, unsigned e)
{
	const struct ex_end *o = &pa->end[!e];

	return o->st == EX_NONE || o->st == EX_FENCED || o->gen != pa->end[e].gen || o->fence;
}

static bool may_post(const struct ex_end *en)
{
	return en->st == EX_UP && !en->failed && !en->fence;
}

/* false: back-pressure. */
static bool lane_add(const struct ex_scope *sc, struct ex_path *pa, unsigned from, unsigned lane,
	struct ex_item it)
{
	struct ex_lane *l = &pa->lane[lane];
	const struct ex_end *to = &pa->end[!from];
	unsigned frames = 0;

	if (to->st == EX_NONE || to->st == EX_FENCED || to->gen != pa->end[from].gen)
		return true; /* no such connection at the other end: lost */
	if (to->failed && lane != EX_L_DATA)
		return true;
	for (unsigned i = 0; it.kind < DR_FRAME_TYPES && i < l->n; i++) {
		/* One of two equal frames in flight says nothing that the other does not. */
		if (memcmp(&l->it[i], &it, sizeof(it)) == 0)
			return true;
		frames += l->it[i].kind < DR_FRAME_TYPES;
	}
	if (frames >= sc->frames)
		return false;
	if (l->n == EX_LANE_MAX)
		ex_violation("the model's lane is full");
	l->it[l->n++] = it;
	return true;
}

static void check_planned(const struct ex_scope *sc, const struct ex_state *s)
{
	const struct dr_fo *f = &s->fo[EX_TX];

	if (f->cursor_part != 0 || f->head != f->cursor || s->fo[EX_RX].head < f->cursor ||
		s->path[0].wr != 0 || s->path[1].wr != 0)
		ex_violation("a planned switch begins inside a message, or with data outstanding");
	(void)sc;
}

static bool act_ctrl(
	const struct ex_scope *sc, struct ex_state *s, unsigned e, const struct dr_fo_act *a)
{
	struct ex_path *pa = &s->path[a->path];
	const struct dr_frame *fr = &a->frame;
	struct ex_item it;

	memset(&it, 0, sizeof(it));
	it.kind = (uint8_t)fr->type;
	if (fr->type == DR_FRAME_SWITCH && e != EX_TX)
		ex_violation("the receiver leads a switch");
	if (fr->type == DR_FRAME_SWITCH && (fr->flags & DR_FRAME_PLANNED))
		check_planned(sc, s);
	if (pa->end[e].gen != a->gen || !may_post(&pa->end[e]))
		return true;
	/* Only what the core reads of each type. */
	if (fr->type == DR_FRAME_ACK || fr->type == DR_FRAME_ANSWER)
		it.seq = (uint8_t)fr->seq;
	if (fr->type == DR_FRAME_ANSWER)
		it.mask = (uint8_t)fr->mask;
	if (fr->type == DR_FRAME_SWITCH)
		it.flags = (uint8_t)fr->flags;
	if (fr->type != DR_FRAME_GONE && fr->type != DR_FRAME_ABORT)
		it.epoch = fr->epoch;
	if (fr->type != DR_FRAME_ACK && fr->type != DR_FRAME_ABORT) {
		it.path = (uint8_t)fr->path;
		it.gen = fr->gen;
	}
	return lane_add(sc, pa, e, e == EX_TX ? EX_L_CTRL : EX_L_BACK, it);
}

static void act_fence(struct ex_state *s, unsigned e, const struct dr_fo_act *a)
{
	struct ex_path *pa = &s->path[a->path];
	struct ex_end *en = &pa->end[e];

	if (en->st == EX_NONE || en->gen != a->gen) {
		dr_fo_fenced(&s->fo[e], a->path, a->gen, EX_NOW);
		return;
	}
	if (en->st == EX_FENCED || en->fence)
		return;
	en->hung = false;
	en->fence = true;
}

static void act_connect(struct ex_state *s, unsigned e, const struct dr_fo_act *a)
{
	struct ex_path *pa = &s->path[a->path];
	bool told = pa->end[e].told_down;

	if (pa->end[e].st != EX_NONE && pa->end[e].st != EX_FENCED)
		ex_violation("path %u: a new connection before the fence of the old one is done",
			a->path);
	pa->end[e] = (struct ex_end){ .st = EX_CONNECTING, .gen = a->gen, .told_down = told };
	ex_lane_purge(pa, e, true);
}

static void act_dead(struct ex_state *s, unsigned e)
{
	for (unsigned p = 0; p < DR_PATHS; p++) {
		struct ex_path *pa = &s->path[p];

		pa->end[e] = (struct ex_end){ .st = EX_NONE };
		ex_lane_purge(pa, e, true);
		if (e == EX_TX)
			pa->wr = pa->wr_lost = pa->cr_msgs = pa->cr_parts = 0;
		else
			pa->rx = 0;
	}
}

static void settle(const struct ex_scope *sc, struct ex_state *s, unsigned e)
{
	struct dr_fo *f = &s->fo[e];
	struct dr_fo_act todo[DR_FO_ACTS_MAX];
	unsigned n;

	while ((n = f->n_act) > 0) {
		memcpy(todo, f->act, n * sizeof(todo[0]));
		f->n_act = 0;
		for (unsigned i = 0; i < n; i++) {
			const struct dr_fo_act *a = &todo[i];

			if (a->kind == DR_FOA_CONNECT)
				act_connect(s, e, a);
			else if (a->kind == DR_FOA_FENCE)
				act_fence(s, e, a);
			else if (a->kind == DR_FOA_CTRL)
				act_ctrl(sc, s, e, a);
			else if (a->kind == DR_FOA_DEAD)
				act_dead(s, e);
		}
	}
	for (unsigned p = 0; p < DR_PATHS; p++) {
		struct ex_end *en = &s->path[p].end[e];

		if (en->st == EX_NONE || f->path[p].state != DR_FOP_DOWN ||
			f->path[p].gen != en->gen)
			continue;
		if (en->st != EX_FENCED)
			ex_violation("path %u is taken down before its fence is done", p);
		en->st = EX_NONE;
		en->failed = en->knocked = false;
	}
}

static struct ex_item item(unsigned kind, unsigned mask, uint64_t seq, uint32_t epoch)
{
	return (struct ex_item){
		.kind = (uint8_t)kind, .mask = (uint8_t)mask, .seq = (uint8_t)seq, .epoch = epoch
	};
}

static void pump_receiver(const struct ex_scope *sc, struct ex_state *s)
{
	struct dr_fo *f = &s->fo[EX_RX];
	unsigned part, skip, bits;
	struct dr_frame fr;
	struct ex_path *pa;
	uint64_t seq;

	if (f->state != DR_FO_RUN)
		return;
	pa = &s->path[f->active];
	while (dr_fo_next(f, &seq, &part, &skip)) {
		if (!may_post(&pa->end[EX_RX]))
			return;
		bits = ex_parts_of(sc, (unsigned)seq) & ~(skip << sc->base[seq]);
		if (pa->rx != 0 && pa->rx_epoch != f->epoch)
			ex_violation("path %u: receives of a new epoch are posted before those of "
				     "the old one are fenced",
				f->active);
		if (s->path[!f->active].rx & bits)
			ex_violation(
				"the buffers of message %u are posted on two paths", (unsigned)seq);
		pa->rx |= (uint8_t)bits;
		pa->rx_epoch = f->epoch;
		lane_add(sc, pa, EX_RX, EX_L_BACK, item(EX_IT_CREDIT, skip, seq, f->epoch));
		dr_fo_posted(f, EX_NOW);
	}
	if (f->head > f->acked && may_post(&pa->end[EX_RX])) {
		struct dr_fo_act a = { .path = f->active, .gen = pa->end[EX_RX].gen };
		uint64_t told = f->acked;

		dr_fo_make_ack(f, &fr);
		a.frame = fr;
		if (!act_ctrl(sc, s, EX_RX, &a))
			f->acked = told;
	}
}

static void pump_sender(const struct ex_scope *sc, struct ex_state *s)
{
	struct dr_fo *f = &s->fo[EX_TX];
	unsigned part, skip, bit;
	uint64_t seq;

	while (dr_fo_next(f, &seq, &part, &skip)) {
		struct ex_path *pa = &s->path[f->active];

		if (!may_post(&pa->end[EX_TX]) || pa->cr_epoch != f->epoch ||
			!(pa->cr_msgs & (1u << seq)))
			return;
		bit = 1u << (sc->base[seq] + part);
		if (!(pa->cr_parts & bit))
			ex_violation("part %u of message %u is posted without a credit", part,
				(unsigned)seq);
		if (pa->wr != 0 && pa->wr_epoch != f->epoch)
			ex_violation("path %u: parts of a new epoch are posted before those of "
				     "the old one are retired",
				f->active);
		pa->cr_parts &= (uint8_t)~bit;
		pa->wr |= (uint8_t)bit;
		pa->wr_epoch = f->epoch;
		if (sc->kind != EX_STREAM)
			lane_add(sc, pa, EX_TX, EX_L_DATA, item(EX_IT_DATA, part, seq, f->epoch));
		dr_fo_posted(f, EX_NOW);
	}
}

void ex_turn(const struct ex_scope *sc, struct ex_state *s, unsigned e)
{
	if (s->watch[e].stopped)
		return;
	settle(sc, s, e);
	if (e == EX_TX)
		pump_sender(sc, s);
	else
		pump_receiver(sc, s);
	settle(sc, s, e);
}
