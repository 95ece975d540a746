/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/ends.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/log.h"

enum { PATIENCE_S = 60, SKIPPED = 77, CASES_MAX = 32 };

#define S(v)                                                                                       \
	{                                                                                          \
		SOCKET, v, 32                                                                      \
	}
#define D(v)                                                                                       \
	{                                                                                          \
		DIRECT, v, 16                                                                      \
	}
const struct way ends_ways[] = { S(12), S(11), S(10), S(9), S(8), S(7), S(6), { PIECES, 7, 16 },
	D(12), D(11), D(10), D(9), D(8), D(7), { FAST, 6, 16 } };
const unsigned ends_n_ways = LENGTH(ends_ways);
const struct way *ends_way = ends_ways;
unsigned ends_only = ANY_FAKE | FAST;

struct dr_nccl ends_load(unsigned version)
{
	char exe[PATH_MAX], path[PATH_MAX + 32];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	unsigned has = 0;
	struct dr_nccl n;
	struct dr_err err;

	MUST(len > 0);
	exe[len] = '\0';
	(void)snprintf(path, sizeof(path), "%s/libnccl-net-fake.so", dirname(exe));
	for (unsigned i = 0; i < ends_n_ways; i++)
		if (ends_ways[i].fake == ends_way->fake)
			has |= 1u << ends_ways[i].version;
	MUST(dr_nccl_open(&n, path, version ? version : ends_way->version, &err) == 0);
	MUST(n.exported == has);
	return n;
}

void ends_in_time(int64_t start)
{
	MUST(dr_now_ns() - start < PATIENCE_S * INT64_C(1000000000));
	(void)sched_yield();
}

uint8_t *ends_pages(size_t len)
{
	uint8_t *p = aligned_alloc(FN_PAGE, (len + FN_PAGE - 1) / FN_PAGE * FN_PAGE);

	MUST(p != NULL);
	return p;
}

size_t ends_message_max(void)
{
	return ends_way->fake == PIECES ? FN_PIECES_MAX : FN_MESSAGE_MAX;
}

uint8_t ends_pattern(unsigned message, size_t i)
{
	return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3 + (i >> 16) * 11);
}

unsigned ends_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	MUST(d != NULL);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* ---- comms ---- */

void ends_listen(struct ends *e)
{
	int ndev;

	memset(e, 0, sizeof(*e));
	e->net = ends_load(0);
	e->type = ends_way->fake & HOST_FAKE ? NCCL_PTR_HOST : NCCL_PTR_CUDA;
	MUST(dr_nccl_init(&e->net) == NCCL_SUCCESS);
	MUST(e->net.devices(&ndev) == NCCL_SUCCESS && ndev == 1);
	MUST(dr_nccl_listen(&e->net, 0, e->handle, &e->lcomm) == NCCL_SUCCESS && e->lcomm);
}

/* The lowest two descriptors that are free, which the next sockets get. */
static void next_fds(int *first, int *second)
{
	*first = dup(STDERR_FILENO);
	*second = dup(STDERR_FILENO);
	MUST(*first >= 0 && *second >= 0);
	(void)close(*first);
	(void)close(*second);
}

enum nccl_result ends_dial(struct ends *e)
{
	enum nccl_result result;

	next_fds(&e->ctrl_fd, &e->data_fd);
	if (ends_way->fake == SOCKET)
		e->data_fd = e->ctrl_fd;
	result = dr_nccl_connect(&e->net, 0, e->handle, &e->scomm);
	/* The first call gives no comm where a listener gives one. */
	MUST(ends_way->fake & HOST_FAKE || !e->scomm);
	IN_TIME
	{
		if (result != NCCL_SUCCESS || e->scomm)
			return result;
		result = dr_nccl_connect(&e->net, 0, e->handle, &e->scomm);
	}
}

enum nccl_result ends_admit(struct ends *e, bool with_device)
{
	struct nccl_net_device_handle *device = with_device ? &e->device : NULL;
	enum nccl_result result;
	bool first = true;

	IN_TIME
	{
		result = dr_nccl_accept(&e->net, e->lcomm, &e->rcomm, &device);
		MUST(ends_way->fake & HOST_FAKE || !first || !e->rcomm);
		first = false;
		if (result != NCCL_SUCCESS || e->rcomm)
			return result;
	}
}

void ends_connect(struct ends *e)
{
	e->scomm = e->rcomm = NULL;
	MUST(ends_dial(e) == NCCL_SUCCESS && ends_admit(e, true) == NCCL_SUCCESS);
	e->unpack = e->device.handle;
	if (ends_way->fake == SOCKET)
		return;
	MUST(e->net.close_listen(e->lcomm) == NCCL_SUCCESS);
	e->lcomm = NULL;
}

void ends_register(struct ends *e, size_t bytes)
{
	e->room = bytes;
	e->out = ends_pages(bytes);
	e->in = ends_pages(bytes);
	memset(e->out, 0x5a, bytes);
	memset(e->in, 0xee, bytes);
	MUST(ends_reg(&e->net, e->scomm, e->out, bytes, e->type, &e->out_mh) == NCCL_SUCCESS);
	MUST(ends_reg(&e->net, e->rcomm, e->in, bytes, e->type, &e->in_mh) == NCCL_SUCCESS);
}

void ends_init(struct ends *e, size_t bytes)
{
	ends_listen(e);
	ends_connect(e);
	ends_register(e, bytes);
}

void ends_close(struct ends *e)
{
	MUST(e->net.close_send(e->scomm) == NCCL_SUCCESS);
	MUST(e->net.close_recv(e->rcomm) == NCCL_SUCCESS);
	MUST(e->net.close_listen(e->lcomm) == NCCL_SUCCESS);
	MUST(dr_nccl_finalize(&e->net) == NCCL_SUCCESS);
}

void ends_fini(struct ends *e)
{
	if (e->scomm && e->out_mh)
		MUST(e->net.dereg_mr(e->scomm, e->out_mh) == NCCL_SUCCESS);
	if (e->rcomm && e->in_mh)
		MUST(e->net.dereg_mr(e->rcomm, e->in_mh) == NCCL_SUCCESS);
	ends_close(e);
	free(e->out);
	free(e->in);
}

/* ---- messages ---- */

void *ends_send(struct ends *e, size_t at, size_t size)
{
	struct dr_nccl_buffer b = { e->out + at, e->out_mh, size, 0 };
	void *r = NULL;

	MUST(dr_nccl_isend(&e->net, e->scomm, &b, &r) == NCCL_SUCCESS && r);
	return r;
}

/* The request's place may hold 1 before the call, which means nothing. */
void *ends_receive(struct ends *e, size_t at, size_t size)
{
	/* Tags mean something where a receive has several buffers. */
	struct dr_nccl_buffer b = { e->in + at, e->in_mh, size, ends_way->fake == SOCKET ? 0 : 99 };
	void *r = (void *)1;

	MUST(dr_nccl_irecv(&e->net, e->rcomm, 1, &b, &r) == NCCL_SUCCESS && r && r != (void *)1);
	return r;
}

bool ends_done(struct ends *e, void *r, int *size)
{
	int done = -1, got = -1;

	MUST(e->net.test(r, &done, &got) == NCCL_SUCCESS);
	MUST(done == 0 || done == 1);
	MUST((got >= 0) == (done && ends_way->fake & (SOCKET | DIRECT)));
	if (size && done)
		*size = got;
	return done;
}

int ends_wait(struct ends *e, void *s, void *r)
{
	int size = -1;

	IN_TIME
	{
		if (s && ends_done(e, s, &size))
			s = NULL;
		if (r && ends_done(e, r, &size))
			r = NULL;
		if (!s && !r)
			return size;
	}
}

enum nccl_result ends_failure(struct ends *e, void *r)
{
	enum nccl_result result;
	int done;

	IN_TIME
	{
		result = e->net.test(r, &done, NULL);
		MUST(done == 0);
		if (result != NCCL_SUCCESS)
			return result;
	}
}

void ends_never(struct ends *e, void *r)
{
	for (int i = 0; i < 1000; i++)
		MUST(!ends_done(e, r, NULL));
}

void *ends_flush(struct ends *e, size_t at, int size)
{
	void *data = e->in + at, *r = e;

	MUST(e->net.flush(e->rcomm, 1, &data, &size, &e->in_mh, &r) == NCCL_SUCCESS && r != e);
	return r;
}

void ends_consume(struct ends *e, void *r)
{
	MUST(e->net.consumed(e->rcomm, 1, r) == NCCL_SUCCESS);
}

/* ---- children ---- */

int ends_setup(void **state)
{
	static const char *const unset[] = { "NCCL_GPUDIRECTTCPX_RECV_SYNC",
		"NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", "FAKENET_MEMORY", "FAKENET_PAGES",
		"FAKENET_SEED", "FAKENET_ORDERED", "FAKENET_DMABUF", "FAKENET_BUGS",
		"FAKENET_FILE" };

	(void)state;
	ends_way = ends_ways;
	for (unsigned i = 0; i < LENGTH(unset); i++)
		(void)unsetenv(unset[i]);
	dr_log_set_level(DR_LOG_ERROR);
	return setenv("NCCL_DEBUG", "INFO", 1) || setenv("NCCL_DEBUG_SUBSYS", "ALL", 1) ||
	       setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1) ||
	       setenv("FAKENET_IFNAME", "lo", 1) || setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
}

static void be_child(void (*run)(void), int stderr_fd)
{
	const struct rlimit no_core = { 0, 0 };

	(void)setrlimit(RLIMIT_CORE, &no_core);
	(void)signal(SIGABRT, SIG_DFL);
	(void)dup2(stderr_fd, STDERR_FILENO);
	(void)close(stderr_fd);
	(void)setenv("FAKENET",
		ends_way->fake == SOCKET   ? "socket"
		: ends_way->fake == PIECES ? "pieces"
		: ends_way->fake == FAST   ? "fast"
					   : "direct",
		1);
	run();
	exit(0); /* lint-ok: the sanitizer looks for leaks of the child */
}

/* Returns waitpid's status, and what was printed on standard error. */
static int child(void (*run)(void), char *said, size_t len)
{
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	said[0] = '\0';
	assert_int_equal(pipe(fds), 0);
	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(fds[0]);
		be_child(run, fds[1]);
	}
	(void)close(fds[1]);
	for (size_t got = 0; (n = read(fds[0], said + got, len - 1 - got)) > 0; got += (size_t)n)
		said[got + (size_t)n] = '\0';
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void judge(bool ok, int status, const char *said, const char *says)
{
	if (ok)
		return;
	(void)fprintf(stderr, "personality %d, version %u: status %d, \"%s\" expected: %s\n",
		ends_way->fake, ends_way->version, status, says ? says : "", said);
	fail();
}

void ends_skip(const char *reason)
{
	(void)fprintf(stderr, "SKIP: %s", reason);
	_exit(SKIPPED);
}

static void child_exits(const struct ends_case *c)
{
	static char said[1 << 16];
	int status = child(c->run, said, sizeof(said));
	int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	if (ended == SKIPPED) {
		(void)puts(said);
		skip();
	}
	judge(ended == c->status && (!c->says || strstr(said, c->says)), status, said, c->says);
}

void ends_child_aborts(void (*run)(void), const char *says)
{
	static char said[1 << 16];
	int status = child(run, said, sizeof(said));
	const char *line = strstr(said, "fakenet: ");

	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip();
	judge(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && line && strstr(line, says),
		status, said, says);
}

/* ---- cases ---- */

static void set_environment(const char *words)
{
	char *copy = strdup(words), *rest = copy, *word, *value;

	assert_non_null(copy);
	while ((word = strsep(&rest, " ")) != NULL) {
		value = strchr(word, '=');
		if (value)
			*value++ = '\0';
		assert_int_equal(value ? setenv(word, value, 1) : unsetenv(word), 0);
	}
	free(copy);
}

static void run_case(void **state)
{
	const struct ends_case *c = *state;

	if (c->env)
		set_environment(c->env);
	EACH_WAY(c->fakes)
	{
		if (!c->each_version && !ends_is_newest())
			continue;
		if (c->aborts)
			ends_child_aborts(c->run, c->says);
		else
			child_exits(c);
	}
}

int ends_main(const struct ends_case *cases, unsigned n, CMFixtureFunction setup,
	CMFixtureFunction group_setup)
{
	struct CMUnitTest tests[CASES_MAX] = { { .name = NULL } };

	assert_true(n <= CASES_MAX);
	for (unsigned i = 0; i < n; i++)
		tests[i] = (struct CMUnitTest){ .name = cases[i].name,
			.test_func = run_case,
			.setup_func = setup,
			.initial_state = (void *)(uintptr_t)&cases[i] };
	return _cmocka_run_group_tests("cases", tests, n, group_setup, NULL);
}
