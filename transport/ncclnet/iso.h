/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_ISO_H
#define DR_TRANSPORT_NCCLNET_ISO_H

#include "base/packet.h"
#include "transport/gpu.h"
#include "transport/ncclnet/host.h"
#include "transport/ncclnet/unpack.h"

#include <stdatomic.h>
#include <sys/types.h>

/*
 * --isolate on: the plugin runs in a process of its own, one for each of its devices, so that it can be ended.
 *
 *	program                                        spawner                 plugin's process
 *	rail (a worker's) -- nn_port ---- rings -------------------------- thread of the port, with its comms
 *	                       |
 *	                    nn_proc ------ ctl ---------------------------- loads the plugin, takes ports
 *	                       |
 *	                    spawner ------ requests -- starts and reaps
 *
 * iso_spawn.c: the spawner, forked before the program has threads, since processes cannot be started later (the filter
 * of system calls) and cannot be forked by a process with threads. iso_proc.c: the program's side of a plugin's process.
 * iso_port.c: a rail's connection to it, as a struct dr_nccl, so that the rest of the kind drives it like a plugin.
 * iso_gpu.c: GPU memory that both processes reach. iso_child.c: the plugin's process.
 *
 * Between a port and its thread are two rings in shared memory, each with one writer and one reader. Commands are done
 * in their order. The process does not check what the program writes; the program checks all that the process writes.
 */

/* ---- the spawner's protocol: packets of a socket pair ---- */

enum { ISO_FILE_MAX = 512, ISO_NAME_MAX = 64, ISO_TEXT_MAX = 256 };

/* What a process loads. */
struct iso_config {
	char file[ISO_FILE_MAX];
	char ifname[ISO_NAME_MAX];
	unsigned version; /* of the interface; 0: the newest */
	int unpack;	  /* enum nn_unpack_mode */
	/* Of the program when it asks: it may have become another user since the spawner was started. */
	uid_t uid;
	uint64_t caps;
};

struct dr_nccl_params;
void dr_nn_iso_config(
	const struct dr_nccl_params *params, const char *ifname, struct iso_config *out);

enum iso_request_op { ISO_SPAWN, ISO_KILL, ISO_LIMIT };
struct iso_request {
	enum iso_request_op op;
	uint64_t id;
	struct iso_config config; /* SPAWN, with the process's end of ctl; LIMIT: the rights */
};
/* From the spawner: the process `id` was started, and has ended and is reaped. */
struct iso_report {
	uint64_t id;
	pid_t pid;
	bool ended;
	int status;	/* of waitpid; -errno: it was not started */
	int64_t cpu_ns; /* ended: processor time of all its threads */
};

/* ---- ctl: packets of a socket pair ---- */

/* The first packet, from the process. */
struct iso_hello {
	int rc; /* 0, or why it ends */
	char text[ISO_TEXT_MAX];
	char name[ISO_NAME_MAX]; /* the plugin's */
	unsigned version;
	pid_t pid;
	struct dr_nccl_device dev;
};
/* To the process, with these descriptors. */
enum iso_attach_fd { ISO_SOCKET, ISO_RINGS, ISO_WAKE_PROCESS, ISO_WAKE_PROGRAM, ISO_FDS };
struct iso_attach {
	int gpu; /* CUDA's number of the GPU whose memory the port has; -1: host memory only */
};

/* ---- rings ---- */

enum {
	ISO_RING = 1024,
	ISO_COMMS = 1024,   /* listeners and comms of a port */
	ISO_REGIONS = 4096, /* pieces of memory of a port: registrations and what they lie in */
	ISO_REQUESTS = 32,  /* outstanding on a comm */
};

enum iso_op {
	/* Commands. comm, mem, other: numbers that the program gives. */
	ISO_LISTEN,  /* comm; LISTENING answers */
	ISO_ACCEPT,  /* comm: the listener, other: the comm; ACCEPTED{other} answers */
	ISO_CONNECT, /* comm, handle; CONNECTED answers */
	ISO_MAP,     /* mem, len; the descriptor is the next one on the socket */
	ISO_MAP_GPU, /* mem, len, handle: struct iso_gpu_map; user: iflush is needed. other: a descriptor of a dma-buf
			   * is the next one on the socket. MAPPED answers */
	ISO_UNMAP,	  /* mem; UNMAPPED answers if it is of the GPU */
	ISO_SEND,	  /* comm, mem, other: the registration, off, len; DONE or FAILED answers */
	ISO_RECEIVE,	  /* the same */
	ISO_REGISTER,	  /* other: the registration, mem, off, len, user */
	ISO_DEREGISTER,	  /* comm, other */
	ISO_CLOSE,	  /* comm; CLOSED answers */
	ISO_CLOSE_LISTEN, /* comm; CLOSED answers */
	/* Events. rc: enum nccl_result */
	ISO_LISTENING, /* comm, rc, handle */
	ISO_ACCEPTED,  /* comm, rc */
	ISO_CONNECTED, /* comm, rc */
	ISO_DONE,      /* comm, len: the oldest request of the comm */
	ISO_FAILED,    /* comm, rc: the oldest request, and with it the comm */
	ISO_CLOSED,    /* comm, rc: of an error the plugin may use the comm's buffers still */
	ISO_TEXT,      /* mem, handle: a part of the text of an error; MAPPED follows */
	ISO_MAPPED,    /* mem, rc: -errno */
	ISO_UNMAPPED, /* mem, rc: -errno: the plugin could not deregister it, and it stays mapped */
};

/* How the process reaches memory of the GPU. */
struct iso_gpu_map {
	struct dr_gpu_shared shared;
	uint64_t dmabuf_off; /* of its first byte */
};
_Static_assert(sizeof(struct iso_gpu_map) <= NCCL_NET_HANDLE_BYTES, "iso_message.handle");

struct iso_message {
	uint32_t op, comm, mem, other;
	int32_t rc;
	uint32_t user; /* the memory is the user's, not a copy */
	uint64_t off, len;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
};

struct iso_ring {
	_Alignas(64) atomic_uint head;	 /* the reader's */
	_Alignas(64) atomic_uint tail;	 /* the writer's */
	_Alignas(64) atomic_uint sleeps; /* the reader waits for its descriptor */
	struct iso_message slot[ISO_RING];
};
struct iso_rings {
	struct iso_ring commands, events;
	struct { /* struct dr_unpack_stats of the port's thread */
		_Atomic uint64_t copies, bytes;
		_Atomic int64_t busy_ns;
	} unpacked;
};

static inline bool iso_ring_full(const struct iso_ring *r)
{
	return atomic_load_explicit(&r->tail, memory_order_relaxed) -
		       atomic_load_explicit(&r->head, memory_order_acquire) >=
	       ISO_RING;
}

/* The reader's next message; NULL: none. Valid until iso_ring_pop. */
static inline const struct iso_message *iso_ring_next(const struct iso_ring *r)
{
	unsigned head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (head == atomic_load_explicit(&r->tail, memory_order_acquire))
		return NULL;
	return &r->slot[head % ISO_RING];
}

/* How many messages the reader has taken, modulo 2^32. */
static inline unsigned iso_ring_done(const struct iso_ring *r)
{
	return atomic_load_explicit(&r->head, memory_order_relaxed);
}

static inline void iso_ring_pop(struct iso_ring *r)
{
	atomic_fetch_add_explicit(&r->head, 1, memory_order_release);
}

/* The ring is not full. True: the reader sleeps, and has to be woken. */
static inline bool iso_ring_push(struct iso_ring *r, const struct iso_message *m)
{
	unsigned tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	r->slot[tail % ISO_RING] = *m;
	/* Sequentially consistent, as in iso_ring_sleep: one of the two sees what the other wrote. */
	atomic_store(&r->tail, tail + 1);
	return atomic_load(&r->sleeps) && atomic_exchange(&r->sleeps, 0);
}

/* The reader is about to sleep. False: there is a message. */
static inline bool iso_ring_sleep(struct iso_ring *r)
{
	atomic_store(&r->sleeps, 1);
	if (atomic_load_explicit(&r->head, memory_order_relaxed) == atomic_load(&r->tail))
		return true;
	atomic_store(&r->sleeps, 0);
	return false;
}

static inline void iso_ring_awake(struct iso_ring *r)
{
	atomic_store_explicit(&r->sleeps, 0, memory_order_relaxed);
}

/* ---- iso_child.c ---- */

/* The process. Does not return. gpu may be NULL. */
_Noreturn void dr_iso_child(
	int ctl, const struct iso_config *config, const struct dr_gpu_process_ops *gpu);

/* ---- iso_spawn.c ---- */

/* Start the spawner, if there is none. Called before the process has other threads and before it uses CUDA. gpu: what the plugins'
 * processes use to reach GPU memory; NULL: they do not reach any. */
int dr_iso_spawner_start(const struct dr_gpu_process_ops *gpu, struct dr_err *e) DR_MUST_CHECK;
/* It gives up the rights that this process has given up. */
void dr_iso_limit(void);
/* Any thread. ctl: the process's end, which stays the caller's. */
int dr_iso_spawn(uint64_t id, const struct iso_config *config, int ctl, struct dr_err *e)
	DR_MUST_CHECK;
void dr_iso_kill(uint64_t id);
/* True: it has ended, with that status (struct iso_report). Nothing can touch memory for it any more. */
bool dr_iso_has_ended(uint64_t id, int *status);
/* The spawner has ended, so that ends of processes are not reported any more. */
bool dr_iso_is_lost(void);
/* Its end is of no interest any more. */
void dr_iso_forget(uint64_t id);
/* Processor time of all processes so far, ended ones included. Any thread. */
int64_t dr_iso_cpu_ns(void);

/* ---- iso_proc.c ---- */

/* A device of a plugin in a process, shared by all rails on it. */
struct nn_proc;
int dr_nn_proc_get(const struct iso_config *config, struct nn_proc **out, struct dr_err *e)
	DR_MUST_CHECK;
void dr_nn_proc_put(struct nn_proc *p);
/* As it said when it was started. */
const struct iso_hello *dr_nn_proc_hello(const struct nn_proc *p);
/* Send these descriptors to the process. If it has ended, it is started again first, unless the pause after its end is not over or
 * the link is down: -EAGAIN. *start: the number of the start that got them. Otherwise the error of the start or of the socket. */
int dr_nn_proc_attach(struct nn_proc *p, const struct iso_attach *what, const int fds[ISO_FDS],
	int64_t now_ns, uint64_t *start) DR_MUST_CHECK;
/* End it, if it is still that start. why: text for messages. */
#define DR_ISO_FENCED "it was ended to fence its buffers"
void dr_nn_proc_kill(struct nn_proc *p, uint64_t start, const char *why);
/* That start has ended. text: how, "signal 11 (Segmentation fault)". */
bool dr_nn_proc_has_ended(struct nn_proc *p, uint64_t start, char *text, size_t len);

/* ---- iso_port.c ---- */

struct dr_mr;
struct dr_poller;
struct nn_port;
/* gpu: of the run, used where the plugin takes GPU memory. */
int dr_nn_port_open(const struct iso_config *config, struct dr_poller *poller,
	const struct dr_rail_gpu *gpu, struct nn_port **out, struct dr_err *e) DR_MUST_CHECK;
void dr_nn_port_close(struct nn_port *p);
const struct dr_nccl *dr_nn_port_plugin(const struct nn_port *p);
const struct dr_nccl_device *dr_nn_port_device(const struct nn_port *p);
/* Look for the end of the process, and start it again. True: it has been started again, and no listener or comm of before
 * works. */
bool dr_nn_port_progress(struct nn_port *p, int64_t now_ns);
/* How the process ended; NULL: it runs. */
const char *dr_nn_port_death(const struct nn_port *p);
/* The comm's process has ended, and another one was started since. NULL: no. */
bool dr_nn_port_is_old(const void *comm);
/* How the last one ended that did. */
const char *dr_nn_port_last_death(const struct nn_port *p);
/* End the process: no buffer is touched once dr_nn_port_is_gone. */
void dr_nn_port_kill(struct nn_port *p);
bool dr_nn_port_is_gone(struct nn_port *p);
/* The time for closing a comm, before the process is ended: from one completed command to the next, and in all. */
enum { DR_ISO_CLOSE_MS = 100, DR_ISO_CLOSE_ALL_MS = 250 };
/* A wait that goes on while the process completes commands. */
struct nn_patience {
	int64_t next_ns, last_ns;
	unsigned done;
};
struct nn_patience dr_nn_port_patience(const struct nn_port *p, int64_t now_ns);
/* False: the wait is over. */
bool dr_nn_port_may_wait(const struct nn_port *p, struct nn_patience *x, int64_t now_ns);
/* How many comms were closed so far with the user's memory outstanding. */
uint64_t dr_nn_port_closes(const struct nn_port *p);
/* The process may touch the memory of one of the first `closes` of them: it has neither closed it nor ended. */
bool dr_nn_port_is_closing(struct nn_port *p, uint64_t closes);
/* Wait for that, and end the process if it does not come. -EIO: it has not ended within a bound. */
int dr_nn_port_finish_closing(struct nn_port *p, uint64_t closes);
/* Before its thread sleeps: events make the poller's descriptor ready. False: there were some since the last time, and the
 * comms have to be looked at again. */
bool dr_nn_port_sleep(struct nn_port *p);

/* ---- iso_gpu.c ---- */

/* GPU memory of the rail, for registrations within it, until unmap: the process maps it, and each one that is started again. Waits
 * for that. -ENOTSUP: CUDA cannot share it, or the process cannot map it. */
int dr_nn_port_map(struct nn_port *p, const struct dr_mr *mr, struct dr_err *e) DR_MUST_CHECK;
/* Waits until the process has unmapped it, or has ended. Nothing is registered in it. -EIO: neither, within a bound. */
int dr_nn_port_unmap(struct nn_port *p, const struct dr_mr *mr);

#endif
