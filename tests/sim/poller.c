/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/poller.h"

/*
 * Stands for base/poller.c, which is file descriptors and system calls. Rails and paths of the simulated kind are
 * driven from outside; what is left is the poller of the heartbeats that managers share: one of their pollers
 * watches it, and they wake each other.
 */

int dr_poller_add(struct dr_poller *p, struct dr_pollable *po, uint32_t events)
{
	(void)events;
	dr_assert(!p->watched);
	p->watched = po;
	return 0;
}

void dr_poller_del(struct dr_poller *p, struct dr_pollable *po)
{
	if (p->watched == po)
		p->watched = NULL;
}

int dr_poller_wait(struct dr_poller *p, int64_t timeout_ns)
{
	dr_assert(timeout_ns == 0 && p == &p->r->apart[p->end]);
	return (int)dr_sim_port_drive(p->r->w, p->end, SIM_PEER_PORT, dr_rng_u64(&p->r->rng));
}

int dr_poller_fd(const struct dr_poller *p)
{
	(void)p;
	return -1;
}

void dr_poller_rest(struct dr_poller *p)
{
	(void)p;
}

void dr_poller_wake(struct dr_poller *p)
{
	p->woken = p->r->due_changed = true;
	sim_cover.wakes++;
}

/* Objects that are linked in and never run call these. */
int dr_poller_create(struct dr_poller **out, struct dr_err *e)
{
	(void)out, (void)e;
	dr_assert(!"not simulated");
}

void dr_poller_destroy(struct dr_poller *p)
{
	dr_assert(!p && "not simulated");
}

int dr_poller_mod(struct dr_poller *p, struct dr_pollable *po, uint32_t events)
{
	(void)p, (void)po, (void)events;
	dr_assert(!"not simulated");
}

void dr_poller_kick(struct dr_poller *p, struct dr_pollable *po)
{
	(void)p, (void)po;
	dr_assert(!"not simulated");
}

void dr_poller_watch(struct dr_poller *p, struct dr_watch *w)
{
	(void)p, (void)w;
	dr_assert(!"not simulated");
}

void dr_poller_unwatch(struct dr_poller *p, struct dr_watch *w)
{
	(void)p, (void)w;
	dr_assert(!"not simulated");
}
