/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static struct dr_state sample = {
	.nic = "rail0", .ifindex = 7, .mac = { 1, 2, 3, 4, 5, 6 }, .undo = (char *)"echo undo"
};

static int make_dir(void **state)
{
	struct dr_fault_spec s;

	(void)state;
	assert_int_equal(dr_fault_spec_parse("exec=cut", &s, NULL), 0);
	sample.kind = s.kind;
	snprintf(dir, sizeof(dir), "/tmp/dr-state-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when a test left a file */
}

static int count(
	const struct dr_state *s, const char *path, const struct dr_state_owner *o, void *arg)
{
	(void)path;
	assert_false(o->alive);
	assert_int_equal(o->guard, getpid());
	assert_string_equal(s->nic, "rail0");
	(*(int *)arg)++;
	return 0;
}

static int refuse(
	const struct dr_state *s, const char *path, const struct dr_state_owner *o, void *arg)
{
	(void)s;
	(void)path;
	(void)o;
	(*(int *)arg)++;
	return -EIO;
}

/* What it returns is of no account. */
static int see_living(
	const struct dr_state *s, const char *path, const struct dr_state_owner *o, void *arg)
{
	(void)path;
	assert_string_equal(s->nic, "rail0");
	assert_true(o->alive);
	assert_int_equal(o->guard, getpid());
	assert_true(dr_wall_ns() - o->since_ns < 60 * DR_NS_PER_S);
	(*(int *)arg)++;
	return 0;
}

static void round_trip_and_torn(void **state)
{
	struct dr_state_where here, w;
	struct dr_state s = sample, back;
	uint8_t *p, *copy;
	size_t len;
	pid_t pid;

	(void)state;
	s.snap.bytes = (uint8_t *)"netlink bytes...";
	s.snap.len = 16;
	assert_int_equal(dr_state_where(&here, NULL), 0);
	assert_int_equal(dr_state_encode(&s, &here, &p, &len), 0);
	assert_int_equal(dr_state_decode(p, len, &back, &w, &pid), 0);
	assert_ptr_equal(back.kind, s.kind);
	assert_string_equal(back.undo, s.undo);
	assert_int_equal(back.ifindex, 7);
	assert_int_equal(back.snap.len, 16);
	assert_memory_equal(back.snap.bytes, s.snap.bytes, 16);
	assert_int_equal(w.netns, here.netns);
	assert_int_equal(pid, getpid());
	dr_state_fini(&back);
	/* Every cut and every changed byte is noticed; copies are exact, so that ASan sees reads past. */
	for (size_t n = 0; n < len; n++) {
		copy = malloc(n + 1);
		memcpy(copy, p, n);
		assert_int_equal(dr_state_decode(copy, n, &back, &w, &pid), -EPROTO);
		free(copy);
		p[n] ^= 0x40;
		assert_int_equal(dr_state_decode(p, len, &back, &w, &pid), -EPROTO);
		p[n] ^= 0x40;
	}
	dr_free(p);
}

static void one_writer(void **state)
{
	struct dr_state_file *a, *b;
	struct dr_err e;
	int n = 0;

	(void)state;
	assert_int_equal(dr_state_create(dir, "rail0", &sample, &a, &e), 0);
	assert_int_equal(dr_state_create(dir, "rail0", &sample, &b, &e), -EBUSY);
	assert_non_null(strstr(e.text, "another dualrail"));
	assert_int_equal(dr_state_create(dir, "rail1", &sample, &b, &e), 0);
	assert_int_equal(dr_state_each(dir, see_living, &n), 0);
	assert_int_equal(n, 2);
	n = 0;
	dr_state_remove(b);
	dr_state_leave(a); /* as if killed */
	assert_int_equal(dr_state_create(dir, "rail0", &sample, &a, &e), -EBUSY);
	assert_non_null(strstr(e.text, "doctor"));
	assert_int_equal(dr_state_each(dir, refuse, &n), 0); /* not undone: it stays */
	assert_int_equal(n, 1);
	assert_int_equal(dr_state_each(dir, count, &n), 1);
	assert_int_equal(n, 2);
	assert_int_equal(dr_state_each(dir, count, &n), 0);
}

static void put(const char *name, const void *p, size_t len)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0 && write(fd, p, len) == (ssize_t)len);
	close(fd);
}

/* Of another boot, of a namespace that is gone though its number is used again, torn: void. */
static void void_files_go(void **state)
{
	struct dr_state_where here;
	struct dr_state_file *f;
	struct dr_err e;
	char name[128];
	uint8_t *p;
	size_t len;
	int n = 0;

	(void)state;
	assert_int_equal(dr_state_where(&here, NULL), 0);
	put("fault-4026531840-00000000-1111-2222-3333-444444444444-rail0", "old", 3);
	snprintf(name, sizeof(name), "fault-%llu-%s-rail8", (unsigned long long)here.netns,
		here.boot);
	put(name, "torn", 4);
	here.cookie++;
	assert_int_equal(dr_state_encode(&sample, &here, &p, &len), 0);
	snprintf(name, sizeof(name), "fault-%llu-%s-rail9", (unsigned long long)here.netns,
		here.boot);
	put(name, p, len);
	assert_int_equal(dr_state_each(dir, count, &n), 0);
	assert_int_equal(n, 0);
	put(name, p, len); /* the same in the way of a new one */
	assert_int_equal(dr_state_create(dir, "rail9", &sample, &f, &e), 0);
	dr_state_remove(f);
	dr_free(p);
}

static void foreign_places_refused(void **state)
{
	char link[80];
	struct dr_state_file *f;
	struct dr_err e;

	(void)state;
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(dr_state_create(dir, "rail0", &sample, &f, &e), -EPERM);
	assert_int_equal(chmod(dir, 0700), 0);
	snprintf(link, sizeof(link), "%s.link", dir);
	assert_int_equal(symlink(dir, link), 0);
	assert_true(dr_state_create(link, "rail0", &sample, &f, &e) < 0);
	unlink(link);
}

static unsigned told;

static void hear(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)level;
	(void)component;
	(void)arg;
	told += strstr(text,
			"is not used: Operation not permitted; it must be a directory of user") !=
		NULL;
}

static void hear_any(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)level;
	(void)component;
	(void)arg;
	told += strstr(text, dir) && strstr(text, " is not used: ");
}

/* What another user put where the directory of root would be is neither read nor undone. */
static void the_directory_of_another_user(void **state)
{
	struct dr_state_file *f;
	struct dr_err e;
	int n = 0;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root, to have a directory of another user\n");
		skip();
	}
	assert_int_equal(dr_state_create(dir, "rail0", &sample, &f, &e), 0);
	dr_state_leave(f); /* as a killed guard leaves it */
	assert_int_equal(chown(dir, 65534, 65534), 0);
	dr_log_set_sink(hear, NULL);
	assert_int_equal(dr_state_each(dir, count, &n), 0);
	dr_log_set_sink(NULL, NULL);
	assert_int_equal(n, 0);
	assert_int_equal(told, 1);
	assert_int_equal(dr_state_create(dir, "rail1", &sample, &f, &e), -EPERM);
	assert_int_equal(chown(dir, 0, 0), 0);
	assert_int_equal(dr_state_each(dir, count, &n), 1);
	assert_int_equal(n, 1);
}

/* sudo keeps XDG_RUNTIME_DIR in some set-ups: another user's directory is no place for state files. */
static void the_runtime_directory_of_another_user(void **state)
{
	char path[80];

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root, to have a directory of another user\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/dualrail", dir);
	assert_int_equal(symlink("nowhere", path), 0); /* it would be told if the place counted */
	assert_int_equal(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
	dr_log_set_sink(hear_any, NULL);
	told = 0;
	dr_state_each(NULL, refuse, &(int){ 0 });
	assert_int_equal(told, 1);
	assert_int_equal(chown(dir, 65534, 65534), 0);
	told = 0;
	dr_state_each(NULL, refuse, &(int){ 0 });
	assert_int_equal(told, 0);
	dr_log_set_sink(NULL, NULL);
	assert_int_equal(chown(dir, 0, 0), 0);
	unsetenv("XDG_RUNTIME_DIR");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip_and_torn),
		cmocka_unit_test(one_writer),
		cmocka_unit_test(void_files_go),
		cmocka_unit_test(foreign_places_refused),
		cmocka_unit_test(the_directory_of_another_user),
		cmocka_unit_test(the_runtime_directory_of_another_user),
	};

	return cmocka_run_group_tests_name("fault state", tests, make_dir, remove_dir);
}
