/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"
#include "tests/fakecuda/testkit.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/*
 * Memory of a GPU in two processes, of emulated GPUs. The other processes, one for each test, are forked before this one
 * uses CUDA.
 */
enum { BYTES = 1 << 20, FROM = 4096, LEN = 70000, MARK = 0x5e, OTHERS = 3 };

static struct other {
	pid_t pid;
	int fd;
} others[OTHERS], *other = others;

struct order {
	enum { MAP, SET, UNMAP, END } op;
	struct dr_gpu_share share;
};

/* One order after the other until END or the end of the socket. */
static void obey(int fd, struct dr_gpu *g, struct dr_gpu_stream *s)
{
	struct dr_gpu_mapping m = { 0 };
	struct order o;

	while (read(fd, &o, sizeof(o)) == (ssize_t)sizeof(o) && o.op != END) {
		int rc = 0;

		if (o.op == MAP)
			rc = dr_gpu_map(g, &o.share, &m, NULL);
		else if (o.op == SET)
			rc = dr_gpu_set(s, m.dev + FROM, MARK, LEN, NULL);
		else
			dr_gpu_unmap(g, &m);
		if (write(fd, &rc, sizeof(rc)) != (ssize_t)sizeof(rc))
			break;
	}
}

static void other_main(int fd)
{
	struct dr_gpu_stream *s;
	struct dr_gpu *g;

	if (dr_gpu_open(0, &g, NULL) || dr_gpu_stream_create(g, &s, NULL))
		_exit(2);
	obey(fd, g, s);
	dr_gpu_stream_destroy(s);
	dr_gpu_close(g);
	exit(0);
}

static int order(struct order o)
{
	int rc = -1;

	assert_int_equal(write(other->fd, &o, sizeof(o)), sizeof(o));
	assert_int_equal(read(other->fd, &rc, sizeof(rc)), sizeof(rc));
	return rc;
}

/* The other process's status. */
static int end_other(bool kill_it)
{
	struct order o = { .op = END };
	int status = 0;

	if (kill_it)
		(void)kill(other->pid, SIGKILL);
	else
		assert_int_equal(write(other->fd, &o, sizeof(o)), sizeof(o));
	assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
	(void)close(other->fd);
	other++;
	return status;
}

struct bed {
	struct dr_gpu *g;
	struct dr_gpu_memory m;
	struct dr_gpu_stream *s;
	struct dr_gpu_share share;
};

static void bed_make(struct bed *b)
{
	assert_int_equal(dr_gpu_open(0, &b->g, NULL), 0);
	assert_int_equal(dr_gpu_stream_create(b->g, &b->s, NULL), 0);
	assert_int_equal(dr_gpu_alloc(b->g, BYTES, &b->m, NULL), 0);
	assert_int_equal(dr_gpu_set(b->s, b->m.dev, 0, BYTES, NULL), 0);
	assert_int_equal(dr_gpu_share(b->g, b->m.dev, &b->share, NULL), 0);
}

static void bed_drop(struct bed *b)
{
	dr_gpu_free(b->g, &b->m);
	dr_gpu_stream_destroy(b->s);
	dr_gpu_close(b->g);
}

/* What the other process wrote, and nothing else. */
static void assert_written(struct bed *b)
{
	uint8_t *got = malloc(BYTES);

	assert_non_null(got);
	assert_int_equal(dr_gpu_read(b->s, got, b->m.dev, BYTES, NULL), 0);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(got[i], i >= FROM && i < FROM + LEN ? MARK : 0);
	free(got);
}

static void written_by_another_process(void **state)
{
	struct bed b;

	(void)state;
	bed_make(&b);
	assert_int_equal(order((struct order){ .op = MAP, .share = b.share }), 0);
	assert_int_equal(order((struct order){ .op = SET }), 0);
	assert_written(&b);
	assert_int_equal(order((struct order){ .op = UNMAP }), 0);
	assert_int_equal(end_other(false), 0);
	bed_drop(&b);
}

/* It may be freed: the mapping has ended with the process. */
static void killed_with_the_memory_mapped(void **state)
{
	struct bed b;

	(void)state;
	bed_make(&b);
	assert_int_equal(order((struct order){ .op = MAP, .share = b.share }), 0);
	assert_int_equal(order((struct order){ .op = SET }), 0);
	assert_true(WIFSIGNALED(end_other(true)));
	assert_written(&b);
	bed_drop(&b);
}

static void freed_before_the_map(void **state)
{
	struct bed b;

	(void)state;
	bed_make(&b);
	dr_gpu_free(b.g, &b.m);
	assert_int_equal(order((struct order){ .op = MAP, .share = b.share }), -EINVAL);
	assert_int_equal(order((struct order){ .op = UNMAP }), 0); /* nothing */
	assert_int_equal(end_other(false), 0);
	bed_drop(&b);
}

static void not_supported(void **state)
{
	struct dr_gpu_share share;
	struct dr_gpu_memory m;
	struct dr_gpu *g;
	struct dr_err e;

	(void)state;
	fresh("ipc=0");
	assert_int_equal(dr_gpu_open(0, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, BYTES, &m, NULL), 0);
	assert_int_equal(dr_gpu_share(g, m.dev, &share, &e), -ENOTSUP);
	assert_says(e, "share memory of GPU 0 with another process (CUDA IPC): CUDA_ERROR_NOT_SUPPORTED");
	dr_gpu_free(g, &m);
	dr_gpu_close(g);
}

static bool start_others(void)
{
	int fd[2];

	for (struct other *o = others; o < others + OTHERS; o++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
			return false;
		o->fd = fd[0];
		o->pid = fork();
		if (o->pid < 0)
			return false;
		if (o->pid == 0) {
			for (struct other *before = others; before <= o; before++)
				(void)close(before->fd);
			other_main(fd[1]);
		}
		(void)close(fd[1]);
	}
	return true;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(written_by_another_process, setup, teardown),
		cmocka_unit_test_setup_teardown(killed_with_the_memory_mapped, setup, teardown),
		cmocka_unit_test_setup_teardown(freed_before_the_map, setup, teardown),
		cmocka_unit_test_setup_teardown(not_supported, setup, teardown),
	};

	(void)setenv("DR_FAKE_CUDA", "", 1);
	if (group_setup(NULL) || !start_others())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
