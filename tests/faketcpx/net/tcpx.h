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

/* tests/faketcpx/faketcpx.h describes the plugin. */

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
	unsigned staged; /* pages of the staging memory that were filled, of receivers */
};

struct tcpx_mr {
	LIST_ENTRY(tcpx_mr) next;
	struct tcpx_comm *comm;
	const uint8_t *data;
	size_t size;
	int type;
};

struct tcpx_request {
	struct tcpx_comm *comm;
	uint64_t no; /* in its comm, from 0 */
	struct tcpx_mr *mr;
	uint8_t *data;
	uint32_t room;	 /* of the buffer */
	uint32_t size;	 /* of the message, once it is known */
	uint32_t offset; /* handed out to connections */
	uint32_t moved;	 /* through them */
	bool known;
	bool in_gpu; /* data is an address of GPU memory */
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

	/* Requests by number; freed <= complete <= handed <= started <= posted <= freed + 16. */
	struct tcpx_request *request;
	uint64_t freed, complete, handed, started, posted;

	struct tcpx_ctrl ctrl;
	size_t ctrl_moved; /* bytes of it; when sending, 0: nothing to send */

	/* Of receivers, and of senders with registered GPU memory. */
	struct tcpx_gpu gpu;

	/* Of receivers. bounce is an address of GPU memory if gpu is open. */
	struct tcpx_device_handle *device;
	uint8_t *bounce;
	uint32_t *free_page;
	unsigned free_pages;
	uint64_t random;
};

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

/* connect.c */
enum min_result tcpx_listen(int dev, void *handle, void **lcomm);
enum min_result tcpx_connect(
	int dev, void *handle, void **scomm, struct min_device_handle **device);
enum min_result tcpx_accept(void *lcomm, void **rcomm, struct min_device_handle **device);
enum min_result tcpx_close_listen(void *lcomm);

/* bounce.c */
enum min_result tcpx_bounce_init(struct tcpx_comm *c);
void tcpx_bounce_fini(struct tcpx_comm *c);
/* Where in host memory the next bytes of the connection's task go, and how many fit there. NULL: when a page is free. */
uint8_t *tcpx_bounce_place(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len);
/* That many bytes are there. */
enum min_result tcpx_bounce_filled(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len);
/* Describes the fragments of a complete receive to the device, once they are in the bounce buffer. */
enum min_result tcpx_bounce_publish(struct tcpx_comm *c, struct tcpx_request *r);
enum min_result tcpx_bounce_recycle(struct tcpx_comm *c, struct tcpx_request *r);
/* The staging memory of a connection. */
uint8_t *tcpx_stage(const struct tcpx_comm *c, const struct tcpx_sock *s);

/* progress.c */
enum min_result tcpx_progress(struct tcpx_comm *c);

/* comm.c */
struct tcpx_comm *tcpx_comm_new(bool is_send);
enum min_result tcpx_reg(void *comm, void *data, int size, int type, void **mh);
enum min_result tcpx_dereg(void *comm, void *mh);
enum min_result tcpx_isend(void *scomm, void *data, int size, int tag, void *mh, void **request);
enum min_result tcpx_irecv(
	void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request);
enum min_result tcpx_test(void *request, int *done, int *size);
enum min_result tcpx_consumed(void *rcomm, int n, void *request);
enum min_result tcpx_close(void *comm);

#endif
