/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the peer's kernel answers while its process stands and no path is left: a connection to
 * its listener, on which a byte is sent now and then. The kernel completes the handshake, and
 * acknowledges the bytes, without the process, which finds the connection in its backlog when it
 * goes on, and drops it by its first byte (TCP_ASK). A kernel whose process has ended refuses it.
 * There is one connection, which stays while it works, so that the backlog does not fill; it is
 * made anew at most once per second.
 */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <linux/tcp.h>
#include <unistd.h>

enum { STATE_ESTABLISHED = 1, STATE_SYN_SENT = 2 }; /* tcpi_state: net/tcp_states.h of the kernel */
static const int64_t DIAL_NS = DR_NS_PER_S;	    /* between two connections */
/* Between two bytes. A byte that is lost is repeated after 200 and 600 ms: 1.5 s without an
 * answer is no loss. */
static const int64_t BYTE_NS = 250 * DR_NS_PER_MS;
static const int64_t AGAIN_NS = 100 * DR_NS_PER_MS; /* after an error of this host: no route */

static void hang_up(struct tcp_ask *a)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->connected = false;
}

/* A reset of one that was there comes from a kernel whose process has just ended, or which has
 * dropped it: the next one tells. */
static void ended(struct tcp_ask *a, int err, int64_t now)
{
	if (err == ECONNREFUSED) {
		a->answer.refused = true;
		a->answer.at_ns = now;
	}
	hang_up(a);
}

static bool may_dial(struct tcp_rail *r)
{
	return r->has_peer && !r->closed && dr_known_may_send(&r->limit, 0, true);
}

static void dial(struct tcp_rail *r, int64_t now)
{
	struct tcp_ask *a = &r->ask;
	struct dr_err e;

	a->next_ns = now + AGAIN_NS;
	if (dr_tcp_sock_open(r, SOCK_STREAM, 0, false, &a->fd, &e) != 0) {
		a->fd = -1;
		return;
	}
	dr_tcp_sock_tune(r, a->fd);
	int rc = connect(a->fd, (struct sockaddr *)&r->peer, dr_sa_len(&r->peer));

	if (rc < 0 && errno != EINPROGRESS)
		ended(a, errno, now);
	else
		a->next_ns = now + DIAL_NS;
}

static void look(struct tcp_ask *a, int64_t now)
{
	static const uint8_t ask = TCP_ASK;
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti), err_len = sizeof(int);
	int err = 0;

	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &err_len) < 0 || err != 0 ||
		getsockopt(a->fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0) {
		ended(a, err, now);
		return;
	}
	if (ti.tcpi_state == STATE_SYN_SENT) {
		if (now >= a->next_ns) /* its repetitions become rare */
			hang_up(a);
		return;
	}
	if (ti.tcpi_state != STATE_ESTABLISHED) { /* the process goes on, and has dropped it */
		a->answer.at_ns = now;
		hang_up(a);
		return;
	}
	a->answer.refused = false;
	a->answer.at_ns = DR_MAX(a->answer.at_ns, now - ti.tcpi_last_ack_recv * DR_NS_PER_MS);
	if (a->connected && now < a->next_ns)
		return;
	a->connected = true;
	a->next_ns = now + BYTE_NS;
	(void)!send(a->fd, &ask, sizeof(ask), MSG_NOSIGNAL);
}

void dr_tcp_rail_ask(struct dr_rail *br, int64_t now_ns, struct dr_rail_answer *out)
{
	struct tcp_rail *r = tcp_rail(br);
	struct tcp_ask *a = &r->ask;

	if (!out) {
		hang_up(a);
		a->answer = (struct dr_rail_answer){ 0 };
		return;
	}
	if (a->fd >= 0)
		look(a, now_ns);
	if (a->fd < 0 && now_ns >= a->next_ns && may_dial(r))
		dial(r, now_ns);
	*out = a->answer;
}
