/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_RAIL_PRIV_H
#define DR_TRANSPORT_VERBS_RAIL_PRIV_H

#include "base/rng.h"
#include "transport/known.h"
#include "transport/verbs/conn.h"
#include "transport/verbs/mem.h"
#include "transport/verbs/verbs_hs.h"
#include "transport/verbs/where.h"

#include <net/if.h>
#include <sys/types.h>

/* A rail: rail.c, nic.c, ud.c, admit.c, event.c. */

/* Where completions find their connection; gen: of those that had the place. */
struct vb_slot {
	struct vb_conn *conn;
	uint16_t gen;
};

struct vb_ah_job {
	struct vb_job job;
	struct vb_rail *rail;
	bool busy, again;
	struct ibv_ah *old, *ah;
	struct ibv_ah_attr attr;
	int rc;
};

struct vb_gid_job {
	struct vb_job job;
	struct vb_rail *rail;
	bool busy, again;
	struct dr_verbs_dev dev;
	int rc;
};

/* The rail's datagrams. Sends are counted: done <= posted, buffer = count % VB_UD_SENDS. */
struct vb_ud {
	struct ibv_qp *qp;
	uint32_t life;	   /* of the queue pair, between two resets; high half of its wr_ids */
	bool broken;	   /* in the error state */
	const char *event; /* that said so; NULL: none, a completion did */
	bool reported;	   /* the rail's failure is this event's, since a reset failed */
	int64_t reset_ns;  /* when it was last brought up again */
	struct vb_cq cq;
	uint32_t qkey;
	uint8_t *slab;
	struct ibv_mr *mr;
	uint64_t posted, done;
	struct ibv_wc wc[VB_POLL]; /* polled by a look, not handled yet: [at, n) */
	int at, n;
	struct ibv_ah *ah;
	bool ah_stale; /* may be invalid: a new one is needed */
	int64_t ah_tried_ns;
	struct vb_ah_job job;
};

/* The device that the rail has open; nic.c states the rules. */
enum vb_nic_state { VB_NIC_OPEN, VB_NIC_DYING, VB_NIC_CLOSING, VB_NIC_GONE, VB_NIC_OPENING };
struct vb_nic {
	enum vb_nic_state state;
	struct vb_job job; /* CLOSING, OPENING */
	int rc;
	struct dr_err err;
	int64_t try_ns, wait_ns; /* GONE: when it is looked for */
	unsigned sq, rq;	 /* depths of its queues */
	int64_t seen_ns;	 /* when it was looked at last */
	const char *broke;	 /* OPEN: what of it failed, a static string; NULL: nothing */
};

struct vb_rail {
	struct dr_rail base;
	struct dr_rail_params par;
	struct dr_verbs_params vp;
	char ifname[IFNAMSIZ];
	const struct dr_ibv *ibv;
	struct dr_verbs_dev dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct vb_cq *cqs;
	unsigned conn_cqes, cq_conns; /* see rail.c: plan_depths */
	unsigned sq, rq;	      /* work requests of one data queue pair */
	struct vb_ud ud;
	struct vb_helper helper;
	struct vb_gid_job gid;
	struct vb_nic nic;
	ino_t node;	  /* of the device's entry in sysfs; 0: not known */
	unsigned n_conns; /* that are not destroyed */
	struct dr_rng rng;
	bool closed;
	unsigned flushing; /* regions that want a flush */
	struct vb_where where;
	struct dr_known_limit limit;
	struct vb_path *paths; /* every path that is not closed */
	unsigned n_paths;      /* every path that is not freed */
	struct vb_path *ready; /* paths that their owner should drive, and have a poller */
	unsigned ticking;      /* paths that wait for time */
	struct dr_mr *mrs;
	struct vb_slot *slots;
	uint32_t n_slots;
	struct vb_conn *stuck; /* could not be destroyed: kept until the device is closed */

	struct dr_watch watch;
	struct dr_pollable comp, async, helped, tick, self;
	int64_t tick_ns; /* of the timer; 0: off */
	bool async_fired;
	int64_t async_ns; /* looked at last, where there is no poller */
	struct vb_admission admission;
	int64_t warn_ns;
	bool apm_told; /* that the device migrates paths by itself */

	int err; /* 0, or why the rail failed */
	enum dr_scope scope;
	bool err_due;
	bool dead; /* the device is gone: no path comes up before it is back */
	char text[200];
	struct dr_sink *sink; /* during rail_progress */
	int64_t now_ns;
	int n_events, n_taken; /* n_taken: datagrams, whatever they were */
	uint64_t syscalls, strays, quarantined;
};

static inline struct vb_rail *vb_rail(struct dr_rail *r)
{
	return dr_container_of(r, struct vb_rail, base);
}

/* Bytes of one work request of data. */
static inline uint32_t dr_verbs_msg_max(const struct vb_rail *r)
{
	return DR_MIN(r->dev.msg_max, (uint32_t)VB_MSG_MAX);
}

int dr_verbs_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e);
int dr_verbs_rail_handle(struct dr_rail *r, void *buf, size_t cap);
int dr_verbs_rail_peer(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e);
int dr_verbs_rail_progress(struct dr_rail *r, int64_t now_ns, struct dr_sink *sink);
void dr_verbs_rail_close(struct dr_rail *r);
void dr_verbs_rail_fini(struct dr_rail *r);
void dr_verbs_rail_emit(struct vb_rail *r, struct dr_event *ev);
/* The rail (scope RAIL), or this end's objects on it alone (LOCAL), are broken; FAILED is reported by the next
 * rail_progress. */
void dr_verbs_rail_fail(struct vb_rail *r, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
void dr_verbs_rail_kick(struct vb_rail *r);
/* Have the timer run while paths wait for time. */
void dr_verbs_tick_update(struct vb_rail *r);
int dr_verbs_run_ready(struct vb_rail *r, int64_t now_ns);

void dr_verbs_rail_addr(const struct vb_rail *r, struct dr_verbs_addr *out);

int dr_verbs_nic_open(struct vb_rail *r, struct dr_err *e);
/* Also of what open left half-done. -errno: the device could not be closed; its memory is not freed. */
int dr_verbs_nic_close(struct vb_rail *r);
/* Opened: the owner takes it over. */
void dr_verbs_nic_use(struct vb_rail *r);
int dr_verbs_nic_watch(struct vb_rail *r);
void dr_verbs_nic_unwatch(struct vb_rail *r);
/* It is gone; why goes on after its name. FAILED of the rail and of its paths follows. */
void dr_verbs_nic_lost(struct vb_rail *r, const char *why);
/* One of this end's objects failed for good, and what (a static string): the device is closed and opened again, and
 * the rail's paths fail, in the next rail_progress. */
void dr_verbs_nic_broke(struct vb_rail *r, const char *what);
/* It has another address: the peer is told. */
void dr_verbs_nic_moved(struct vb_rail *r);
void dr_verbs_nic_progress(struct vb_rail *r);

int dr_verbs_ud_open(struct vb_rail *r, struct dr_err *e);
/* Destroys; an error: its memory may be accessed until the device is closed. */
int dr_verbs_ud_close(struct vb_rail *r);
/* Its memory. */
void dr_verbs_ud_free(struct vb_rail *r);
int dr_verbs_ud_poll(struct vb_rail *r);
void dr_verbs_ud_progress(struct vb_rail *r);
/* An asynchronous event (a static string) about its queue pair: dr_verbs_ud_progress resets it. */
void dr_verbs_ud_failed(struct vb_rail *r, const char *event);
void dr_verbs_ud_send(
	struct vb_rail *r, const void *head, size_t head_len, const void *data, size_t len);
void dr_verbs_rail_dgram(struct dr_rail *br, const void *data, size_t len);
void dr_verbs_rail_padded(struct dr_rail *br, const void *data, size_t len, uint32_t size);
/* Ask the helper for an address handle, also when there is one. */
void dr_verbs_ah_renew(struct vb_rail *r);

/* This peer's NIC acknowledged on a queue pair that WELCOME alone names: it receives there. */
void dr_verbs_known_add(const struct vb_rail *r, const struct dr_verbs_hello *peer);

void dr_verbs_event_progress(struct vb_rail *r);

void dr_verbs_admit(struct vb_rail *r, const void *data, size_t len);
/* Tell the peer where this rail is now. */
void dr_verbs_tell_news(struct vb_rail *r, bool answer);
/* Send this path's HELLO or WELCOME. */
void dr_verbs_greet(struct vb_path *p);

#endif
