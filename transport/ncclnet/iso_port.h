/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_ISO_PORT_H
#define DR_TRANSPORT_NCCLNET_ISO_PORT_H

#include "transport/ncclnet/iso.h"

#include "base/poller.h"

/* Private to iso_port.c (the connection and the process) and iso_net.c (the functions of a plugin). */

struct iso_request_state {
	struct iso_comm *comm;
	uint64_t number; /* on the comm */
	void *data;
	size_t len, size;
	struct iso_reg *reg;
	uint64_t off;
};

/* Listener or comm. */
struct iso_comm {
	struct nn_port *port;
	uint32_t id;
	uint64_t start; /* of the process that has it */
	bool ready, wanted, closing;
	bool holds; /* closing, and the process may touch the user's memory until it has closed it, or has ended */
	enum nccl_result rc; /* the first error */
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	struct iso_comm *comm; /* of a listener: what it accepts */
	struct iso_request_state request[ISO_REQUESTS];
	uint64_t posted, done, taken; /* taken: by test */
	unsigned users;		      /* requests in the user's memory, outstanding */
};

/* GPU memory of the rail. */
struct iso_gpu_memory {
	const struct dr_mr *mr; /* NULL: given up, and perhaps mapped until the process ends */
	struct dr_gpu_shared shared;
	bool awaited;	       /* dr_nn_port_map reports an error */
	bool mapped, unmapped; /* the answers have come */
	int rc;		       /* of the last */
	char why[ISO_TEXT_MAX];
};

/* Memory that the process has mapped. */
struct iso_region {
	bool used;
	uint64_t shared;	    /* dr_shared.id */
	uint8_t *base;		    /* gpu: an address of the GPU */
	bool copy;		    /* ours: a copy of what cannot be mapped */
	struct iso_gpu_memory *gpu; /* NULL: host memory */
};
struct iso_reg {
	bool used;
	uint32_t id, region;
	uint8_t *data; /* the user's */
	size_t len;
};

struct nn_port {
	struct dr_nccl n;
	struct nn_proc *proc;
	uint64_t start;
	bool dead, killed, listened;
	bool restarted; /* since dr_nn_port_progress */
	bool keeps; /* the plugin could not close a comm: those that were closed after it wait for the process's end, too */
	bool gave_up; /* a process ended, or said nothing, instead of mapping GPU memory */
	/* Processes in a row that could not map GPU memory again, and when the last one said so. */
	unsigned map_failures;
	int64_t map_failed_ns;
	uint64_t unended; /* this start did not end when it was killed; 0: none */
	bool fresh; /* events were taken since the rail was about to sleep: of comms that it has looked at before, perhaps */
	char why[ISO_TEXT_MAX];
	int64_t again_ns;		/* no start before */
	int64_t warn_ns;		/* its ends until then are no warnings */
	int64_t eof_ns;			/* the process has closed its socket; 0: it has not */
	uint64_t magic;			/* of handles that belong to a dial of this port */
	int64_t map_ns;			/* what mapping GPU memory may take */
	struct dr_rail_gpu gpu;		/* without ops: the plugin's process has none */
	struct dr_unpack_stats counted; /* of rings->unpacked, in gpu */
	struct dr_poller *poller;
	struct dr_pollable woken, ended;
	int sock, wake, rings_fd;
	struct iso_rings *rings;
	struct iso_comm *comm[ISO_COMMS];
	uint64_t n_held;	/* comms that were closed with the user's memory outstanding */
	unsigned n_holding;	/* ... of which the process may touch it */
	struct iso_comm *stock; /* a listener that nobody has; NULL: none */
	struct iso_region region[ISO_REGIONS];
	struct iso_reg *reg[ISO_REGIONS];
};

static inline bool iso_has_room(const struct nn_port *p)
{
	return !iso_ring_full(&p->rings->commands);
}

static inline bool iso_is_dead(const struct iso_comm *c)
{
	return c->port->dead || c->start != c->port->start;
}

/* Where the memory is copied to; NULL: the process has it mapped. */
static inline uint8_t *iso_copy_of(const struct nn_port *p, const struct iso_reg *r)
{
	const struct iso_region *g = &p->region[r->region];

	return g->copy ? g->base : NULL;
}

/* A command; there is room. */
void dr_iso_push(struct nn_port *p, const struct iso_message *m);
/* For commands that cannot be refused. False: the process takes none, and is of no use any more. */
bool dr_iso_push_surely(struct nn_port *p, const struct iso_message *m);
/* The same for a command whose descriptor is the next one on the socket. False, too: the descriptor cannot be sent. */
bool dr_iso_push_with(struct nn_port *p, const struct iso_message *m, int fd);
/* NULL: out of memory or numbers. */
struct iso_comm *dr_iso_new_comm(struct nn_port *p);
void dr_iso_free_comm(struct iso_comm *c);
/* What the process has answered. */
void dr_iso_take_events(struct nn_port *p);
/* Until c is ready, or fails. */
void dr_iso_await(struct iso_comm *c, int64_t ns);
/* The process may have ended. */
void dr_iso_look_for_end(struct nn_port *p, int64_t now_ns);
/* The same, and start the process again if it has ended. */
void dr_iso_keep_up(struct nn_port *p, int64_t now_ns);
/* End the process; why: as dr_nn_proc_kill. */
void dr_iso_end(struct nn_port *p, const char *why);
/* End the process, and wait for that. -EIO: it has not ended within a bound. */
int dr_iso_end_process(struct nn_port *p);
/* iso_net.c: into p->n. */
void dr_iso_fill_plugin(struct nn_port *p);

/* iso_gpu.c */

/* The region with [data, data+len); -1: none. */
int dr_iso_gpu_region(const struct nn_port *p, const void *data, size_t len);
/* TEXT, MAPPED or UNMAPPED. */
void dr_iso_gpu_answered(struct nn_port *p, const struct iso_message *m);
/* The process was started again: it maps everything. */
void dr_iso_gpu_map_again(struct nn_port *p);
/* Of unpacking in the process. */
void dr_iso_gpu_count(struct nn_port *p);

#endif
