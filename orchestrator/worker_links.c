/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/worker_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "topology/linkmon.h"

/*
 * Only the state that a link has after all pending notifications counts. The kernel reports a lost
 * carrier up to a second late (linkwatch): by then the link may be up, and its paths rebuilt; taking
 * that news for a loss would cut them again. What a short loss broke the heartbeats and the paths tell.
 */
static void on_link(const struct dr_link_event *ev, void *arg)
{
	struct dr_worker *w = arg;

	/* A lost address alone is left to the heartbeats: nothing tells when it is back. */
	if (ev->change == DR_LINK_ADDR_REMOVED)
		return;
	for (unsigned i = 0; i < w->n_changed; i++)
		if (w->changed[i] == ev->ifindex)
			return;
	if (w->n_changed < DR_ARRAY_LEN(w->changed))
		w->changed[w->n_changed++] = ev->ifindex;
}

static void apply_links(struct dr_worker *w)
{
	int64_t now = dr_now_ns();

	for (unsigned c = 0; c < w->n_changed; c++)
		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			dr_manager_link(w->gpu[i]->mgr, w->changed[c],
				dr_linkmon_state(w->links, w->changed[c]) == 1, now);
	w->n_changed = 0;
}

void dr_worker_close_links(struct dr_worker *w)
{
	if (!w->links)
		return;
	dr_poller_del(w->poller, &w->link_po);
	dr_linkmon_close(w->links);
	w->links = NULL;
}

static void links_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_worker *w = dr_container_of(po, struct dr_worker, link_po);
	int rc = dr_linkmon_progress(w->links, on_link, w);

	(void)revents;
	(void)now_ns;
	apply_links(w);
	if (rc >= 0)
		return;
	dr_warn("worker", "link monitor: %s; opening it again", dr_errno_name(rc));
	dr_worker_close_links(w);
	dr_worker_open_links(w);
}

/* Detection works without it, by heartbeats, only later: so no failure here ends the run. */
void dr_worker_open_links(struct dr_worker *w)
{
	struct dr_err e = { .code = 0, .text = "" };
	bool wanted = false;
	int rc;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		for (unsigned r = 0; r < w->gpu[i]->prm.manager.n_rails; r++)
			wanted |= w->gpu[i]->prm.manager.rail[r].ifindex > 0;
	if (!wanted)
		return;
	rc = dr_linkmon_open(&w->links, &e);
	if (rc == 0) {
		w->link_po =
			(struct dr_pollable){ .fd = dr_linkmon_fd(w->links), .ready = links_ready };
		rc = dr_poller_add(w->poller, &w->link_po, EPOLLIN);
		if (rc < 0)
			dr_worker_close_links(w);
	}
	if (rc < 0)
		dr_warn("worker", "no link events (%s); links are judged by heartbeats",
			e.text[0] ? e.text : dr_errno_name(rc));
}
