/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct pair_plugin pair_plugin = { .file = "libnccl-net-faketcpx.so", .versions = 1 << 7 };

const struct pair_plugin pair_fakegdr = {
	.file = "libnccl-net-fakegdr.so", .versions = 1 << 7 | 1 << 9, .sizes = true
};

const void *pair_table(int version)
{
	char exe[PATH_MAX], path[PATH_MAX + 32], symbol[32];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	void *lib;

	MUST(n > 0);
	exe[n] = '\0';
	(void)snprintf(path, sizeof(path), "%s/%s", dirname(exe), pair_plugin.file);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	MUST(lib != NULL);
	(void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
	return dlsym(lib, symbol);
}

const struct min_net_v7 *pair_load(void)
{
	for (int v = 4; v <= 12; v++)
		MUST((pair_table(v) != NULL) == (pair_plugin.versions >> v & 1));
	return pair_table(7);
}

void pair_in_time(int64_t start)
{
	MUST(dr_now_ns() - start < PATIENCE_S * INT64_C(1000000000));
	(void)sched_yield();
}

uint8_t *pair_pages(size_t len)
{
	uint8_t *p = aligned_alloc(TCPX_PAGE, len);

	MUST(p != NULL);
	return p;
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

/* To standard error, which a failed test prints. */
void pair_log(
	enum min_level level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
}

void pair_listen(struct pair *p)
{
	int ndev;

	memset(p, 0, sizeof(*p));
	p->net = pair_load();
	MUST(p->net->init(pair_log) == MIN_OK);
	MUST(p->net->devices(&ndev) == MIN_OK && ndev == 1);
	MUST(p->net->listen(0, p->handle, &p->lcomm) == MIN_OK && p->lcomm);
}

void pair_connect(struct pair *p, bool with_device)
{
	struct min_device_handle *device = with_device ? &p->device : NULL;
	int64_t start = dr_now_ns();

	next_fds(&p->ctrl_fd, &p->data_fd);
	/* Neither call gives a comm at once. */
	MUST(p->net->connect(0, p->handle, &p->scomm, NULL) == MIN_OK && !p->scomm);
	while (!p->scomm) {
		MUST(p->net->connect(0, p->handle, &p->scomm, NULL) == MIN_OK);
		pair_in_time(start);
	}
	MUST(p->net->accept(p->lcomm, &p->rcomm, &device) == MIN_OK && !p->rcomm);
	while (!p->rcomm) {
		MUST(p->net->accept(p->lcomm, &p->rcomm, &device) == MIN_OK);
		pair_in_time(start);
	}
	MUST(p->net->close_listen(p->lcomm) == MIN_OK);
	p->unpack = p->device.handle;
}

void pair_init(struct pair *p, size_t bytes)
{
	pair_listen(p);
	pair_connect(p, true);
	pair_register(p, bytes);
}

void pair_register(struct pair *p, size_t bytes)
{
	p->out = pair_pages(bytes);
	p->in = pair_pages(bytes);
	memset(p->out, 0x5a, bytes);
	memset(p->in, 0xee, bytes);
	MUST(p->net->reg_mr(p->scomm, p->out, (int)bytes, TCPX_PTR_CUDA, &p->out_mh) == MIN_OK);
	MUST(p->net->reg_mr(p->rcomm, p->in, (int)bytes, TCPX_PTR_CUDA, &p->in_mh) == MIN_OK);
}

void pair_fini(struct pair *p)
{
	MUST(p->net->dereg_mr(p->scomm, p->out_mh) == MIN_OK);
	MUST(p->net->dereg_mr(p->rcomm, p->in_mh) == MIN_OK);
	MUST(p->net->close_send(p->scomm) == MIN_OK);
	MUST(p->net->close_recv(p->rcomm) == MIN_OK);
	free(p->out);
	free(p->in);
}

void *pair_send(struct pair *p, size_t at, int size)
{
	void *r = NULL;

	MUST(p->net->isend(p->scomm, p->out + at, size, 0, p->out_mh, &r) == MIN_OK && r);
	return r;
}

void *pair_receive(struct pair *p, size_t at, int size)
{
	void *data = p->in + at, *r = NULL;
	int tag = 99; /* means nothing */

	MUST(p->net->irecv(p->rcomm, 1, &data, &size, &tag, &p->in_mh, &r) == MIN_OK && r);
	return r;
}

bool pair_done(struct pair *p, void *r)
{
	int done = -1, size = -77;

	MUST(p->net->test(r, &done, &size) == MIN_OK);
	MUST(done == 0 || done == 1);
	if (done && pair_plugin.sizes)
		p->size = size;
	else
		MUST(size == -77);
	return done;
}

void pair_wait(struct pair *p, void *s, void *r)
{
	int64_t start = dr_now_ns();

	while (s || r) {
		if (s && pair_done(p, s))
			s = NULL;
		if (r && pair_done(p, r))
			r = NULL;
		pair_in_time(start);
	}
}

int pair_setup(void **state)
{
	(void)state;
	(void)unsetenv("NCCL_GPUDIRECTTCPX_CTRL_DEV");
	(void)unsetenv("NCCL_GPUDIRECTTCPX_RECV_SYNC");
	(void)unsetenv("NCCL_NSOCKS_PERTHREAD");
	(void)unsetenv("NCCL_SOCKET_NTHREADS");
	(void)unsetenv("FAKETCPX_MEMORY");
	(void)unsetenv("FAKETCPX_PAGES");
	(void)unsetenv("FAKETCPX_SEED");
	(void)unsetenv("FAKEGDR_MEMORY");
	(void)unsetenv("FAKEGDR_ORDERED");
	(void)unsetenv("FAKEGDR_DMABUF");
	(void)unsetenv("FAKEGDR_DMABUF_ONLY");
	return setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1) ||
	       setenv("FAKEGDR_IFNAME", "lo", 1) || setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
}

int pair_child(void (*run)(void), char *said, size_t len)
{
	const struct rlimit no_core = { 0, 0 };
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)signal(SIGABRT, SIG_DFL);
		(void)dup2(fds[1], STDERR_FILENO);
		run();
		exit(0); /* lint-ok: the sanitizer looks for leaks of the child */
	}
	(void)close(fds[1]);
	for (size_t got = 0; (n = read(fds[0], said + got, len - 1 - got)) >= 0; got += (size_t)n) {
		said[got + (size_t)n] = '\0';
		if (n == 0)
			break;
	}
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

void pair_ends(void (*run)(void), int expected, const char *says)
{
	char said[8192] = "";
	int status = pair_child(run, said, sizeof(said));
	bool ok = WIFEXITED(status) && WEXITSTATUS(status) == expected;

	if (!ok || !strstr(said, says))
		print_error("status %d, \"%s\" expected: %s\n", status, says, said);
	assert_true(ok);
	assert_non_null(strstr(said, says));
}

void pair_aborts(void (*run)(void), const char *plugin, const char *says)
{
	char said[8192] = "", *line;
	int status = pair_child(run, said, sizeof(said));
	bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;

	line = strstr(said, plugin);
	if (!aborted || !line || !strstr(line, says))
		print_error("\"%s\" expected, status %d: %s\n", says, status, said);
	assert_true(aborted);
	assert_non_null(line);
	assert_non_null(strstr(line, says));
}
