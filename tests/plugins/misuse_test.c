/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/ends.h"

#include <sys/mman.h>

/* Each misuse of libnccl-net-fake.so ends the process, with a line that says which, over each personality that has the rule. */

enum { ROOM = 4 * FN_PAGE, SIZE = 100 };

static struct ends e;
static void *r, *mh;
static int done;

/* The statements run with comms and memory that are ready for use. */
#define MISUSE(name, statements)                                                                   \
	static void name(void)                                                                     \
	{                                                                                          \
		ends_init(&e, ROOM);                                                               \
		statements;                                                                        \
	}

/* A message of SIZE bytes was received into a larger buffer, by r. */
static void receive(void)
{
	r = ends_receive(&e, 0, FN_PAGE);
	ends_wait(&e, ends_send(&e, 0, SIZE), r);
}

static void *flush(void)
{
	receive();
	return ends_flush(&e, 0, SIZE);
}

static void flush_to_the_end(void)
{
	r = flush();
	for (done = 0; !done;)
		MUST(e.net.test(r, &done, NULL) == NCCL_SUCCESS);
}

static void registers(void *comm, void *data, size_t size, int type)
{
	MUST(ends_reg(&e.net, comm, data, size, type, &e.in_mh) == NCCL_SUCCESS);
}

/* ---- test ---- */

MISUSE(test_none, e.net.test(NULL, &done, NULL))
MISUSE(test_twice, receive(); ends_done(&e, r, NULL))
MISUSE(test_send_twice, r = ends_send(&e, 0, SIZE); ends_wait(&e, r, NULL); ends_done(&e, r, NULL))
MISUSE(test_out_of_order, ends_send(&e, 0, SIZE); ends_done(&e, ends_send(&e, 0, SIZE), NULL))
MISUSE(test_twice_out_of_order, ends_receive(&e, 0, SIZE); r = ends_receive(&e, FN_PAGE, SIZE);
	ends_wait(&e, ends_send(&e, 0, SIZE), NULL); ends_wait(&e, ends_send(&e, 0, SIZE), r);
	ends_done(&e, r, NULL))

/* ---- memory ---- */

MISUSE(receive_unregistered, ends_receive(&e, 0, ROOM + 1))
MISUSE(send_unregistered, ends_send(&e, (size_t)-1, 8))
MISUSE(send_without_registration, e.out_mh = NULL; ends_send(&e, 0, 0))
MISUSE(send_registered_elsewhere, e.out_mh = e.in_mh; ends_send(&e, 0, 8))
MISUSE(receive_unaligned, ends_receive(&e, 64, 8))
MISUSE(register_nothing, registers(e.scomm, NULL, 8, NCCL_PTR_HOST))
MISUSE(register_cuda, registers(e.scomm, e.out, 8, NCCL_PTR_CUDA))
MISUSE(register_unaligned, registers(e.rcomm, e.in + 64, 8, e.type))
MISUSE(deregister_elsewhere, e.net.dereg_mr(e.scomm, e.in_mh))

/* ---- requests ---- */

MISUSE(send_on_receiver, e.scomm = e.rcomm; ends_send(&e, 0, 8))
MISUSE(receive_on_sender, e.rcomm = e.scomm; ends_receive(&e, 0, 8))
MISUSE(send_too_many, for (unsigned i = 0; i <= ends_way->requests; i++) ends_send(&e, 0, 8))
MISUSE(receive_too_many, for (unsigned i = 0; i <= ends_way->requests; i++) ends_receive(&e, 0, 8))
MISUSE(send_too_long, ends_send(&e, 0, ends_message_max() + 1))
MISUSE(receive_too_long, ends_receive(&e, 0, ends_message_max() + 1))
MISUSE(send_negative, e.net = ends_load(7); ends_send(&e, 0, (size_t)-1))
MISUSE(message_too_long, r = ends_receive(&e, 0, SIZE);
	ends_wait(&e, ends_send(&e, 0, SIZE + 1), r))
MISUSE(message_without_room, r = ends_receive(&e, 0, 0); ends_wait(&e, ends_send(&e, 0, 1), r))

static void receive_two(void)
{
	struct dr_nccl_buffer b[2];

	ends_init(&e, ROOM);
	b[0] = b[1] = (struct dr_nccl_buffer){ e.in, e.in_mh, 8, 0 };
	(void)dr_nccl_irecv(&e.net, e.rcomm, 2, b, &r);
}

static void receive_nine(void)
{
	void *data[9], *mhs[9];
	size_t sizes[9] = { 0 };
	int tags[9] = { 0 };

	ends_init(&e, ROOM);
	for (int i = 0; i < 9; i++) {
		data[i] = e.in;
		mhs[i] = e.in_mh;
	}
	(void)e.net.irecv.profiled(e.rcomm, 9, data, sizes, tags, mhs, NULL, &r);
}

static void message_with_other_tag(void)
{
	struct dr_nccl_buffer b;

	ends_init(&e, ROOM);
	b = (struct dr_nccl_buffer){ e.out, e.out_mh, 8, 7 };
	MUST(dr_nccl_isend(&e.net, e.scomm, &b, &r) == NCCL_SUCCESS);
	(void)ends_wait(&e, r, ends_receive(&e, 0, SIZE));
}

static void send_without_chunk(void)
{
	(void)unsetenv("NCCL_DYNAMIC_CHUNK_SIZE");
	ends_init(&e, ROOM);
	(void)ends_send(&e, 0, 8);
}

/* ---- pieces ---- */

MISUSE(consume_too_early, ends_consume(&e, ends_receive(&e, 0, 8)))
MISUSE(consume_twice, receive(); ends_consume(&e, r); ends_consume(&e, r))
MISUSE(consume_out_of_order, receive(); receive(); ends_consume(&e, r))
MISUSE(consume_two, receive(); e.net.consumed(e.rcomm, 2, r))
MISUSE(consume_never, for (unsigned i = 0; i <= ends_way->requests; i++) receive())

static void receive_without_device(void)
{
	ends_listen(&e);
	MUST(ends_dial(&e) == NCCL_SUCCESS && ends_admit(&e, false) == NCCL_SUCCESS);
	ends_register(&e, ROOM);
	(void)ends_receive(&e, 0, 8);
}

/* ---- connections ---- */

MISUSE(connect_again, dr_nccl_connect(&e.net, 0, e.handle, &r))
MISUSE(accept_on_a_comm, dr_nccl_accept(&e.net, e.scomm, &r, NULL))
MISUSE(close_as_another, e.net.close_listen(e.scomm))

static void connect_with_a_copy(void)
{
	uint8_t copy[NCCL_NET_HANDLE_BYTES];

	ends_listen(&e);
	memcpy(copy, e.handle, sizeof(copy));
	MUST(dr_nccl_connect(&e.net, 0, e.handle, &e.scomm) == NCCL_SUCCESS);
	(void)dr_nccl_connect(&e.net, 0, copy, &e.scomm);
}

static void connect_with_another_handle(void)
{
	ends_listen(&e);
	e.handle[0] ^= 1;
	(void)dr_nccl_connect(&e.net, 0, e.handle, &e.scomm);
}

static void connect_after_failure(void)
{
	ends_listen(&e);
	MUST(e.net.close_listen(e.lcomm) == NCCL_SUCCESS);
	MUST(ends_dial(&e) == NCCL_REMOTE_ERROR);
	(void)dr_nccl_connect(&e.net, 0, e.handle, &e.scomm);
}

static void accept_again(void)
{
	ends_listen(&e);
	MUST(ends_dial(&e) == NCCL_SUCCESS && ends_admit(&e, true) == NCCL_SUCCESS);
	(void)dr_nccl_accept(&e.net, e.lcomm, &e.rcomm, NULL);
}

/* The sender, which sets RECV_SYNC, is a process of its own. */
static void sync_differently(void)
{
	int fds[2];
	pid_t pid;

	MUST(pipe(fds) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		MUST(setenv("NCCL_GPUDIRECTTCPX_RECV_SYNC", "1", 1) == 0);
		ends_listen(&e);
		MUST(read(fds[0], e.handle, sizeof(e.handle)) == (ssize_t)sizeof(e.handle));
		(void)ends_dial(&e);
		_exit(0);
	}
	ends_listen(&e);
	MUST(write(fds[1], e.handle, sizeof(e.handle)) == (ssize_t)sizeof(e.handle));
	(void)ends_admit(&e, true);
}

/* ---- flushes ---- */

MISUSE(flush_early, ends_receive(&e, 0, SIZE); ends_flush(&e, 0, SIZE))
/* The buffer is the next receive's already. */
MISUSE(flush_late, receive(); ends_receive(&e, 0, SIZE); ends_flush(&e, 0, SIZE))
MISUSE(flush_elsewhere, receive(); ends_flush(&e, 1, SIZE - 1))
MISUSE(flush_buffer, receive(); ends_flush(&e, 0, FN_PAGE))
MISUSE(flush_by_another, receive(); registers(e.rcomm, e.in, ROOM, e.type); ends_flush(&e, 0, SIZE))
MISUSE(flush_twice, flush(); ends_flush(&e, 0, SIZE))
MISUSE(flush_again, flush_to_the_end(); ends_flush(&e, 0, SIZE))
MISUSE(flush_none, receive(); e.net.flush(e.rcomm, 0, NULL, NULL, NULL, &r))
MISUSE(flush_send, receive(); e.rcomm = e.scomm; ends_flush(&e, 0, SIZE))
MISUSE(test_flush_twice, flush_to_the_end(); ends_done(&e, r, NULL))
MISUSE(deregister_in_flush, r = flush(); e.net.dereg_mr(e.rcomm, e.in_mh); ends_done(&e, r, NULL))
/* After it the receives of the memory are unknown. */
MISUSE(flush_deregistered, receive(); e.net.dereg_mr(e.rcomm, e.in_mh);
	registers(e.rcomm, e.in, ROOM, e.type); ends_flush(&e, 0, SIZE))

/* A flush is tested to its end before its place is needed. */
static void forget_flush(void)
{
	ends_init(&e, ROOM);
	(void)flush();
	for (;;)
		(void)ends_wait(&e, ends_send(&e, 0, SIZE), ends_receive(&e, FN_PAGE, SIZE));
}

/* ---- dma-bufs ---- */

static int memfd(void)
{
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);

	MUST(fd >= 0 && ftruncate(fd, ROOM) == 0);
	return fd;
}

static void dmabuf(int fd, int type, uint64_t offset)
{
	(void)e.net.reg_dmabuf(e.rcomm, e.in, ROOM, type, offset, fd, &mh);
}

static void dmabuf_unasked(void)
{
	(void)unsetenv("FAKENET_DMABUF");
	ends_init(&e, ROOM);
	dmabuf(memfd(), NCCL_PTR_CUDA, 0);
}

static int fds[2];

MISUSE(dmabuf_closed, dmabuf(1000, NCCL_PTR_CUDA, 0))
MISUSE(dmabuf_none, MUST(pipe(fds) == 0); dmabuf(fds[0], NCCL_PTR_CUDA, 0))
MISUSE(dmabuf_of_other_memory, dmabuf(memfd(), NCCL_PTR_CUDA, 0))
MISUSE(dmabuf_too_short, dmabuf(memfd(), NCCL_PTR_CUDA, 1))
MISUSE(dmabuf_of_host_memory, dmabuf(memfd(), NCCL_PTR_HOST, 0))

/* The first page is that of the dma-buf, the last one is not. */
static void dmabuf_of_a_part(void)
{
	int fd = memfd();

	ends_init(&e, ROOM);
	MUST(mmap(e.in, FN_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == e.in);
	dmabuf(fd, NCCL_PTR_CUDA, 0);
}

/* clang-format off */
static const struct {
	void (*run)(void);
	unsigned fakes;
	const char *says;
} misuse[] = {
	{ test_none, ANY_FAKE, "test of no request" },
	{ test_twice, ANY_FAKE, "test of request 0, which is complete" },
	{ test_send_twice, ANY_FAKE, "test of request 0, which is complete" },
	{ test_out_of_order, PIECES | FAST, "test of request 1 out of order: the oldest one is 0" },
	{ test_twice_out_of_order, SOCKET | DIRECT, "test of request 1, which is complete" },
	{ receive_unregistered, ANY_FAKE, "a receive of 16385 bytes at" },
	{ send_unregistered, ANY_FAKE, "which is not registered" },
	{ send_without_registration, ANY_FAKE, "a send without registration" },
	{ send_registered_elsewhere, ANY_FAKE, "a send of memory that another comm has registered" },
	{ receive_unaligned, PIECES, "a receive into CUDA memory at" },
	{ register_nothing, ANY_FAKE, "regMr of 8 bytes of type 1 at (nil)" },
	{ register_cuda, SOCKET, "regMr of 8 bytes of type 2" },
	{ register_unaligned, PIECES, "regMr of CUDA memory at" },
	{ deregister_elsewhere, ANY_FAKE, "deregMr of memory of another comm" },
	{ send_on_receiver, ANY_FAKE, "isend on what does not send" },
	{ receive_on_sender, ANY_FAKE, "irecv on what does not receive" },
	{ send_too_many, PIECES, "more than 16 sends" },
	{ receive_too_many, PIECES, "more than 16 receives\n" },
	{ send_too_long, PIECES, "isend of 4194305 bytes, 4194304 is the limit" },
	{ send_too_long, SOCKET | DIRECT, "isend of 1073741825 bytes" },
	{ receive_too_long, PIECES, "irecv of 4194305 bytes, 4194304 is the limit" },
	{ receive_too_long, SOCKET | DIRECT, "irecv of 1073741825 bytes" },
	{ send_negative, ANY_FAKE, "isend of 18446744073709551615 bytes" },
	{ message_too_long, ANY_FAKE, "receive 0 has room for 100 bytes, its message has 101" },
	{ message_without_room, ANY_FAKE, "receive 0 has room for 0 bytes, its message has 1" },
	{ receive_two, CUDA_FAKE, "irecv of 2 buffers, 1 are possible" },
	{ receive_nine, SOCKET, "irecv of 9 buffers, 8 are possible" },
	{ message_with_other_tag, SOCKET, "a message with tag 7, and receive 0 has none with it" },
	{ send_without_chunk, PIECES, "isend without NCCL_DYNAMIC_CHUNK_SIZE" },
	{ consume_too_early, PIECES, "irecvConsumed of receive 0, which is not complete" },
	{ consume_twice, PIECES, "irecvConsumed twice for receive 0" },
	{ consume_out_of_order, PIECES, "irecvConsumed of receive 1 out of order" },
	{ consume_two, PIECES, "irecvConsumed of 2 requests" },
	{ consume_never, PIECES, "more than 16 receives; 16 are complete, but irecvConsumed is missing" },
	{ receive_without_device, PIECES, "accept got no place for the device handle" },
	{ connect_again, CUDA_FAKE, "connect with a handle that has given its comm" },
	{ accept_on_a_comm, ANY_FAKE, "accept on what does not listen" },
	{ close_as_another, ANY_FAKE, "close of a comm as a listener" },
	{ connect_with_a_copy, CUDA_FAKE, "connect with another copy of the handle" },
	{ connect_with_another_handle, ANY_FAKE, "connect with a handle of another plugin" },
	{ connect_after_failure, CUDA_FAKE, "connect after it failed" },
	{ accept_again, CUDA_FAKE, "accept on a listener that has given its comm" },
	{ sync_differently, PIECES, "RECV_SYNC is 1 at the sender and 0 here" },
	{ flush_early, PIECES, "iflush of 1 buffers; it has no use" },
	{ flush_early, SOCKET | DIRECT, "iflush of receive 0, which is not complete" },
	{ flush_late, SOCKET | DIRECT, "iflush of receive 1, which is not complete" },
	{ flush_elsewhere, SOCKET | DIRECT, "where no receive was posted" },
	{ flush_buffer, SOCKET | DIRECT, "iflush of 4096 bytes of receive 0, whose message has 100" },
	{ flush_by_another, SOCKET | DIRECT, "iflush of receive 0 with another registration than its own" },
	{ flush_twice, SOCKET | DIRECT, "iflush twice of receive 0" },
	{ flush_again, DIRECT, "iflush twice of receive 0" },
	{ flush_none, SOCKET | DIRECT, "iflush of 0 buffers" },
	{ flush_send, SOCKET | DIRECT, "on what does not receive" },
	{ test_flush_twice, DIRECT, "test of the flush of receive 0, which is complete" },
	{ deregister_in_flush, DIRECT, "test of the flush of receive 0, whose registration is gone" },
	{ flush_deregistered, SOCKET | DIRECT, "where no receive was posted" },
	{ forget_flush, DIRECT, "256 receives after receive 0, whose flush is not complete" },
	{ dmabuf_unasked, DIRECT, "regMrDmaBuf, and ptrSupport lacks dma-bufs" },
	{ dmabuf_closed, DIRECT, "regMrDmaBuf of descriptor 1000, which is not open" },
	{ dmabuf_none, DIRECT, "which is no dma-buf: pipe:" },
	{ dmabuf_of_other_memory, DIRECT, "offset 0 of the dma-buf is other memory than" },
	{ dmabuf_of_a_part, DIRECT, "offset 0 of the dma-buf is other memory than" },
	{ dmabuf_too_short, DIRECT, "16384 bytes at offset 1 of a dma-buf of 16384 bytes" },
	{ dmabuf_of_host_memory, DIRECT, "regMrDmaBuf of 16384 bytes of type 1" },
};
/* clang-format on */

static void misuse_aborts(void **state)
{
	(void)state;
	(void)setenv("FAKENET_DMABUF", "1", 1);
	for (unsigned i = 0; i < LENGTH(misuse); i++)
		EACH_FAKE(misuse[i].fakes)
	ends_child_aborts(misuse[i].run, misuse[i].says);
	(void)setenv("FAKENET_ORDERED", "1", 1);
	EACH_FAKE(DIRECT)
	ends_child_aborts(flush_twice, "iflush twice of receive 0");
}

/* What is unknown is not taken for something else. */
static void load(void)
{
	(void)setenv(getenv("BROKEN"), "nonsense", 1);
	(void)ends_load(7);
}

static void unknown_names_abort(void **state)
{
	(void)state;
	(void)setenv("BROKEN", "FAKENET", 1);
	ends_child_aborts(load, "FAKENET=nonsense is none of socket, pieces, direct and fast");
	(void)setenv("BROKEN", "FAKENET_BUGS", 1);
	ends_child_aborts(load, "FAKENET_BUGS: there is no nonsense");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(misuse_aborts, ends_setup),
		cmocka_unit_test_setup(unknown_names_abort, ends_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
