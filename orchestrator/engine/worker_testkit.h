/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_WORKER_TESTKIT_H
#define DR_ORCHESTRATOR_WORKER_TESTKIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/engine/worker.h"

/* Two workers, client and server, in this process over two loopback rails; handles by memcpy. */
enum { CLIENT, SERVER, GPUS_MAX = 2, SEED = 7 };
static const int64_t PATIENCE_NS = 60 * DR_NS_PER_S;

struct config {
	unsigned n_gpus, n_bulk, window;
	unsigned n_back; /* of the bulk channels: server sends */
	uint32_t chunk_max;
	bool lat, links, trace, numa;
	int node; /* with numa */
	enum dr_poll_policy poll;
	int64_t spin_ns; /* 0: the default */
	int64_t heartbeat_ns;
	const struct dr_transport_ops *transport[2]; /* by end; NULL: tcp */
	const void *kind_params[2];
};

struct end {
	struct dr_worker *w;
	unsigned ready, failed, switches, first_errors;
	unsigned done[GPUS_MAX][2]; /* parts: 0 receiving, 1 sending */
	int64_t asked, snapshot;
	struct dr_report last_failed, last_switch;
	unsigned gaps; /* answers to DR_CMD_GAPS */
	struct dr_report last_gap;
};

static struct config cfg;
static struct end ends[2];

/* Of this pair of ends alone: ports are used again, by other tests too, and what still arrives there is refused. */
static uint8_t token[DR_TOKEN_LEN];

static inline int make_end(unsigned side, struct dr_err *e)
{
	struct dr_worker_gpu_params *gp =
		calloc(cfg.n_gpus, sizeof(*gp)); /* lint-ok: not ours to fail */
	int rc;
	struct dr_worker_params wp = { .index = side,
		.n_gpus = cfg.n_gpus,
		.gpus = gp,
		.poll = cfg.poll,
		.spin_ns = cfg.spin_ns,
		.cpu = -1,
		.node = cfg.numa ? cfg.node : -1,
		.chunk_max = cfg.chunk_max,
		.seed = SEED,
		.client = side == CLIENT,
		.trace_requests = cfg.trace };

	assert_non_null(gp);
	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		struct dr_manager_params *m = &gp[k].manager;

		gp[k].position = k;
		gp[k].gpu = k + 4;
		gp[k].n_bulk = cfg.n_bulk;
		gp[k].lat_tx = gp[k].lat_rx = -1;
		m->transport = cfg.transport[side] ? cfg.transport[side] : dr_transport_find("tcp");
		m->kind_params = cfg.kind_params[side];
		m->n_rails = 2;
		for (unsigned r = 0; r < 2; r++) {
			struct sockaddr_in *sa = (struct sockaddr_in *)&m->rail[r].local;

			sa->sin_family = AF_INET;
			sa->sin_addr.s_addr = htonl(INADDR_LOOPBACK + r);
			m->rail[r].ifindex = cfg.links ? (int)if_nametoindex("lo") : 0;
		}
		gp[k].n_channels = cfg.n_bulk + (cfg.lat ? 2 : 0);
		for (unsigned c = 0; c < gp[k].n_channels; c++) {
			bool back =
				c < cfg.n_bulk ? c >= cfg.n_bulk - cfg.n_back : c == cfg.n_bulk + 1;

			gp[k].channel[c] = (struct dr_manager_channel){ .primary = c % 2,
				.shadow = 1 - c % 2,
				.sender = back == (side == SERVER) };
		}
		if (cfg.lat) {
			gp[k].lat_tx = (int)(cfg.n_bulk + side);
			gp[k].lat_rx = (int)(cfg.n_bulk + 1 - side);
		}
		m->connector = side == CLIENT;
		memcpy(m->token, token, sizeof(m->token));
		m->window = cfg.window;
		m->heartbeat_ns = cfg.heartbeat_ns ? cfg.heartbeat_ns : 50 * DR_NS_PER_MS;
		m->detect = DR_DETECT_FAST;
		m->hold_down_ns = DR_NS_PER_S;
	}
	rc = dr_worker_create(&wp, &ends[side].w, e);
	free(gp); /* lint-ok: see above */
	return rc;
}

static inline void exchange(unsigned from, unsigned to)
{
	static struct dr_handle h[DR_RAILS_MAX + DR_GPU_CHANNELS_MAX];

	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		unsigned n = dr_worker_handle_count(ends[from].w, k);

		for (unsigned i = 0; i < n; i++)
			assert_int_equal(dr_worker_handle(ends[from].w, k, i, &h[i]), 0);
		assert_int_equal(dr_worker_set_peer(ends[to].w, k, h, n), 0);
	}
}

static inline void take_report(struct end *e, const struct dr_report *r)
{
	switch (r->kind) {
	case DR_REP_READY:
		e->ready++;
		break;
	case DR_REP_PHASE_DONE:
		e->done[r->position][r->flag]++;
		break;
	case DR_REP_SWITCH:
		e->switches++;
		e->last_switch = *r;
		break;
	case DR_REP_GAP:
		e->gaps++;
		e->last_gap = *r;
		break;
	case DR_REP_FAILED:
		e->failed++;
		e->last_failed = *r;
		break;
	case DR_REP_SNAPSHOT:
		e->snapshot = r->value;
		break;
	case DR_REP_FIRST_ERROR:
		e->first_errors++;
		print_message("%s\n", r->text);
		break;
	default:
		break;
	}
}

/* Sleep until a report comes, at most ms; take what is there. */
static inline void pump(int ms)
{
	struct pollfd p[2];
	struct dr_report r;

	for (unsigned s = 0; s < 2; s++)
		p[s] = (struct pollfd){ .fd = ends[s].w ? dr_worker_report_fd(ends[s].w) : -1,
			.events = POLLIN };
	poll(p, 2, ms);
	for (unsigned s = 0; s < 2; s++)
		while (ends[s].w && dr_worker_next_report(ends[s].w, &r))
			take_report(&ends[s], &r);
}

static inline void give_up(const char *what)
{
	struct dr_worker_snap snap;

	for (unsigned s = 0; s < 2; s++) {
		struct dr_command c = { .kind = DR_CMD_SNAPSHOT, .value = 4711 };
		int64_t until = dr_now_ns() + DR_NS_PER_S;

		if (!ends[s].w)
			continue;
		dr_worker_post(ends[s].w, &c);
		while (ends[s].snapshot != 4711 && dr_now_ns() < until)
			pump(10);
		for (unsigned k = 0; k < cfg.n_gpus; k++) {
			for (unsigned i = 0; i < cfg.n_bulk + (cfg.lat ? 2 : 0); i++) {
				dr_worker_snapshot(ends[s].w, k, i, &snap);
				print_message(
					"%s gpu %u: %s\n", s ? "server" : "client", k, snap.text);
			}
		}
		print_message("ready %u failed %u (%s) switches %u\n", ends[s].ready,
			ends[s].failed, ends[s].last_failed.text, ends[s].switches);
	}
	fail_msg("waited in vain for: %s", what);
}

/* The condition becomes true, or the test fails after PATIENCE. */
#define WAIT(cond)                                                                                 \
	do {                                                                                       \
		int64_t until_ = dr_now_ns() + PATIENCE_NS;                                        \
		while (!(cond)) {                                                                  \
			if (dr_now_ns() > until_)                                                  \
				give_up(#cond);                                                    \
			pump(2);                                                                   \
		}                                                                                  \
	} while (0)

static inline void post(unsigned side, enum dr_command_kind kind, int64_t value, bool flag)
{
	struct dr_command c = { .kind = kind,
		.position = DR_ALL,
		.channel = DR_ALL,
		.path = DR_ALL,
		.value = value,
		.flag = flag,
		.err = -ECANCELED,
		.text = "test ends it" };

	dr_worker_post(ends[side].w, &c);
}

static inline void post_both(enum dr_command_kind kind, int64_t value)
{
	post(SERVER, kind, value, false);
	post(CLIENT, kind, value, false);
}

static inline void create_both(const struct config *c)
{
	struct dr_err e = { 0 };

	cfg = *c;
	memset(ends, 0, sizeof(ends));
	assert_int_equal(dr_random_bytes(token, sizeof(token)), 0);
	for (unsigned s = 0; s < 2; s++)
		if (make_end(s, &e))
			fail_msg("create: %s", e.text);
	exchange(CLIENT, SERVER);
	exchange(SERVER, CLIENT);
}

static inline void run_both(void)
{
	struct dr_err e = { 0 };

	for (unsigned s = 0; s < 2; s++)
		if (dr_worker_start(ends[s].w, &e) || dr_worker_started(ends[s].w, &e))
			fail_msg("run: %s", e.text);
}

static inline void open_both(const struct config *c)
{
	create_both(c);
	run_both();
	post_both(DR_CMD_CONNECT, 0);
	WAIT(ends[CLIENT].ready == cfg.n_gpus && ends[SERVER].ready == cfg.n_gpus);
}

static inline void close_both(void)
{
	for (unsigned s = 0; s < 2; s++) {
		dr_worker_destroy(ends[s].w);
		ends[s].w = NULL;
	}
}

static inline void begin(struct dr_phase p)
{
	struct dr_command c = { .kind = DR_CMD_PHASE, .position = DR_ALL, .phase = p };

	for (unsigned s = 0; s < 2; s++)
		memset(ends[s].done, 0, sizeof(ends[s].done));
	/* The sender first: what comes before the receiver knows the phase must wait for it. */
	dr_worker_post(ends[CLIENT].w, &c);
	dr_worker_post(ends[SERVER].w, &c);
}

static inline bool all_done(unsigned side, unsigned part)
{
	for (unsigned k = 0; k < cfg.n_gpus; k++)
		if (!ends[side].done[k][part])
			return false;
	return true;
}

static inline bool sends(unsigned side)
{
	return side == CLIENT ? cfg.n_back < cfg.n_bulk : cfg.n_back > 0;
}

static inline bool channel_sends(unsigned side, unsigned ch)
{
	return (ch >= cfg.n_bulk - cfg.n_back) == (side == SERVER);
}

static inline void wait_all_parts(void)
{
	for (unsigned s = 0; s < 2; s++) {
		if (sends(s))
			WAIT(all_done(s, 1));
		if (sends(!s))
			WAIT(all_done(s, 0));
	}
}

/* STOP, then tell each receiver what was sent. */
static inline void stop_and_expect(void)
{
	post_both(DR_CMD_STOP, 0);
	for (unsigned s = 0; s < 2; s++) {
		if (!sends(s))
			continue;
		WAIT(all_done(s, 1));
		for (unsigned k = 0; k < cfg.n_gpus; k++) {
			struct dr_command c = { .kind = DR_CMD_EXPECT, .position = k };

			for (unsigned i = 0; i < cfg.n_bulk; i++) {
				struct dr_live l;

				dr_worker_live(ends[s].w, k, i, &l);
				if (channel_sends(s, i))
					c.expect[i] = l.posted;
			}
			dr_worker_post(ends[!s].w, &c);
		}
	}
	wait_all_parts();
}

static inline void check_clean(unsigned side)
{
	assert_int_equal(ends[side].failed, 0);
	assert_int_equal(ends[side].first_errors, 0);
	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		const struct dr_phase_result *r = dr_worker_result(ends[side].w, k);

		assert_int_equal(r->corrupted + r->lost + r->duplicated + r->reordered, 0);
	}
}

static inline uint64_t live_rx(unsigned side)
{
	struct dr_live l;
	uint64_t sum = 0;

	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		for (unsigned i = 0; i < cfg.n_bulk; i++) {
			dr_worker_live(ends[side].w, k, i, &l);
			sum += l.bytes_rx;
		}
	}
	return sum;
}

static inline bool all_received(void)
{
	struct dr_live l;
	bool all = true;

	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		for (unsigned i = 0; i < cfg.n_bulk; i++) {
			dr_worker_live(ends[SERVER].w, k, i, &l);
			all = all && l.chunks_rx == l.posted;
		}
	}
	return all;
}

/* Nothing is delivered to the server any more: its worker posts no receive, and those that it had posted are over. */
static inline void stop_receiving(void)
{
	post(SERVER, DR_CMD_PAUSE_RECV, 0, true);
	post(SERVER, DR_CMD_SNAPSHOT, ++ends[SERVER].asked, false);
	WAIT(ends[SERVER].snapshot == ends[SERVER].asked);
	WAIT(all_received());
}

static inline uint64_t live_in_flight(unsigned side)
{
	struct dr_live l;
	uint64_t sum = 0;

	for (unsigned k = 0; k < cfg.n_gpus; k++) {
		for (unsigned i = 0; i < cfg.n_bulk; i++) {
			dr_worker_live(ends[side].w, k, i, &l);
			sum += l.in_flight;
		}
	}
	return sum;
}

#endif
