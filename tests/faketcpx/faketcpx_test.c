/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <pthread.h>
#include <sys/socket.h>

/* The protocol of GPUDirect-TCPX, as libnccl-net-faketcpx.so has it, with every byte compared. */

enum { ROOM = TCPX_RECEIVE_MAX };

static const int sizes[] = { 0, 1, 4095, 4096, 4097, (1 << 20) + 13, 65536, 0, 17, ROOM, 12345 };

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]), MESSAGES = 33, DEPTH = 5, HELD = 3 };

static int size_of(unsigned message)
{
	return sizes[message % N_SIZES];
}

static uint8_t pattern(unsigned message, size_t i)
{
	return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3 + (i >> 16) * 11);
}

static void *send_all(void *arg)
{
	struct pair *p = arg;
	unsigned posted = 0, done = 0;
	void *request[DEPTH];
	int64_t start = dr_now_ns();

	while (done < MESSAGES) {
		for (; posted < MESSAGES && posted - done < DEPTH; posted++) {
			size_t at = posted % DEPTH * (size_t)ROOM;

			for (int b = 0; b < size_of(posted); b++)
				p->out[at + (size_t)b] = pattern(posted, (size_t)b);
			request[posted % DEPTH] = pair_send(p, at, size_of(posted));
		}
		done += pair_done(p, request[done % DEPTH]);
		pair_in_time(start);
	}
	return NULL;
}

/* Copies the fragments of a message, which have to cover it, and compares. Returns whether they were scattered. */
static bool unpack(struct pair *p, unsigned message, uint8_t *covered)
{
	const struct tcpx_fragment *f = p->unpack->meta->mem[message % TCPX_SLOTS];
	uint64_t n = p->unpack->meta->cnt[message % TCPX_SLOTS];
	uint8_t *to = p->in + message % DEPTH * (size_t)ROOM;
	size_t size = (size_t)size_of(message), total = 0;
	bool scattered = false;

	MUST(n <= TCPX_FRAGMENTS_MAX);
	memset(covered, 0, size);
	for (size_t b = 0; b < size; b++)
		MUST(to[b] == 0xee);
	for (uint64_t i = 0; i < n; i++) {
		MUST(f[i].len > 0 && f[i].len <= TCPX_PAGE);
		MUST(f[i].src_off / TCPX_PAGE == (f[i].src_off + f[i].len - 1) / TCPX_PAGE);
		MUST(f[i].dst_off < size && f[i].len <= size - f[i].dst_off);
		memcpy(to + f[i].dst_off, (uint8_t *)p->unpack->bounce_buf + f[i].src_off,
			f[i].len);
		memset(covered + f[i].dst_off, 1, f[i].len);
		total += f[i].len;
		scattered |= i > 0 && f[i].src_off < f[i - 1].src_off &&
			     f[i].dst_off < f[i - 1].dst_off && f[i].len < TCPX_PAGE;
	}
	MUST(total == size);
	for (size_t b = 0; b < size; b++) {
		MUST(covered[b]);
		MUST(to[b] == pattern(message, b));
	}
	return scattered;
}

/* Consumes HELD messages late, so that their slots and pages are in use while others arrive. */
static void *receive_all(void *arg)
{
	struct pair *p = arg;
	unsigned posted = 0, done = 0, consumed = 0;
	uint8_t *covered = pair_pages(ROOM);
	void *request[TCPX_SLOTS];
	int64_t start = dr_now_ns();
	bool scattered = false;

	while (consumed < MESSAGES) {
		for (; posted < MESSAGES && posted - done < DEPTH; posted++) {
			memset(p->in + posted % DEPTH * (size_t)ROOM, 0xee, ROOM);
			request[posted % TCPX_SLOTS] = pair_receive(p,
				posted % DEPTH * (size_t)ROOM, posted % 2 ? ROOM : size_of(posted));
		}
		if (done < MESSAGES && pair_done(p, request[done % TCPX_SLOTS])) {
			scattered |= unpack(p, done, covered);
			done++;
		}
		if (done - consumed > HELD || done == MESSAGES) {
			MUST(p->net->irecv_consumed(p->rcomm, 1, request[consumed % TCPX_SLOTS]) ==
				MIN_OK);
			/* Nobody finds its fragments any more. */
			MUST(p->unpack->meta->cnt[consumed % TCPX_SLOTS] > TCPX_FRAGMENTS_MAX);
			consumed++;
		}
		pair_in_time(start);
	}
	MUST(scattered);
	free(covered);
	return NULL;
}

static void carry(void)
{
	pthread_t thread;
	struct pair p;

	pair_init(&p, (size_t)DEPTH * ROOM);
	MUST(pthread_create(&thread, NULL, send_all, &p) == 0);
	(void)receive_all(&p);
	MUST(pthread_join(thread, NULL) == 0);
	pair_fini(&p);
}

static void tell(void)
{
	const struct min_net_v7 *n = pair_load();
	struct min_props_v7 props;

	MUST(strcmp(n->name, "GPUDirectTCPX_v7") == 0);
	MUST(n->init(NULL) == MIN_OK);
	MUST(n->init(NULL) == MIN_INTERNAL_ERROR);
	memset(&props, 0xa5, sizeof(props));
	MUST(n->get_properties(0, &props) == MIN_OK);
	MUST(strcmp(props.name, "lo") == 0);
	MUST(props.ptr_support == (MIN_PTR_HOST | TCPX_PTR_CUDA));
	MUST(props.max_recvs == 1);
	MUST(props.device_type == 1 && props.device_version == 7);
	MUST(n->reg_mr_dmabuf == NULL);
	MUST(n->get_device_mr != NULL && n->irecv_consumed != NULL);
	MUST(n->close_send == n->close_recv);
}

static void tell_device(void)
{
	struct pair p;

	pair_init(&p, TCPX_PAGE);
	MUST(p.device.type == 1 && p.device.version == 7);
	MUST(p.device.size == sizeof(struct tcpx_device_handle));
	MUST(p.device.needs_proxy_progress == 1);
	MUST(p.unpack->head == UINT64_MAX);
	pair_fini(&p);
}

/* isend moves nothing, and the first test only starts. */
static void start_one_by_one(void)
{
	struct pair p;
	void *s[3], *r[3];
	uint8_t byte;

	pair_init(&p, (size_t)3 * TCPX_PAGE);
	for (int i = 0; i < 3; i++) {
		s[i] = pair_send(&p, (size_t)i * TCPX_PAGE, 8);
		r[i] = pair_receive(&p, (size_t)i * TCPX_PAGE, 8);
	}
	MUST(recv(p.data_fd, &byte, 1, MSG_DONTWAIT) < 0);
	MUST(!pair_done(&p, s[0]));
	for (int i = 0; i < 3; i++) {
		pair_wait(&p, s[i], r[i]);
		MUST(p.net->irecv_consumed(p.rcomm, 1, r[i]) == MIN_OK);
	}
	pair_fini(&p);
}

/* A test after the connection's end never says done, and no error either. */
static void lose_data(void)
{
	struct pair p;
	void *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	MUST(shutdown(p.data_fd, SHUT_RDWR) == 0);
	(void)pair_done(&p, pair_send(&p, 0, 8));
	for (int i = 0; i < 1000; i++)
		MUST(!pair_done(&p, r));
	pair_fini(&p);
}

static void lose_control(void)
{
	enum min_result result = MIN_OK;
	int64_t start = dr_now_ns();
	struct pair p;
	int done;
	void *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	MUST(shutdown(p.ctrl_fd, SHUT_RDWR) == 0);
	while (result == MIN_OK) {
		result = p.net->test(r, &done, NULL);
		MUST(done == 0);
		pair_in_time(start);
	}
	MUST(result == MIN_SYSTEM_ERROR);
	pair_fini(&p);
}

/* After deregMr of the memory of a receive, no request of its comm goes on. */
static void deregister(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	s = pair_send(&p, 0, 8);
	MUST(p.net->dereg_mr(p.rcomm, p.in_mh) == MIN_OK);
	p.in_mh = NULL;
	pair_wait(&p, s, NULL);
	for (int i = 0; i < 1000; i++)
		MUST(!pair_done(&p, r));
	pair_fini(&p);
}

/* A send ends without its receive; with RECV_SYNC it waits for it. */
static void send_first(bool sync)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	s = pair_send(&p, 0, 8);
	if (sync) {
		for (int i = 0; i < 1000; i++)
			MUST(!pair_done(&p, s));
	} else {
		pair_wait(&p, s, NULL);
		s = NULL;
	}
	r = pair_receive(&p, 0, 8);
	pair_wait(&p, s, r);
	pair_fini(&p);
}

static void send_first_in_sync(void)
{
	send_first(true);
}

static void send_first_alone(void)
{
	send_first(false);
}

/* More pages than there are. */
static void use_every_page(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, ROOM);
	for (int i = 0; i < 36; i++) {
		s = pair_send(&p, 0, ROOM);
		r = pair_receive(&p, 0, ROOM);
		pair_wait(&p, s, r);
		MUST(p.net->irecv_consumed(p.rcomm, 1, r) == MIN_OK);
	}
	pair_fini(&p);
}

static void tells_what_it_is(void **state)
{
	(void)state;
	pair_ends(tell, 0, "");
	pair_ends(tell_device, 0, "");
}

static void carries_data(void **state)
{
	(void)state;
	pair_ends(carry, 0, "");
	(void)setenv("NCCL_GPUDIRECTTCPX_RECV_SYNC", "1", 1);
	pair_ends(carry, 0, "");
	(void)setenv("NCCL_NSOCKS_PERTHREAD", "4", 1);
	(void)setenv("NCCL_SOCKET_NTHREADS", "2", 1);
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "20000", 1);
	(void)setenv("NCCL_GPUDIRECTTCPX_CTRL_DEV", "lo", 1);
	(void)setenv("FAKETCPX_SEED", "7", 1);
	pair_ends(carry, 0, "");
}

static void pages_return(void **state)
{
	(void)state;
	pair_ends(use_every_page, 0, "");
}

static void sends_wait_for_receives(void **state)
{
	(void)state;
	pair_ends(send_first_alone, 0, "");
	(void)setenv("NCCL_GPUDIRECTTCPX_RECV_SYNC", "1", 1);
	pair_ends(send_first_in_sync, 0, "");
}

static void moves_in_tests_only(void **state)
{
	(void)state;
	pair_ends(start_one_by_one, 0, "");
}

static void lost_connections(void **state)
{
	(void)state;
	pair_ends(lose_data, 0, "");
	pair_ends(lose_control, 0, "");
}

static void deregistered_memory(void **state)
{
	(void)state;
	pair_ends(deregister, 0, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(tells_what_it_is, pair_setup),
		cmocka_unit_test_setup(carries_data, pair_setup),
		cmocka_unit_test_setup(pages_return, pair_setup),
		cmocka_unit_test_setup(sends_wait_for_receives, pair_setup),
		cmocka_unit_test_setup(moves_in_tests_only, pair_setup),
		cmocka_unit_test_setup(lost_connections, pair_setup),
		cmocka_unit_test_setup(deregistered_memory, pair_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
