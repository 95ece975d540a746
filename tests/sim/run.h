/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_SIM_RUN_H
#define DR_TESTS_SIM_RUN_H

#include "base/clock.h"
#include "base/rng.h"
#include "channel/manager_priv.h"
#include "tests/sim/sim.h"
#include "window/window.h"

/*
 * One simulated schedule: two processes with one to three ChannelManagers each, the objects that ship, over
 * simulated rails in virtual time. The k-th manager of one end talks to the k-th of the other one. schedule.c draws
 * everything from the seed, before anything runs; then
 *
 *	app.c	the users of the channels, and what they check	   fault.c  faults and when they strike
 *	greet.c	faults of the handshakes of paths, and what is checked of them
 *	give_up.c	how users give channels up, and what they check	   tap.c    control frames: lost, replayed
 *	boot.c	the conversation that exchanges the handles	   run.c    the loop, and what ends it
 *	cover.c what was reached, over all schedules		   shrink.c less of a schedule that fails
 *	watch.c	what is checked of managers that share a process
 *	switches.c  whether both ends record the same switches, and each has a cause
 *	judge.c	whether a channel may end, and whether it must
 *	visit.c	channels that come and go beside those	   poller.c stands for base/poller.c
 *
 * Driving is as in production, with a thread per manager: a path is driven when it has something to report, a
 * manager ticks when the deadline is due that it had when it went to sleep, or when another thread wakes it, and,
 * unless the schedule is `eager`, at no other time; so a deadline that is never due hangs here too. The endpoints
 * of shared heartbeats are read by the thread whose poller watches them.
 */
enum {
	SIM_CHANNELS_MAX = 4,
	SIM_MANAGERS_MAX = 3,
	SIM_PEER_PORT = SIM_MANAGERS_MAX, /* of the heartbeats that managers share */
	SIM_PART_MAX = 256,
	SIM_FAULTS_MAX = 12,
	SIM_TAP = 16,
	SIM_FRAME = 24, /* bytes of a control frame */
	SIM_WINDOW_MAX = 16,
	SIM_PARTS_MAX = 3,
};

enum sim_fault_kind {
	/* outages: of one rail at a time, begun while the other one works */
	F_CUT,
	F_CUT_ONE_WAY,
	F_LINK_DOWN,
	F_FLAP,
	F_FLAPS, /* hundreds, of both rails in turn, each when everything is up again */
	/* pinpricks: at any time, on any rail, at any step of a switch */
	F_BREAK,
	F_BLINK, /* both rails, short */
	F_CLOG,
	F_MUTE,
	F_COMPLETION,
	F_CREDIT,
	F_DUP,
	F_REPLAY, /* control frames that an end received before, again */
	F_LOSE,	 /* control frames of some kinds are lost, also those that a stream had delivered */
	F_CLOSE, /* a user gives a channel up */
	F_STALL, /* an end stands still, its clock runs */
	F_WORKER, /* some managers of an end do, for less than a second */
	F_CLOCK,  /* and its clock stands still too */
	F_CONTROL,
	F_STRANGERS, /* at the listeners of paths */
	F_HALF,	     /* the next handshakes of paths break half-way */
	/* the end, of a channel or of all */
	F_STOP, /* an end stands still for seconds, or half a minute */
	F_DEREG,
	F_STUCK, /* a fence that fails */
	F_KILL,
	F_BOTH_CUT,
	F_KINDS
};

/* A fault strikes some time after the one before it, or at a step of the protocol. */
enum sim_step {
	AT_TIME,
	AT_TX_SWITCH,
	AT_TX_ANSWERED,
	AT_TX_DRAIN,
	AT_TX_PLANNED,
	AT_TX_FENCING,
	AT_RX_FENCING,
	AT_RX_NOTIFY,
	AT_RX_FENCE,
	AT_CONNECTING,
	AT_REPLAY,
	SIM_STEPS
};

struct sim_fault {
	enum sim_fault_kind kind;
	enum sim_step step;
	int64_t after_ns; /* the one before began, or the step was reached */
	int64_t len_ns;
	unsigned rail, mask;
	uint64_t seed; /* of what else it draws */
};

/* What WITHOUT removes beside faults, whose bits are the lowest. */
enum {
	SIM_NO_PAUSE = 1u << 16,
	SIM_NO_LOSS = 1u << 17,
	SIM_NO_SLOW_FENCE = 1u << 18,
	SIM_NO_SMALL_BUFFERS = 1u << 19,
	SIM_ONE_CHANNEL = 1u << 20,
	SIM_NO_LATE_START = 1u << 21,
	SIM_NO_VISITORS = 1u << 22,
	SIM_WITHOUT_BITS = 23,
};

/* Everything that the seed decides. Nothing in here changes once a schedule runs. */
struct sim_schedule {
	uint64_t seed;
	uint32_t without;
	struct dr_sim_opts world;
	int64_t fence_ns[2][2]; /* [rail][node]; -1: as in world */
	unsigned n_managers, n_channels, window;
	bool peer;  /* the managers of an end share one stream of heartbeats per rail */
	bool eager; /* managers tick whenever they are awake */
	int64_t start_ns[2]
			[SIM_MANAGERS_MAX]; /* so much later than its process, a manager starts */
	unsigned primary[SIM_CHANNELS_MAX]; /* rail */
	bool sender[SIM_CHANNELS_MAX];	    /* of node 0 */
	unsigned parts[SIM_CHANNELS_MAX];
	int64_t heartbeat_ns, hold_down_ns, lost_after_ns;
	bool failback, wait_failback, key;
	bool conservative; /* paths are left when the kernel or NIC gives up, so that outages last longer */
	int64_t dense_ns, sparse_ns; /* between bursts: near a fault, elsewhere */
	unsigned first_messages;
	bool visits;   /* channels come and go */
	unsigned idle; /* mask of channels without messages until the faults are over */
	int64_t pause_from_ns, pause_ns; /* receivers post nothing */
	int64_t tail_ns;		 /* traffic after the last fault */
	unsigned n_faults;
	struct sim_fault fault[SIM_FAULTS_MAX];
	/* What follows from the faults. */
	bool calm;     /* nothing that could make a channel switch */
	bool steady;   /* outages of one and the same rail, nothing else */
	bool one_rail; /* at most one outage and nothing else: the idle path's channels stay */
};

struct sim_run;

/* base/poller.h, without file descriptors: of a worker, or, apart, of the endpoints of an end's heartbeats. */
struct dr_poller {
	struct sim_run *r;
	unsigned end;
	struct dr_pollable *watched;
	bool woken;
};

/* A thread and its manager. */
struct sim_worker {
	struct sim_run *r;
	unsigned end, k; /* k is its port, too */
	struct dr_manager *m;
	struct dr_poller poller;
	bool started, touched; /* touched: its deadline has to be asked for again */
	int64_t start_at;      /* world's clock; DR_NEVER: its process has no handles yet */
	int64_t start_ns;      /* end's clock when it started */
	int64_t stalled_until; /* alone */
	int64_t due_ns;	       /* end's clock: it sleeps until then */
	int64_t running_ns;    /* world's clock: it has not stood since then */
};

struct sim_user { /* one end of a channel */
	struct sim_run *r;
	unsigned channel, end;
	bool sender;
	struct dr_window win;
	uint64_t posted, done;
	uint8_t *mem;
	struct dr_mem reg;
	bool gone, dereg;	 /* memory taken away; with messages in it */
	bool closing, confirmed; /* its user gave it up; the peer knew when it left */
	int64_t closed_ns;	 /* end's clock */
	int err;
	int64_t died_ns; /* world's clock */
	/* judge.c: a path joins it to its peer, or did; the peer's process runs as well; its own does; a path could come
	 * up; nothing of its peer is left. And the time in which it was so, and has stood; world's clock: since when */
	bool joined, was_joined, heard, runs, could, left;
	int64_t alone_ns, unheard_ns, could_ns, stood_ns, left_ns, alone_at, joined_at, heard_at,
		answers_at;
};

/* Control frames that an end received, the last SIM_TAP of them. */
struct sim_tap {
	uint8_t frame[SIM_TAP][SIM_FRAME];
	uint64_t n;
	uint32_t epoch; /* of the data that came last, and its path */
	unsigned path;
};

/* Switches that an end has recorded so far, and the last one. */
struct sim_records {
	/* initial: not planned, from no path; refused: planned, but data stayed on their path. */
	uint32_t n, planned, initial, refused, epoch;
	unsigned from, to;
};

struct sim_channel {
	struct sim_tap tap[2];
	unsigned parts;
	uint64_t total; /* messages to send; grows until the faults are over */
	struct sim_user user[2];
	/* Truth about switches and gaps, kept beside the channel's own records; switches.c: the last message came in this
	 * epoch over `to`, those of the epoch before over `from`, which is yet to be recorded, at once if it is due */
	uint32_t epoch;
	unsigned from, to;
	bool owed, due, at_rest;
	struct sim_records rec[2], rested[2]; /* now; when both ends were at rest last, */
	uint32_t rest_epoch;
	int64_t rest_ns;
	uint32_t leaves; /* a broken connection with this epoch at the latest */
	/* receiver's clock */
	int64_t last_ns, gap_from_ns, gap_to_ns;
	uint64_t seen;	  /* watch.c: messages done, both ends, */
	int64_t moved_ns; /* and when that changed last, or when all were done */
};

/* One end of a channel that comes and goes; see visit.c. */
enum sim_visit { SIM_ABSENT, SIM_HERE, SIM_CLOSING, SIM_GONE };
struct sim_visit_end {
	enum sim_visit st;
	int64_t since_ns;  /* world's clock: it has been in this state since then */
	int64_t closed_ns; /* end's clock */
	uint8_t *mem;
	struct dr_mem reg;
	uint64_t posted, done;
	int err;
};
struct sim_visitor {
	uint32_t id; /* 0: none yet */
	unsigned k;  /* its managers */
	unsigned sender, primary;
	bool rude; /* leaves in the middle */
	uint64_t total;
	int64_t open_ns[2], stay_ns[2];
	struct sim_visit_end e[2];
};

enum sim_strike { SIM_WAITS, SIM_ARMED, SIM_ON, SIM_OVER };
struct sim_fault_state {
	enum sim_strike st;
	int64_t at, until;
	int64_t give_up; /* ARMED: strike without the step */
	unsigned flips;
	int64_t flip_ns; /* FLAPS: of the next one */
	bool down;	 /* FLAPS: rail flips % 2 is */
	unsigned hit;	 /* 1 + the channel whose connection it struck */
};

struct sim_boot;
struct sim_run {
	const struct sim_schedule *s;
	struct dr_rng rng;
	struct dr_sim_world *w;
	struct sim_worker wk[2][SIM_MANAGERS_MAX];
	struct dr_peer *peer[2];
	struct dr_poller apart[2];
	struct sim_boot *boot;
	unsigned started; /* ends whose managers were all started */
	bool dead[2], was_ready;
	bool due_changed;   /* workers_ns has to be found again */
	int64_t workers_ns; /* the next worker is due, or does not stand any more */
	struct sim_channel ch[SIM_CHANNELS_MAX];
	struct sim_visitor visitor[SIM_MANAGERS_MAX]; /* of each pair of managers */
	struct dr_rng visit_rng;
	int64_t visit_due_ns;
	struct sim_fault_state fs[SIM_FAULTS_MAX];
	unsigned next_fault;
	int64_t disturbed_ns, greet_due_ns; /* something was wrong until then; greet.c looks next */
	int64_t watch_due_ns;		    /* watch.c does */
	int64_t last_fault_ns, fault_due_ns; /* of the loop; when fault.c wants to be called */
	int64_t stalled_until[2], stalled_from[2]; /* of processes */
	struct {
		uint32_t n; /* verdicts on the rail so far */
		int64_t at_ns;
	} verdict[2][2]; /* watch.c: [end][rail] */
	bool clock_stands[2];
	bool faults_over;
	int64_t faults_over_ns, traffic_until_ns, next_burst_ns, pause_until_ns;
	int64_t judged_ns; /* judge.c looked last */
	bool healed;
	char fail[400];
};

extern int sim_verbose;
#define SIM_MS(ns) ((double)(ns) / 1e6)
void sim_fail(struct sim_run *r, const char *fmt, ...) DR_PRINTF(2, 3);
void sim_say(const struct sim_run *r, const char *fmt, ...) DR_PRINTF(2, 3);

/* run.c, who is where. */
static inline unsigned sim_manager_of(const struct sim_run *r, unsigned c)
{
	return c % r->s->n_managers;
}

static inline struct sim_worker *sim_worker_of(const struct sim_run *r, unsigned c, unsigned end)
{
	return (struct sim_worker *)&r->wk[end][sim_manager_of(r, c)];
}

static inline unsigned sim_rail_of_path(const struct sim_run *r, unsigned c, unsigned path)
{
	return (r->s->primary[c] + path) % 2;
}

struct dr_channel *sim_channel_at(const struct sim_run *r, unsigned c, unsigned end);
/* The channel's number in the schedule, and its user. */
struct sim_user *sim_user_of(const struct dr_channel *ch);
/* A path of this end, closed or not, is in a fence that failed for good. */
bool sim_quarantined(const struct sim_run *r, unsigned c, unsigned end, unsigned path);
struct dr_sim_place sim_place(const struct sim_run *r, unsigned c, unsigned end, unsigned path);
static inline struct dr_channel *sim_channel_of(const struct sim_user *u)
{
	return sim_channel_at(u->r, u->channel, u->end);
}

static inline struct sim_user *sim_peer_of(const struct sim_user *u)
{
	return &u->r->ch[u->channel].user[!u->end];
}

static inline bool sim_lossy(const struct sim_schedule *s)
{
	return s->world.link.loss_ppm > 0 || s->world.link.dgram_loss_ppm > 0;
}

/* Until then the worker, all of an end, or any of both ends stand. */
int64_t sim_stalled_until(const struct sim_worker *wk);
int64_t sim_all_run_ns(const struct sim_run *r);
/* It was started and does not stand. */
bool sim_runs(const struct sim_worker *wk);
/* Something was done to its channels from outside. */
void sim_touch(struct sim_worker *wk);

/* schedule.c */
extern const char *const sim_fault_names[F_KINDS];
extern const char *const sim_step_names[SIM_STEPS];
void sim_draw(struct sim_schedule *s, uint64_t seed, uint32_t without);
unsigned sim_count_faults(const struct sim_schedule *s);
/* Mask of the managers that a fault makes stand: some, not all. */
unsigned sim_workers(const struct sim_schedule *s, const struct sim_fault *f);

/* app.c */
extern const struct dr_manager_ops sim_app_ops;
void sim_app_setup(struct sim_run *r);
void sim_app_step(struct sim_worker *wk);
void sim_app_step_user(struct sim_user *u);
void sim_app_offer(struct sim_run *r, int64_t now);
bool sim_app_over(const struct sim_run *r);
void sim_app_collect(struct sim_run *r);
void sim_app_fini(struct sim_run *r);
/* The memory of one end goes, with messages in it. */
void sim_app_dereg(struct sim_run *r, unsigned c, unsigned end);
/* Both paths of every channel are up at both ends, and of one generation. */
bool sim_app_healed(struct sim_run *r, unsigned rail_mask);
/* Every channel is on its primary path, if it may go back. */
bool sim_app_back(struct sim_run *r);

/* give_up.c */
void sim_give_up(struct sim_run *r, const struct sim_fault *f);
/* After the end was driven: it may have ended without an error. */
void sim_give_up_step(struct sim_user *u, int64_t now);
/* Deadlines, of all ends. */
void sim_give_up_watch(struct sim_run *r);
/* One end of this channel was given up by its user. */
bool sim_given_up(const struct sim_run *r, unsigned c);
/* The peer gave the channel up, so that this end may end with err. */
bool sim_give_up_excuses(const struct sim_user *u, int err);
void sim_give_up_collect(struct sim_run *r, unsigned c);

/* greet.c */
void sim_greet_strike(struct sim_run *r, const struct sim_fault *f);
/* Handshakes that began on rails that work end soon. */
void sim_greet_watch(struct sim_run *r, int64_t now);
void sim_greet_collect(const struct sim_run *r);

/* tap.c */
void sim_tap_setup(struct sim_run *r);
void sim_tap_replay(struct sim_run *r, const struct sim_fault *f);

/* fault.c */
/* Control frames of this type (enum dr_frame_type) are being lost. */
bool sim_loses(const struct sim_run *r, unsigned type);
void sim_faults_run(struct sim_run *r, int64_t now);
void sim_faults_watch(struct sim_run *r, int64_t now);

/* visit.c */
bool sim_is_visitor(const struct dr_channel *ch);
void sim_visit_failed(const struct dr_channel *ch, int err, const char *text);
/* After the worker was driven. */
void sim_visit_step(struct sim_worker *wk);
void sim_visit_run(struct sim_run *r, int64_t now);
int64_t sim_visit_next(const struct sim_run *r);
bool sim_visit_over(const struct sim_run *r);
void sim_visit_fini(struct sim_run *r);

/* switches.c */
/* A message is complete at its receiver. */
void sim_switch_delivered(const struct sim_user *u, uint32_t epoch, unsigned path);
void sim_switch_recorded(const struct sim_user *u, const struct dr_switch_record *rec);
/* Fault i has struck this connection; or a rail. */
void sim_switch_broke(struct sim_run *r, unsigned i, unsigned c, unsigned path);
void sim_switch_out(struct sim_run *r, unsigned i);
void sim_switch_watch(struct sim_run *r, int64_t now);
void sim_switch_collect(struct sim_run *r, unsigned c);

/* judge.c */
void sim_judge(struct sim_run *r, int64_t now);
/* The end has failed. */
void sim_judge_death(struct sim_user *u, int err, const char *text);

/* watch.c */
void sim_watch(struct sim_run *r, int64_t now);

/* boot.c */
void sim_boot_create(struct sim_run *r);
void sim_boot_step(struct sim_run *r, int64_t now);
int64_t sim_boot_next(const struct sim_run *r);
/* An end begins to stand, or its clock goes on. */
void sim_boot_touch(struct sim_run *r);
void sim_boot_break(struct sim_run *r);
bool sim_boot_done(const struct sim_run *r);
void sim_boot_destroy(struct sim_run *r);

/* run.c: 0, or 1 and the text of the failure. */
int sim_schedule_run(uint64_t seed, uint32_t without, char *why, size_t len);

/* shrink.c: the smallest WITHOUT that still fails, printed; crashes are failures too. */
void sim_shrink(uint64_t seed);

/* cover.c */
struct sim_cover {
	uint64_t schedules, messages, switches, failbacks, replayed, duplicates, stale, deaths,
		rounds, heals, self_rx, self_tx, two_part, stalls, protections, gaps, worst_gap_ns,
		resumes, control_messages, switch_in_replay, spins, untold, unlike, virtual_ms;
	uint64_t closes, closed_busy, confirmed, unconfirmed, replays, frames_lost, notifies_lost,
		flaps, long_stops, idle;
	uint64_t visitors, removed, rude, early_dials;
	uint64_t managers[SIM_MANAGERS_MAX], shared, alone, taken_over, verdicts, late_starts,
		worst_late_ns, wakes;
	/* of streams; of remote write */
	uint64_t strangers[2], rejected[2], outdated[2], cut_hellos[2];
	uint64_t kept_hellos, welcomed_again; /* remote write */
	uint64_t zombies, snapshots, refused, read_again, lost, dups, discarded, stuck;
	uint64_t compared, idle_switches, answers;
	uint64_t faults[F_KINDS], steps[SIM_STEPS], personality[3];
};
extern struct sim_cover sim_cover;
int sim_covered(void);

#endif
