/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { OTHER = 65534 };
#define OLD "the old text"
#define NEW "the new text"

/* A shared directory, as /tmp is: sticky, and everybody may write to it. */
static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/dr-file-XXXXXX");
	umask(022);
	return mkdtemp(dir) && chmod(dir, 01777) == 0 ? 0 : -1;
}

/* How many hidden files there are; all are removed. */
static int clear(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int hidden = 0;

	while (d && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		hidden += e->d_name[0] == '.' && strncmp(e->d_name, "..", 2) != 0;
		if (unlinkat(dirfd(d), e->d_name, 0))
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
	return hidden;
}

/* No test leaves a file of which only the writer knows. */
static int teardown(void **state)
{
	(void)state;
	int hidden = clear(dir);

	rmdir(dir);
	return hidden ? -1 : 0;
}

static const char *in(const char *name)
{
	static char path[8][200];
	static unsigned turn;
	char *s = path[turn++ % 8];

	snprintf(s, sizeof(path[0]), "%s/%s", dir, name);
	return s;
}

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* Does the file have this text? */
static bool has(const char *path, const char *text)
{
	char buf[200] = "";
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	close(fd);
	return n == (ssize_t)strlen(text) && !strcmp(buf, text);
}

static int save(const char *path, struct dr_err *e)
{
	return dr_file_write("--json", path, NEW, strlen(NEW), DR_FILE_SYNC, e);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static void a_new_file_follows_the_umask(void **state)
{
	struct dr_err e;

	(void)state;
	umask(027);
	assert_int_equal(dr_file_probe("--json", in("a"), &e), 0);
	assert_int_equal(access(in("a"), F_OK), -1);
	assert_int_equal(save(in("a"), &e), 0);
	umask(022);
	assert_true(has(in("a"), NEW));
	assert_int_equal(mode_of(in("a")), 0640);
}

static void an_own_file_keeps_its_permissions_and_nothing_else(void **state)
{
	struct stat before, after;
	struct dr_err e;

	(void)state;
	put(in("a"), OLD, 07751);
	assert_int_equal(mode_of(in("a")), 07751);
	assert_int_equal(stat(in("a"), &before), 0);
	assert_int_equal(link(in("a"), in("kept")), 0);
	assert_int_equal(save(in("a"), &e), 0);
	assert_int_equal(stat(in("a"), &after), 0);
	assert_int_equal(after.st_mode & 07777, 0751);
	assert_true(before.st_ino != after.st_ino);
	assert_true(has(in("a"), NEW));
	assert_true(has(in("kept"), OLD));
}

static void a_link_is_not_written_through(void **state)
{
	static const char *const to[] = { "victim", "not-there" };
	struct dr_err e;

	(void)state;
	put(in("victim"), OLD, 0600);
	for (size_t i = 0; i < DR_ARRAY_LEN(to); i++) {
		assert_int_equal(symlink(to[i], in("a")), 0);
		assert_int_equal(dr_file_probe("--json", in("a"), &e), -EPERM);
		assert_int_equal(save(in("a"), &e), -EPERM);
		assert_non_null(strstr(
			e.text, "/a: it is a symbolic link; name the file that it points to"));
		assert_int_equal(unlink(in("a")), 0);
	}
	assert_true(has(in("victim"), OLD));
	assert_int_equal(access(in("not-there"), F_OK), -1);
	/* A directory is named like any other; its own path may have links. */
	assert_int_equal(symlink(dir, in("to-dir")), 0);
	assert_int_equal(save(in("to-dir/a"), &e), 0);
	assert_true(has(in("a"), NEW));
}

static void other_things_are_refused(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct dr_err e;

	(void)state;
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", in("socket"));
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(save(in("socket"), &e), -EPERM);
	assert_non_null(strstr(e.text, "it is not a regular file; name another file"));
	assert_int_equal(dr_file_open(in("socket"), &e), -EPERM);
	close(fd);
	assert_int_equal(save(dir, &e), -EISDIR);
	assert_int_equal(save(in(""), &e), -EISDIR);
	assert_int_equal(save("", &e), -EINVAL);
	assert_int_equal(save(in("no/such"), &e), -ENOENT);
	assert_non_null(strstr(e.text, "; create the directory first"));
	assert_int_equal(dr_file_open("/dev/zero", &e), -EPERM);
	assert_int_equal(dr_file_open(in("nothing"), &e), -ENOENT);
}

/* The reason is there, whatever the length of the path. */
static void a_long_path_leaves_the_reason(void **state)
{
	char path[1000];
	struct dr_err e;

	(void)state;
	snprintf(path, sizeof(path), "%s/%0900d/r.json", dir, 7);
	assert_int_equal(save(path, &e), -ENAMETOOLONG);
	assert_non_null(strstr(e.text, "cannot write --json=..."));
	assert_non_null(strstr(e.text, "7/r.json: File name too long"));
}

static void devices_and_own_pipes_are_written(void **state)
{
	struct dr_err e;
	struct stat st;

	(void)state;
	assert_int_equal(save("/dev/null", &e), 0);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);
	int fd = open(in("fifo"), O_RDONLY | O_NONBLOCK);
	char buf[64] = "";
	assert_int_equal(dr_file_probe("--json", in("fifo"), &e), 0);
	assert_int_equal(save(in("fifo"), &e), 0);
	assert_int_equal(read(fd, buf, sizeof(buf)), strlen(NEW));
	assert_string_equal(buf, NEW);
	close(fd);
	/* Read: it would wait for a writer. */
	assert_int_equal(dr_file_open(in("fifo"), &e), -EPERM);
	assert_non_null(strstr(e.text, "pass it as /dev/stdin or /dev/fd/N"));
}

static void descriptors_of_the_caller(void **state)
{
	char path[64], buf[64] = "";
	struct dr_err e;
	int p[2], fd;

	(void)state;
	assert_int_equal(pipe(p), 0);
	snprintf(path, sizeof(path), "/dev/fd/%d", p[1]);
	assert_int_equal(dr_file_probe("--json", path, &e), 0);
	assert_int_equal(save(path, &e), 0);
	assert_int_equal(dr_file_open(path, &e), -EBADF); /* the wrong end */
	close(p[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	assert_int_equal(dr_file_probe("--json", path, &e), -EBADF);
	fd = dr_file_open(path, &e);
	assert_int_equal(dr_file_read(fd, buf, sizeof(buf)), strlen(NEW));
	assert_string_equal(buf, NEW);
	close(fd);
	close(p[0]);
	/* Of a file it is read from the beginning, wherever it is. */
	put(in("a"), OLD, 0600);
	p[0] = open(in("a"), O_RDWR | O_APPEND);
	assert_int_equal(lseek(p[0], 0, SEEK_END), strlen(OLD));
	snprintf(path, sizeof(path), "/dev/fd/%d", p[0]);
	fd = dr_file_open(path, &e);
	assert_int_equal(dr_file_read(fd, buf, 7), 7);
	assert_memory_equal(buf, OLD, 7);
	close(fd);
	assert_int_equal(save(path, &e), 0);
	assert_true(has(in("a"), OLD NEW));
	close(p[0]);
	p[0] = open("/dev/zero", O_RDONLY);
	snprintf(path, sizeof(path), "/dev/fd/%d", p[0]);
	assert_int_equal(dr_file_open(path, &e), -EPERM);
	assert_string_equal(e.text, "it is neither a regular file nor a pipe; copy it into a file");
	close(p[0]);
	assert_int_equal(save("/dev/fd/100000", &e), -EBADF);
	assert_int_equal(dr_file_open("/dev/fd/1x", &e), -ENOENT);
}

static void the_whole_text(void **state)
{
	char path[64], *text;
	struct dr_err e;
	size_t len;
	int p[2];

	(void)state;
	put(in("a"), OLD, 0600);
	assert_int_equal(dr_file_text(in("a"), strlen(OLD), &text, &len, &e), 0);
	assert_int_equal(len, strlen(OLD));
	assert_string_equal(text, OLD);
	dr_free(text);
	assert_int_equal(dr_file_text(in("a"), strlen(OLD) - 1, &text, &len, &e), -EFBIG);
	assert_string_equal(e.text, "it is larger than 0 MiB; name another file");
	assert_int_equal(dr_file_text(in("none"), 9, &text, &len, &e), -ENOENT);
	assert_int_equal(dr_file_text("/dev/zero", 9, &text, &len, &e), -EPERM);
	/* A pipe, as a shell passes <(command). */
	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], OLD, strlen(OLD)), strlen(OLD));
	close(p[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", p[0]);
	assert_int_equal(dr_file_text(path, 1 << 20, &text, NULL, &e), 0);
	assert_string_equal(text, OLD);
	dr_free(text);
	close(p[0]);
}

/* As Kubernetes mounts a secret: key -> ..data/key, ..data -> ..1. */
static void own_links_are_read(void **state)
{
	struct dr_err e;
	char buf[64];

	(void)state;
	assert_int_equal(mkdir(in("..1"), 0700), 0);
	put(in("..1/key"), OLD, 0600);
	assert_int_equal(symlink("..1", in("..data")), 0);
	assert_int_equal(symlink("..data/key", in("key")), 0);
	assert_int_equal(symlink(in("key"), in("absolute")), 0);
	int fd = dr_file_open(in("absolute"), &e);
	assert_true(fd >= 0);
	assert_int_equal(dr_file_read(fd, buf, sizeof(buf)), strlen(OLD));
	close(fd);
	assert_int_equal(symlink("loop", in("loop")), 0);
	assert_int_equal(dr_file_open(in("loop"), &e), -ELOOP);
	assert_int_equal(unlink(in("..1/key")), 0);
	assert_int_equal(dr_file_open(in("absolute"), &e), -ENOENT);
}

/* ---- another user ---- */

/* Runs fn as that user; true: it returned 0. */
static bool as_other(int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setegid(OTHER) || seteuid(OTHER) || fn());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int plant(void)
{
	int fd = open(in("file"), O_WRONLY | O_CREAT | O_EXCL, 0600);

	return fd < 0 || write(fd, OLD, strlen(OLD)) != (ssize_t)strlen(OLD) || fchmod(fd, 04777) ||
	       symlink("secret", in("link")) || symlink("/dev/zero", in("device")) ||
	       symlink("not-there", in("dangling")) || mkfifo(in("fifo"), 0666);
}

static void planted_files_do_nothing(void **state)
{
	static const char *const name[] = { "file", "link", "device", "dangling", "fifo" };
	struct stat before, after;
	struct dr_err e;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root, to have a file of another user\n");
		skip();
	}
	put(in("secret"), OLD, 0600);
	assert_true(as_other(plant));
	for (size_t i = 0; i < DR_ARRAY_LEN(name); i++) {
		assert_int_equal(lstat(in(name[i]), &before), 0);
		assert_int_equal(before.st_uid, OTHER);
		assert_int_equal(dr_file_probe("--json", in(name[i]), &e), -EPERM);
		assert_int_equal(save(in(name[i]), &e), -EPERM);
		assert_non_null(strstr(e.text,
			S_ISLNK(before.st_mode)
				? ": it is a symbolic link; "
				: ": it belongs to user 65534, this process runs as user 0; remove it or"));
		assert_int_equal(dr_file_open(in(name[i]), &e), -EPERM);
		assert_non_null(strstr(e.text,
			S_ISFIFO(before.st_mode)
				? "it is not a regular file; "
				: " belongs to user 65534, this process runs as user 0; copy the file"));
		assert_int_equal(lstat(in(name[i]), &after), 0);
		assert_true(before.st_ino == after.st_ino && before.st_mode == after.st_mode &&
			    before.st_uid == after.st_uid && before.st_size == after.st_size);
	}
	assert_true(has(in("secret"), OLD));
	assert_int_equal(access(in("not-there"), F_OK), -1);
}

/* A directory that takes no new file. */
static int closed_directory(void)
{
	struct dr_err e;

	if (mkdir(in("ro"), 0700))
		return 1;
	put(in("ro/a"), OLD, 0600);
	put(in("ro/b"), OLD, 0600);
	if (link(in("ro/b"), in("b")) || chmod(in("ro"), 0555))
		return 2;
	int rc = dr_file_probe("--json", in("ro/a"), &e) || save(in("ro/a"), &e) ||
		 !has(in("ro/a"), NEW) || dr_file_probe("--json", in("ro/b"), &e) != -EACCES ||
		 save(in("ro/b"), &e) != -EACCES || !has(in("b"), OLD) ||
		 save(in("ro/new"), &e) != -EACCES;
	return chmod(in("ro"), 0700) || clear(in("ro")) || rc ? 3 : 0;
}

static void a_directory_that_takes_no_file(void **state)
{
	(void)state;
	if (geteuid() == 0)
		assert_true(as_other(closed_directory));
	else
		assert_int_equal(closed_directory(), 0);
}

/* A file of root is trusted when it is read, and left alone. */
static int roots_file(void)
{
	struct dr_err e;
	int fd = dr_file_open(in("link"), &e);

	return fd < 0 || save(in("a"), &e) != -EPERM ||
	       !strstr(e.text, "belongs to user 0, this process runs as user 65534");
}

static void files_of_root(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("needs root, to be another user\n");
		skip();
	}
	put(in("a"), OLD, 0666);
	assert_int_equal(symlink("a", in("link")), 0);
	assert_true(as_other(roots_file));
	assert_true(has(in("a"), OLD));
}

/* ---- no room ---- */

static int write_without_room(void)
{
	static char text[8192];
	struct rlimit small = { 4096, 4096 };
	struct dr_err e = { 0 };

	memset(text, 'x', sizeof(text));
	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &small))
		return 1;
	return dr_file_write("--json", in("a"), text, sizeof(text), DR_FILE_SYNC, &e) != -EFBIG ||
	       !strstr(e.text, "cannot write --json=");
}

static void without_room_the_old_file_stays(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	put(in("a"), OLD, 0600);
	pid = fork();
	if (pid == 0)
		_exit(write_without_room());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(has(in("a"), OLD));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_new_file_follows_the_umask),
		TEST(an_own_file_keeps_its_permissions_and_nothing_else),
		TEST(a_link_is_not_written_through),
		TEST(other_things_are_refused),
		TEST(a_long_path_leaves_the_reason),
		TEST(devices_and_own_pipes_are_written),
		TEST(descriptors_of_the_caller),
		TEST(the_whole_text),
		TEST(own_links_are_read),
		TEST(planted_files_do_nothing),
		TEST(a_directory_that_takes_no_file),
		TEST(files_of_root),
		TEST(without_room_the_old_file_stays),
	};

	return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
