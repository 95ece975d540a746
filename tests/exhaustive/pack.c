/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <errno.h>
#include <string.h>

/*
 * A state's key: few bytes, equal for states that behave alike. model.h says what is left out. What
 * is not read in a core's present state is packed as zero. Epochs, and generations of each path, are
 * numbered anew from 1 in their order; 0 stays 0.
 */
enum { NUMBERS_MAX = 4 * EX_LANE_MAX * EX_LANES + 16 };

struct numbers {
	uint32_t v[NUMBERS_MAX];
	unsigned n;
};

struct packer {
	const struct ex_scope *sc;
	uint8_t *b;
	unsigned n;
	struct numbers epoch, gen[DR_PATHS];
};

static void note(struct numbers *m, uint32_t v)
{
	unsigned i = m->n;

	if (v == 0)
		return;
	while (i > 0 && m->v[i - 1] > v)
		i--;
	if (i > 0 && m->v[i - 1] == v)
		return;
	memmove(&m->v[i + 1], &m->v[i], (m->n - i) * sizeof(v));
	m->v[i] = v;
	m->n++;
}

static uint32_t renumber(const struct numbers *m, uint32_t v)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->v[i] == v)
			return i + 1;
	return 0;
}

static void put(struct packer *k, unsigned v)
{
	dr_assert(v < 256 && k->n < EX_PACK_MAX);
	k->b[k->n++] = (uint8_t)v;
}

/* What a core will not read before it writes it. */
static bool reads_target(const struct dr_fo *f)
{
	return f->state == DR_FO_SWITCH || f->state == DR_FO_DRAIN || f->state == DR_FO_FENCE ||
	       f->state == DR_FO_NOTIFY;
}

static bool reads_target_gen(const struct dr_fo *f)
{
	return f->state == DR_FO_FENCE || f->state == DR_FO_NOTIFY;
}

static bool reads_data(const struct dr_fo *f)
{
	return f->data_path != DR_FO_NONE || f->state == DR_FO_NOTIFY;
}

static bool reads_answer(const struct dr_fo *f)
{
	return f->prm.sender ? f->answered : f->state == DR_FO_RUN;
}

static uint32_t incoming(const struct dr_fo *f, unsigned p)
{
	return f->path[p].incoming > f->path[p].gen ? f->path[p].incoming : 0;
}

static bool credits(const struct ex_state *s, unsigned p)
{
	return s->path[p].cr_msgs != 0 && s->path[p].cr_epoch >= s->fo[EX_TX].epoch;
}

static void note_core(struct packer *k, const struct dr_fo *f)
{
	if (f->state == DR_FO_DEAD)
		return;
	note(&k->epoch, f->epoch);
	for (unsigned p = 0; p < DR_PATHS; p++) {
		note(&k->gen[p], f->path[p].gen);
		note(&k->gen[p], incoming(f, p));
	}
	if (reads_target_gen(f) && f->target < DR_PATHS)
		note(&k->gen[f->target], f->target_gen);
	if (reads_data(f))
		note(&k->epoch, f->data_epoch);
	if (reads_data(f) && f->data_path < DR_PATHS)
		note(&k->gen[f->data_path], f->data_gen);
}

static void note_path(struct packer *k, const struct ex_state *s, unsigned p)
{
	const struct ex_path *pa = &s->path[p];

	for (unsigned e = 0; e < 2; e++)
		if (pa->end[e].st != EX_NONE)
			note(&k->gen[p], pa->end[e].gen);
	if (pa->wr != 0)
		note(&k->epoch, pa->wr_epoch);
	if (pa->rx != 0)
		note(&k->epoch, pa->rx_epoch);
	if (credits(s, p))
		note(&k->epoch, pa->cr_epoch);
	for (unsigned j = 0; j < EX_LANES; j++)
		for (unsigned i = 0; i < pa->lane[j].n; i++) {
			note(&k->epoch, pa->lane[j].it[i].epoch);
			note(&k->gen[pa->lane[j].it[i].path], pa->lane[j].it[i].gen);
		}
}

static void put_core(struct packer *k, const struct dr_fo *f)
{
	unsigned posted = 0, retired = 0;

	put(k, f->state | f->ever_up << 3 | f->answered << 4 | (f->nopath_ns != 0) << 5 |
			(f->state == DR_FO_FENCE && f->resend_ns != DR_NEVER) << 6 |
			(f->state == DR_FO_SWITCH && f->planned) << 7);
	put(k, (unsigned)(f->head | f->tail << 4));
	if (f->state == DR_FO_DEAD)
		return;
	put(k, f->active | (reads_target(f) ? f->target : DR_FO_NONE) << 2 | f->data_path << 4 |
			(reads_answer(f) && f->prm.sender ? f->answer_path : DR_FO_NONE) << 6);
	put(k, renumber(&k->epoch, f->epoch));
	for (unsigned p = 0; p < DR_PATHS; p++) {
		put(k, f->path[p].state | f->path[p].rail_down << 5);
		put(k, renumber(&k->gen[p], f->path[p].gen) | renumber(&k->gen[p], incoming(f, p))
								      << 4);
	}
	put(k, (unsigned)(f->acked | f->cursor << 4));
	put(k, reads_answer(f) ? (unsigned)f->answer_seq | f->answer_mask << 4 : 0);
	if (!f->prm.sender) {
		put(k, f->got);
		put(k, reads_target_gen(f) && f->target < DR_PATHS
				? renumber(&k->gen[f->target], f->target_gen)
				: 0);
		put(k, reads_data(f) ? renumber(&k->epoch, f->data_epoch) : 0);
		put(k, reads_data(f) && f->data_path < DR_PATHS
				? renumber(&k->gen[f->data_path], f->data_gen)
				: 0);
		return;
	}
	put(k, f->cursor_part | f->rec_open << 3 | (unsigned)f->high << 4);
	for (uint64_t m = f->head; m < f->tail; m++) {
		posted |= (unsigned)f->posted[m % f->prm.window] << k->sc->base[m];
		retired |= (unsigned)f->retired[m % f->prm.window] << k->sc->base[m];
	}
	put(k, posted);
	put(k, retired);
}

static int compare(const struct ex_item *a, const struct ex_item *b)
{
	if (a->epoch != b->epoch)
		return a->epoch < b->epoch ? -1 : 1;
	return a->seq != b->seq ? a->seq - b->seq : a->mask - b->mask;
}

static bool has_gen(unsigned kind)
{
	return kind == DR_FRAME_SWITCH || kind == DR_FRAME_ANSWER || kind == DR_FRAME_NOTIFY ||
	       kind == DR_FRAME_GONE;
}

static void put_lane(struct packer *k, const struct ex_lane *in, bool unordered)
{
	struct ex_item it[EX_LANE_MAX];

	memcpy(it, in->it, in->n * sizeof(it[0]));
	for (unsigned i = 1; unordered && i < in->n; i++)
		for (unsigned j = i; j > 0 && compare(&it[j - 1], &it[j]) > 0; j--) {
			struct ex_item x = it[j];

			it[j] = it[j - 1];
			it[j - 1] = x;
		}
	for (unsigned i = 0; i < in->n; i++) {
		put(k, it[i].kind | it[i].path << 4 | it[i].flags << 5);
		put(k, it[i].seq | it[i].mask << 4);
		put(k, renumber(&k->epoch, it[i].epoch));
		if (has_gen(it[i].kind))
			put(k, renumber(&k->gen[it[i].path], it[i].gen));
	}
}

static void put_path(struct packer *k, const struct ex_state *s, unsigned p)
{
	const struct ex_path *pa = &s->path[p];

	for (unsigned e = 0; e < 2; e++) {
		const struct ex_end *en = &pa->end[e];

		put(k, en->st | en->fence << 2 | en->failed << 4 | en->told_down << 5 |
				en->knocked << 6 | (e == 0 && pa->cut) << 7);
		put(k, en->st == EX_NONE ? 0 : renumber(&k->gen[p], en->gen));
	}
	put(k, pa->wr);
	put(k, pa->wr_lost);
	put(k, pa->wr != 0 ? renumber(&k->epoch, pa->wr_epoch) : 0);
	put(k, pa->rx);
	put(k, pa->rx != 0 ? renumber(&k->epoch, pa->rx_epoch) : 0);
	put(k, credits(s, p) ? pa->cr_msgs : 0);
	put(k, credits(s, p) ? pa->cr_parts : 0);
	put(k, credits(s, p) ? renumber(&k->epoch, pa->cr_epoch) : 0);
	put(k, pa->lane[EX_L_CTRL].n | pa->lane[EX_L_BACK].n << 4);
	put(k, pa->lane[EX_L_DATA].n);
	for (unsigned j = 0; j < EX_LANES; j++)
		put_lane(k, &pa->lane[j], j == EX_L_DATA && k->sc->kind == EX_REMOTE_WRITE);
}

unsigned ex_pack(const struct ex_scope *sc, const struct ex_state *s, uint8_t *out)
{
	struct packer k;

	k.sc = sc;
	k.b = out;
	k.n = k.epoch.n = k.gen[0].n = k.gen[1].n = 0;
	for (unsigned e = 0; e < 2; e++)
		note_core(&k, &s->fo[e]);
	for (unsigned p = 0; p < DR_PATHS; p++)
		note_path(&k, s, p);
	if (k.gen[0].n > 15 || k.gen[1].n > 15)
		ex_violation("the model's numbers run out");
	put(&k, s->consumed);
	put(&k, s->faults | s->dups << 3 | s->holds << 6);
	for (unsigned e = 0; e < 2; e++)
		put_core(&k, &s->fo[e]);
	for (unsigned p = 0; p < DR_PATHS; p++)
		put_path(&k, s, p);
	if (!sc->clock)
		return k.n;
	dr_assert(k.n <= EX_PACK_MAX / 2);
	return (unsigned)(ex_clock_put(s, out + k.n) - out);
}

static void get_params(const struct ex_scope *sc, unsigned e, struct dr_fo *f)
{
	struct dr_fo_params *p = &f->prm;

	p->sender = e == EX_TX;
	p->connector = e == sc->connector;
	p->shadow = true;
	p->failback = !sc->no_failback;
	p->window = sc->window;
	p->hold_down_ns = sc->clock ? sc->hold_ns : DR_NS_PER_S;
	p->lost_after_ns = sc->clock ? sc->lost_ns : DR_NS_PER_S;
	p->stuck_after_ns = sc->clock ? sc->stuck_ns : DR_NS_PER_S;
}

static const uint8_t *get_core(
	const struct ex_scope *sc, const uint8_t *b, unsigned e, struct dr_fo *f)
{
	unsigned v = *b++, posted, retired;

	get_params(sc, e, f);
	f->state = v & 7;
	f->ever_up = v >> 3 & 1;
	f->answered = v >> 4 & 1;
	f->nopath_ns = v >> 5 & 1;
	f->resend_ns = f->state == DR_FO_SWITCH || f->state == DR_FO_NOTIFY || v >> 6 & 1
			       ? EX_NOW
			       : DR_NEVER;
	f->planned = v >> 7;
	f->head = *b & 15;
	f->tail = *b++ >> 4;
	f->active = f->target = f->data_path = f->answer_path = DR_FO_NONE;
	if (f->state == DR_FO_DEAD) {
		f->err = -ENETDOWN;
		f->acked = f->cursor = f->high = f->head;
		return b;
	}
	v = *b++;
	f->active = v & 3;
	f->target = v >> 2 & 3;
	f->data_path = v >> 4 & 3;
	f->answer_path = v >> 6;
	f->epoch = *b++;
	for (unsigned p = 0; p < DR_PATHS; p++) {
		struct dr_fo_path *pa = &f->path[p];

		pa->state = *b & 7;
		pa->rail_down = *b++ >> 5 & 1;
		pa->gen = *b & 15;
		pa->incoming = *b++ >> 4;
		pa->retry_ns = pa->deadline_ns = DR_NEVER;
		if (pa->state == DR_FOP_DOWN && f->prm.connector)
			pa->retry_ns = EX_NOW;
		if (pa->state == DR_FOP_FENCING ||
			(pa->state == DR_FOP_DOWN && !f->prm.connector) ||
			(pa->state == DR_FOP_CONNECTING && f->prm.connector))
			pa->deadline_ns = EX_NOW;
	}
	f->acked = *b & 15;
	f->cursor = *b++ >> 4;
	f->answer_seq = *b & 15;
	f->answer_mask = *b++ >> 4;
	for (unsigned m = (unsigned)f->head; m < f->tail; m++)
		f->n_parts[m % sc->window] = (uint8_t)sc->parts[m];
	if (!f->prm.sender) {
		f->got = *b++;
		f->target_gen = *b++;
		f->data_epoch = *b++;
		f->data_gen = *b++;
		return b;
	}
	f->cursor_part = *b & 7;
	f->rec_open = *b >> 3 & 1;
	f->high = *b++ >> 4;
	posted = *b++;
	retired = *b++;
	for (unsigned m = (unsigned)f->head; m < f->tail; m++) {
		unsigned mask = (1u << sc->parts[m]) - 1;

		f->posted[m % sc->window] = (uint8_t)(posted >> sc->base[m] & mask);
		f->retired[m % sc->window] = (uint8_t)(retired >> sc->base[m] & mask);
	}
	return b;
}

static const uint8_t *get_path(const uint8_t *b, struct ex_path *pa)
{
	for (unsigned e = 0; e < 2; e++) {
		struct ex_end *en = &pa->end[e];

		en->st = *b & 3;
		en->fence = *b >> 2 & 3;
		en->failed = *b >> 4 & 1;
		en->told_down = *b >> 5 & 1;
		en->knocked = *b >> 6 & 1;
		if (e == 0)
			pa->cut = *b >> 7;
		b++;
		en->gen = *b++;
	}
	pa->wr = *b++;
	pa->wr_lost = *b++;
	pa->wr_epoch = *b++;
	pa->rx = *b++;
	pa->rx_epoch = *b++;
	pa->cr_msgs = *b++;
	pa->cr_parts = *b++;
	pa->cr_epoch = *b++;
	pa->lane[EX_L_CTRL].n = *b & 15;
	pa->lane[EX_L_BACK].n = *b++ >> 4;
	pa->lane[EX_L_DATA].n = *b++;
	for (unsigned j = 0; j < EX_LANES; j++)
		for (unsigned i = 0; i < pa->lane[j].n; i++) {
			struct ex_item *it = &pa->lane[j].it[i];

			it->kind = *b & 15;
			it->path = *b >> 4 & 1;
			it->flags = *b++ >> 5;
			it->seq = *b & 15;
			it->mask = *b++ >> 4;
			it->epoch = *b++;
			it->gen = has_gen(it->kind) ? *b++ : 0;
		}
	return b;
}

void ex_unpack(const struct ex_scope *sc, const uint8_t *in, struct ex_state *s)
{
	memset(s, 0, sizeof(*s));
	s->consumed = *in++;
	s->faults = *in & 7;
	s->dups = *in >> 3 & 7;
	s->holds = *in++ >> 6;
	for (unsigned e = 0; e < 2; e++)
		in = get_core(sc, in, e, &s->fo[e]);
	for (unsigned p = 0; p < DR_PATHS; p++)
		in = get_path(in, &s->path[p]);
	if (sc->clock)
		ex_clock_get(in, s);
	for (unsigned e = 0; e < 2 && !sc->clock; e++)
		ex_times(&s->fo[e]);
}
