/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_TESTKIT_H
#define DR_TRANSPORT_TCP_TESTKIT_H

/* Two rails over loopback and paths between them, for the tests of this folder. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "transport/tcp/tcp.h"

enum { KIT_EVENTS = 4096 };

struct kit_sink {
	struct dr_sink sink;
	int count[DR_EV_INCOMING + 1];
	struct dr_event ev[KIT_EVENTS];
	int n;
	uint8_t bytes[DR_DGRAM_MAX]; /* of the last CTRL or DGRAM */
	char text[256];
	void (*hook)(struct kit_sink *s, const struct dr_event *ev);
	void *arg;
};

/* End 0 dials and sends, end 1 admits and receives. */
struct kit {
	struct dr_rail *rail[2];
	struct dr_path *path[2];
	struct kit_sink sink[2], rail_sink[2];
	struct dr_poller *poller; /* NULL: progress is called in a loop */
	/* Of this kit alone: ports are used again, by other tests too, and what still arrives there is refused. */
	uint8_t token[DR_TOKEN_LEN];
	uint32_t gen;
	int64_t ahead_ns; /* added to the clock that the rails see */
};

static int kit_warnings; /* printed since kit_count_warnings */

static inline void kit_log(
	enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)component, (void)text, (void)arg;
	kit_warnings += level == DR_LOG_WARN;
}

/* Until dr_log_set_sink(NULL, NULL). */
static inline void kit_count_warnings(void)
{
	kit_warnings = 0;
	dr_log_set_sink(kit_log, NULL);
}

static inline void kit_event(struct dr_sink *s, const struct dr_event *ev)
{
	struct kit_sink *k = dr_container_of(s, struct kit_sink, sink);

	k->count[ev->kind]++;
	if (k->n < KIT_EVENTS)
		k->ev[k->n++] = *ev;
	if (ev->kind == DR_EV_CTRL || ev->kind == DR_EV_DGRAM)
		memcpy(k->bytes, ev->data, ev->len);
	if (ev->kind == DR_EV_FAILED)
		strncpy(k->text, ev->text, sizeof(k->text) - 1);
	if (k->hook)
		k->hook(k, ev);
}

static inline struct dr_event *kit_last(struct kit_sink *s, enum dr_event_kind kind)
{
	int i;

	for (i = s->n; i-- > 0;)
		if (s->ev[i].kind == kind)
			return &s->ev[i];
	fail_msg("no event %d", kind);
	return NULL;
}

static inline void kit_forget(struct kit_sink *s)
{
	s->n = 0;
	memset(s->count, 0, sizeof(s->count));
}

/* With a poller: what it calls. */
struct kit_ready {
	struct kit *k;
	int i;
};

static inline void kit_path_progress(struct kit *k, int i, int64_t now)
{
	if (k->path[i])
		k->path[i]->ops->progress(k->path[i], now, &k->sink[i].sink);
}

static inline void kit_rail_progress(struct kit *k, int i, int64_t now)
{
	if (k->rail[i])
		k->rail[i]->ops->rail_progress(
			k->rail[i], now + k->ahead_ns, &k->rail_sink[i].sink);
}

static struct kit_ready kit_ready_args[2];

static inline void kit_path_ready(void *arg, int64_t now)
{
	struct kit_ready *a = arg;

	kit_path_progress(a->k, a->i, now);
}

static inline void kit_rail_ready(void *arg, int64_t now)
{
	struct kit_ready *a = arg;

	kit_rail_progress(a->k, a->i, now);
}

static inline void kit_step(struct kit *k)
{
	int64_t now = dr_now_ns();
	int i;

	if (k->poller) {
		assert_true(dr_poller_wait(k->poller, 100 * DR_NS_PER_MS) >= 0);
		return;
	}
	for (i = 0; i < 2; i++) {
		kit_rail_progress(k, i, now);
		kit_path_progress(k, i, now);
	}
}

/* Drive everything until cond holds; a test that hangs fails after 20 s. */
#define kit_until(k, cond)                                                                         \
	do {                                                                                       \
		int64_t kit_deadline = dr_now_ns() + 20 * DR_NS_PER_S;                             \
		while (!(cond)) {                                                                  \
			if (dr_now_ns() > kit_deadline)                                            \
				fail_msg("%s:%d: waited in vain for %s", __FILE__, __LINE__,       \
					#cond);                                                    \
			kit_step(k);                                                               \
		}                                                                                  \
	} while (0)

static inline struct dr_rail_params kit_rail_params(struct kit *k, int i, int family)
{
	struct dr_rail_params rp = { .index = 0,
		.ifname = "lo",
		.poller = k->poller,
		.ready = kit_rail_ready,
		.arg = &kit_ready_args[i] };

	rp.local.ss_family = (sa_family_t)family;
	if (family == AF_INET6)
		((struct sockaddr_in6 *)&rp.local)->sin6_addr = in6addr_loopback;
	else
		((struct sockaddr_in *)&rp.local)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(rp.token, k->token, sizeof(rp.token));
	return rp;
}

static inline void kit_listen(struct kit *k, int family, bool polled)
{
	struct dr_rail_params rp;
	struct dr_err e;
	int i;

	memset(k, 0, sizeof(*k));
	assert_int_equal(dr_random_bytes(k->token, sizeof(k->token)), 0);
	if (polled)
		assert_int_equal(dr_poller_create(&k->poller, NULL), 0);
	for (i = 0; i < 2; i++) {
		kit_ready_args[i] = (struct kit_ready){ k, i };
		k->sink[i].sink.event = k->rail_sink[i].sink.event = kit_event;
		rp = kit_rail_params(k, i, family);
		if (dr_tcp_ops.listen(&rp, &k->rail[i], &e))
			fail_msg("%s", e.text);
	}
}

/* Each rail is told its peer. */
static inline void kit_introduce(struct kit *k)
{
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_err e;
	int i, n;

	for (i = 0; i < 2; i++) {
		n = dr_tcp_ops.rail_handle(k->rail[!i], handle, sizeof(handle));
		assert_true(n > 0);
		assert_int_equal(dr_tcp_ops.rail_peer(k->rail[i], handle, (size_t)n, &e), 0);
	}
}

static inline void kit_open(struct kit *k, int family, bool polled)
{
	kit_listen(k, family, polled);
	kit_introduce(k);
}

static inline void kit_create(struct kit *k, int i, uint32_t gen)
{
	struct dr_path_params pp = { .channel = 7,
		.index = 1,
		.gen = gen,
		.sender = i == 0,
		.connector = i == 0,
		.ready = kit_path_ready,
		.arg = &kit_ready_args[i] };

	assert_int_equal(dr_tcp_ops.create(k->rail[i], &pp, &k->path[i], NULL), 0);
	kit_forget(&k->sink[i]);
}

static inline void kit_connect(struct kit *k, int i)
{
	struct dr_err e;

	if (dr_tcp_ops.connect(k->path[i], NULL, 0, dr_now_ns(), &e))
		fail_msg("%s", e.text);
}

static inline void kit_destroy(struct kit *k, int i)
{
	if (!k->path[i])
		return;
	dr_tcp_ops.close(k->path[i]);
	dr_tcp_ops.close(k->path[i]);
	assert_int_equal(dr_tcp_ops.stop(k->path[i]), 0);
	dr_tcp_ops.fini(k->path[i]);
	k->path[i] = NULL;
}

/* Both paths up. */
static inline void kit_up(struct kit *k)
{
	int i;

	k->gen++;
	for (i = 0; i < 2; i++)
		kit_create(k, i, k->gen);
	kit_connect(k, 1);
	kit_connect(k, 0);
	kit_until(k, k->sink[0].count[DR_EV_READY] && k->sink[1].count[DR_EV_READY]);
}

static inline void kit_close(struct kit *k)
{
	int i;

	for (i = 0; i < 2; i++) {
		kit_destroy(k, i);
		if (k->rail[i]) {
			dr_tcp_ops.rail_close(k->rail[i]);
			dr_tcp_ops.rail_fini(k->rail[i]);
		}
	}
	dr_poller_destroy(k->poller);
}

#endif
