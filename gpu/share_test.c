/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "gpu/gpu.h"
#include "tests/fakecuda/testkit.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/*
 * Memory of a GPU in two processes, of emulated GPUs. The other processes, one for each test, are forked before this one
 * uses CUDA. With DR_LIBCUDA=libcuda.so.1 set, of a real one: then nothing is made to fail.
 */
enum { BYTES = 1 << 20, FROM = 4096, LEN = 70000, MARK = 0x5e, OTHERS = 4 };

static struct other {
	pid_t pid;
	int fd;
} others[OTHERS], *other = others;

struct order {
	enum { MAP, SET, UNMAP, END, SET_WITHOUT_END } op;
	struct dr_gpu_share share;
};

/* Until the process is killed. */
static void set_without_end(struct dr_gpu_stream *s, uint64_t dev)
{
	for (unsigned i = 0;; i++)
		if (dr_gpu_set(s, dev, (uint8_t)i, BYTES, NULL))
			_exit(3);
}

/* One order after the other until END or the end of the socket. */
static void obey(int fd, struct dr_gpu *g, struct dr_gpu_stream *s)
{
	struct dr_gpu_mapping m = { 0 };
	struct order o;

	while (read(fd, &o, sizeof(o)) == (ssize_t)sizeof(o) && o.op != END) {
		int rc = 0;

		if (o.op == SET_WITHOUT_END) {
			if (write(fd, &rc, sizeof(rc)) == (ssize_t)sizeof(rc))
				set_without_end(s, m.dev);
			break;
		}
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
	exit(0); /* lint-ok: the emulated library checks at the end what is left */
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

static uint8_t last_byte(struct bed *b)
{
	uint8_t byte = 0;

	assert_int_equal(dr_gpu_read(b->s, &byte, b->m.dev + BYTES - 1, 1, NULL), 0);
	return byte;
}

/* The driver has ended its work when it is reaped: the fence of a plugin that runs in a process of its own. */
static void nothing_is_written_after_the_end(void **state)
{
	uint8_t *before = malloc(BYTES), *after = malloc(BYTES), first;
	struct bed b;
	int64_t at;

	(void)state;
	bed_make(&b);
	assert_int_equal(order((struct order){ .op = MAP, .share = b.share }), 0);
	assert_int_equal(order((struct order){ .op = SET_WITHOUT_END }), 0);
	first = last_byte(&b);
	while (last_byte(&b) == first) /* it is being written */
		;
	at = dr_now_ns();
	assert_true(WIFSIGNALED(end_other(true)));
	print_message("killed and reaped in %.1f ms\n", (double)(dr_now_ns() - at) / 1e6);
	assert_int_equal(dr_gpu_read(b.s, before, b.m.dev, BYTES, NULL), 0);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(dr_gpu_read(b.s, after, b.m.dev, BYTES, NULL), 0);
		assert_memory_equal(before, after, BYTES);
	}
	free(before);
	free(after);
	bed_drop(&b);
}

static void freed_before_the_map(void **state)
{
	struct bed b;

	(void)state;
	bed_make(&b);
	if (!fake) {
		(void)end_other(false);
		bed_drop(&b);
		print_message("SKIP: a driver may keep the memory that the handle names\n");
		skip();
	}
	dr_gpu_free(b.g, &b.m);
	assert_true(order((struct order){ .op = MAP, .share = b.share }) < 0);
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
	if (!fake) {
		print_message("SKIP: a real GPU can share its memory\n");
		skip();
	}
	fresh("ipc=0");
	assert_int_equal(dr_gpu_open(0, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, BYTES, &m, NULL), 0);
	assert_int_equal(dr_gpu_share(g, m.dev, &share, &e), -ENOTSUP);
	assert_says(e,
		"share memory of GPU 0 with another process (CUDA IPC): CUDA_ERROR_NOT_SUPPORTED");
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
		cmocka_unit_test_setup_teardown(nothing_is_written_after_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(freed_before_the_map, setup, teardown),
		cmocka_unit_test_setup_teardown(not_supported, setup, teardown),
	};

	struct dr_gpu_info info;
	struct dr_err e;

	(void)setenv("DR_FAKE_CUDA", "", 1);
	if ((!getenv("DR_LIBCUDA") && group_setup(NULL)) || !start_others())
		return 1;
	if (!fake && dr_gpu_list(&info, 1, &e) < 0) {
		printf("%s\n", e.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
