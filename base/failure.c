/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include "base/clock.h"
#include "base/defs.h"
#include "base/source.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

static const int64_t RECENT_NS = 10 * DR_NS_PER_S;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct failure {
	struct sockaddr_storage local, peer; /* AF_UNSPEC: unused */
	int64_t at_ns;
	int err;
} failures[32];

const char *dr_failure_own(int err)
{
	switch (-err) {
	case EMFILE:
	case ENFILE:
		return "this process has no file descriptor left; raise ulimit -n";
	case EADDRNOTAVAIL:
	case EADDRINUSE:
		return "no local port is free; widen net.ipv4.ip_local_port_range or --data-ports";
	case ENOMEM:
	case ENOBUFS:
		return "the kernel has no memory for the connection; see net.ipv4.tcp_mem and the "
		       "cgroup's limit";
	case EACCES:
	case EPERM:
		return "this host does not allow it; check its outgoing firewall rules and "
		       "capabilities";
	default:
		return NULL;
	}
}

static bool is_of(const struct failure *f, const struct sockaddr_storage *local,
	const struct sockaddr_storage *peer)
{
	return dr_same_host(&f->local, local) && dr_same_host(&f->peer, peer);
}

void dr_failure_keep(
	const struct sockaddr_storage *local, const struct sockaddr_storage *peer, int err)
{
	struct failure *to = failures;
	int64_t now = dr_now_ns();

	pthread_mutex_lock(&mutex);
	for (struct failure *f = failures; f < failures + DR_ARRAY_LEN(failures); f++) {
		if (f->at_ns < to->at_ns)
			to = f;
		if (is_of(f, local, peer)) {
			to = f;
			break;
		}
	}
	if (!is_of(to, local, peer) || to->at_ns <= now - RECENT_NS || dr_failure_own(err) ||
		!dr_failure_own(to->err))
		*to = (struct failure){ *local, *peer, now, err };
	pthread_mutex_unlock(&mutex);
}

int dr_failure_last(
	const struct sockaddr_storage *local, const struct sockaddr_storage *peer, unsigned *port)
{
	int64_t since = dr_now_ns() - RECENT_NS;
	int err = 0;

	pthread_mutex_lock(&mutex);
	for (const struct failure *f = failures; f < failures + DR_ARRAY_LEN(failures); f++) {
		if (f->at_ns <= since || !is_of(f, local, peer))
			continue;
		err = f->err;
		if (port)
			*port = dr_sa_port(&f->peer);
	}
	pthread_mutex_unlock(&mutex);
	return err;
}
