/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/ends.h"

#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/minplug/net/net.h"

/* libnccl-net-min.so through each version of its interface: what it says of itself, its devices, and data. */

enum { LARGE = 1 << 20 };

static int setup(void **state)
{
	(void)state;
	return setenv("MINNET_IFNAME", "lo", 1);
}

static uint8_t pattern(unsigned message, size_t i)
{
	return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3);
}

/* ---- properties ------------------------------------------------------------------------------- */

static void tells_what_it_is(void **state)
{
	(void)state;
	EACH_VERSION(v)
	{
		struct net n = ends_load(v);
		struct min_props_v12 p;
		void *ctx;
		int ndev = -1;

		assert_string_equal(n.name, "Min");
		assert_int_equal(n.optional(&n), 0);
		assert_int_equal(n.init(&n, NULL, &ctx), MIN_OK);
		assert_true(v < 11 || ctx != NULL);
		assert_int_equal(n.devices(&n, &ndev), MIN_OK);
		assert_int_equal(ndev, 1);
		assert_int_equal(n.properties(&n, 0, &p), MIN_OK);
		assert_string_equal(p.name, "lo");
		assert_null(p.pci_path);
		assert_int_equal(p.guid, if_nametoindex("lo"));
		assert_int_equal(p.ptr_support, MIN_PTR_HOST);
		assert_true(p.speed > 0);
		assert_int_equal(p.port, 0);
		assert_true(p.max_comms > 0);
		assert_int_equal(p.max_recvs, 1);
		assert_int_equal(p.device_type, 0);
		assert_int_equal(p.device_version, 0);
		assert_int_equal(p.reg_is_global, 0);
		assert_int_equal(p.force_flush, 0);
		if (v >= 9) {
			assert_int_equal(p.vprops.ndevs, 1);
			assert_int_equal(p.vprops.devs[0], 0);
			assert_int_equal(p.max_p2p_bytes, MIN_NET_BYTES_MAX);
			assert_int_equal(p.max_coll_bytes, MIN_NET_BYTES_MAX);
		}
		assert_int_equal(p.max_multi_request_size, v >= 11);
		assert_int_equal(p.rail_id, v >= 12 ? -1 : 0);
		assert_int_equal(p.plane_id, v >= 12 ? -1 : 0);
		assert_int_equal(n.properties(&n, 1, &p), MIN_INTERNAL_ERROR);
		assert_int_equal(n.properties(&n, -1, &p), MIN_INTERNAL_ERROR);
		assert_int_equal(n.finalize(&n, ctx), MIN_OK);
		/* NCCL 2.28 calls it after a failed init, too. */
		assert_int_equal(n.finalize(&n, NULL), MIN_OK);
	}
}

/* ---- data ------------------------------------------------------------------------------------- */

/* Sizes of the messages; each receive has room for `spare` more. */
static const size_t sizes[] = { 0, 1, 15, 16, 4096, 0, 65537, LARGE + 3, 8, 1 << 18, 0, 33 };

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]), MESSAGES = 60, SPARE = 5 };

struct side {
	struct ends *e;
	bool failed;
};

#define CHECK(s, e)                                                                                \
	do {                                                                                       \
		if (!(e)) {                                                                        \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e);              \
			(s)->failed = true;                                                        \
			return NULL;                                                               \
		}                                                                                  \
	} while (0)

struct slot {
	void *request, *mh;
	uint8_t *data;
	unsigned message;
};

static void *send_all(void *arg)
{
	struct side *s = arg;
	const struct net *n = &s->e->net;
	struct slot slot[4] = { { NULL } };
	uint8_t *data = malloc(4 * (size_t)(LARGE + 3));
	unsigned posted = 0, done = 0;
	int64_t start = dr_now_ns();

	CHECK(s, data != NULL);
	for (unsigned i = 0; i < 4; i++) {
		slot[i].data = data + i * (size_t)(LARGE + 3);
		CHECK(s, n->reg(n, s->e->scomm, slot[i].data, LARGE + 3, MIN_PTR_HOST,
				 &slot[i].mh) == MIN_OK);
	}
	while (done < MESSAGES) {
		for (unsigned i = 0; i < 4; i++) {
			int is_done = -1;

			CHECK(s, ends_in_time(start));
			if (!slot[i].request && posted < MESSAGES) {
				size_t size = sizes[posted % N_SIZES];

				for (size_t b = 0; b < size; b++)
					slot[i].data[b] = pattern(posted, b);
				CHECK(s, n->isend(n, s->e->scomm, slot[i].data, size,
						 7 + (int)posted, slot[i].mh,
						 &slot[i].request) == MIN_OK);
				CHECK(s, slot[i].request != NULL);
				posted++;
			}
			if (!slot[i].request)
				continue;
			CHECK(s, n->test(n, slot[i].request, &is_done, NULL) == MIN_OK);
			CHECK(s, is_done == 0 || is_done == 1);
			if (is_done) {
				slot[i].request = NULL;
				done++;
			}
		}
		(void)sched_yield();
	}
	for (unsigned i = 0; i < 4; i++)
		CHECK(s, n->dereg(n, s->e->scomm, slot[i].mh) == MIN_OK);
	free(data);
	return NULL;
}

/* Receives what send_all() sends, with another number of requests outstanding. */
static void *receive_all(void *arg)
{
	struct side *s = arg;
	const struct net *n = &s->e->net;
	struct slot slot[3] = { { NULL } };
	size_t room = LARGE + 3 + SPARE;
	uint8_t *data = malloc(3 * room);
	unsigned posted = 0, done = 0;
	int64_t start = dr_now_ns();

	CHECK(s, data != NULL);
	for (unsigned i = 0; i < 3; i++) {
		slot[i].data = data + i * room;
		CHECK(s, n->reg(n, s->e->rcomm, slot[i].data, room, MIN_PTR_HOST, &slot[i].mh) ==
				 MIN_OK);
	}
	while (done < MESSAGES) {
		for (unsigned i = 0; i < 3; i++) {
			int is_done = -1, got = -1;
			size_t size;

			CHECK(s, ends_in_time(start));
			if (!slot[i].request && posted < MESSAGES) {
				slot[i].message = posted;
				size = sizes[posted % N_SIZES] + SPARE;
				memset(slot[i].data, 0xee, size);
				CHECK(s, n->irecv(n, s->e->rcomm, 1, slot[i].data, size,
						 7 + (int)posted, slot[i].mh,
						 &slot[i].request) == MIN_OK);
				CHECK(s, slot[i].request != NULL);
				posted++;
			}
			if (!slot[i].request)
				continue;
			CHECK(s, n->test(n, slot[i].request, &is_done, &got) == MIN_OK);
			CHECK(s, is_done == 0 || is_done == 1);
			if (!is_done)
				continue;
			size = sizes[slot[i].message % N_SIZES];
			CHECK(s, got == (int)size);
			for (size_t b = 0; b < size; b++)
				CHECK(s, slot[i].data[b] == pattern(slot[i].message, b));
			for (size_t b = size; b < size + SPARE; b++)
				CHECK(s, slot[i].data[b] == 0xee);
			slot[i].request = NULL;
			done++;
		}
		(void)sched_yield();
	}
	for (unsigned i = 0; i < 3; i++)
		CHECK(s, n->dereg(n, s->e->rcomm, slot[i].mh) == MIN_OK);
	free(data);
	return NULL;
}

/* What NCCL's service thread does for user buffers while its progress thread moves data. */
static void *register_often(void *arg)
{
	static uint8_t memory[4096];
	struct side *s = arg;
	const struct net *n = &s->e->net;

	for (unsigned i = 0; i < 500; i++) {
		void *comm = i % 2 ? s->e->scomm : s->e->rcomm, *mh;

		CHECK(s, n->reg(n, comm, memory, sizeof(memory), MIN_PTR_HOST, &mh) == MIN_OK);
		CHECK(s, n->dereg(n, comm, mh) == MIN_OK);
	}
	return NULL;
}

enum { PAIRS = 2 };

static void carries_data_between_threads(void **state)
{
	static void *(*const run[3])(void *) = { send_all, receive_all, register_often };

	(void)state;
	EACH_VERSION(v)
	{
		struct ends e[PAIRS];
		struct side side[PAIRS][3];
		pthread_t thread[PAIRS][3];

		for (int p = 0; p < PAIRS; p++) {
			ends_init(&e[p], v);
			ends_connect(&e[p]);
		}
		for (int p = 0; p < PAIRS; p++) {
			for (int i = 0; i < 3; i++) {
				side[p][i] = (struct side){ .e = &e[p] };
				assert_int_equal(
					pthread_create(&thread[p][i], NULL, run[i], &side[p][i]),
					0);
			}
		}
		for (int p = 0; p < PAIRS; p++) {
			for (int i = 0; i < 3; i++) {
				assert_int_equal(pthread_join(thread[p][i], NULL), 0);
				assert_false(side[p][i].failed);
			}
		}
		for (int p = 0; p < PAIRS; p++)
			ends_fini(&e[p]);
	}
}

/* 32 requests of each end, the 33rd is none; tested from the last to the first. */
static void says_when_it_is_full(void **state)
{
	static uint8_t out[MIN_MAX_REQUESTS], in[MIN_MAX_REQUESTS];

	(void)state;
	EACH_VERSION(v)
	{
		void *sent[MIN_MAX_REQUESTS], *received[MIN_MAX_REQUESTS], *more = &more;
		void *smh, *rmh;
		unsigned left = 2 * MIN_MAX_REQUESTS;
		int64_t start = dr_now_ns();
		struct ends e;
		const struct net *n = &e.net;

		ends_init(&e, v);
		ends_connect(&e);
		memset(in, 0, sizeof(in));
		assert_int_equal(n->reg(n, e.scomm, out, sizeof(out), MIN_PTR_HOST, &smh), MIN_OK);
		assert_int_equal(n->reg(n, e.rcomm, in, sizeof(in), MIN_PTR_HOST, &rmh), MIN_OK);
		for (unsigned i = 0; i < MIN_MAX_REQUESTS; i++) {
			/* A receive's request may be 1 before the call, which means nothing here. */
			received[i] = (void *)1;
			out[i] = (uint8_t)(i + 1);
			assert_int_equal(
				n->isend(n, e.scomm, &out[i], 1, 3, smh, &sent[i]), MIN_OK);
			assert_int_equal(
				n->irecv(n, e.rcomm, 1, &in[i], 1, 3, rmh, &received[i]), MIN_OK);
			assert_non_null(sent[i]);
			assert_non_null(received[i]);
			assert_true(received[i] != (void *)1);
		}
		assert_int_equal(n->isend(n, e.scomm, out, 1, 3, smh, &more), MIN_OK);
		assert_null(more);
		more = &more;
		assert_int_equal(n->irecv(n, e.rcomm, 1, in, 1, 3, rmh, &more), MIN_OK);
		assert_null(more);
		while (left > 0) {
			assert_true(ends_in_time(start));
			for (unsigned i = MIN_MAX_REQUESTS; i-- > 0;) {
				int done = 0, size = -1;

				if (sent[i])
					assert_int_equal(n->test(n, sent[i], &done, NULL), MIN_OK);
				if (done) {
					sent[i] = NULL;
					left--;
				}
				done = 0;
				if (received[i])
					assert_int_equal(
						n->test(n, received[i], &done, &size), MIN_OK);
				if (done) {
					assert_int_equal(size, 1);
					received[i] = NULL;
					left--;
				}
			}
		}
		assert_memory_equal(in, out, sizeof(in));
		assert_int_equal(n->isend(n, e.scomm, out, 1, 3, smh, &more), MIN_OK);
		assert_non_null(more);
		assert_int_equal(n->dereg(n, e.rcomm, rmh), MIN_OK);
		ends_fini(&e);
	}
}

static void flushes_at_once(void **state)
{
	uint8_t memory[8];
	struct ends e;

	(void)state;
	EACH_VERSION(v)
	{
		void *mh, *request = &request;

		ends_init(&e, v);
		ends_connect(&e);
		assert_int_equal(e.net.reg(&e.net, e.rcomm, memory, 8, MIN_PTR_HOST, &mh), MIN_OK);
		assert_int_equal(e.net.iflush(&e.net, e.rcomm, memory, 8, mh, &request), MIN_OK);
		assert_null(request);
		ends_fini(&e);
	}
}

/* ---- devices ---------------------------------------------------------------------------------- */

/* The name of each device with these MINNET_IFNAME, in another process, since the list is made once. */
static void list_devices(const char *wanted, char *out, size_t len)
{
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (wanted)
			(void)setenv("MINNET_IFNAME", wanted, 1);
		else
			(void)unsetenv("MINNET_IFNAME");
		(void)dup2(fds[1], STDOUT_FILENO);
		(void)execl("/proc/self/exe", "minplug_test", "devices", (char *)NULL);
		_exit(127);
	}
	(void)close(fds[1]);
	for (size_t got = 0; (n = read(fds[0], out + got, len - 1 - got)) >= 0; got += (size_t)n) {
		out[got + (size_t)n] = '\0';
		if (n == 0)
			break;
	}
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void interfaces_are_chosen_by_name(void **state)
{
	char all[4096], some[4096];

	(void)state;
	list_devices(NULL, all, sizeof(all));
	assert_null(strstr(all, "lo 0\n"));
	list_devices("nothing,,lo", some, sizeof(some));
	assert_string_equal(some, "lo 0\n");
	list_devices("lo-and-more", some, sizeof(some));
	assert_string_equal(some, "");
}

static int print_devices(void)
{
	struct min_props_v12 p;
	struct net n;
	void *ctx;
	int ndev;

	n = ends_load(12);
	if (n.init(&n, NULL, &ctx) != MIN_OK || n.devices(&n, &ndev) != MIN_OK)
		return 1;
	for (int i = 0; i < ndev; i++) {
		if (n.properties(&n, i, &p) != MIN_OK)
			return 1;
		(void)printf("%s %d\n", p.name, i);
	}
	return n.finalize(&n, ctx) != MIN_OK;
}

/* In a namespace of its own whose loopback has ::1 alone. Exit status 77: namespaces are not to be had. */
static int run_over_ipv6(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	struct sockaddr_in none = { .sin_family = AF_INET };
	struct min_handle h;
	struct ends e;
	int fd;

	if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return 77;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	r.ifr_flags = IFF_UP;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) != 0)
		return 77;
	memcpy(&r.ifr_addr, &none, sizeof(none));
	if (ioctl(fd, SIOCSIFADDR, &r) != 0)
		return 77;
	(void)close(fd);
	if (access("/proc/net/if_inet6", F_OK) != 0)
		return 77;
	if (setup(NULL) != 0)
		return 1;
	ends_init(&e, 12);
	memcpy(&h, e.handle, sizeof(h));
	assert_int_equal(h.family, AF_INET6);
	ends_connect(&e);
	ends_fini(&e);
	return 0;
}

static void connects_over_ipv6(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)execl("/proc/self/exe", "minplug_test", "ipv6", (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		(void)printf("SKIP: no network namespace, or no IPv6 in it\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_what_it_is),
		cmocka_unit_test(carries_data_between_threads),
		cmocka_unit_test(says_when_it_is_full),
		cmocka_unit_test(flushes_at_once),
		cmocka_unit_test(interfaces_are_chosen_by_name),
		cmocka_unit_test(connects_over_ipv6),
	};

	if (argc > 1 && strcmp(argv[1], "devices") == 0)
		return print_devices();
	if (argc > 1 && strcmp(argv[1], "ipv6") == 0)
		return run_over_ipv6();
	return cmocka_run_group_tests(tests, setup, NULL);
}
