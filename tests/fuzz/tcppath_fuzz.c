/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path of the TCP kind whose peer said the right HELLO and then sends anything, in any fragments.
 * Events stay within what was posted; a fence ends it all.
 *
 *	u8: 1 this end sends, 2 it fences half-way | n x (u8 length, bytes)
 */
#include "base/log.h"
#include "tests/fuzz/lib/fuzz.h"
#include "transport/tcp/tcp.h"

#include <poll.h>

enum { MESSAGES = 3, PARTS = 2, PART_BYTES = 48, CHANNEL = 7, EPOCH = 1, ROUNDS_MAX = 64 };

struct world {
	struct dr_sink sink;
	struct dr_rail *rail;
	struct dr_path *path;
	struct dr_mr *mr;
	bool sender, ready, failed, fenced;
	unsigned delivered[MESSAGES], sent[MESSAGES], credits;
	int64_t now;
	int fd;
};

static void part_event(unsigned *seen, const struct dr_event *ev)
{
	dr_assert(ev->epoch == EPOCH && ev->seq < MESSAGES && ev->part < PARTS);
	dr_assert(!(seen[ev->seq] >> ev->part & 1));
	seen[ev->seq] |= 1u << ev->part;
}

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct world *w = dr_container_of(sink, struct world, sink);
	uint8_t copy[DR_CTRL_MAX];

	dr_assert(!w->failed || ev->kind == DR_EV_FENCED || !ev->path);
	dr_assert(!w->fenced || !ev->path);
	switch (ev->kind) {
	case DR_EV_READY:
		w->ready = true;
		break;
	case DR_EV_DELIVERED:
		dr_assert(!w->sender && ev->len <= PART_BYTES);
		part_event(w->delivered, ev);
		break;
	case DR_EV_SENT:
		dr_assert(w->sender);
		part_event(w->sent, ev);
		break;
	case DR_EV_CTRL:
		dr_assert(ev->len >= 1 && ev->len <= DR_CTRL_MAX);
		memcpy(copy, ev->data, ev->len);
		break;
	case DR_EV_CREDIT:
		dr_assert(w->sender);
		w->credits++;
		break;
	case DR_EV_FAILED:
		dr_assert(ev->err < 0 && ev->text && ev->text[0]);
		w->failed = true;
		break;
	case DR_EV_FENCED:
		w->fenced = true;
		break;
	default:
		break;
	}
}

static void progress(struct world *w)
{
	w->now += DR_NS_PER_MS;
	w->rail->ops->rail_progress(w->rail, w->now, &w->sink);
	if (!w->fenced)
		dr_path_progress(w->path, w->now, &w->sink);
}

static void progress_until(struct world *w, const bool *done)
{
	for (int i = 0; i < 1000 && !*done; i++)
		progress(w);
	dr_assert(*done);
}

static struct tcp_rail_handle open_rail(struct world *w, struct fz *z)
{
	struct tcp_rail_handle h;
	struct dr_rail_params rp = { .ifname = "lo" };
	struct sockaddr_in *in = (struct sockaddr_in *)&rp.local;
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_memory m;
	int n;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	dr_assert(dr_tcp_ops.listen(&rp, &w->rail, NULL) == 0);
	n = dr_tcp_ops.rail_handle(w->rail, handle, sizeof(handle));
	dr_assert(n > 0 && dr_tcp_rail_handle_parse(handle, (size_t)n, &h, NULL) == 0);
	dr_assert(dr_tcp_ops.rail_peer(w->rail, handle, (size_t)n, NULL) == 0);
	m = (struct dr_memory){ .base = fz_alloc(z, MESSAGES * PARTS * PART_BYTES),
		.len = MESSAGES * PARTS * PART_BYTES };
	dr_assert(dr_tcp_ops.mr_reg(w->rail, &m, &w->mr, NULL) == 0);
	return h;
}

/* libFuzzer's alarm may interrupt connect, which then goes on by itself. */
static bool connected(int fd, const struct sockaddr_in *sa)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int err = 0;
	socklen_t len = sizeof(err);

	if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0)
		return true;
	if (errno != EINTR)
		return false;
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0;
}

/* Answers the challenge; the token is zeros. */
static void prove(struct world *w)
{
	struct dr_path_ident id = {
		.channel = CHANNEL, .gen = 1, .sender = !w->sender, .connector = true
	};
	uint8_t in[TCP_CHALLENGE_LEN], out[TCP_HELLO_LEN], zeros[DR_KEY_LEN] = { 0 };
	struct tcp_admission a;
	struct tcp_hs h;
	ssize_t n = 0;
	size_t used;

	for (int i = 0; i < 1000 && n != (ssize_t)sizeof(in); i++) {
		progress(w);
		n = recv(w->fd, in, sizeof(in), MSG_PEEK | MSG_DONTWAIT);
	}
	dr_assert(recv(w->fd, in, sizeof(in), MSG_DONTWAIT) == (ssize_t)sizeof(in));
	dr_tcp_admission_init(&a, zeros, zeros);
	a.peer = tcp_rail(w->rail)->admission.self;
	dr_tcp_hs_init(&h, &a, &id);
	dr_tcp_hs_start(&h);
	dr_assert(dr_tcp_hs_bytes(&h, in, sizeof(in), &used, NULL) == 1);
	dr_tcp_hs_hello(&h, out);
	dr_assert(send(w->fd, out, sizeof(out), 0) == (ssize_t)sizeof(out));
}

/* The peer dials and says who it is. */
static void dial(struct world *w, struct tcp_rail_handle h)
{
	struct dr_path_params pp = { .channel = CHANNEL, .gen = 1, .sender = w->sender };
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(h.tcp_port) };
	struct linger none = { .l_onoff = 1 };

	dr_assert(dr_tcp_ops.create(w->rail, &pp, &w->path, NULL) == 0);
	dr_assert(dr_tcp_ops.connect(w->path, NULL, 0, w->now, NULL) == 0);
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	dr_assert(w->fd >= 0 && connected(w->fd, &sa));
	/* Reset at the end: no socket stays in TIME_WAIT. */
	setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	prove(w);
	progress_until(w, &w->ready);
}

static void post(struct world *w, uint64_t seq)
{
	struct dr_part part[PARTS];

	for (unsigned i = 0; i < PARTS; i++)
		part[i] = (struct dr_part){
			.mr = w->mr, .off = (seq * PARTS + i) * PART_BYTES, .len = PART_BYTES
		};
	if (!w->sender)
		dr_assert(dr_path_post_recv(w->path, EPOCH, seq, part, PARTS, 0) == 0);
	else
		for (unsigned i = 0; i < PARTS; i++)
			(void)!dr_path_post_send(w->path, EPOCH, seq, i, &part[i]);
	dr_path_flush(w->path, w->now);
}

static void talk(struct world *w, struct fz *z, bool half_way)
{
	for (unsigned i = 0; i < ROUNDS_MAX && z->n && !w->failed && !w->fenced; i++) {
		size_t len, want = fz_u8(z);
		uint8_t *b = fz_bytes(z, want, &len);

		if (len && send(w->fd, b, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			dr_assert(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
		progress(w);
		if (w->sender && !w->failed && w->credits && i < MESSAGES)
			post(w, i);
		if (half_way && i == 4 && !w->failed && !w->sender)
			w->path->ops->fence(w->path, w->now + DR_NS_PER_S);
	}
}

FUZZ(z)
{
	struct world w = { .sink.event = on_event, .now = DR_NS_PER_S };
	uint8_t flags = fz_u8(z);

	dr_log_set_level(DR_LOG_ERROR);
	w.sender = flags & 1;
	dial(&w, open_rail(&w, z));
	for (uint64_t seq = 0; !w.sender && seq < MESSAGES; seq++)
		post(&w, seq);
	talk(&w, z, flags & 2);
	if (!w.fenced)
		w.path->ops->fence(w.path, w.now + DR_NS_PER_S);
	progress_until(&w, &w.fenced);
	dr_tcp_ops.close(w.path);
	dr_assert(dr_tcp_ops.stop(w.path) == 0);
	dr_tcp_ops.fini(w.path);
	dr_assert(dr_tcp_ops.mr_dereg(w.rail, w.mr) == 0);
	dr_tcp_ops.rail_close(w.rail);
	dr_tcp_ops.rail_fini(w.rail);
	close(w.fd);
}
