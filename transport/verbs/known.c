/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer without key names addresses at will, and could have this end send its heartbeats to a third host. A queue pair
 * whose message that host's NIC acknowledged shows that the peer receives there: the numbers that the NIC acknowledges were
 * told in WELCOME alone. Until then a rail sends one datagram for each that came, WELCOME included, and no padded ones.
 * That is enough for paths to connect, and gives a sender with a forged address nothing that it could not send itself.
 *
 * Heartbeats have a rail end of their own, without paths. So what a path has shown holds for all rail ends of the
 * process with the same token. The last KNOWN_MAX addresses are kept: a server has one session at a time.
 */
#include "transport/verbs/path_priv.h"

#include <pthread.h>
#include <string.h>

enum { KNOWN_MAX = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct known {
	uint8_t token[DR_TOKEN_LEN], gid[16];
	uint16_t lid;
	bool used;
} known[KNOWN_MAX];
static unsigned next;

static bool is_known(const struct vb_rail *r, uint16_t lid, const uint8_t gid[16])
{
	for (const struct known *k = known; k < known + KNOWN_MAX; k++)
		if (k->used && k->lid == lid && memcmp(k->gid, gid, sizeof(k->gid)) == 0 &&
			memcmp(k->token, r->par.token, DR_TOKEN_LEN) == 0)
			return true;
	return false;
}

void dr_verbs_known_add(const struct vb_rail *r, const struct dr_verbs_hello *peer)
{
	if (!r->limited)
		return;
	pthread_mutex_lock(&mutex);
	if (!is_known(r, peer->lid, peer->gid)) {
		struct known *k = &known[next];

		*k = (struct known){ .lid = peer->lid, .used = true };
		memcpy(k->gid, peer->gid, sizeof(k->gid));
		memcpy(k->token, r->par.token, DR_TOKEN_LEN);
		next = (next + 1) % KNOWN_MAX;
	}
	pthread_mutex_unlock(&mutex);
}

bool dr_verbs_known_may_send(struct vb_rail *r, bool padded)
{
	if (!r->limited)
		return true;
	pthread_mutex_lock(&mutex);
	r->limited = !is_known(r, r->where.peer.lid, r->where.peer.gid);
	pthread_mutex_unlock(&mutex);
	return !r->limited || (!padded && r->answered < r->heard);
}
