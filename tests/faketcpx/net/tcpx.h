/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKETCPX_NET_TCPX_H
#define DR_TESTS_FAKETCPX_NET_TCPX_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "tests/faketcpx/faketcpx.h"
#include "tests/faketcpx/net/cuda.h"
#include "tests/minplug/net/abi.h"
#include "tests/minplug/net/net.h"

/*
 * tests/faketcpx/faketcpx.h describes the plugin. All but bounce.c and table.c are also part of libnccl-net-fakegdr.so, which
 * tests/fakegdr/fakegdr.h describes; struct tcpx_kind is what the two differ in.
 */

/* Pages of a bounce buffer. All that 16 receives can need; in GPU memory fewer. One receive has to fit. */
enum {
	TCPX_PAGES_MIN = TCPX_FRAGMENTS_MAX,
	TCPX_PAGES_MAX = TCPX_SLOTS * TCPX_FRAGMENTS_MAX,
	TCPX_PAGES_GPU = 4096,
};

/* A piece of a message on one data connection. */
struct tcpx_task {
	struct tcpx_request *r;
	uint32_t offset, size, moved;
	/* The fragment that is being filled: its length and bytes in it. */
	uint32_t fragment, filled;
	uint32_t at;	 /* in the bounce buffer */
	uint32_t staged; /* bytes of a send that were copied out of GPU memory */
};

struct tcpx_sock {
	int fd;
	bool dead;
	struct tcpx_task task[TCPX_TASKS_MAX];
	unsigned head, count;
	unsigned
		staged; /* how much of the staging memory was filled, of receivers: pages, or bytes of fakegdr */
};

struct tcpx_mr {
	LIST_ENTRY(tcpx_mr) next;
	struct tcpx_comm *comm;
	const uint8_t *data;
	size_t size;
	int type;
};

/* What test gets begins with it. */
struct tcpx_head {
	struct tcpx_comm *comm;
	bool is_flush; /* a struct gdr_receive follows */
};

struct tcpx_request {
	struct tcpx_head head;
	uint64_t no; /* in its comm, from 0 */
	struct tcpx_mr *mr;
	uint8_t *data;
	uint32_t room;	 /* of the buffer */
	uint32_t size;	 /* of the message, once it is known */
	uint32_t offset; /* handed out to connections */
	uint32_t moved;	 /* through them */
	bool known;
	bool reported; /* test said that it is complete */
	bool in_gpu;   /* data is an address of GPU memory */
	unsigned fragments, pages;
	uint32_t page[TCPX_FRAGMENTS_MAX];
	struct tcpx_fragment fragment[TCPX_FRAGMENTS_MAX];
};

/* On the control connection, before each piece; of the message of no bytes there is one, of size 0. */
struct tcpx_ctrl {
	uint16_t type; /* 0 */
	uint16_t index;
	uint32_t size, offset, total;
};

_Static_assert(sizeof(struct tcpx_ctrl) == 16, "ctrl");

struct tcpx_comm {
	pthread_mutex_t lock;
	bool is_send, recv_sync;
	/* A registration went while requests used it: nothing moves any more. */
	bool ended;
	enum min_result error;
	int ctrl_fd;
	struct tcpx_sock sock[TCPX_SOCKETS_MAX];
	unsigned n_socks, next_sock;
	LIST_HEAD(tcpx_mrs, tcpx_mr) mrs;

	/* Requests by number; freed <= complete <= handed <= started <= posted <= freed + 16. All below complete were
	 * reported. */
	struct tcpx_request *request;
	uint64_t freed, complete, handed, started, posted;

	struct tcpx_ctrl ctrl;
	size_t ctrl_moved; /* bytes of it; when sending, 0: nothing to send */

	/* Of receivers, and of senders with registered GPU memory; of fakegdr those with registered GPU memory alone. */
	struct tcpx_gpu gpu;

	/* Of receivers. bounce is an address of GPU memory if gpu is open. */
	struct tcpx_device_handle *device;
	uint8_t *bounce;
	uint32_t *free_page;
	unsigned free_pages;
	uint64_t random;

	/* Of fakegdr's receivers: the latest receives. */
	struct gdr_receive *receive;
};

/* What differs between the plugins that are built from these files. Each defines its own. */
struct tcpx_kind {
	const char *name;   /* in front of what is said of misuse */
	const char *memory; /* the variable that says where CUDA memory is */
	/* As GPUDirect-TCPX: received data is unpacked by the caller, and the rest of faketcpx.h. False: as most plugins. Requests
	 * are tested in any order, test writes the size, there is no irecvConsumed, one request too many is
	 * not taken, CUDA memory starts anywhere, and a data connection that breaks is an error. */
	bool unpack;
	uint32_t message_max;

	/* Receivers. accept calls init, close calls fini, also after it failed and of senders. The others have the comm's lock. */
	enum min_result (*init)(struct tcpx_comm *c);
	void (*fini)(struct tcpx_comm *c);
	void (*posted)(struct tcpx_comm *c, struct tcpx_request *r);
	/* Where in host memory the next bytes of the connection's task go, and how many fit there. NULL: nowhere for now. */
	uint8_t *(*place)(
		struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len);
	/* That many bytes are there. */
	enum min_result (*filled)(
		struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len);
	/* All bytes were filled; test reports it next. */
	enum min_result (*complete)(struct tcpx_comm *c, struct tcpx_request *r);
};

extern const struct tcpx_kind tcpx_kind;

/* Ends the process. */
_Noreturn void tcpx_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct tcpx_settings {
	unsigned n_socks;
	uint32_t chunk; /* 0: not set */
	bool recv_sync;
	bool cuda; /* memory of type CUDA is GPU memory */
	unsigned pages;
	uint64_t seed;
	const char *ctrl_dev; /* NULL: the device's own */
};

extern struct tcpx_settings tcpx_settings;

/* settings.c */
unsigned long tcpx_number(const char *name, unsigned long unset);
/* The connections, the size of a piece (chunk if it is not set), and where CUDA memory is. False: said what is wrong. */
bool tcpx_settings_read(struct tcpx_settings *out, uint32_t chunk);

/* connect.c */
enum min_result tcpx_listen(int dev, void *handle, void **lcomm);
enum min_result tcpx_connect(
	int dev, void *handle, void **scomm, struct min_device_handle **device);
enum min_result tcpx_accept(void *lcomm, void **rcomm, struct min_device_handle **device);
enum min_result tcpx_close_listen(void *lcomm);

/* bounce.c */
enum min_result tcpx_bounce_init(struct tcpx_comm *c);
void tcpx_bounce_fini(struct tcpx_comm *c);
/* NULL: when a page is free. */
uint8_t *tcpx_bounce_place(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len);
enum min_result tcpx_bounce_filled(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len);
/* Describes the fragments of a complete receive to the device, once they are in the bounce buffer. */
enum min_result tcpx_bounce_publish(struct tcpx_comm *c, struct tcpx_request *r);
/* irecvConsumed */
enum min_result tcpx_consumed(void *rcomm, int n, void *request);

/* progress.c */
/* The staging memory of a connection. */
uint8_t *tcpx_stage(const struct tcpx_comm *c, const struct tcpx_sock *s);
enum min_result tcpx_progress(struct tcpx_comm *c);

/* comm.c */
struct tcpx_comm *tcpx_comm_new(bool is_send);
/* What CUDA memory needs before it is registered. */
enum min_result tcpx_use_gpu(struct tcpx_comm *c, const void *data);
enum min_result tcpx_reg(void *comm, void *data, int size, int type, void **mh);
enum min_result tcpx_dereg(void *comm, void *mh);
enum min_result tcpx_isend(void *scomm, void *data, int size, int tag, void *mh, void **request);
enum min_result tcpx_irecv(
	void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request);
enum min_result tcpx_test(void *request, int *done, int *size);
enum min_result tcpx_close(void *comm);

#endif
