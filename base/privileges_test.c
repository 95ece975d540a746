/* SPDX-License-Identifier: Apache-2.0 */
#include "base/privileges.h"

#include "base/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Every test gives up its rights in a child, which reports the line that failed by its status. */

#define EXPECT(x)                                                                                  \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #x,          \
				strerror(errno));                                                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void in_child(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A field of the status of one of our threads. */
static uint64_t status_of(pid_t tid, const char *field, int base)
{
	char text[4096], *at;

	EXPECT(dr_sysfile_text(text, sizeof(text), "", "/proc/self/task/%ld/status", (long)tid) >
		0);
	at = strstr(text, field);
	EXPECT(at != NULL);
	return strtoull(at + strlen(field), NULL, base);
}

/* ---- a thread that is there before ---- */

struct waiter {
	pthread_t thread;
	int ready[2], go[2];
	bool deaf;
	pid_t tid;
};

static void *wait_for_go(void *arg)
{
	struct waiter *w = arg;
	sigset_t all;
	char c = 0;

	sigfillset(&all);
	if (w->deaf)
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	w->tid = gettid();
	EXPECT(write(w->ready[1], &c, 1) == 1);
	while (read(w->go[0], &c, 1) < 0)
		EXPECT(errno == EINTR);
	return NULL;
}

static void start_waiter(struct waiter *w)
{
	char c;

	EXPECT(pipe(w->ready) == 0 && pipe(w->go) == 0);
	EXPECT(pthread_create(&w->thread, NULL, wait_for_go, w) == 0);
	EXPECT(read(w->ready[0], &c, 1) == 1);
}

static void end_waiter(struct waiter *w)
{
	EXPECT(write(w->go[1], "", 1) == 1);
	EXPECT(pthread_join(w->thread, NULL) == 0);
}

/* ---- capabilities ---- */

static void every_thread_loses_them(void)
{
	const uint64_t keep = DR_CAP(CAP_IPC_LOCK);
	uint64_t left = dr_privileges_held() & keep;
	struct waiter w = { .deaf = false };
	pid_t tids[2];
	struct dr_err e;

	start_waiter(&w);
	EXPECT(dr_privileges_limit(keep, &e) == 0);
	tids[0] = getpid();
	tids[1] = w.tid;
	for (int i = 0; i < 2; i++) {
		EXPECT(status_of(tids[i], "CapEff:", 16) == left);
		EXPECT(status_of(tids[i], "CapPrm:", 16) == left);
		EXPECT(status_of(tids[i], "CapInh:", 16) == 0);
		EXPECT(status_of(tids[i], "CapAmb:", 16) == 0);
		EXPECT(geteuid() != 0 || (status_of(tids[i], "CapBnd:", 16) & ~keep) == 0);
	}
	end_waiter(&w);
	EXPECT(dr_privileges_held() == left);
}

/* ThreadSanitizer has a thread that blocks all signals, and delays those of the others. */
static void needs_own_threads_only(void)
{
#ifdef __SANITIZE_THREAD__
	printf("SKIP: ThreadSanitizer has a thread of its own, which keeps its capabilities\n");
	skip();
#endif
}

static void limit_reaches_every_thread(void **state)
{
	(void)state;
	needs_own_threads_only();
	in_child(every_thread_loses_them);
}

static void a_deaf_thread_is_named(void)
{
	struct waiter w = { .deaf = true };
	struct dr_err e = { 0 };

	start_waiter(&w);
	EXPECT(dr_privileges_limit(0, &e) == -EBUSY);
	EXPECT(strstr(e.text, "keeps ") != NULL);
	EXPECT(dr_privileges_held() == 0);
	end_waiter(&w);
}

static void what_a_thread_keeps_is_told(void **state)
{
	(void)state;
	if (!dr_privileges_held()) {
		printf("SKIP: this user has no capabilities to keep\n");
		skip();
	}
	in_child(a_deaf_thread_is_named);
}

static void without_override(void)
{
	const uint64_t override = DR_CAP(CAP_DAC_OVERRIDE) | DR_CAP(CAP_DAC_READ_SEARCH);
	char dir[] = "/tmp/dr-privileges-XXXXXX";

	EXPECT(mkdtemp(dir) != NULL && chmod(dir, 0) == 0);
	EXPECT(open(dir, O_RDONLY) >= 0);
	dr_privileges_suspend(override, true);
	EXPECT(open(dir, O_RDONLY) < 0 && errno == EACCES);
	dr_privileges_suspend(override, false);
	EXPECT(open(dir, O_RDONLY) >= 0);
	rmdir(dir);
}

static void suspended_ones_come_back(void **state)
{
	(void)state;
	if (!(dr_privileges_held() & DR_CAP(CAP_DAC_OVERRIDE))) {
		printf("SKIP: needs root\n");
		skip();
	}
	in_child(without_override);
}

/* ---- system calls ---- */

static bool denied(long rc)
{
	return rc < 0 && errno == EPERM;
}

static void *nothing(void *arg)
{
	return arg;
}

static void never_again(void)
{
	char *const argv[] = { (char *)(uintptr_t) "true", NULL };
	struct waiter w = { .deaf = false };
	struct dr_err e;
	pthread_t t;
	pid_t pid;
	int status, rc;

	start_waiter(&w);
	rc = dr_privileges_filter(&e);
	if (rc == -EOPNOTSUPP)
		_exit(77);
	EXPECT(rc == 0);
	EXPECT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	EXPECT(status_of(w.tid, "NoNewPrivs:", 10) == 1);
	EXPECT(status_of(w.tid, "Seccomp:", 10) == 2);
	end_waiter(&w);

	EXPECT(denied(execve("/nonexistent", argv, NULL)));
#ifndef __SANITIZE_ADDRESS__
	EXPECT(denied(ptrace(PTRACE_TRACEME, 0, NULL, NULL)));
#endif
	EXPECT(denied(mount("none", "/nonexistent", "tmpfs", 0, NULL)));
	EXPECT(denied(umount2("/nonexistent", 0)));
	EXPECT(denied(unshare(CLONE_NEWUSER)));
	EXPECT(denied(setns(-1, 0)));
	EXPECT(denied(syscall(SYS_bpf, 0, NULL, 0)));
	EXPECT(denied(syscall(SYS_init_module, NULL, 0, "")));
	EXPECT(denied(syscall(SYS_kexec_load, 0, 0, NULL, 0)));
	EXPECT(denied(syscall(SYS_keyctl, 0)));
	EXPECT(denied(syscall(SYS_userfaultfd, 0)));
	EXPECT(denied(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0)));
	EXPECT(denied(syscall(SYS_process_vm_readv, 0, NULL, 0, NULL, 0, 0)));
	EXPECT(denied(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL)));
	EXPECT(denied(ioctl(-1, TIOCSTI, "x")));
	EXPECT(denied(syscall(SYS_ioctl, -1, TIOCLINUX | 1L << 32, "")));
	EXPECT(ioctl(-1, FIONREAD, &rc) < 0 && errno == EBADF);

	/* What the program goes on to do. */
	EXPECT(pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0);
	pid = fork();
	if (pid == 0)
		_exit(denied(execve("/bin/true", argv, NULL)) ? 7 : 8);
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
	EXPECT(open("/dev/null", O_RDWR) >= 0);
}

static void denied_calls_fail(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		never_again();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 77) {
		printf("SKIP: this kernel or processor has no filter of system calls\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* ---- users ---- */

static void users_are_found(void **state)
{
	struct dr_user u;
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_user_find("root", &u, &e), 0);
	assert_int_equal(u.uid, 0);
	assert_int_equal(dr_user_find("0", &u, &e), 0);
	assert_string_equal(u.name, "root");
	assert_int_equal(dr_user_find("no such user", &u, &e), -ENOENT);
	assert_non_null(strstr(e.text, "no such user"));
	assert_int_equal(dr_user_find("", &u, &e), -ENOENT);
	assert_int_equal(dr_user_find("0x", &u, &e), -ENOENT);
	assert_int_equal(dr_user_find("-1", &u, &e), -ENOENT);
}

static void as_another(void)
{
	struct waiter w = { .deaf = false };
	uid_t r, eff, saved;
	struct dr_user u;
	struct dr_err e;

	const gid_t mine[] = { 5, 6 };
	gid_t left[64];
	int n;

	EXPECT(dr_user_find("nobody", &u, &e) == 0);
	EXPECT(setgroups(2, mine) == 0);
	start_waiter(&w);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	EXPECT(dr_privileges_become(&u, DR_CAP(CAP_IPC_LOCK), &e) == 0);
	EXPECT(getresuid(&r, &eff, &saved) == 0);
	EXPECT(r == u.uid && eff == u.uid && saved == u.uid);
	EXPECT(status_of(w.tid, "Uid:", 10) == u.uid);
	EXPECT(status_of(w.tid, "CapPrm:", 16) == 0);
	EXPECT(dr_privileges_held() == DR_CAP(CAP_IPC_LOCK));
	n = getgroups(64, left);
	EXPECT(n >= 0);
	while (n-- > 0)
		EXPECT(left[n] != 5 && left[n] != 6);
	EXPECT(setuid(0) < 0 && setgid(0) < 0);
	int death = 0;
	EXPECT(prctl(PR_GET_PDEATHSIG, &death) == 0 && death == SIGUSR1);
	EXPECT(open("/etc/shadow", O_RDONLY) < 0);
	end_waiter(&w);
}

static void as_the_same(void)
{
	struct dr_user u = { .uid = geteuid(), .gid = getegid() };
	struct dr_err e;

	EXPECT(dr_privileges_become(&u, 0, &e) == 0);
	EXPECT(dr_privileges_held() == 0);
}

static void a_user_cannot(void)
{
	struct dr_user nobody, root = { .name = "root" };
	struct dr_err e = { 0 };

	EXPECT(dr_user_find("nobody", &nobody, &e) == 0);
	EXPECT(geteuid() != 0 || dr_privileges_become(&nobody, 0, &e) == 0);
	EXPECT(dr_privileges_become(&root, 0, &e) == -EPERM);
	EXPECT(strstr(e.text, "root") != NULL);
}

static void becoming_is_for_ever(void **state)
{
	(void)state;
	needs_own_threads_only();
	in_child(as_the_same);
	in_child(a_user_cannot);
	if (geteuid() != 0) {
		printf("SKIP: needs root to become another user\n");
		skip();
	}
	in_child(as_another);
}

static void names(void **state)
{
	char buf[128];

	(void)state;
	dr_privileges_names(0, buf, sizeof(buf));
	assert_string_equal(buf, "none");
	dr_privileges_names(DR_CAP(CAP_NET_ADMIN) | DR_CAP(CAP_IPC_LOCK), buf, sizeof(buf));
	assert_string_equal(buf, "net_admin, ipc_lock");
	dr_privileges_names(DR_CAP(CAP_LAST_CAP), buf, sizeof(buf));
	assert_string_not_equal(buf, "none");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limit_reaches_every_thread),
		cmocka_unit_test(what_a_thread_keeps_is_told),
		cmocka_unit_test(suspended_ones_come_back),
		cmocka_unit_test(denied_calls_fail),
		cmocka_unit_test(users_are_found),
		cmocka_unit_test(becoming_is_for_ever),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
