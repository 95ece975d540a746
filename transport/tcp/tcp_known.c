/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer without key names addresses at will, and could have this end send its heartbeats to a third host. A TCP
 * connection with the session's token shows that the peer receives there. Until then a rail sends one datagram for each
 * that came. That is enough for a rail that has no connection yet to come up, and gives a sender with a forged address
 * nothing that it could not send itself.
 *
 * Heartbeats have a rail end of their own, without connections. So what a connection has shown holds for all rail ends
 * of the process with the same token. The last KNOWN_MAX addresses are kept: a server has one session at a time.
 */
#include "base/source.h"
#include "transport/tcp/tcp.h"

#include <pthread.h>
#include <string.h>

enum { KNOWN_MAX = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct known {
	uint8_t token[DR_TOKEN_LEN];
	struct sockaddr_storage host;
} known[KNOWN_MAX];
static unsigned next;

static bool is_known(const struct tcp_rail *r)
{
	for (unsigned i = 0; i < KNOWN_MAX; i++)
		if (dr_same_host(&known[i].host, &r->peer) &&
			memcmp(known[i].token, r->par.token, DR_TOKEN_LEN) == 0)
			return true;
	return false;
}

void dr_tcp_known_add(const struct tcp_rail *r, int fd)
{
	struct sockaddr_storage from = { 0 };
	socklen_t len = sizeof(from);

	if (!r->tcp.distrusts || !r->has_peer ||
		getpeername(fd, (struct sockaddr *)&from, &len) < 0 ||
		!dr_same_host(&from, &r->peer))
		return;
	pthread_mutex_lock(&mutex);
	if (!is_known(r)) {
		memcpy(known[next].token, r->par.token, DR_TOKEN_LEN);
		known[next].host = from;
		next = (next + 1) % KNOWN_MAX;
	}
	pthread_mutex_unlock(&mutex);
}

bool dr_tcp_known_may_send(struct tcp_rail *r)
{
	if (!r->limited)
		return true;
	pthread_mutex_lock(&mutex);
	r->limited = !is_known(r);
	pthread_mutex_unlock(&mutex);
	return !r->limited || r->answered < r->heard;
}
