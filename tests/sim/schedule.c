/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include <string.h>

/* Draws a schedule. All of it comes from the seed, in one fixed order, whatever is left out. */

const char *const sim_fault_names[F_KINDS] = { "cut", "cut-one-way", "link-down", "flap", "flaps",
	"break", "blink", "clog", "mute", "completion", "credit", "dup", "replay", "lose", "close",
	"stall", "worker-stall", "clock-stall", "control", "strangers", "half-handshake", "stop",
	"dereg", "stuck-fence", "kill", "both-cut" };
const char *const sim_step_names[SIM_STEPS] = { "time", "sender in SWITCH", "sender has ANSWER",
	"sender in DRAIN", "planned switch", "sender fences", "receiver fences",
	"receiver in NOTIFY", "receiver in FENCE", "dialling", "replay" };

#define PICK(rng, ...)                                                                             \
	((const int64_t[]){ __VA_ARGS__ })[dr_rng_below(                                           \
		rng, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))]

enum { DRAWN_MAX = 6 }; /* faults; draw_more adds others */

static int64_t up_to(struct dr_rng *g, int64_t ns)
{
	return (int64_t)dr_rng_below(g, (uint64_t)ns + 1);
}

static void draw_world(struct sim_schedule *s, struct dr_rng *g)
{
	struct dr_sim_opts *o = &s->world;
	bool lossy, small, slow;

	dr_sim_opts_init(o);
	o->personality = (enum dr_sim_personality)dr_rng_below(g, 3);
	o->link.delay_min_ns = 2000 + up_to(g, 100 * DR_NS_PER_US);
	o->link.delay_exp_ns = 1000 + up_to(g, 100 * DR_NS_PER_US);
	o->link.bits_per_s = (double)PICK(g, 10000, 10000, 1000, 100) * 1e6;
	lossy = dr_rng_chance(g, 1, 3);
	o->link.dgram_loss_ppm = lossy ? (uint32_t)PICK(g, 0, 10000, 50000) : 0;
	o->link.dgram_dup_ppm = lossy ? (uint32_t)PICK(g, 0, 10000, 200000) : 0;
	o->link.loss_ppm = lossy ? (uint32_t)PICK(g, 0, 1000, 20000) : 0;
	if (s->without & SIM_NO_LOSS)
		o->link.dgram_loss_ppm = o->link.dgram_dup_ppm = o->link.loss_ppm = 0;
	o->rto_ns = PICK(g, 5, 50, 200) * DR_NS_PER_MS;
	o->retry_ns = PICK(g, 2, 20) * DR_NS_PER_MS;
	o->qps = 1 + (unsigned)dr_rng_below(g, 3);
	small = dr_rng_chance(g, 1, 3) && !(s->without & SIM_NO_SMALL_BUFFERS);
	{
		uint32_t seg = (uint32_t)PICK(g, 64, 100, 1000), win = (uint32_t)PICK(g, 128, 1000);
		unsigned depth = (unsigned)PICK(g, 2, 5, 64), most = (unsigned)PICK(g, 1, 2, 32);
		unsigned sends = (unsigned)PICK(g, 1, 2, 5, 64);
		unsigned ctrl = (unsigned)PICK(g, 1, 2, 32);
		uint32_t unread = (uint32_t)PICK(g, 100, 2000); /* full while the process stands */

		if (small) {
			o->segment_bytes = seg;
			o->window_bytes = win;
			o->rcvbuf_bytes = seg + DR_CTRL_MAX + unread;
			o->recv_depth = depth;
			o->send_depth = sends;
			o->ctrl_depth = ctrl;
			o->ctrl_room_bytes = ctrl < 32 ? 64 : 4096;
			o->progress_max = most;
		}
	}
	for (unsigned rail = 0; rail < 2; rail++)
		for (unsigned node = 0; node < 2; node++) {
			slow = dr_rng_chance(g, 1, 4);
			s->fence_ns[rail][node] = PICK(g, 300, 3000, 30000) * DR_NS_PER_US;
			if (!slow || (s->without & SIM_NO_SLOW_FENCE))
				s->fence_ns[rail][node] = -1;
		}
}

static void draw_channels(struct sim_schedule *s, struct dr_rng *g)
{
	s->n_channels = 1 + (unsigned)dr_rng_below(g, SIM_CHANNELS_MAX);
	if (s->without & SIM_ONE_CHANNEL)
		s->n_channels = 1;
	for (unsigned c = 0; c < SIM_CHANNELS_MAX; c++) {
		s->sender[c] = dr_rng_chance(g, 1, 2);
		s->parts[c] = 1 + (unsigned)dr_rng_below(g, SIM_PARTS_MAX);
	}
	s->window = 1 + (unsigned)dr_rng_below(g, SIM_WINDOW_MAX);
	s->heartbeat_ns = PICK(g, 5, 10, 10, 20) * DR_NS_PER_MS;
	s->hold_down_ns = PICK(g, 20, 60, 200) * DR_NS_PER_MS;
	s->lost_after_ns = PICK(g, 1500, 2000) * DR_NS_PER_MS; /* more than a dial takes */
	s->failback = dr_rng_chance(g, 3, 4);
	s->key = dr_rng_chance(g, 1, 4);
	s->dense_ns = PICK(g, 100, 500, 2000) * DR_NS_PER_US;
	s->sparse_ns = PICK(g, 10, 40, 100) * DR_NS_PER_MS;
	s->first_messages = (unsigned)dr_rng_below(g, 20);
	s->tail_ns = up_to(g, 20 * DR_NS_PER_MS);
	s->pause_from_ns = up_to(g, 50 * DR_NS_PER_MS);
	s->pause_ns = dr_rng_chance(g, 1, 5) ? up_to(g, 60 * DR_NS_PER_MS) : 0;
	if (dr_rng_chance(g, 1, 40)) { /* longer than any timer of progress */
		s->pause_from_ns = 0;
		s->pause_ns = 2500 * DR_NS_PER_MS;
		s->first_messages = 2 * s->window;
	}
	s->wait_failback = dr_rng_chance(g, 1, 2) && s->failback;
	if (s->without & SIM_NO_PAUSE)
		s->pause_ns = 0;
}

/* The channels are dealt out in turn, at least one to each manager. Heartbeats are shared where they are datagrams;
 * that some managers of a kind without them stand is no case that ships. */
static void draw_managers(struct sim_schedule *s, struct dr_rng *g)
{
	bool own = dr_rng_chance(g, 1, 6);

	s->n_managers = (unsigned)PICK(g, 1, 1, 1, 1, 2, 2, 3);
	s->n_managers = DR_MIN(s->n_managers, s->n_channels);
	if (s->world.personality == DR_SIM_PLUGIN)
		s->n_managers = 1;
	s->eager = dr_rng_chance(g, 1, 4);
	for (unsigned c = 0; c < SIM_CHANNELS_MAX; c++) {
		s->primary[c] = (unsigned)dr_rng_below(g, 2);
		if (s->n_managers == 1)
			s->primary[c] = c % 2;
	}
	s->peer = s->world.personality != DR_SIM_PLUGIN && (s->n_managers > 1 || !own);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned k = 0; k < SIM_MANAGERS_MAX; k++)
			s->start_ns[end][k] = up_to(g, PICK(g, 0, 0, 2, 60) * DR_NS_PER_MS);
	for (unsigned end = 0; end < 2; end++)
		if (s->n_managers == 1 || (s->without & SIM_NO_LATE_START))
			memset(s->start_ns[end], 0, sizeof(s->start_ns[end]));
}

static void draw_fault(struct sim_fault *f, struct dr_rng *g, bool first)
{
	/* the ends of channels are rare: what comes after them shows nothing */
	static const uint8_t weight[F_KINDS] = { [F_CUT] = 10,
		[F_CUT_ONE_WAY] = 8,
		[F_LINK_DOWN] = 8,
		[F_FLAP] = 3,
		[F_BREAK] = 14,
		[F_BLINK] = 4,
		[F_CLOG] = 5,
		[F_MUTE] = 4,
		[F_COMPLETION] = 12,
		[F_CREDIT] = 6,
		[F_DUP] = 6,
		[F_STALL] = 5,
		[F_CLOCK] = 3,
		[F_CONTROL] = 3,
		[F_STOP] = 1,
		[F_DEREG] = 4,
		[F_STUCK] = 1,
		[F_KILL] = 1,
		[F_BOTH_CUT] = 1 };
	unsigned sum = 0, at;

	for (unsigned k = 0; k < F_KINDS; k++)
		sum += weight[k];
	at = (unsigned)dr_rng_below(g, sum);
	f->kind = 0;
	while (at >= weight[f->kind])
		at -= weight[f->kind++];
	f->rail = (unsigned)dr_rng_below(g, 2);
	f->mask = 1u + (unsigned)dr_rng_below(g, f->kind == F_CUT_ONE_WAY ? 2 : 3);
	f->step = AT_TIME;
	f->after_ns = up_to(g, PICK(g, 1, 10, 60) * DR_NS_PER_MS);
	if (!first && dr_rng_chance(g, 3, 5)) {
		f->step = 1 + (enum sim_step)dr_rng_below(g, SIM_STEPS - 1);
		f->after_ns = up_to(g, PICK(g, 0, 20, 200, 2000) * DR_NS_PER_US);
	}
	f->len_ns = PICK(g, 1, 3, 8, 20, 40) * DR_NS_PER_MS;
	if (f->kind <= F_FLAP)
		f->len_ns = PICK(g, 2, 10, 30, 60, 120, 250) * DR_NS_PER_MS;
	else if (f->kind == F_STOP)
		f->len_ns = 200 * DR_NS_PER_MS + up_to(g, 3 * DR_NS_PER_S);
	else if (f->kind == F_STALL || f->kind == F_CLOCK)
		f->len_ns = PICK(g, 2, 20, 90, 150, 300) * DR_NS_PER_MS;
	else if (f->kind == F_BOTH_CUT)
		f->len_ns = 12 * DR_NS_PER_S;
	else if (f->kind == F_STUCK)
		f->len_ns = 300 * DR_NS_PER_MS;
	f->seed = dr_rng_u64(g);
}

/* Where the step of the protocol or the time of a fault that is added comes from. */
static void draw_when(struct sim_fault *f, struct dr_rng *g)
{
	f->rail = (unsigned)dr_rng_below(g, 2);
	f->mask = 1u + (unsigned)dr_rng_below(g, 3);
	f->step = dr_rng_chance(g, 1, 3) ? AT_TIME
					 : 1 + (enum sim_step)dr_rng_below(g, SIM_STEPS - 1);
	f->after_ns = up_to(g, PICK(g, 0, 200, 2000, 60000) * DR_NS_PER_US);
	f->seed = dr_rng_u64(g);
}

static void add(struct sim_schedule *s, struct dr_rng *g, enum sim_fault_kind kind, int64_t len_ns)
{
	struct sim_fault f = { .kind = kind, .len_ns = len_ns };
	unsigned at = (unsigned)dr_rng_below(g, s->n_faults + 1);

	draw_when(&f, g);
	if (s->n_faults == SIM_FAULTS_MAX)
		return;
	if (at == 0)
		f.step = AT_TIME; /* nothing has happened yet */
	memmove(&s->fault[at + 1], &s->fault[at], (s->n_faults - at) * sizeof(f));
	s->fault[at] = f;
	s->n_faults++;
}

/* Faults beside those above. */
static void draw_more(struct sim_schedule *s, struct dr_rng *g)
{
	if (dr_rng_chance(g, 1, 4))
		s->idle = (unsigned)dr_rng_below(g, 1u << SIM_CHANNELS_MAX);
	if (dr_rng_chance(g, 1, 60)) { /* half of them alone: then nothing may end */
		if (dr_rng_chance(g, 1, 2))
			s->n_faults = 0;
		add(s, g, dr_rng_chance(g, 1, 3) ? F_CLOCK : F_STOP,
			10 * DR_NS_PER_S + up_to(g, 20 * DR_NS_PER_S));
	}
	if (dr_rng_chance(g, 1, 120)) {
		if (dr_rng_chance(g, 1, 2))
			s->n_faults = 0;
		add(s, g, F_FLAPS, PICK(g, 5, 20, 60) * DR_NS_PER_MS);
	}
	if (dr_rng_chance(g, 1, 8))
		add(s, g, F_REPLAY, 0);
	if (dr_rng_chance(g, 1, 8))
		add(s, g, F_LOSE, PICK(g, 5, 20, 80) * DR_NS_PER_MS);
	if (dr_rng_chance(g, 1, 5))
		for (unsigned n = 1 + (unsigned)dr_rng_below(g, 2); n > 0; n--)
			add(s, g, F_CLOSE, 0);
	if (dr_rng_chance(g, 1, 6))
		add(s, g, F_STRANGERS, 0);
	if (dr_rng_chance(g, 1, 6))
		add(s, g, F_HALF, 0);
}

/* Faults of single managers. */
static void draw_stalls(struct sim_schedule *s, struct dr_rng *g)
{
	if (s->n_managers == 1)
		return;
	if (dr_rng_chance(g, 1, 8))
		s->n_faults = 0;
	for (unsigned n = (unsigned)dr_rng_below(g, 3); n > 0; n--)
		add(s, g, F_WORKER, up_to(g, PICK(g, 2, 10, 90, 300, 700) * DR_NS_PER_MS));
}

/* Half of the outages are longer than a kernel repeats what has no answer. */
static void draw_conservative(struct sim_schedule *s, struct dr_rng *g)
{
	s->conservative = dr_rng_chance(g, 1, 8);
	for (unsigned i = 0; s->conservative && i < s->n_faults; i++)
		if (s->fault[i].kind <= F_LINK_DOWN && dr_rng_chance(g, 1, 2))
			s->fault[i].len_ns = PICK(g, 1500, 3000) * DR_NS_PER_MS;
}

unsigned sim_workers(const struct sim_schedule *s, const struct sim_fault *f)
{
	unsigned all = (1u << s->n_managers) - 1;

	return all > 1 ? 1u + (unsigned)((f->seed >> 32) % (all - 1)) : 1;
}

/* One rail fails again and again, the other one never: each switch and each failback is bounded. */
static void draw_one_rail(struct sim_schedule *s, struct dr_rng *g)
{
	unsigned rail = (unsigned)dr_rng_below(g, 2);

	for (unsigned i = 0; i < s->n_faults; i++) {
		struct sim_fault *f = &s->fault[i];

		f->kind = (enum sim_fault_kind)dr_rng_below(g, F_FLAPS);
		f->rail = rail;
		f->mask = f->kind == F_CUT_ONE_WAY ? 1u + (f->seed & 1) : 3;
		f->len_ns = PICK(g, 20, 60, 120, 250) * DR_NS_PER_MS;
		if (f->step == AT_TIME)
			f->after_ns = up_to(g, 300 * DR_NS_PER_MS);
	}
	s->hold_down_ns = PICK(g, 20, 60) * DR_NS_PER_MS;
	s->world.link.loss_ppm = s->world.link.dgram_loss_ppm = 0;
	s->steady = true;
}

static void follows(struct sim_schedule *s)
{
	unsigned outages = 0, others = 0, harmless = 0;

	for (unsigned i = 0; i < s->n_faults; i++) {
		enum sim_fault_kind k = s->fault[i].kind;

		if (s->without & (1u << i))
			continue;
		if (k <= F_LINK_DOWN)
			outages++;
		else if (k == F_REPLAY || k == F_LOSE || k == F_STALL || k == F_CLOCK ||
			 k == F_CONTROL || k == F_STRANGERS || k == F_STOP || k == F_DUP ||
			 k == F_WORKER)
			harmless++;
		else
			others++;
		if (k >= F_BREAK || k == F_FLAPS)
			s->steady = false;
	}
	s->calm = outages + others == 0 && !sim_lossy(s);
	s->one_rail = outages == 1 && others + harmless == 0 && !sim_lossy(s);
}

void sim_draw(struct sim_schedule *s, uint64_t seed, uint32_t without)
{
	struct dr_rng g;

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->without = without;
	dr_rng_seed(&g, dr_mix64(seed));
	draw_world(s, &g);
	draw_channels(s, &g);
	draw_managers(s, &g);
	s->n_faults = (unsigned)dr_rng_below(&g, DRAWN_MAX + 1);
	for (unsigned i = 0; i < s->n_faults; i++)
		draw_fault(&s->fault[i], &g, i == 0);
	if (dr_rng_chance(&g, 1, 8))
		draw_one_rail(s, &g);
	draw_more(s, &g);
	draw_stalls(s, &g);
	draw_conservative(s, &g);
	follows(s);
	s->visits = dr_rng_chance(&g, 1, 3) && !(without & SIM_NO_VISITORS);
}

unsigned sim_count_faults(const struct sim_schedule *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_faults; i++)
		n += !(s->without & (1u << i));
	return n;
}
