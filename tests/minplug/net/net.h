/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_MINPLUG_NET_NET_H
#define DR_TESTS_MINPLUG_NET_NET_H

#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "tests/minplug/net/abi.h"

/*
 * libnccl-net-min.so: a small NCCL network plugin over TCP sockets, for tests of programs that load plugins. It
 * shares no code with plugin/ and transport/, so that a misunderstanding of the interface shows.
 *
 * Its name for NCCL is "Min". A device is a network interface that is up and has an IPv4 or IPv6 address, in
 * the order of the interfaces' numbers. The list is made by the first init. MINNET_IFNAME, a list of prefixes with
 * commas ("veth,eth1"), selects interfaces; loopback is used only if one of the prefixes names it.
 * Listeners and connections are bound to an address of their device, not to the interface itself.
 *
 * Host memory only, one buffer per receive (maxRecvs 1), 32 requests per comm; with MINNET_BUSY in the
 * environment every other isend and irecv gives no request, which callers repeat. A comm is one connection, on which
 * bytes flow one way; nothing moves outside connect, accept and test, and no function blocks. The listener's end sends
 * nothing. The connection begins with 16 bytes, magic and the token of the listener's handle, and then carries
 * messages: magic, tag and size in 16 bytes, and the data. The k-th message belongs to the k-th receive.
 *
 * connect() keeps the number of the connection that it has started in the caller's handle, as NCCL's own transports
 * do with their state. After its success or failure the handle can be used again.
 *
 * Errors: SYSTEM_ERROR what the kernel refuses; REMOTE_ERROR a peer that closed, reset, refused or sent
 * something else; INVALID_USAGE a message longer than its receive; INTERNAL_ERROR another tag than expected, memory that
 * is not registered, and other misuse. An error is final for a comm, but what was complete before can still be
 * tested. deregMr with requests outstanding ends the comm likewise, and the memory is not touched again.
 *
 * Threads: any function may be called on different comms at the same time, and regMr and deregMr beside isend,
 * irecv and test of the same comm. Versions 6 to 10 have one context in the process; 11 and 12 one for each
 * init, and finalize closes what is left in it.
 */
enum min_kind { MIN_LISTEN, MIN_DIAL, MIN_SEND, MIN_RECV };

enum min_state { MIN_FREE, MIN_QUEUED, MIN_DONE };

struct min_device {
	char name[IF_NAMESIZE];
	unsigned index;
	char pci_path[PATH_MAX]; /* "": no PCI device */
	int speed;		 /* Mb/s */
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	bool has_v4, has_v6;
};

struct min_mr {
	LIST_ENTRY(min_mr) next;
	struct min_comm *comm;
	const uint8_t *data;
	size_t size;
};

struct min_request {
	enum min_state state;
	struct min_comm *comm;
	struct min_mr *mr;
	uint8_t *data;
	size_t size; /* of the buffer; of the message when done */
	int tag;
};

/* Starts each message. */
struct min_wire {
	uint32_t magic;
	int32_t tag;
	uint64_t size;
};

/* Starts each connection. */
struct min_hello {
	uint64_t magic;
	uint64_t token;
};

struct min_handle {
	uint64_t magic;
	uint64_t token;
	uint64_t dial; /* connect's; 0: nothing started */
	uint8_t addr[16];
	uint16_t port; /* network order */
	uint16_t family;
};

_Static_assert(sizeof(struct min_wire) == 16, "wire");
_Static_assert(sizeof(struct min_hello) == 16, "hello");
_Static_assert(sizeof(struct min_handle) <= MIN_HANDLE_BYTES, "handle");

enum { MIN_PENDING_MAX = 16 };

/* A connection that has not said its hello. */
struct min_pending {
	int fd;
	size_t got;
	struct min_hello hello;
};

struct min_ctx;

/* Listening, connecting or connected. */
struct min_comm {
	LIST_ENTRY(min_comm) next; /* in the context; guarded by its lock */
	struct min_ctx *ctx;
	enum min_kind kind;
	int fd;
	int dev;
	/* MIN_LISTEN */
	uint64_t token;
	struct min_pending pending[MIN_PENDING_MAX];
	unsigned n_pending;
	/* MIN_DIAL */
	uint64_t dial;
	struct min_hello hello;
	size_t sent;
	bool connected;
	/* MIN_SEND, MIN_RECV; guarded by lock */
	pthread_mutex_t lock;
	enum min_result error;
	LIST_HEAD(min_mrs, min_mr) mrs;
	struct min_request request[MIN_MAX_REQUESTS];
	struct min_request *queue[MIN_MAX_REQUESTS]; /* ring, in the order of posting */
	unsigned head, queued;
	bool busy;	      /* the last post got no request: MINNET_BUSY */
	struct min_wire wire; /* of the request at the head */
	size_t moved;	      /* bytes of it, wire included */
};

struct min_ctx {
	pthread_mutex_t lock;
	LIST_HEAD(min_comms, min_comm) comms;
	uint64_t dials;
};

/* device.c and log.c serve tests/faketcpx, too. */
/* Once in the process: interfaces whose names start with one of these, separated by commas; all but loopback
 * when there are none. */
void min_devices_scan(const char *names);
/* The addresses of an interface that is up; false if it has none. */
bool min_interface(const char *name, struct min_device *out);
int min_devices(void);
const struct min_device *min_device(int dev); /* NULL: there is none */

/* name: of the plugin, in front of each line. */
void min_log_set(min_logger log, const char *name);
void min_log(enum min_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says what failed with this errno, and gives the result that fits it. */
enum min_result min_failed(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* connect.c */
enum min_result min_ctx_new(struct min_ctx **out);
void min_ctx_free(struct min_ctx *ctx);
enum min_result min_listen(struct min_ctx *ctx, int dev, void *handle, void **lcomm);
enum min_result min_connect(struct min_ctx *ctx, int dev, void *handle, void **scomm);
enum min_result min_accept(void *lcomm, void **rcomm);
enum min_result min_close(void *comm);

/* data.c */
enum min_result min_reg(void *comm, void *data, size_t size, int type, void **mh);
enum min_result min_dereg(void *comm, void *mh);
enum min_result min_isend(void *scomm, void *data, size_t size, int tag, void *mh, void **request);
enum min_result min_irecv(void *rcomm, void *data, size_t size, int tag, void *mh, void **request);
enum min_result min_test(void *request, int *done, int *sizes);

#endif
