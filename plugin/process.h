/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_PROCESS_H
#define DR_PLUGIN_PROCESS_H

#include "plugin/comm.h"
#include "plugin/config.h"
#include "plugin/device.h"
#include "bootstrap/rdv.h"
#include "topology/linkmon.h"

#include <semaphore.h>

/*
 * What a process has from its first communicator to its last: configuration, devices, threads, the rendezvous, sessions and
 * the comms that NCCL knows.
 *
 * Threads. Everything here is the control thread's, except what `lock` protects: lists of endpoints and of listens, states of
 * endpoints. NCCL's threads create endpoints and listens, look at their state, and mark them to be closed; the control
 * thread does the rest. The lock is held briefly and no other lock is taken under it.
 */
struct ha_process;

/* A session and the process that it leads to. */
struct ha_link {
	struct ha_link *next;
	struct ha_process *p;
	uint64_t process, number; /* of the dialling end: process and its number of the session */
	uint64_t peer;		  /* process at the other end */
	unsigned dev, peer_dev;	  /* devices that its comms were opened for */
	bool connector, up, lost; /* lost: new comms need another session */
	struct ha_session *s;	  /* NULL: not known yet */
	unsigned n_handles;	  /* of s */
	unsigned comms;		  /* that use it */
	uint32_t next_id;	  /* dialling end: of the next comm */
	int64_t idle_ns;	  /* since then no comm uses it; 0: one does */
	bool closing;
};

enum ha_endpoint_state {
	HA_ENDPOINT_NEW,     /* to be dialled */
	HA_ENDPOINT_WAITING, /* for another comm that opens the session */
	HA_ENDPOINT_EXCHANGE,
	HA_ENDPOINT_STARTING, /* both ends know everything; its connection comes up */
	HA_ENDPOINT_UP,	      /* NCCL has it */
	HA_ENDPOINT_FAILED,
};
extern const uint32_t ha_endpoint_magic;

/* One end of a comm as NCCL knows it: a send comm or a receive comm. */
struct ha_endpoint {
	uint32_t magic;
	unsigned generation;
	struct ha_endpoint *next;
	struct ha_process *p;
	struct ha_listen *listen; /* accepted here; NULL after NCCL took it */
	struct ha_link *link;
	struct ha_comm *comm;
	struct dr_rdv_comm *exchange;
	bool sender, opens; /* opens: its exchange opens the session */
	unsigned dev;
	uint32_t id_in_session;
	uint64_t id; /* of a dialling one: in the handle while NCCL repeats connect */
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	/* Under the process's lock. */
	enum ha_endpoint_state state;
	int64_t start_ns;   /* STARTING: since then */
	bool taken, closed; /* by NCCL */
	int err;
};

struct ha_listen {
	uint32_t magic;
	struct ha_listen *next;
	struct ha_process *p;
	unsigned dev;
	struct dr_rdv_listen *rdv;
	bool closed; /* under the process's lock */
};

struct ha_process {
	unsigned
		generation; /* of net.c: objects of another one belong to the process that forked this one */
	unsigned contexts;
	uint64_t id; /* random */
	struct ha_config cfg;
	struct ha_devices *devices;
	struct ha_thread *control, *io[HA_SESSION_THREADS_MAX];
	struct ha_member member; /* of the control thread */
	struct dr_rdv *rdv;
	struct dr_link_watch nics;
	pthread_mutex_t lock;
	struct ha_endpoint *endpoints;
	struct ha_listen *listens;
	/* The control thread's. */
	struct ha_link *links;
	uint64_t next_link;
	struct ha_counters past; /* of sessions that are gone */
	int64_t metrics_ns;	 /* next time that the counters are written */
	int64_t tick_ns;	 /* next look at endpoints and links */
	bool stopping, told;
	sem_t empty; /* posted when it is, while stopping */
};

/* Reads the configuration, finds the devices, starts the threads. */
int ha_process_start(struct ha_process **out, struct dr_err *e) DR_MUST_CHECK;
/* Closes what is open and ends the threads. NULL is allowed. */
void ha_process_stop(struct ha_process *p);
/* The control thread has something new to do. */
void ha_process_wake(struct ha_process *p);

/* ---- open.c: on the control thread ---- */

extern const struct dr_rdv_ops ha_open_ops;
/* A new one in the process's list, else like `like`. NULL: no memory. Any thread. */
struct ha_endpoint *ha_endpoint_add(struct ha_process *p, const struct ha_endpoint *like);
/* Starts, or starts again, what the endpoint waits for. */
void ha_open_endpoint(struct ha_endpoint *n, int64_t now_ns);
void ha_endpoint_fail(struct ha_endpoint *n, int err, const char *why);
/* It uses its session no more. */
void ha_endpoint_detach(struct ha_endpoint *n);
/* Addresses of its devices, the ends of rails: those of device dev first, then of its shadow. Returns their number. */
unsigned ha_process_addresses(
	const struct ha_process *p, unsigned dev, struct dr_rdv_addr *out, unsigned cap);
/* Addresses of the rendezvous: the same, or those of the network devices that the user names for it. */
unsigned ha_process_rendezvous(
	const struct ha_process *p, unsigned dev, struct dr_rdv_addr *out, unsigned cap);

#endif
