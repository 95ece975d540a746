/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

/* Each misuse of libnccl-net-faketcpx.so ends the process, with a line that says which. */

static void test_out_of_order(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	(void)pair_send(&p, 0, 8);
	(void)pair_done(&p, pair_send(&p, 0, 8));
}

static void test_twice(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	s = pair_send(&p, 0, 8);
	r = pair_receive(&p, 0, 8);
	pair_wait(&p, s, r);
	(void)pair_done(&p, r);
}

static void consume_too_early(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	(void)p.net->irecv_consumed(p.rcomm, 1, pair_receive(&p, 0, 8));
}

static void consume_twice(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	s = pair_send(&p, 0, 8);
	r = pair_receive(&p, 0, 8);
	pair_wait(&p, s, r);
	MUST(p.net->irecv_consumed(p.rcomm, 1, r) == MIN_OK);
	(void)p.net->irecv_consumed(p.rcomm, 1, r);
}

static void consume_out_of_order(void)
{
	struct pair p;
	void *s, *r = NULL;

	pair_init(&p, TCPX_PAGE);
	for (int i = 0; i < 2; i++) {
		s = pair_send(&p, 0, 8);
		r = pair_receive(&p, 0, 8);
		pair_wait(&p, s, r);
	}
	(void)p.net->irecv_consumed(p.rcomm, 1, r);
}

static void consume_never(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	for (int i = 0; i <= TCPX_REQUESTS_MAX; i++) {
		s = pair_send(&p, 0, 8);
		r = pair_receive(&p, 0, 8);
		pair_wait(&p, s, r);
	}
}

static void send_too_many(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	for (int i = 0; i <= TCPX_REQUESTS_MAX; i++)
		(void)pair_send(&p, 0, 8);
}

static void receive_too_many(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	for (int i = 0; i <= TCPX_REQUESTS_MAX; i++)
		(void)pair_receive(&p, 0, 8);
}

static void receive_too_long(void)
{
	struct pair p;

	pair_init(&p, (size_t)2 * TCPX_RECEIVE_MAX);
	(void)pair_receive(&p, 0, TCPX_RECEIVE_MAX + 1);
}

static void send_too_long(void)
{
	struct pair p;

	pair_init(&p, (size_t)2 * TCPX_RECEIVE_MAX);
	(void)pair_send(&p, 0, TCPX_RECEIVE_MAX + 1);
}

static void message_too_long(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	s = pair_send(&p, 0, 9);
	r = pair_receive(&p, 0, 8);
	pair_wait(&p, s, r);
}

static void receive_unaligned(void)
{
	struct pair p;

	pair_init(&p, (size_t)2 * TCPX_PAGE);
	(void)pair_receive(&p, 64, 8);
}

static void register_unaligned(void)
{
	struct pair p;
	void *mh;

	pair_init(&p, TCPX_PAGE);
	(void)p.net->reg_mr(p.rcomm, p.in + 64, 8, TCPX_PTR_CUDA, &mh);
}

static void receive_unregistered(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	(void)pair_receive(&p, 0, TCPX_PAGE + 1);
}

static void send_without_registration(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	p.out_mh = NULL;
	(void)pair_send(&p, 0, 0);
}

static void send_registered_elsewhere(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	p.out_mh = p.in_mh;
	(void)pair_send(&p, 0, 8);
}

static void receive_two(void)
{
	void *data[2], *mh[2], *r;
	int size[2] = { 8, 8 }, tag[2] = { 0, 0 };
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	data[0] = data[1] = p.in;
	mh[0] = mh[1] = p.in_mh;
	(void)p.net->irecv(p.rcomm, 2, data, size, tag, mh, &r);
}

static void receive_without_device(void)
{
	struct pair p;

	pair_listen(&p);
	pair_connect(&p, false);
	p.in = pair_pages(TCPX_PAGE);
	MUST(p.net->reg_mr(p.rcomm, p.in, TCPX_PAGE, TCPX_PTR_CUDA, &p.in_mh) == MIN_OK);
	(void)pair_receive(&p, 0, 8);
}

static void flush(void)
{
	struct pair p;
	void *data, *r = NULL;
	int size = 8;

	pair_init(&p, TCPX_PAGE);
	data = p.in;
	(void)p.net->iflush(p.rcomm, 1, &data, &size, &p.in_mh, &r);
}

static void connect_again(void)
{
	struct pair p;
	void *more;

	pair_init(&p, TCPX_PAGE);
	(void)p.net->connect(0, p.handle, &more, NULL);
}

static void connect_with_a_copy(void)
{
	uint8_t copy[MIN_HANDLE_BYTES];
	struct pair p;

	pair_listen(&p);
	memcpy(copy, p.handle, sizeof(copy));
	MUST(p.net->connect(0, p.handle, &p.scomm, NULL) == MIN_OK);
	(void)p.net->connect(0, copy, &p.scomm, NULL);
}

static void connect_after_failure(void)
{
	struct pair p;

	pair_listen(&p);
	MUST(p.net->close_listen(p.lcomm) == MIN_OK);
	while (p.net->connect(0, p.handle, &p.scomm, NULL) == MIN_OK)
		MUST(p.scomm == NULL);
	(void)p.net->connect(0, p.handle, &p.scomm, NULL);
}

static void accept_again(void)
{
	struct min_device_handle device, *where = &device;
	int64_t start = dr_now_ns();
	struct pair p;

	pair_listen(&p);
	while (!p.rcomm) {
		if (!p.scomm)
			MUST(p.net->connect(0, p.handle, &p.scomm, NULL) == MIN_OK);
		MUST(p.net->accept(p.lcomm, &p.rcomm, &where) == MIN_OK);
		pair_in_time(start);
	}
	(void)p.net->accept(p.lcomm, &p.rcomm, &where);
}

static void send_without_chunk(void)
{
	struct pair p;

	(void)unsetenv("NCCL_DYNAMIC_CHUNK_SIZE");
	pair_init(&p, TCPX_PAGE);
	(void)pair_send(&p, 0, 8);
}

/* The sender, which sets RECV_SYNC, is a process of its own. */
static void sync_differently(void)
{
	int fds[2];
	struct pair p;
	pid_t pid;

	MUST(pipe(fds) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		int64_t start = dr_now_ns();

		MUST(setenv("NCCL_GPUDIRECTTCPX_RECV_SYNC", "1", 1) == 0);
		pair_listen(&p);
		MUST(read(fds[0], p.handle, sizeof(p.handle)) == (ssize_t)sizeof(p.handle));
		while (!p.scomm && p.net->connect(0, p.handle, &p.scomm, NULL) == MIN_OK)
			pair_in_time(start);
		_exit(0);
	}
	pair_listen(&p);
	MUST(write(fds[1], p.handle, sizeof(p.handle)) == (ssize_t)sizeof(p.handle));
	for (int64_t start = dr_now_ns();; pair_in_time(start))
		MUST(p.net->accept(p.lcomm, &p.rcomm, NULL) == MIN_OK);
}

static const struct {
	void (*run)(void);
	const char *says;
} misuse[] = {
	{ test_out_of_order, "test of request 1 out of order: the oldest one is 0" },
	{ test_twice, "test of request 0, which is complete" },
	{ consume_too_early, "irecvConsumed of receive 0, which is not complete" },
	{ consume_twice, "irecvConsumed twice for receive 0" },
	{ consume_out_of_order, "irecvConsumed of receive 1 out of order" },
	{ consume_never, "more than 16 receives; 16 are complete, but irecvConsumed is missing" },
	{ send_too_many, "more than 16 sends" },
	{ receive_too_many, "more than 16 receives\n" },
	{ receive_too_long, "irecv of 4194305 bytes" },
	{ send_too_long, "isend of 4194305 bytes" },
	{ message_too_long, "receive 0 has room for 8 bytes, its message has 9" },
	{ receive_unaligned, "a receive into CUDA memory at" },
	{ register_unaligned, "regMr of CUDA memory at" },
	{ receive_unregistered, "a receive of 4097 bytes at" },
	{ send_without_registration, "a send without registration" },
	{ send_registered_elsewhere, "a send of memory that another comm has registered" },
	{ receive_two, "irecv of 2 buffers" },
	{ receive_without_device, "accept got no place for the device handle" },
	{ flush, "iflush of 1 buffers" },
	{ connect_again, "connect with a handle that has given its comm" },
	{ connect_with_a_copy, "connect with another copy of the handle" },
	{ connect_after_failure, "connect after it failed" },
	{ accept_again, "accept on a listener that has given its comm" },
	{ sync_differently, "RECV_SYNC is 1 at the sender and 0 here" },
	{ send_without_chunk, "isend without NCCL_DYNAMIC_CHUNK_SIZE" },
};

static void misuse_aborts(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(misuse) / sizeof(misuse[0]); i++)
		pair_aborts(misuse[i].run, "faketcpx: ", misuse[i].says);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(misuse_aborts, pair_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
