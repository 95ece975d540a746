/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <sys/mman.h>

#include "tests/fakegdr/fakegdr.h"

/* Each misuse of libnccl-net-fakegdr.so ends the process, with a line that says which. */

enum { ROOM = 4 * TCPX_PAGE, SIZE = 100 };

static void *flush(struct pair *p, size_t at, int size, void *mh)
{
	void *data = p->in + at, *r = NULL;

	MUST(p->net->iflush(p->rcomm, 1, &data, &size, &mh, &r) == MIN_OK);
	return r;
}

/* A receive of SIZE bytes into a larger buffer is complete. */
static void *receive(struct pair *p)
{
	void *r;

	pair_init(p, ROOM);
	r = pair_receive(p, 0, TCPX_PAGE);
	pair_wait(p, pair_send(p, 0, SIZE), r);
	return r;
}

static void test_twice(void)
{
	struct pair p;

	(void)pair_done(&p, receive(&p));
}

static void test_twice_out_of_order(void)
{
	struct pair p;
	void *r;

	pair_init(&p, ROOM);
	(void)pair_receive(&p, 0, SIZE);
	r = pair_receive(&p, TCPX_PAGE, SIZE);
	pair_wait(&p, pair_send(&p, 0, SIZE), NULL);
	pair_wait(&p, pair_send(&p, 0, SIZE), r);
	(void)pair_done(&p, r);
}

static void flush_early(void)
{
	struct pair p;

	pair_init(&p, ROOM);
	(void)pair_receive(&p, 0, SIZE);
	(void)flush(&p, 0, SIZE, p.in_mh);
}

/* The buffer is the next receive's already. */
static void flush_late(void)
{
	struct pair p;

	(void)receive(&p);
	(void)pair_receive(&p, 0, SIZE);
	(void)flush(&p, 0, SIZE, p.in_mh);
}

static void flush_elsewhere(void)
{
	struct pair p;

	(void)receive(&p);
	(void)flush(&p, 1, SIZE - 1, p.in_mh);
}

static void flush_buffer(void)
{
	struct pair p;

	(void)receive(&p);
	(void)flush(&p, 0, TCPX_PAGE, p.in_mh);
}

static void flush_by_another(void)
{
	struct pair p;
	void *mh;

	(void)receive(&p);
	MUST(p.net->reg_mr(p.rcomm, p.in, ROOM, GDR_PTR_CUDA, &mh) == MIN_OK);
	(void)flush(&p, 0, SIZE, mh);
}

static void flush_twice(void)
{
	struct pair p;

	(void)receive(&p);
	(void)flush(&p, 0, SIZE, p.in_mh);
	(void)flush(&p, 0, SIZE, p.in_mh);
}

static void flush_again(void)
{
	struct pair p;

	(void)receive(&p);
	pair_plugin.sizes = false; /* not of a flush */
	pair_wait(&p, flush(&p, 0, SIZE, p.in_mh), NULL);
	(void)flush(&p, 0, SIZE, p.in_mh);
}

static void flush_twice_in_order(void)
{
	(void)setenv("FAKEGDR_ORDERED", "1", 1);
	flush_twice();
}

static void flush_two(void)
{
	void *data[2], *mh[2], *r;
	int size[2] = { SIZE, SIZE };
	struct pair p;

	(void)receive(&p);
	data[0] = data[1] = p.in;
	mh[0] = mh[1] = p.in_mh;
	(void)p.net->iflush(p.rcomm, 2, data, size, mh, &r);
}

static void flush_send(void)
{
	struct pair p;

	(void)receive(&p);
	p.rcomm = p.scomm;
	(void)flush(&p, 0, SIZE, p.out_mh);
}

static void test_flush_twice(void)
{
	struct pair p;
	void *f;

	(void)receive(&p);
	pair_plugin.sizes = false;
	f = flush(&p, 0, SIZE, p.in_mh);
	pair_wait(&p, f, NULL);
	(void)pair_done(&p, f);
}

static void deregister_in_flush(void)
{
	struct pair p;
	void *f;

	(void)receive(&p);
	f = flush(&p, 0, SIZE, p.in_mh);
	(void)p.net->dereg_mr(p.rcomm, p.in_mh);
	(void)pair_done(&p, f);
}

/* After it the receives of the memory are unknown. */
static void flush_deregistered(void)
{
	struct pair p;
	void *mh;

	(void)receive(&p);
	MUST(p.net->dereg_mr(p.rcomm, p.in_mh) == MIN_OK);
	MUST(p.net->reg_mr(p.rcomm, p.in, ROOM, GDR_PTR_CUDA, &mh) == MIN_OK);
	(void)flush(&p, 0, SIZE, mh);
}

/* A flush is tested to its end before its place is needed. */
static void forget_flush(void)
{
	struct pair p;

	(void)receive(&p);
	(void)flush(&p, 0, SIZE, p.in_mh);
	for (;;)
		pair_wait(&p, pair_send(&p, 0, SIZE), pair_receive(&p, TCPX_PAGE, SIZE));
}

static void message_too_long(void)
{
	struct pair p;

	pair_init(&p, ROOM);
	pair_wait(&p, pair_send(&p, 0, SIZE + 1), pair_receive(&p, 0, SIZE));
}

static void receive_unregistered(void)
{
	struct pair p;

	pair_init(&p, ROOM);
	(void)pair_receive(&p, 1, ROOM);
}

static void send_too_long(void)
{
	const struct min_net_v9 *n = pair_table(9);
	struct pair p;
	void *r;

	pair_init(&p, ROOM);
	(void)n->isend(p.scomm, p.out, (size_t)1 << 32, 0, p.out_mh, &r);
}

/* ---- dma-bufs ---- */

static void register_dmabuf(int fd, int type, uint64_t offset)
{
	struct pair p;
	void *mh;

	pair_init(&p, ROOM);
	(void)p.net->reg_mr_dmabuf(p.rcomm, p.in, ROOM, type, offset, fd, &mh);
}

static int memfd(off_t len)
{
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);

	MUST(fd >= 0 && ftruncate(fd, len) == 0);
	return fd;
}

static void dmabuf_unasked(void)
{
	(void)unsetenv("FAKEGDR_DMABUF");
	register_dmabuf(memfd(ROOM), GDR_PTR_CUDA, 0);
}

static void dmabuf_closed(void)
{
	register_dmabuf(1000, GDR_PTR_CUDA, 0);
}

static void dmabuf_none(void)
{
	int fds[2];

	MUST(pipe(fds) == 0);
	register_dmabuf(fds[0], GDR_PTR_CUDA, 0);
}

static void dmabuf_of_other_memory(void)
{
	register_dmabuf(memfd(ROOM), GDR_PTR_CUDA, 0);
}

static void dmabuf_too_short(void)
{
	register_dmabuf(memfd(ROOM), GDR_PTR_CUDA, 1);
}

static void dmabuf_of_host_memory(void)
{
	register_dmabuf(memfd(ROOM), MIN_PTR_HOST, 0);
}

/* The first page is that of the dma-buf, the last one is not. */
static void dmabuf_of_a_part(void)
{
	int fd = memfd(ROOM);
	struct pair p;
	void *mh;

	pair_init(&p, ROOM);
	MUST(mmap(p.in, TCPX_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p.in);
	(void)p.net->reg_mr_dmabuf(p.rcomm, p.in, ROOM, GDR_PTR_CUDA, 0, fd, &mh);
}

static const struct {
	void (*run)(void);
	const char *says;
} misuse[] = {
	{ test_twice, "test of request 0, which is complete" },
	{ test_twice_out_of_order, "test of request 1, which is complete" },
	{ flush_early, "iflush of receive 0, which is not complete" },
	{ flush_late, "iflush of receive 1, which is not complete" },
	{ flush_elsewhere, "where no receive was posted" },
	{ flush_buffer, "iflush of 4096 bytes of receive 0, whose message has 100" },
	{ flush_by_another, "iflush of receive 0 with another registration than its own" },
	{ flush_twice, "iflush twice of receive 0" },
	{ flush_again, "iflush twice of receive 0" },
	{ flush_twice_in_order, "iflush twice of receive 0" },
	{ flush_two, "iflush of 2 buffers" },
	{ flush_send, "on what does not receive" },
	{ test_flush_twice, "test of the flush of receive 0, which is complete" },
	{ deregister_in_flush, "test of the flush of receive 0, whose registration is gone" },
	{ flush_deregistered, "where no receive was posted" },
	{ forget_flush, "256 receives after receive 0, whose flush is not complete" },
	{ message_too_long, "receive 0 has room for 100 bytes, its message has 101" },
	{ receive_unregistered, "which is not registered" },
	{ send_too_long, "isend of 4294967296 bytes, 1073741824 is the limit" },
	{ dmabuf_unasked, "regMrDmaBuf, and ptrSupport lacks dma-bufs" },
	{ dmabuf_closed, "regMrDmaBuf of descriptor 1000, which is not open" },
	{ dmabuf_none, "which is no dma-buf: pipe:" },
	{ dmabuf_of_other_memory, "offset 0 of the dma-buf is other memory than" },
	{ dmabuf_of_a_part, "offset 0 of the dma-buf is other memory than" },
	{ dmabuf_too_short, "16384 bytes at offset 1 of a dma-buf of 16384 bytes" },
	{ dmabuf_of_host_memory, "regMrDmaBuf of 16384 bytes of type 1" },
};

static void misuse_aborts(void **state)
{
	(void)state;
	(void)setenv("FAKEGDR_DMABUF", "1", 1);
	for (unsigned i = 0; i < sizeof(misuse) / sizeof(misuse[0]); i++)
		pair_aborts(misuse[i].run, "fakegdr: ", misuse[i].says);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(misuse_aborts, pair_setup),
	};

	pair_plugin = pair_fakegdr;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
