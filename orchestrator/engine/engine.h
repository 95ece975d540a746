/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_ENGINE_H
#define DR_ORCHESTRATOR_ENGINE_H

#include <stdatomic.h>

#include "orchestrator/engine/flight.h"
#include "orchestrator/engine/gaps.h"
#include "orchestrator/engine/integrity.h"
#include "orchestrator/engine/rates.h"
#include "orchestrator/engine/worker.h"
#include "window/window.h"

/*
 * The transfer loops of one GPU, run by its worker thread: for each channel a stream (buffers, window,
 * counters), and the phases on top. Only struct dr_live_cell may be read by other threads.
 *
 *	engine.c	set-up, callbacks of the manager, the step
 *	phase.c		commands, phases and their results
 *	io.c		posting, testing, consuming; the turns of the bulk streams
 *	latency.c	ping-pong
 *	stream_gaps.c	the longest time between deliveries around a fault
 */
struct dr_engine;

/* The source of struct dr_live: one writer, relaxed. */
struct dr_live_cell {
	_Atomic uint64_t chunks_tx, bytes_tx, chunks_rx, bytes_rx, posted;
	_Atomic uint32_t epoch, active;
};

/* One end of one channel. slot = seq % win.cap. While a chunk is posted it has one of win.cap
 * buffers of `stride` bytes: the one that was released last, which may be in the cache. */
struct dr_stream {
	struct dr_engine *eng;
	struct dr_channel *ch;
	unsigned number;
	bool sender;
	bool failed;
	uint8_t *buf; /* with gpu_buffers: device memory, never dereferenced */
	size_t stride, buf_bytes;
	struct dr_gpu_memory on_gpu;
	struct dr_mem mem;
	bool registered;
	bool kept;	      /* buf is not freed: the NIC may access it until the process ends */
	struct dr_window win; /* of seqs; see dr_stream_next_post */
	struct {
		uint32_t len; /* sender: bytes posted */
		int64_t ns;   /* time of delivery or acknowledgement */
		unsigned buffer;
		struct dr_flight_mark flight; /* sender */
	} slot[DR_WINDOW_MAX];
	unsigned unused[DR_WINDOW_MAX], n_unused; /* buffers; the last one is taken next */
	uint32_t filled[DR_WINDOW_MAX]; /* sender: bytes of a buffer that have a pattern */

	/* The phase. The sender posts, the receiver takes only below `end`. */
	bool busy; /* has a part in the running phase that is not done */
	uint64_t end;
	uint64_t post_at, take_at; /* byte of the current message */
	struct dr_flight flight;   /* sender */
	unsigned ahead;		   /* receiver: chunks that are posted at most, see measure_ahead */
	int64_t ahead_ns;	   /* time of its last measurement, */
	uint64_t ahead_bytes;	   /* and bytes of the phase that had arrived by then */
	bool has_expected;	   /* receiver: the peer told how many bytes it sent, */
	uint64_t expected_bytes;   /* since the start, and what differed before */
	uint64_t bytes_off;
	struct dr_tally now, from, to;
	bool have_from, have_to;
	double tokens; /* rate limit: bytes that may leave now */
	int64_t tokens_ns, wake_ns;
	int64_t last_done_ns;			  /* last delivery in this phase; 0 none */
	int64_t gap_start_ns, gap_end_ns;	  /* of the last switch: no cadence */
	int64_t cadence_start_ns, cadence_end_ns; /* newest interval, not recorded yet; 0,0 none */
	struct {
		bool on;    /* receiver: DR_CMD_GAPS was given, and the answer is not: no cadence */
		bool asked; /* the next delivery is the last one that counts, */
		unsigned trial; /* of these */
		int64_t since_ns;
		struct dr_gaps all;
	} gaps;
	struct dr_integrity integrity;
	struct dr_live_cell live;
};

/* Every chunk is pushed into the window as its seq, from 0 on, so the window's counters are the next seq to post
 * and the next one to take (to consume or release). */
static inline uint64_t dr_stream_next_post(const struct dr_stream *s)
{
	return s->win.tail;
}

static inline uint64_t dr_stream_next_take(const struct dr_stream *s)
{
	return s->win.head;
}

/* Ping-pong of one GPU: rounds of one message in each direction. */
struct dr_ping {
	bool on, client, stop;
	bool in_round;	  /* client: ping posted or being posted, reply not complete */
	uint64_t round;	  /* client: replies complete; server: pings complete */
	uint64_t to_post; /* chunks of the current message (server: of due replies) */
	int64_t start_ns; /* client: first chunk of the ping was posted */
	int64_t turn_ns;  /* running mean of the time this end waits for the other */
	int64_t wait_ns;  /* waiting since */
};

enum dr_engine_state {
	DR_ENGINE_NEW,
	DR_ENGINE_CONNECTING,
	DR_ENGINE_UP,
	DR_ENGINE_FAILED, /* a channel ended for good, or the start failed */
};

struct dr_engine {
	struct dr_worker_gpu_params prm;
	uint32_t chunk_max;
	uint64_t seed;
	bool client, trace;
	void (*report)(void *arg, const struct dr_report *r);
	void *arg;

	struct dr_manager *mgr;
	unsigned n_streams;
	struct dr_stream *stream;
	struct dr_handle *peer;

	enum dr_engine_state state;
	bool closing;
	int err; /* FAILED: of the first failure */
	unsigned failed_channel;
	int64_t now;   /* of the current step; refreshed between turns */
	bool paused;   /* receivers post nothing */
	unsigned turn; /* the stream whose turn is next */
	uint64_t due;  /* bit i: stream i may have something to do */

	struct dr_phase phase;
	bool running;
	uint64_t message_chunks;
	int64_t phase_ns;
	unsigned tx_left, rx_left; /* streams with a part not done */
	bool first_error_reported;
	char first_wrong[sizeof(
		((struct dr_report *)0)->text)]; /* its text; "": none in the phase */
	struct dr_ping ping;
	struct dr_rates rates;
	_Atomic int64_t late_ns; /* see dr_manager_late_ns; for others to look at */
	struct dr_hist *rtt, *cadence;
	struct dr_gpu_buffers_copies copies_before; /* when the phase began */
	struct dr_phase_result result;		    /* published */
};

struct dr_engine_params {
	const struct dr_worker_params *worker;
	const struct dr_worker_gpu_params *gpu;
	struct dr_poller *poller;
	void (*report)(void *arg, const struct dr_report *r);
	void *arg; /* of report; outlives the engine, as does the poller */
};
/* Create the manager. Its rails listen when this returns. */
int dr_engine_create(const struct dr_engine_params *p, struct dr_engine **out, struct dr_err *e)
	DR_MUST_CHECK;
/* On the worker's thread, after pinning: buffers, registered. */
int dr_engine_alloc(struct dr_engine *g, struct dr_err *e) DR_MUST_CHECK;
/* From one chunk of a buffer to the next. */
size_t dr_engine_stride(uint32_t chunk_max);
/* After a tick of the manager: how late it was, and, if it is time, what the rails carry. */
void dr_engine_watch(struct dr_engine *g, int64_t now_ns);
/* Begins to close the channels, to be driven until dr_manager_closed; its reports end. */
void dr_engine_close(struct dr_engine *g);
/* Close, wait until nothing accesses the buffers, free. */
void dr_engine_destroy(struct dr_engine *g);

/* One command whose position matches. */
void dr_engine_command(struct dr_engine *g, const struct dr_command *cmd, int64_t now_ns);
/* Take, post, flush where possible, until there is nothing to do (false) or until budget_ns is
 * reached or something was done (true: call again after a poll). Never blocks. */
bool dr_engine_step(struct dr_engine *g, int64_t now_ns, int64_t budget_ns);
/* Nothing happens: has the peer closed a channel that the phase needs? */
void dr_engine_idle(struct dr_engine *g);
/* When the engine wants a step without an event: rate limits. */
int64_t dr_engine_deadline(const struct dr_engine *g);
/* How long spinning for the peer's next message pays off now; 0: no ping-pong is running. */
int64_t dr_engine_spin_ns(const struct dr_engine *g);

/* --- between the parts of the engine ---------------------------------------------------------- */

void dr_engine_report(struct dr_engine *g, struct dr_report *r);
/* The GPU is out: ends its phase and tells. channel DR_ALL: none in particular. */
void dr_engine_fail(struct dr_engine *g, unsigned channel, int err, const char *text);
/* The GPU cannot go on: its channels end at both ends, for no path will do better. */
void dr_engine_gpu_failed(struct dr_engine *g, const struct dr_err *why);
/* Something changed that any stream may act on. */
void dr_engine_all_due(struct dr_engine *g);
void dr_engine_connect(struct dr_engine *g, int64_t now_ns);
/* The running phase is over at this end, whichever way: write its result. */
void dr_engine_end_phase(struct dr_engine *g);
/* The stream's part of the phase is done: reports when it was the last of its role. */
void dr_stream_done(struct dr_stream *s);
/* The stream ended for good; tells and ends the GPU's phase. Once. */
void dr_stream_fail(struct dr_stream *s, int err, const char *text);
/* Both parts of a ping-pong at this end are done. */
void dr_engine_ping_done(struct dr_engine *g);
/* Record the interval between deliveries that was kept, unless a switch explains it. */
void dr_stream_record_cadence(struct dr_stream *s);

/* The window of at most cap chunks. */
int dr_stream_init(struct dr_stream *s, unsigned cap) DR_MUST_CHECK;
/* A phase of so many chunks begins (UINT64_MAX: until told); part: the stream takes part in it. */
void dr_stream_begin(struct dr_stream *s, uint64_t total, bool part);
/* Keep receives posted. Returns how many it posted now. */
unsigned dr_stream_post_recv(struct dr_stream *s);
/* Post the next chunk of the current message. 0, or -EAGAIN: window full. */
int dr_stream_post_send(struct dr_stream *s);
/* Receiver: consume the next chunk if it is there and belongs to the phase. */
bool dr_stream_take(struct dr_stream *s);
/* Sender: release what is acknowledged. Returns how many. */
unsigned dr_stream_drain(struct dr_stream *s);
/* Bulk: one bounded turn. True: something was done. */
bool dr_stream_turn(struct dr_stream *s);

/* stream_gaps.c. DR_CMD_GAPS. */
void dr_engine_gaps(struct dr_engine *g, const struct dr_command *cmd);
/* A delivery at now_ns, after the one at last_done_ns, while gaps.on. */
void dr_stream_gap(struct dr_stream *s, int64_t now_ns);

void dr_ping_begin(struct dr_engine *g);
bool dr_ping_step(struct dr_engine *g);
/* Has the other's message come? Without the poller. Returns the number of events. */
int dr_ping_poll(struct dr_engine *g, int64_t now_ns);

#endif
