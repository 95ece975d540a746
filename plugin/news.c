/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/news.h"

#include "base/log.h"
#include "base/text.h"
#include "plugin/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const int64_t TOGETHER_NS = DR_NS_PER_S;

struct event {
	int64_t since_ns; /* 0: none */
	unsigned moved, peers;
	int64_t gap_ns;
	char ifname[IFNAMSIZ], to[IFNAMSIZ], peer[64], why[160];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event events[HA_DEVICES_MAX];

void ha_news_add(const struct ha_news *n, int64_t now_ns)
{
	struct event *e = &events[n->device % HA_DEVICES_MAX];

	pthread_mutex_lock(&lock);
	if (e->since_ns == 0) {
		*e = (struct event){ .since_ns = now_ns, .gap_ns = -1 };
		dr_text_copy(e->ifname, sizeof(e->ifname), n->ifname);
		dr_text_copy(e->why, sizeof(e->why), n->why);
	}
	if (n->to &&
		e->moved == 0) /* peers of moved connections alone are named, if there are any */
		e->peers = 0;
	if ((n->to || e->moved == 0) &&
		(e->peers == 0 || strncmp(e->peer, n->peer, sizeof(e->peer) - 1) != 0)) {
		dr_text_copy(e->peer, sizeof(e->peer), n->peer);
		e->peers++;
	}
	if (n->to) {
		dr_text_copy(e->to, sizeof(e->to), n->to);
		e->moved++;
		e->gap_ns = DR_MAX(e->gap_ns, n->gap_ns);
	}
	pthread_mutex_unlock(&lock);
}

static void print(const struct event *e)
{
	const char *peers = e->peers > 1 ? "several peers" : e->peer;
	char gap[64] = "none carried data";

	if (e->gap_ns >= 0)
		(void)snprintf(gap, sizeof(gap), "longest gap %.3f ms", (double)e->gap_ns / 1e6);
	if (e->moved > 0)
		dr_info("session", "%s: %u connection%s from %s go%s on over %s, %s: %s", e->ifname,
			e->moved, e->moved == 1 ? "" : "s", peers, e->moved == 1 ? "es" : "", e->to,
			gap, e->why);
	else
		dr_info("session", "%s to %s is down: %s", e->ifname, peers, e->why);
}

void ha_news_print(int64_t now_ns, bool all)
{
	for (unsigned i = 0; i < HA_DEVICES_MAX; i++) {
		struct event e;

		pthread_mutex_lock(&lock);
		e = events[i];
		if (e.since_ns != 0 && (all || now_ns - e.since_ns >= TOGETHER_NS))
			events[i].since_ns = 0;
		else
			e.since_ns = 0;
		pthread_mutex_unlock(&lock);
		if (e.since_ns != 0)
			print(&e);
	}
}
