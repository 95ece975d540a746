/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/ends.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/minplug/net/net.h"

/* libnccl-net-min.so: comms that come up, do not, or are not wanted. */

static int setup(void **state)
{
	(void)state;
	return setenv("MINNET_IFNAME", "lo", 1);
}

static void connects_many_by_one_handle(void **state)
{
	enum { N = 5 };
	struct ends e;

	(void)state;
	EACH_VERSION(v)
	{
		void *scomm[N], *rcomm[N], *none = &none;

		ends_init(&e, v);
		/* Nobody is there yet: no comm, and no waiting. */
		assert_int_equal(e.net.accept(&e.net, e.lcomm, &none), MIN_OK);
		assert_null(none);
		for (int i = 0; i < N; i++) {
			ends_connect(&e);
			scomm[i] = e.scomm;
			rcomm[i] = e.rcomm;
		}
		for (int i = 1; i < N; i++) {
			assert_int_equal(e.net.close_recv(&e.net, rcomm[i]), MIN_OK);
			assert_int_equal(e.net.close_send(&e.net, scomm[i]), MIN_OK);
		}
		e.scomm = scomm[0];
		e.rcomm = rcomm[0];
		ends_fini(&e);
	}
}

static struct sockaddr_in address_of(const struct ends *e)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct min_handle h;

	memcpy(&h, e->handle, sizeof(h));
	assert_int_equal(h.family, AF_INET);
	memcpy(&a.sin_addr, h.addr, sizeof(a.sin_addr));
	a.sin_port = h.port;
	return a;
}

/* Connections of others: silent ones, one that closes, and one with bytes that mean nothing. */
static void strangers_are_no_peers(void **state)
{
	enum { N = MIN_PENDING_MAX + 4 };
	const char noise[32] = "GET / HTTP/1.0\r\n\r\n";
	int64_t start = dr_now_ns();
	struct sockaddr_in to;
	void *rcomm = NULL;
	int fd[N];
	struct ends e;

	(void)state;
	ends_init(&e, 12);
	to = address_of(&e);
	for (int i = 0; i < N; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_true(fd[i] >= 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&to, sizeof(to)), 0);
	}
	(void)close(fd[0]);
	assert_int_equal(send(fd[1], noise, sizeof(noise), MSG_NOSIGNAL), sizeof(noise));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(e.net.accept(&e.net, e.lcomm, &rcomm), MIN_OK);
		assert_null(rcomm);
	}
	ends_connect(&e);
	assert_true(ends_in_time(start));
	for (int i = 1; i < N; i++)
		(void)close(fd[i]);
	ends_fini(&e);
}

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static bool is_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) == 1;
}

/* Connections that wait in the kernel until no more do. */
struct crowd {
	unsigned n;
	int fd[1024];
};

static void crowd_init(struct crowd *c, const struct ends *e)
{
	struct sockaddr_in to = address_of(e);
	bool waits = true;

	for (c->n = 0; waits; c->n++) {
		assert_true(c->n < sizeof(c->fd) / sizeof(c->fd[0]));
		c->fd[c->n] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		assert_true(c->fd[c->n] >= 0);
		(void)connect(c->fd[c->n], (struct sockaddr *)&to, sizeof(to));
		waits = is_writable(c->fd[c->n]);
	}
}

static void crowd_fini(struct crowd *c)
{
	for (unsigned i = 0; i < c->n; i++)
		(void)close(c->fd[i]);
}

/* While the listener's queue is full, connect returns without a comm, and continues when it is called again. */
static void connects_in_several_calls(void **state)
{
	uint8_t handle[MIN_HANDLE_BYTES];
	int64_t start = dr_now_ns();
	struct crowd crowd;
	unsigned before;
	struct ends e;

	(void)state;
	ends_init(&e, 12);
	crowd_init(&crowd, &e);
	before = descriptors();
	memcpy(handle, e.handle, sizeof(handle));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(e.net.connect(&e.net, e.ctx, 0, handle, &e.scomm), MIN_OK);
		assert_null(e.scomm);
		assert_int_equal(descriptors(), before + 1);
	}
	while (!e.scomm || !e.rcomm) {
		assert_true(ends_in_time(start));
		if (!e.scomm)
			assert_int_equal(e.net.connect(&e.net, e.ctx, 0, handle, &e.scomm), MIN_OK);
		assert_int_equal(e.net.accept(&e.net, e.lcomm, &e.rcomm), MIN_OK);
		(void)sched_yield();
	}
	crowd_fini(&crowd);
	ends_fini(&e);
}

/* The listener is closed meanwhile; the handle does not name the connection that failed any more. */
static void connect_fails_later(void **state)
{
	enum min_result result = MIN_OK;
	int64_t start = dr_now_ns();
	struct crowd crowd;
	struct ends e;

	(void)state;
	ends_init(&e, 12);
	crowd_init(&crowd, &e);
	assert_int_equal(e.net.connect(&e.net, e.ctx, 0, e.handle, &e.scomm), MIN_OK);
	assert_null(e.scomm);
	assert_int_equal(e.net.close_listen(&e.net, e.lcomm), MIN_OK);
	for (int i = 0; i < 2; i++) {
		do {
			result = e.net.connect(&e.net, e.ctx, 0, e.handle, &e.scomm);
			assert_null(e.scomm);
			assert_true(ends_in_time(start));
			(void)sched_yield();
		} while (result == MIN_OK);
		assert_int_equal(result, MIN_REMOTE_ERROR);
	}
	crowd_fini(&crowd);
	assert_int_equal(e.net.finalize(&e.net, e.ctx), MIN_OK);
}

/* A comm whose listener is gone, and handles of others. */
static void connect_tells_failures(void **state)
{
	struct ends e;

	(void)state;
	EACH_VERSION(v)
	{
		enum min_result result = MIN_OK;
		uint8_t handle[MIN_HANDLE_BYTES];
		int64_t start = dr_now_ns();
		void *scomm = &scomm;

		ends_init(&e, v);
		memcpy(handle, e.handle, sizeof(handle));
		assert_int_equal(
			e.net.connect(&e.net, e.ctx, 1, handle, &scomm), MIN_INTERNAL_ERROR);
		assert_null(scomm);
		handle[0] ^= 1;
		assert_int_equal(
			e.net.connect(&e.net, e.ctx, 0, handle, &scomm), MIN_INTERNAL_ERROR);
		assert_null(scomm);
		handle[0] ^= 1;
		assert_int_equal(e.net.close_listen(&e.net, e.lcomm), MIN_OK);
		while (result == MIN_OK) {
			result = e.net.connect(&e.net, e.ctx, 0, handle, &scomm);
			assert_null(scomm);
			assert_true(ends_in_time(start));
		}
		assert_int_equal(result, MIN_REMOTE_ERROR);
		assert_int_equal(
			e.net.listen(&e.net, e.ctx, 1, handle, &scomm), MIN_INTERNAL_ERROR);
		assert_int_equal(e.net.finalize(&e.net, e.ctx), MIN_OK);
	}
}

/* NCCL closes nothing of a connection that has not come up. */
static void finalize_closes_the_rest(void **state)
{
	uint8_t handle[MIN_HANDLE_BYTES], memory[8];
	unsigned before = descriptors();
	void *mh, *scomm;
	struct ends e;

	(void)state;
	for (int v = 11; v <= 12; v++) {
		ends_init(&e, v);
		ends_connect(&e);
		assert_int_equal(e.net.reg(&e.net, e.scomm, memory, 8, MIN_PTR_HOST, &mh), MIN_OK);
		memcpy(handle, e.handle, sizeof(handle));
		assert_int_equal(e.net.connect(&e.net, e.ctx, 0, handle, &scomm), MIN_OK);
		assert_true(descriptors() > before + 3);
		assert_int_equal(e.net.finalize(&e.net, e.ctx), MIN_OK);
		assert_int_equal(descriptors(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connects_many_by_one_handle),
		cmocka_unit_test(strangers_are_no_peers),
		cmocka_unit_test(connects_in_several_calls),
		cmocka_unit_test(connect_fails_later),
		cmocka_unit_test(connect_tells_failures),
		cmocka_unit_test(finalize_closes_the_rest),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
