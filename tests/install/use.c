/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of another tree that uses the installed library: two managers in one process, two rails over
 * loopback, one channel, a few messages through a sliding window. Exit status 0: the data arrived.
 * Compiled against the installed headers alone.
 */
#include <base/clock.h>
#include <base/log.h>
#include <channel/manager.h>
#include <window/window.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGES = 64, WINDOW = 4, BYTES = 1000 };

static const struct dr_manager_ops no_ops;

static int consume(void *ctx, uint64_t request)
{
	(void)ctx, (void)request;
	return 0;
}

static int test(void *ctx, uint64_t request)
{
	return dr_channel_test(ctx, request);
}

static const struct dr_window_ops window_ops = { .test = test, .consume = consume };

static void rail_at(struct dr_manager_rail *r, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&r->local, &in, sizeof(in));
}

static struct dr_manager *open_end(bool sender, struct dr_poller *poller, struct dr_err *e)
{
	struct dr_manager_params p = {
		.transport = dr_transport_find("tcp"),
		.n_rails = 2,
		.connector = sender,
		.window = WINDOW,
		.heartbeat_ns = 10 * DR_NS_PER_MS,
		.poller = poller,
		.ops = &no_ops,
	};
	struct dr_manager_channel spec = { .primary = 0, .shadow = 1, .sender = sender };
	struct dr_channel *ch;
	struct dr_manager *m;

	rail_at(&p.rail[0], "127.0.0.1");
	rail_at(&p.rail[1], "127.0.0.2");
	if (dr_manager_create(&p, &m, e) || dr_manager_open_channel(m, 0, &spec, &ch, e))
		return NULL;
	return m;
}

/* The handles of `from` start `to`; between two hosts they travel over a connection of the user's. */
static int start(struct dr_manager *to, struct dr_manager *from, struct dr_err *e)
{
	struct dr_channel *ch = dr_manager_channel_at(to, 0);
	uint8_t handle[2][DR_HANDLE_MAX];
	uint16_t len[2];
	unsigned i, n = dr_manager_handle_count(from);
	int rc;

	for (i = 0; i < n && i < 2; i++) {
		rc = dr_manager_handle(from, i, handle[i], sizeof(handle[i]));
		if (rc < 0)
			return rc;
		len[i] = (uint16_t)rc;
	}
	rc = dr_manager_start(to, handle, len, n, dr_now_ns(), e);
	if (rc)
		return rc;
	rc = dr_channel_handle(dr_manager_channel_at(from, 0), handle[0], sizeof(handle[0]));
	return rc < 0 ? rc : dr_channel_start(ch, handle[0], (size_t)rc, dr_now_ns(), e);
}

struct end {
	struct dr_manager *manager;
	struct dr_channel *channel;
	struct dr_mem mem;
	struct dr_window window;
	uint8_t bytes[BYTES];
	unsigned posted;
};

static int ready(struct end *end, struct dr_err *e)
{
	struct dr_memory m = { .base = end->bytes, .len = sizeof(end->bytes) };

	end->channel = dr_manager_channel_at(end->manager, 0);
	if (dr_window_init(&end->window, WINDOW, &window_ops, end->channel))
		return -1;
	return dr_channel_mem_reg(end->channel, &m, &end->mem, e);
}

/* Post as much as the window takes, release what is done. */
static int turn(struct end *end, bool sender)
{
	struct dr_span span = { .mem = &end->mem, .len = BYTES };
	uint64_t seq;
	int rc = 0;

	while (end->posted < MESSAGES && !dr_window_full(&end->window)) {
		rc = sender ? dr_channel_send(end->channel, &span, 1, &seq, dr_now_ns())
			    : dr_channel_recv(end->channel, &span, 1, &seq, dr_now_ns());
		if (rc)
			break;
		if (dr_window_push(&end->window, seq))
			return -1;
		end->posted++;
	}
	dr_channel_flush(end->channel, dr_now_ns());
	if (rc && rc != -EAGAIN)
		return rc;
	return dr_window_drain(&end->window) < 0 ? -1 : 0;
}

static bool done(const struct end *end)
{
	return end->posted == MESSAGES && dr_window_in_flight(&end->window) == 0;
}

static int transfer(struct end *from, struct end *to, struct dr_poller *poller)
{
	int64_t end = dr_now_ns() + 20 * DR_NS_PER_S;
	struct dr_manager *m[2] = { from->manager, to->manager };
	int i;

	while (!done(from) || !done(to)) {
		if (dr_now_ns() > end)
			return -ETIMEDOUT;
		if (dr_poller_wait(poller, DR_NS_PER_MS) < 0)
			return -1;
		for (i = 0; i < 2; i++)
			dr_manager_tick(m[i], dr_now_ns());
		if (dr_manager_ready(m[0]) == 1 && dr_manager_ready(m[1]) == 1 &&
			(turn(from, true) || turn(to, false)))
			return -1;
		for (i = 0; i < 2; i++)
			dr_manager_idle(m[i], dr_now_ns());
	}
	return 0;
}

/* The peer is told, and may still ask: both are driven until they know of each other. */
static int close_both(struct end *from, struct end *to, struct dr_poller *poller)
{
	int64_t end = dr_now_ns() + 10 * DR_NS_PER_S;
	struct dr_manager *m[2] = { from->manager, to->manager };
	int rc[2], i;

	for (i = 0; i < 2; i++)
		dr_manager_close(m[i], dr_now_ns());
	while (!dr_manager_closed(m[0]) || !dr_manager_closed(m[1])) {
		if (dr_now_ns() > end)
			return -ETIMEDOUT;
		if (dr_poller_wait(poller, DR_NS_PER_MS) < 0)
			return -1;
		for (i = 0; i < 2; i++)
			dr_manager_tick(m[i], dr_now_ns());
	}
	/* An error: the NIC may still access the memory, which must stay allocated. This one is static. */
	rc[0] = dr_channel_mem_dereg(from->channel, &from->mem, dr_now_ns(), NULL);
	rc[1] = dr_channel_mem_dereg(to->channel, &to->mem, dr_now_ns(), NULL);
	for (i = 0; i < 2; i++)
		(void)dr_manager_destroy(m[i]);
	return rc[0] ? rc[0] : rc[1];
}

int main(void)
{
	static struct end from, to;
	struct dr_poller *poller;
	struct dr_err e = { 0 };
	int rc;

	dr_log_set_level(DR_LOG_ERROR);
	if (dr_poller_create(&poller, &e))
		goto fail;
	from.manager = open_end(true, poller, &e);
	to.manager = open_end(false, poller, &e);
	if (!from.manager || !to.manager || start(from.manager, to.manager, &e) ||
		start(to.manager, from.manager, &e) || ready(&from, &e) || ready(&to, &e))
		goto fail;
	memset(from.bytes, 0x5a, sizeof(from.bytes));
	rc = transfer(&from, &to, poller);
	if (rc || memcmp(from.bytes, to.bytes, sizeof(to.bytes)) != 0) {
		printf("the data did not arrive: %d\n", rc);
		return 1;
	}
	rc = close_both(&from, &to, poller);
	if (rc) {
		printf("the channel was not closed: %d\n", rc);
		return 1;
	}
	dr_poller_destroy(poller);
	printf("%d messages arrived\n", MESSAGES);
	return 0;
fail:
	printf("%s\n", e.text);
	return 1;
}
