/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/known.h"

#include <pthread.h>
#include <string.h>

enum { KNOWN_MAX = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dr_known known[KNOWN_MAX];
static unsigned next;

static bool is_known(const struct dr_known *p)
{
	for (const struct dr_known *k = known; k < known + KNOWN_MAX; k++)
		if (k->len > 0 && k->len == p->len && memcmp(k->at, p->at, k->len) == 0 &&
			memcmp(k->token, p->token, DR_TOKEN_LEN) == 0)
			return true;
	return false;
}

void dr_known_add(const struct dr_known *k)
{
	pthread_mutex_lock(&mutex);
	if (!is_known(k)) {
		known[next] = *k;
		next = (next + 1) % KNOWN_MAX;
	}
	pthread_mutex_unlock(&mutex);
}

bool dr_known_may_send(struct dr_known_limit *l, size_t amount, bool padded)
{
	if (!l->on)
		return true;
	pthread_mutex_lock(&mutex);
	l->on = !is_known(&l->peer);
	pthread_mutex_unlock(&mutex);
	return !l->on || (!padded && l->answered + amount <= l->heard);
}
