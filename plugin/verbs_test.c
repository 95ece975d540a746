/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/net.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tests/fakeverbs/fakeverbs.h"
#include "topology/netdev.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/netdev_testkit.h"

/*
 * NCCL's calls over emulated NICs: fake0 on va (10.98.0.1/24) and fake1 on vb (10.98.1.1/24) of a network namespace that
 * the test makes. A process connects to itself, since the NICs are of one process. Skipped without root.
 */
enum { BYTES = 3 << 20 };
static const int64_t LIMIT_NS = 60 * DR_NS_PER_S; /* of a wait: an error if it is reached */

static const struct dr_fake_ctl *fake;
static int why_not;

/* ---- the plugin's log ---- */

static char lines[1 << 16];
static atomic_size_t n_lines;

static void logger(enum nccl_log_level level, unsigned long flags, const char *file, int line,
	const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	(void)level, (void)flags, (void)file, (void)line;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	size_t len = DR_MIN((size_t)DR_MAX(n, 0), sizeof(text) - 2);
	text[len++] = '\n';
	size_t at = atomic_fetch_add(&n_lines, len);
	if (at + len < sizeof(lines))
		memcpy(lines + at, text, len);
}

static void assert_logged(const char *part)
{
	if (!strstr(lines, part))
		fail_msg("\"%s\" is not in \"%s\"", part, lines);
}

/* ---- a process of NCCL ---- */

static void make_device(const char *name, const char *peer, const char *address)
{
	struct sockaddr_storage ss;

	make_far_veth(name, peer);
	assert_int_equal(dr_netdev_addr_parse(address, &ss), 0);
	assert_int_equal(dr_netdev_add_addr(index_of(name), (struct sockaddr *)&ss, 24, NULL), 0);
}

static int set_up_all(void **state)
{
	(void)state;
	setenv("DR_FAKE_IBV", "fake0:va:10.98.0.1,fake1:vb:10.98.1.1", 1);
	fake = dr_fake_attach("../tests");
	assert_non_null(fake);
	if (unshare(CLONE_NEWNET) < 0) {
		why_not = errno;
		return 0;
	}
	assert_int_equal(dr_netdev_set_up(index_of("lo"), true, NULL), 0);
	make_device("va", "wa", "10.98.0.1");
	make_device("vb", "wb", "10.98.1.1");
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	if (why_not) {
		print_message("SKIP: needs a network namespace of its own (root): %s\n",
			strerror(why_not));
		skip();
	}
	fake->reset();
	memset(lines, 0, sizeof(lines));
	atomic_store(&n_lines, 0);
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("HA_NCCL_NTHREADS", "1", 1);
	unsetenv("HA_NCCL_TRANSPORT");
	unsetenv("NCCL_SOCKET_IFNAME");
	unsetenv("NCCL_IB_HCA");
	unsetenv("NCCL_IB_GID_INDEX");
	return 0;
}

static void *begin(void)
{
	void *ctx;

	if (ha_net_init(&ctx, 1, -1, logger) != NCCL_SUCCESS)
		fail_msg("%s", lines);
	return ctx;
}

/* Nothing is left of what the plugin made on the NICs, and it misused none of them. */
static void end(void *ctx)
{
	const char *first = "";

	assert_int_equal(ha_net_finalize(ctx), NCCL_SUCCESS);
	if (fake->violations(&first) > 0)
		fail_msg("%s", first);
	assert_int_equal(fake->alive_total(), 0);
}

static const char *device(int i)
{
	struct nccl_net_properties_v12 p;

	assert_int_equal(ha_net_properties(i, &p), NCCL_SUCCESS);
	return p.name;
}

/* ---- a comm to itself ---- */

struct ends {
	void *send, *recv;
	unsigned char *out, *in;
	void *out_mr, *in_mr;
};

static void open_ends(void *ctx, int dev, struct ends *x)
{
	unsigned char handle[NCCL_NET_HANDLE_BYTES];
	int64_t until = dr_now_ns() + LIMIT_NS;
	void *l;

	memset(x, 0, sizeof(*x));
	assert_int_equal(ha_net_listen(ctx, dev, handle, &l), NCCL_SUCCESS);
	while (!x->send || !x->recv) {
		if (dr_now_ns() > until)
			fail_msg("no comm: %s", lines);
		if (!x->send)
			assert_int_equal(ha_net_connect(ctx, dev, handle, &x->send), NCCL_SUCCESS);
		if (!x->recv)
			assert_int_equal(ha_net_accept(l, &x->recv), NCCL_SUCCESS);
	}
	assert_int_equal(ha_net_close_listen(l), NCCL_SUCCESS);
	x->out = dr_pages_alloc(BYTES);
	x->in = dr_pages_alloc(BYTES);
	assert_int_equal(
		ha_net_reg(x->send, x->out, BYTES, NCCL_PTR_HOST, &x->out_mr), NCCL_SUCCESS);
	assert_int_equal(ha_net_reg(x->recv, x->in, BYTES, NCCL_PTR_HOST, &x->in_mr), NCCL_SUCCESS);
}

static void close_ends(struct ends *x)
{
	assert_int_equal(ha_net_dereg(x->send, x->out_mr), NCCL_SUCCESS);
	assert_int_equal(ha_net_dereg(x->recv, x->in_mr), NCCL_SUCCESS);
	assert_int_equal(ha_net_close(x->send), NCCL_SUCCESS);
	assert_int_equal(ha_net_close(x->recv), NCCL_SUCCESS);
	dr_pages_free(x->out, BYTES);
	dr_pages_free(x->in, BYTES);
}

static void one_message(struct ends *x, size_t size, unsigned char key)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	void *tx = NULL, *rx = NULL, *in = x->in;
	int sent = 0, came = 0, sizes[1] = { -1 }, tag = key;
	size_t cap = BYTES;

	for (size_t i = 0; i < size; i++)
		x->out[i] = (unsigned char)(i * 7 + (i >> 9) + key);
	memset(x->in, ~key, size + (size < BYTES));
	while (!sent || !came) {
		if (dr_now_ns() > until)
			fail_msg("%zu bytes: sent %d, came %d: %s", size, sent, came, lines);
		if (!rx)
			assert_int_equal(ha_net_recv(x->recv, 1, &in, &cap, &tag, &x->in_mr, &rx),
				NCCL_SUCCESS);
		if (!tx)
			assert_int_equal(ha_net_send(x->send, x->out, size, tag, x->out_mr, &tx),
				NCCL_SUCCESS);
		if (tx && !sent)
			assert_int_equal(ha_net_test(tx, &sent, NULL), NCCL_SUCCESS);
		if (rx && !came)
			assert_int_equal(ha_net_test(rx, &came, sizes), NCCL_SUCCESS);
	}
	assert_int_equal(sizes[0], size);
	assert_memory_equal(x->in, x->out, size);
	assert_true(size == BYTES || x->in[size] == (unsigned char)~key);
}

/* ---- which devices ---- */

static void rdma_devices_are_offered(void **state)
{
	struct nccl_net_properties_v12 p;
	void *ctx = begin();
	int n;

	(void)state;
	assert_int_equal(ha_net_devices(&n), NCCL_SUCCESS);
	assert_int_equal(n, 2);
	assert_string_equal(device(0), "fake0");
	assert_string_equal(device(1), "fake1");
	assert_int_equal(ha_net_properties(0, &p), NCCL_SUCCESS);
	assert_int_equal(p.ptrSupport, NCCL_PTR_HOST);
	assert_true(p.maxComms > 1);
	assert_logged("transport verbs, devices fake0,fake1,");
	assert_logged("device 0: fake0 on va, 10.98.0.1/24");
	end(ctx);
}

static void tcp_is_used_where_it_is_asked_for(void **state)
{
	void *ctx;

	(void)state;
	setenv("HA_NCCL_TRANSPORT", "tcp", 1);
	ctx = begin();
	assert_string_equal(device(0), "va");
	assert_logged("transport tcp, devices va,vb,");
	end(ctx);
}

/* A device that cannot be opened, one without a GID, and a list that admits none: tcp, unless verbs is asked for. */
static void without_a_usable_device_the_transport_is_tcp(void **state)
{
	void *ctx;

	(void)state;
	for (unsigned k = 0; k < 3; k++) {
		set_up(NULL);
		if (k == 0)
			fake->fail_always("open_device", EACCES);
		else if (k == 1)
			setenv("NCCL_IB_GID_INDEX", "250", 1);
		else
			setenv("NCCL_IB_HCA", "mlx5", 1);
		ctx = begin();
		assert_logged("transport tcp, devices v");
		end(ctx);
		setenv("HA_NCCL_TRANSPORT", "verbs", 1);
		assert_int_equal(ha_net_init(&ctx, 1, -1, logger), NCCL_SYSTEM_ERROR);
		assert_null(ctx);
		assert_logged("no RDMA device with an active port and an address can be used");
	}
}

/* ---- data ---- */

static void messages_of_all_sizes(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 4096, 144 << 10, (144 << 10) + 1, 600000, BYTES };
	void *ctx = begin();
	struct ends x;

	(void)state;
	for (int dev = 0; dev < 2; dev++) {
		open_ends(ctx, dev, &x);
		for (unsigned i = 0; i < 3 * DR_ARRAY_LEN(sizes); i++)
			one_message(&x, sizes[i % DR_ARRAY_LEN(sizes)], (unsigned char)i);
		close_ends(&x);
	}
	assert_null(strstr(lines, " over vb, "));
	assert_true(fake->count("post_send") > 0);
	end(ctx);
}

/* The rendezvous goes over the network devices that are named; the data over the NICs as before. */
static void the_rendezvous_has_devices_of_its_own(void **state)
{
	struct ends x;
	void *ctx;

	(void)state;
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	ctx = begin();
	assert_string_equal(device(0), "fake0");
	open_ends(ctx, 0, &x);
	one_message(&x, BYTES, 1);
	assert_null(strstr(lines, " over vb, "));
	fake->cut("fake0", DR_FAKE_BOTH);
	one_message(&x, BYTES, 2);
	close_ends(&x);
	end(ctx);
	assert_logged("from 127.0.0.1:"); /* the peer's name is its address there */
}

/* The active NIC dies silently, then by an event; the data goes on over the other one. */
static void a_nic_fails_under_messages(void **state)
{
	struct ends x;
	void *ctx;

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		set_up(NULL);
		ctx = begin();
		open_ends(ctx, 0, &x);
		for (unsigned i = 0; i < 40; i++) {
			if (i == 10 && k == 0)
				fake->cut("fake0", DR_FAKE_BOTH);
			else if (i == 10)
				fake->port("fake0", false);
			one_message(&x, i % 2 ? BYTES : 5000, (unsigned char)i);
		}
		close_ends(&x);
		end(ctx);
		assert_logged("va: ");
		/* An event may come between two messages. */
		assert_logged(k == 0 ? " over vb, longest gap " : " over vb, ");
	}
}

/* GPU memory is refused, so NCCL copies it to the host. */
static void gpu_memory_is_refused(void **state)
{
	void *ctx = begin(), *mr;
	struct ends x;

	(void)state;
	open_ends(ctx, 0, &x);
	assert_int_equal(ha_net_reg(x.send, x.out, 4096, NCCL_PTR_CUDA, &mr), NCCL_INVALID_USAGE);
	assert_null(mr);
	close_ends(&x);
	end(ctx);
}

/* ---- closing under way ---- */

/*
 * Both ends of a comm post REQUESTS messages, deregister their memory and close at once, ROUNDS
 * times, and wait for nothing. No call fails for what the other end did; a comm that uses the same
 * session meanwhile loses nothing.
 */
enum { REQUESTS = 32, ROUNDS = 10, REQUEST_BYTES = 1 << 20, PAIRS_MAX = 4 };

struct pair {
	void *ctx, *listen;
	unsigned char handle[NCCL_NET_HANDLE_BYTES];
	pthread_barrier_t both;
	const char *_Atomic failed; /* the call */
	atomic_uint *running;
};

/* NCCL gives up at the first error; here the other end must not wait for it. */
static void must(struct pair *p, enum nccl_result rc, const char *call)
{
	const char *none = NULL;

	if (rc != NCCL_SUCCESS)
		atomic_compare_exchange_strong(&p->failed, &none, call);
}

/* At both ends alike. */
static bool both_go_on(struct pair *p)
{
	bool go_on;

	pthread_barrier_wait(&p->both);
	go_on = !p->failed;
	pthread_barrier_wait(&p->both);
	return go_on;
}

static bool open_one(struct pair *p, bool sender, void **comm)
{
	int64_t until = dr_now_ns() + LIMIT_NS;

	*comm = NULL;
	if (!sender)
		must(p, ha_net_listen(p->ctx, 0, p->handle, &p->listen), "listen");
	if (!both_go_on(p))
		return false;
	while (!*comm && !p->failed) {
		must(p,
			sender ? ha_net_connect(p->ctx, 0, p->handle, comm)
			       : ha_net_accept(p->listen, comm),
			sender ? "connect" : "accept");
		sched_yield();
		if (dr_now_ns() > until)
			must(p, NCCL_SYSTEM_ERROR, "connect or accept in time");
	}
	return both_go_on(p);
}

static void post_one(struct pair *p, bool sender, void *comm, void *data, void *mr)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	size_t size = REQUEST_BYTES;
	void *request = NULL;
	int tag = 1;

	while (!request && !p->failed) {
		must(p,
			sender ? ha_net_send(comm, data, size, tag, mr, &request)
			       : ha_net_recv(comm, 1, &data, &size, &tag, &mr, &request),
			sender ? "isend" : "irecv");
		if (!request)
			sched_yield();
		if (dr_now_ns() > until)
			must(p, NCCL_SYSTEM_ERROR, "a request in time");
	}
}

static void close_under_way(struct pair *p, bool sender)
{
	void *comm, *data[REQUESTS], *mr[REQUESTS];

	for (unsigned k = 0; k < ROUNDS && open_one(p, sender, &comm); k++) {
		for (unsigned i = 0; i < REQUESTS; i++) {
			data[i] = dr_pages_alloc(REQUEST_BYTES);
			must(p, ha_net_reg(comm, data[i], REQUEST_BYTES, NCCL_PTR_HOST, &mr[i]),
				"regMr");
			post_one(p, sender, comm, data[i], mr[i]);
		}
		for (unsigned i = 0; i < REQUESTS; i++)
			must(p, ha_net_dereg(comm, mr[i]), "deregMr");
		must(p, ha_net_close(comm), sender ? "closeSend" : "closeRecv");
		if (!sender)
			must(p, ha_net_close_listen(p->listen), "closeListen");
		for (unsigned i = 0; i < REQUESTS; i++)
			dr_pages_free(data[i], REQUEST_BYTES);
	}
}

static void *send_and_close(void *p)
{
	close_under_way(p, true);
	atomic_fetch_sub(((struct pair *)p)->running, 1);
	return NULL;
}

static void *receive_and_close(void *p)
{
	close_under_way(p, false);
	atomic_fetch_sub(((struct pair *)p)->running, 1);
	return NULL;
}

static void closes_under_way(const char *transport, unsigned pairs)
{
	pthread_t thread[2 * PAIRS_MAX];
	atomic_uint running = 2 * pairs;
	struct pair pair[PAIRS_MAX];
	unsigned n = 0;
	struct ends other;
	void *ctx;

	setenv("HA_NCCL_TRANSPORT", transport, 1);
	ctx = begin();
	open_ends(ctx, 0, &other);
	for (unsigned i = 0; i < pairs; i++) {
		pair[i] = (struct pair){ .ctx = ctx, .running = &running };
		pthread_barrier_init(&pair[i].both, NULL, 2);
		assert_int_equal(pthread_create(&thread[2 * i], NULL, send_and_close, &pair[i]), 0);
		assert_int_equal(
			pthread_create(&thread[2 * i + 1], NULL, receive_and_close, &pair[i]), 0);
	}
	for (; atomic_load(&running) > 0; n++)
		one_message(&other, n % 2 ? 300000 : 5000, (unsigned char)n);
	for (unsigned i = 0; i < 2 * pairs; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	for (unsigned i = 0; i < pairs; i++) {
		if (pair[i].failed)
			fail_msg("%s failed: %s", pair[i].failed, lines);
		pthread_barrier_destroy(&pair[i].both);
	}
	print_message(
		"%s, %u pairs of threads: %u other messages meanwhile\n", transport, pairs, n);
	one_message(&other, BYTES, 1);
	close_ends(&other);
	end(ctx);
}

static void memory_and_comms_are_closed_under_way(void **state)
{
	static const char *const transports[] = { "tcp", "verbs" };

	(void)state;
	for (unsigned k = 0; k < 2; k++)
		for (unsigned pairs = 1; pairs <= PAIRS_MAX; pairs += 3) {
			set_up(NULL);
			closes_under_way(transports[k], pairs);
		}
}

/* ---- a session that one end closed ---- */

struct shared {
	unsigned char handle[2][NCCL_NET_HANDLE_BYTES];
};

static enum nccl_result connect_one(void *ctx, unsigned char *handle, void **comm)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	enum nccl_result rc = NCCL_SUCCESS;

	for (*comm = NULL; !*comm && rc == NCCL_SUCCESS && dr_now_ns() < until; sched_yield())
		rc = ha_net_connect(ctx, 0, handle, comm);
	return rc;
}

/* Opens a comm, closes it and stands; then opens another one. */
static _Noreturn void other_process(struct shared *m)
{
	void *ctx, *comm;
	int rc = ha_net_init(&ctx, 1, -1, logger) == NCCL_SUCCESS ? 0 : 1;

	for (unsigned k = 0; k < 2 && rc == 0; k++) {
		if (k > 0)
			raise(SIGSTOP);
		rc = connect_one(ctx, m->handle[k], &comm) == NCCL_SUCCESS && comm ? 0 : 1;
		(void)ha_net_close(comm);
	}
	_exit(rc);
}

static void accept_one(void *listen, void **comm)
{
	int64_t until = dr_now_ns() + LIMIT_NS;

	for (*comm = NULL; !*comm; sched_yield()) {
		if (dr_now_ns() > until)
			fail_msg("no comm: %s", lines);
		assert_int_equal(ha_net_accept(listen, comm), NCCL_SUCCESS);
	}
}

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* The peer stands while this end closes the session that nobody uses, and chooses it for its next
 * comm before it reads that. */
static void a_session_that_the_peer_closed_is_opened_anew(void **state)
{
	struct shared *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *ctx, *listen[2], *comm;
	unsigned before;
	int64_t until;
	int status;
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(m, MAP_FAILED);
	setenv("HA_NCCL_TRANSPORT", "tcp", 1);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		raise(SIGSTOP); /* until the handles are there */
		other_process(m);
	}
	ctx = begin();
	for (unsigned k = 0; k < 2; k++)
		assert_int_equal(ha_net_listen(ctx, 0, m->handle[k], &listen[k]), NCCL_SUCCESS);
	before = descriptors();
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	kill(pid, SIGCONT);
	accept_one(listen[0], &comm);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ha_net_close(comm), NCCL_SUCCESS);
	until = dr_now_ns() + LIMIT_NS;
	while (descriptors() > before) { /* the session's */
		assert_true(dr_now_ns() < until);
		sched_yield();
	}
	kill(pid, SIGCONT);
	accept_one(listen[1], &comm);
	assert_int_equal(ha_net_close(comm), NCCL_SUCCESS);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (unsigned k = 0; k < 2; k++)
		assert_int_equal(ha_net_close_listen(listen[k]), NCCL_SUCCESS);
	end(ctx);
	munmap(m, sizeof(*m));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(rdma_devices_are_offered, set_up),
		cmocka_unit_test_setup(tcp_is_used_where_it_is_asked_for, set_up),
		cmocka_unit_test_setup(without_a_usable_device_the_transport_is_tcp, set_up),
		cmocka_unit_test_setup(messages_of_all_sizes, set_up),
		cmocka_unit_test_setup(the_rendezvous_has_devices_of_its_own, set_up),
		cmocka_unit_test_setup(a_nic_fails_under_messages, set_up),
		cmocka_unit_test_setup(gpu_memory_is_refused, set_up),
		cmocka_unit_test_setup(memory_and_comms_are_closed_under_way, set_up),
		cmocka_unit_test_setup(a_session_that_the_peer_closed_is_opened_anew, set_up),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up_all, NULL);
}
