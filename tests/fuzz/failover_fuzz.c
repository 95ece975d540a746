/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end's failover core: the paths under it keep their contract, the peer keeps none. Whatever frames
 * come, what is done stays done, the user's messages end in order, and the core's own rules hold.
 *
 *	u8: 1 sender, 2 connector, 4 shadow, 16 failback | u8 window | steps, see step()
 */
#include "channel/failover.h"
#include "tests/fuzz/lib/fuzz.h"

enum { STEPS_MAX = 400 };

struct world {
	struct dr_fo f;
	struct fz *z;
	int64_t now;
	/* The path objects as the core asked for them. */
	struct {
		uint32_t gen;
		bool there, up, fencing;
	} path[DR_PATHS];
	/* Parts on the wire, of the sender: posted and not reported. */
	uint64_t head;
	unsigned dead;
};

static void start(struct world *w, uint8_t flags, uint8_t window)
{
	struct dr_fo_params p = { .sender = flags & 1,
		.connector = flags & 2,
		.shadow = flags & 4,
		.failback = flags & 16,
		.window = 1 + window % 8,
		.hold_down_ns = 100 * DR_NS_PER_MS,
		.lost_after_ns = 1500 * DR_NS_PER_MS,
		.stuck_after_ns = 2000 * DR_NS_PER_MS };

	dr_fo_init(&w->f, &p);
	dr_fo_start(&w->f, w->now);
}

static void act(struct world *w, const struct dr_fo_act *a)
{
	switch (a->kind) {
	case DR_FOA_CONNECT:
		dr_assert(!w->path[a->path].there && a->gen > w->path[a->path].gen);
		w->path[a->path].there = true;
		w->path[a->path].up = w->path[a->path].fencing = false;
		w->path[a->path].gen = a->gen;
		break;
	case DR_FOA_FENCE:
		dr_assert(w->path[a->path].there);
		w->path[a->path].fencing = true;
		break;
	case DR_FOA_CTRL:
		dr_assert(a->frame.type > 0 && a->frame.type < DR_FRAME_TYPES);
		break;
	case DR_FOA_DGRAM:
		dr_assert(a->frame.type == DR_FRAME_GONE || a->frame.type == DR_FRAME_ABORT ||
			  a->frame.type == DR_FRAME_CLOSE);
		break;
	case DR_FOA_LEAVE:
		dr_assert(w->f.state == DR_FO_DEAD && w->f.left);
		break;
	case DR_FOA_DEAD:
		dr_assert(w->f.state == DR_FO_DEAD && w->f.err < 0);
		w->dead++;
		break;
	default:
		break;
	}
}

static void drain(struct world *w)
{
	struct dr_fo_act todo[DR_FO_ACTS_MAX];
	unsigned n = w->f.n_act;

	memcpy(todo, w->f.act, n * sizeof(todo[0]));
	w->f.n_act = 0;
	for (unsigned i = 0; i < n; i++)
		act(w, &todo[i]);
	dr_assert(w->f.head >= w->head && w->dead <= 1);
	dr_assert(w->dead == (w->f.state == DR_FO_DEAD && w->f.err != -ESHUTDOWN));
	w->head = w->f.head;
	dr_fo_validate(&w->f);
}

/* A frame like those of a peer in about the same state, or with any numbers. */
static void frame(struct world *w)
{
	uint8_t how = fz_u8(w->z);
	unsigned on = how >> 7, p = how >> 6 & 1;
	struct dr_frame f = { .type = 1 + (how & 7) % (DR_FRAME_TYPES - 1),
		.path = p,
		.epoch = w->f.epoch + (how >> 3 & 1),
		.gen = w->f.path[p].gen,
		.seq = w->f.head + fz_u8(w->z) % 10 };

	if (how & 16) {
		f.flags = fz_u8(w->z) & DR_FRAME_FLAGS;
		f.mask = fz_u8(w->z);
	}
	if (how & 32) {
		f.epoch += (uint32_t)(int8_t)fz_u8(w->z);
		f.gen += (uint32_t)(int8_t)fz_u8(w->z);
		f.seq += (uint64_t)(int8_t)fz_u8(w->z);
		f.err = -(int)fz_u8(w->z);
	}
	/* Only what comes over a path that is there. */
	if (w->path[on].there && w->path[on].up)
		dr_fo_frame(&w->f, on, &f, w->now);
}

static void path_event(struct world *w, unsigned p, uint8_t what)
{
	uint32_t gen = w->path[p].gen;

	if (!w->path[p].there)
		return;
	if (w->path[p].fencing && what < 2) {
		w->path[p].fencing = false;
		w->path[p].there = false;
		dr_fo_fenced(&w->f, p, gen, w->now);
	} else if (!w->path[p].up && what == 2) {
		w->path[p].up = true;
		dr_fo_path_ready(&w->f, p, gen, w->now);
	} else if (what == 3) {
		dr_fo_path_failed(
			&w->f, dr_fo_conn(p, gen), DR_SCOPE_PATH, -ECONNRESET, "fuzz", w->now);
	}
}

static void data(struct world *w, uint8_t how)
{
	unsigned part, skip, p = how & 1;
	uint64_t seq;

	if (how & 2)
		dr_fo_push(&w->f, 1 + (how >> 2) % DR_PARTS_MAX, &seq);
	else if (how & 4 && dr_fo_next(&w->f, &seq, &part, &skip))
		dr_fo_posted(&w->f, w->now);
	else if (!w->f.prm.sender && w->path[p].up)
		dr_fo_delivered(&w->f, dr_fo_conn(p, w->path[p].gen), w->f.data_epoch - (how >> 7),
			w->f.head + (how >> 6 & 1), how >> 3 & 7, w->now);
	else if (w->f.prm.sender && w->f.head < w->f.tail) { /* the NIC let go of a part */
		unsigned slot = (unsigned)(w->f.head % w->f.prm.window), k = how >> 3 & 7;

		if (w->f.posted[slot] >> k & 1)
			dr_fo_sent(&w->f, p, w->path[p].gen, w->f.epoch, w->f.head, k);
	}
}

static void step(struct world *w, uint8_t op)
{
	unsigned p = op >> 7;

	switch (op & 7) {
	case 0:
		w->now = dr_fo_deadline(&w->f) == DR_NEVER ? w->now + DR_NS_PER_MS
							   : DR_MAX(w->now, dr_fo_deadline(&w->f));
		dr_fo_tick(&w->f, w->now);
		break;
	case 1:
		w->now += (int64_t)fz_u8(w->z) * DR_NS_PER_MS;
		dr_fo_tick(&w->f, w->now);
		break;
	case 2:
		path_event(w, p, op >> 3 & 3);
		break;
	case 3:
		dr_fo_rail(&w->f, p, op & 8, w->now);
		break;
	case 4:
		dr_fo_incoming(&w->f, p, w->path[p].gen + (op >> 3 & 3), w->now);
		break;
	case 5:
		data(w, fz_u8(w->z));
		break;
	case 6:
		if (op & 8)
			dr_fo_stalled(&w->f, op & 16, w->now);
		else if (op & 32)
			dr_fo_close(&w->f, w->now);
		else
			dr_fo_switch_now(&w->f, w->now);
		break;
	default:
		frame(w);
	}
}

FUZZ(z)
{
	struct world w = { .z = z, .now = DR_NS_PER_S };
	uint8_t flags = fz_u8(z);

	start(&w, flags, fz_u8(z));
	drain(&w);
	for (unsigned i = 0; i < STEPS_MAX && z->n; i++) {
		step(&w, fz_u8(z));
		drain(&w);
	}
}
