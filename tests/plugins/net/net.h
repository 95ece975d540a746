/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_NET_NET_H
#define DR_TESTS_PLUGINS_NET_NET_H

#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "tests/plugins/fake.h"
#include "tests/plugins/net/abi.h"
#include "tests/plugins/net/cuda.h"

/* tests/plugins/fake.h describes the plugin. */

struct fn_comm;
struct fn_request;
struct fn_sock;
struct fn_task;

/* A personality. */
struct fn_kind {
	const char *word; /* of FAKENET */
	const char *name; /* for NCCL */
	const char *ifname;
	int version_first, version_last;
	unsigned requests, group;
	uint32_t message_max;
	uint32_t chunk; /* bytes of a piece unless it is set; 0: it has to be */
	bool cuda;
	bool single; /* one connection carries control and data, requests of an ended comm fail, a listener gives many comms */
	bool pieces;
	bool in_order; /* only the oldest request may be tested, and test says no sizes */
	bool waits;    /* accept does, for connect; and connect, for 200 ms */
};

extern const struct fn_kind *fn_kind;

struct fn_settings {
	unsigned n_socks; /* data connections */
	uint32_t chunk;	  /* 0: not set */
	bool recv_sync;
	bool cuda; /* memory of type CUDA is GPU memory */
	bool ordered, dmabuf, dmabuf_only;
	unsigned pages;
	uint64_t seed;
};

extern struct fn_settings fn_settings;

enum {
	FN_REQUESTS_MAX = 32,
	FN_SOCKETS_MAX = 8,
	FN_TASKS_MAX = 6, /* of a data connection */
	/* Pages of a bounce buffer. All that 16 receives can need; in GPU memory fewer. One receive has to fit. */
	FN_PAGES_MIN = FN_FRAGMENTS_MAX,
	FN_PAGES_MAX = FN_SLOTS * FN_FRAGMENTS_MAX,
	FN_PAGES_GPU = 4096,
};

union fn_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct fn_device {
	char name[IF_NAMESIZE];
	unsigned index;
	union fn_address v4, v6; /* family 0: none */
};

/* A buffer of a request. */
struct fn_part {
	struct fn_mr *mr;
	uint8_t *data;
	int tag;
	uint32_t room;	 /* of the buffer */
	uint32_t size;	 /* of the message, once it is known */
	uint32_t offset; /* handed out to connections */
	bool known;
	bool in_gpu; /* data is an address of GPU memory */
};

/* A piece of a message on one connection. */
struct fn_task {
	struct fn_request *r;
	struct fn_part *p;
	uint32_t offset, size, moved;
	/* The fragment that is being filled: its length and bytes in it. */
	uint32_t fragment, filled;
	uint32_t at;	 /* in the bounce buffer */
	uint32_t staged; /* bytes of a send that were copied out of GPU memory */
};

struct fn_sock {
	int fd;
	bool dead;
	struct fn_task task[FN_TASKS_MAX];
	unsigned head, count;
	unsigned
		staged; /* of receivers: how much of the staging memory was filled, in pages or in bytes */
};

struct fn_mr {
	LIST_ENTRY(fn_mr) next;
	struct fn_comm *comm;
	const uint8_t *data;
	size_t size;
	int type;
};

/* What test gets begins with it. */
struct fn_head {
	struct fn_comm *comm;
	bool is_flush; /* a struct fn_receive follows */
};

struct fn_request {
	struct fn_head head;
	uint64_t no; /* in its comm, from 0 */
	unsigned n, handed;
	struct fn_part part[FN_GROUP_MAX];
	uint64_t moved;	   /* bytes through connections */
	bool reported;	   /* test said that it is complete */
	unsigned n_pieces; /* pages and fragments of the bounce buffer */
	uint32_t *page;
	struct fn_fragment *fragment;
};

/* Starts each connection. */
struct fn_hello {
	uint64_t magic, token;
	uint16_t index, n_conns;
	uint32_t recv_sync;
};

/* On the control connection, before each piece; of the message of no bytes there is one, of size 0. */
struct fn_ctrl {
	uint16_t magic;
	uint16_t index; /* of the data connection */
	int32_t tag;
	uint32_t size, offset, total;
};

_Static_assert(sizeof(struct fn_hello) == 24, "hello");
_Static_assert(sizeof(struct fn_ctrl) == 20, "ctrl");

/* What a context has. */
enum fn_object_kind { FN_LISTENER, FN_DIAL, FN_COMM };

struct fn_object {
	LIST_ENTRY(fn_object) next; /* guarded by the context's lock */
	struct fn_ctx *ctx;
	enum fn_object_kind kind;
	uint64_t id; /* in the context, from 1 */
};

struct fn_ctx {
	pthread_mutex_t lock;
	LIST_HEAD(fn_objects, fn_object) objects;
	uint64_t ids;
};

struct fn_comm {
	struct fn_object object;
	pthread_mutex_t lock; /* guards the rest */
	bool is_send;
	bool busy; /* the last post got no request */
	/* A registration went while requests used it: nothing moves any more. */
	bool ended;
	enum fn_result error;
	int ctrl_fd;
	struct fn_sock sock[FN_SOCKETS_MAX];
	unsigned n_socks, next_sock;
	LIST_HEAD(fn_mrs, fn_mr) mrs;

	/* Requests by number; freed <= complete <= posted <= freed + requests, handed <= started <= posted. All below complete were
	 * reported. */
	struct fn_request *request;
	uint64_t freed, complete, handed, started, posted;

	struct fn_ctrl ctrl;
	size_t ctrl_moved; /* bytes of it; when sending, 0: nothing to send */

	/* Of receivers, and of senders with registered GPU memory; of direct those with registered GPU memory alone. */
	struct fn_gpu gpu;

	/* Of receivers of pieces. bounce is an address of GPU memory if gpu is open. */
	struct fn_unpack_handle *device;
	uint8_t *bounce;
	uint32_t *free_page;
	unsigned free_pages;
	uint64_t random;

	struct fn_receive *receive; /* of other receivers: the latest receives */
};

/* Ends the process. */
_Noreturn void fn_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* device.c */
/* Once in the process: interfaces whose names start with one of these, separated by commas; all but loopback
 * when there are none. */
void fn_devices_scan(const char *names);
int fn_devices(void);
const struct fn_device *fn_device(int dev); /* NULL: there is none */

/* log.c */
void fn_log_set(fn_logger log);
void fn_log_init(const char *fmt, ...)
	__attribute__((format(printf, 1, 2))); /* of subsystem INIT */
void fn_log(enum fn_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says what failed with this errno, and gives the result that fits it. */
enum fn_result fn_failed(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* settings.c */
/* The personality, and the misbehaviours. */
void fn_choose(void);
enum fn_result fn_settings_read(void);

/* connect.c */
enum fn_result fn_ctx_new(struct fn_ctx **out);
void fn_ctx_free(struct fn_ctx *ctx);
enum fn_result fn_listen(struct fn_ctx *ctx, int dev, void *handle, void **lcomm);
enum fn_result fn_connect(struct fn_ctx *ctx, int dev, void *handle, void **scomm);
enum fn_result fn_accept(void *lcomm, void **rcomm, struct fn_device_handle **device);
enum fn_result fn_close(void *object, enum fn_object_kind kind);
void fn_object_add(struct fn_object *o, struct fn_ctx *ctx, enum fn_object_kind kind);

/* progress.c */
/* The staging memory of a connection. */
uint8_t *fn_stage(const struct fn_comm *c, const struct fn_sock *s);
enum fn_result fn_progress(struct fn_comm *c);
static inline struct fn_request *fn_request(struct fn_comm *c, uint64_t no)
{
	return &c->request[no % fn_kind->requests];
}

/* comm.c */
struct fn_comm *fn_comm_new(struct fn_ctx *ctx, bool is_send);
enum fn_result fn_comm_free(struct fn_comm *c);
enum fn_result fn_reg(void *comm, void *data, size_t size, int type, void **mh);
/* What remains to be done once the memory was checked. */
enum fn_result fn_reg_memory(struct fn_comm *c, const void *data, size_t size, int type, void **mh);
/* What CUDA memory needs before it is registered. */
enum fn_result fn_use_gpu(struct fn_comm *c, const void *data);
enum fn_result fn_dereg(void *comm, void *mh);
enum fn_result fn_isend(void *scomm, void *data, size_t size, int tag, void *mh, void **request);
enum fn_result fn_irecv(void *rcomm, int n, void **data, const size_t *sizes, int *tags, void **mhs,
	void **request);
enum fn_result fn_test(void *request, int *done, int *sizes);

/*
 * Where received data goes: bounce.c of pieces, direct.c of the others. accept calls init, close calls fini, also after it failed and of
 * senders. The others have the comm's lock.
 */
enum fn_result fn_bounce_init(struct fn_comm *c);
enum fn_result fn_direct_init(struct fn_comm *c);
void fn_bounce_fini(struct fn_comm *c);
void fn_direct_posted(struct fn_comm *c, struct fn_request *r);
/* Where in host memory the next bytes of the connection's task go, and how many fit there. NULL: until a page is free. */
uint8_t *fn_bounce_place(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t *len);
uint8_t *fn_direct_place(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t *len);
/* That many bytes are there. */
enum fn_result fn_bounce_filled(
	struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t len);
enum fn_result fn_direct_filled(
	struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t len);
/* All bytes were filled; test reports it next. Describes the fragments to the device, or writes the last bytes. */
enum fn_result fn_bounce_complete(struct fn_comm *c, struct fn_request *r);
enum fn_result fn_direct_complete(struct fn_comm *c, struct fn_request *r);
/* The memory goes. */
void fn_direct_forget(struct fn_comm *c, const struct fn_mr *mr);
enum fn_result fn_consumed(void *rcomm, int n, void *request);
enum fn_result fn_iflush(void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
enum fn_result fn_test_flush(struct fn_receive *g, int *done);

/* dmabuf.c */
enum fn_result fn_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);

#endif
