/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_END_H
#define DR_TESTS_PLUGIN_END_H

#include "base/rng.h"
#include "orchestrator/engine/integrity.h"
#include "tests/plugin/rank.h"
#include "transport/ncclnet.h"

/*
 * What a rank does with a plugin, for tests in which everything has to succeed: each function fails the rank when the
 * plugin returns an error. Tests that expect errors call transport/ncclnet.h.
 */
struct end {
	struct rank *r;
	struct dr_nccl
		n; /* copies are further communicators; versions below 11 have no contexts and are started once */
	int ndev;
};

#define CHECK(e, cond, ...) RANK_CHECK((e)->r, cond, __VA_ARGS__)
/* The call succeeds. */
#define OK(e, call)                                                                                \
	do {                                                                                       \
		int ok_ = (int)(call);                                                             \
		CHECK(e, ok_ == NCCL_SUCCESS, "%s", dr_nccl_result_name((enum nccl_result)ok_));   \
	} while (0)

/* Loads the plugin, starts it and counts its devices. */
void end_open(struct end *e, struct rank *r);
void end_load(struct end *e, struct rank *r, const char *file);
enum nccl_result end_try_init(struct end *e);
/* For another communicator of the same rank. */
void end_init(struct end *e);
void end_finalize(struct end *e);
/* Also unloads it. */
void end_close(struct end *e);
/* The same while the peer lives: nothing that it has to confirm is left when finalize gives up. */
void end_close_both(struct end *e);

/* ---- comms ---- */

struct handle {
	unsigned char bytes[NCCL_NET_HANDLE_BYTES];
};
void *end_listen(struct end *e, int dev, struct handle *handle);
/* One turn: NULL while it is not done. */
void *end_try_connect(struct end *e, int dev, struct handle *handle);
void *end_try_accept(struct end *e, void *listen_comm);
/* Until they are done. */
void *end_connect(struct end *e, int dev, struct handle *handle);
void *end_accept(struct end *e, void *listen_comm);
/* A comm from rank `from` to rank `to`, on device dev of both: called by both, returns the comm of this end. */
void *end_comm(struct end *e, unsigned from, unsigned to, int dev);
/* comm: of this rank, which sends or receives. NULL is allowed. */
void end_close_comm(struct end *e, void *comm, bool sends);
/* A comm from rank 0 to rank 1, a ping, and its end. */
void end_short_comm(struct end *e);

/* ---- memory ---- */

/* Mapped pages, registered with one comm. */
struct mem {
	unsigned char *p;
	size_t len;
	void *comm, *mhandle;
};
void mem_map(struct end *e, struct mem *m, size_t len);
void mem_dereg(struct end *e, struct mem *m);
void mem_unmap(struct mem *m);
/* Mapped and registered. */
void mem_new(struct end *e, struct mem *m, void *comm, size_t len);
void mem_free(struct end *e, struct mem *m);
struct dr_nccl_buffer mem_buffer(const struct mem *m, size_t off, size_t size, int tag);

/* Bytes that depend on the key and the place. */
static inline void pattern_fill(void *p, size_t len, uint64_t key)
{
	dr_pattern_fill(p, len, dr_mix64(key));
}

/* Index of the first wrong byte; len: none. */
static inline size_t pattern_check(const void *p, size_t len, uint64_t key)
{
	size_t at = len;

	(void)dr_pattern_check(p, len, dr_mix64(key), &at);
	return at;
}
bool all_bytes(const void *p, size_t len, unsigned char value);

/* ---- messages ---- */

/* Until the plugin takes it. */
void *end_send(struct end *e, void *comm, const struct dr_nccl_buffer *b);
void *end_recv(struct end *e, void *comm, int n, const struct dr_nccl_buffer *b);
/* One irecv of n buffers with this value of *request at entry: from version 9 on it may be a hint. */
enum nccl_result end_irecv_raw(
	struct end *e, void *comm, int n, const struct dr_nccl_buffer *b, void **request);
/* True when done; sizes may be NULL. */
bool end_test(struct end *e, void *request, int *sizes);
void end_wait(struct end *e, void *request, int *sizes);
/* One message to its end, sent or received into b. Returns the size that test said, or -1. */
int end_message(struct end *e, void *comm, bool sends, const struct dr_nccl_buffer *b);
/* The same with the bytes of the key from place 0 on, compared at the receiver. */
void end_checked(struct end *e, const struct mem *m, size_t size, bool sends, uint64_t key);

/* A small and a large message in the direction of the comm; the content is checked. */
void end_ping(struct end *e, void *comm, bool sends);

/* ---- one comm from rank 0 to rank 1, with memory ---- */

struct one {
	struct end e;
	bool sends;
	void *comm;
	struct mem m;
};
void one_open(struct one *o, struct rank *r, size_t len);
void one_close(struct one *o);

/* ---- this process ---- */

/* Without the calling program's own: threads and descriptors. */
struct held {
	unsigned threads, fds;
};
struct held held_now(void);
/* Waits until there are no more than before; a thread that was joined may be listed for a moment. */
void held_back_to(struct rank *r, struct held before, const char *when);

#endif
