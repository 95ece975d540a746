/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_priv.h"
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A server's injector with its guard. The faults are commands that make a file and remove it, so they need no root. */
static struct world {
	struct dr_session s;
	struct dr_options opt;
	struct dr_fault_options faults;
	char dir[64];
	struct dr_fault_report last[2]; /* of the injection, of the undo */
	unsigned n[2];
	int failed; /* the status that ended the run; 0 */
	struct dr_local local;
} w;

enum { DEADLINE_S = 20 };

static void on_fault(struct dr_session *s, const struct dr_fault_report *rep)
{
	(void)s;
	w.last[rep->undo] = *rep;
	w.n[rep->undo]++;
}

static void on_failed(struct dr_session *s, int status, const struct dr_err *e)
{
	(void)s;
	(void)e;
	w.failed = status;
}

static const struct dr_session_ops ops = { .fault = on_fault, .failed = on_failed };

/* The fault NAME: its command makes the file NAME, which `undo` removes. */
static void define(const char *name, const char *undo)
{
	char text[256];

	snprintf(text, sizeof(text), "%s%d=touch %s/%s,%s %s/%s 2>/dev/null", name, (int)getpid(),
		w.dir, name, undo, w.dir, name);
	assert_int_equal(dr_fault_execs_add(&w.faults.execs, text, NULL), 0);
}

static void set_plan(struct dr_plan *p)
{
	struct dr_plan_rail *rail = &p->rail[0][DR_PLAN_SERVER];

	snprintf(p->transport, sizeof(p->transport), "tcp");
	snprintf(rail->name, sizeof(rail->name), "lo");
	p->rail[0][DR_PLAN_CLIENT] = *rail;
	p->n_rails = p->n_gpus = p->n_each = 1;
	p->forward = p->server_faults = true;
}

static int set_up(void **state)
{
	struct dr_err e = { 0 };

	(void)state;
	memset(&w, 0, sizeof(w));
	snprintf(w.dir, sizeof(w.dir), "/tmp/dr-inject-test-XXXXXX");
	if (!mkdtemp(w.dir))
		return -1;
	define("one", "rm -f");
	define("two", "rm -f");
	define("stuck", "rmdir"); /* fails until the file is a directory */
	w.faults.allow = true;
	w.opt.faults = &w.faults;
	w.opt.trusted = true;
	w.s.opt = &w.opt;
	w.s.side = DR_PLAN_SERVER;
	w.s.ops = &ops;
	w.s.inj.po.fd = -1;
	set_plan(&w.s.plan);
	if (dr_loop_init(&w.s.loop, &e) || dr_inject_init(&w.s, &e))
		fail_msg("%s", e.text);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	dr_inject_fini(&w.s);
	dr_loop_fini(&w.s.loop);
	dr_fault_execs_fini(&w.faults.execs);
	return rmdir(w.dir);
}

static bool there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", w.dir, name);
	return access(path, F_OK) == 0;
}

#define UNTIL(condition)                                                                           \
	do {                                                                                       \
		int64_t end_ = dr_now_ns() + DEADLINE_S * DR_NS_PER_S;                             \
		while (!(condition)) {                                                             \
			assert_true(dr_now_ns() < end_);                                           \
			dr_loop_turn(&w.s.loop, dr_now_ns() + DR_NS_PER_MS);                       \
		}                                                                                  \
	} while (0)

/* The error of its report, or 0. */
static int inject(const char *name, uint32_t id)
{
	unsigned n = w.n[false];
	struct dr_fault_spec f;
	char text[128];

	snprintf(text, sizeof(text), "exec=%s%d:path=0,side=server,for=0", name, (int)getpid());
	assert_int_equal(dr_fault_spec_parse(text, &f, NULL), 0);
	dr_inject(&w.s, &f, id);
	UNTIL(w.n[false] > n);
	assert_int_equal(w.last[false].id, id);
	return w.last[false].err;
}

static int undo(uint32_t id)
{
	unsigned n = w.n[true];

	dr_inject_undo(&w.s, id);
	UNTIL(w.n[true] > n);
	assert_int_equal(w.last[true].id, id);
	return w.last[true].err;
}

/* A later request, granted or refused, changes nothing about the earlier faults. */
static void each_is_undone_by_its_id(void **state)
{
	(void)state;
	assert_int_equal(inject("one", 7), 0);
	assert_int_equal(inject("two", 8), 0);
	assert_int_equal(inject("nosuch", 9), -ENOENT);
	assert_int_equal(inject("stuck", 8), -EEXIST);
	assert_true(there("one") && there("two") && !there("stuck"));
	assert_int_equal(undo(7), 0);
	assert_true(!there("one") && there("two"));
	assert_int_equal(undo(7), 0);
	assert_int_equal(inject("one", 7), 0);
	assert_int_equal(undo(8), 0);
	assert_int_equal(undo(7), 0);
	assert_true(!there("one") && !there("two"));
}

static void all_are_undone_at_the_end(void **state)
{
	(void)state;
	assert_int_equal(inject("one", 1), 0);
	assert_int_equal(inject("two", 2), 0);
	assert_int_equal(inject("nosuch", 3), -ENOENT);
	dr_inject_end(&w.s);
	UNTIL(!there("one") && !there("two"));
	/* The next session may use the same ids. */
	assert_int_equal(inject("two", 1), 0);
	assert_int_equal(undo(1), 0);
	assert_false(there("two"));
}

/* What cannot be undone at the end of the session is tried again. */
static void a_failed_undo_is_repeated(void **state)
{
	char path[128];

	(void)state;
	assert_int_equal(inject("stuck", 1), 0);
	assert_int_equal(undo(1), -EIO);
	assert_true(there("stuck"));
	dr_inject_end(&w.s);
	snprintf(path, sizeof(path), "%s/stuck", w.dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	UNTIL(!there("stuck"));
}

/* What it held is undone at once and the run ends; the next session has another guard. */
static void the_guard_dies(void **state)
{
	(void)state;
	w.s.local = &w.local;
	assert_int_equal(inject("one", 1), 0);
	assert_int_equal(inject("two", 2), 0);
	assert_int_equal(kill(w.s.inj.guard->pid, SIGKILL), 0);
	UNTIL(w.failed);
	assert_int_equal(w.failed, DR_EXIT_ENV);
	assert_true(!there("one") && !there("two"));
	assert_int_equal(inject("one", 3), -EPIPE);
	dr_inject_end(&w.s);
	w.s.local = NULL;
	dr_inject_renew(&w.s);
	assert_int_equal(inject("one", 1), 0);
	/* Between sessions nothing has to end. */
	dr_inject_end(&w.s);
	UNTIL(!there("one"));
	w.failed = 0;
	pid_t pid = w.s.inj.guard->pid;
	assert_int_equal(kill(pid, SIGKILL), 0);
	UNTIL(w.s.inj.guard->pid != pid);
	assert_int_equal(inject("one", 1), 0);
	assert_int_equal(undo(1), 0);
	assert_int_equal(w.failed, 0);
}

/* The keeper's end is noticed too; killed with the guard, what they held is undone with the rights
 * that are left. */
static void the_keeper_dies(void **state)
{
	(void)state;
	w.s.local = &w.local;
	for (int both = 0; both < 2; both++) {
		assert_int_equal(inject("one", 1), 0);
		w.failed = 0;
		if (both)
			assert_int_equal(kill(w.s.inj.guard->pid, SIGSTOP), 0);
		assert_int_equal(kill(w.s.inj.guard->keeper, SIGKILL), 0);
		if (both)
			assert_int_equal(kill(w.s.inj.guard->pid, SIGKILL), 0);
		UNTIL(w.failed);
		assert_false(there("one") || w.s.inj.left);
		dr_inject_fini(&w.s);
		if (!both)
			assert_int_equal(dr_inject_init(&w.s, NULL), 0);
	}
}

/* UNDO fails in whoever takes over from the guard: this end has to end. */
static void a_fault_that_stays(void **state)
{
	char path[128];

	(void)state;
	w.s.local = &w.local;
	assert_int_equal(inject("stuck", 1), 0);
	assert_int_equal(kill(w.s.inj.guard->pid, SIGKILL), 0);
	UNTIL(w.failed);
	assert_true(w.s.inj.left && there("stuck"));
	snprintf(path, sizeof(path), "%s/stuck", w.dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(dr_fault_repair(&w.s.inj.go, 0, NULL), 1);
}

static const char *getpid_text(void)
{
	static char text[16];

	snprintf(text, sizeof(text), "%d", (int)getpid());
	return text;
}

/* Who has not proven a key requests nothing, whatever the server allows itself; nor does who has not announced it. */
static void a_key_is_needed(void **state)
{
	static const char *const kinds[] = { "exec=one", "link-down", "blackhole", "close" };
	struct dr_fault_spec f;
	struct dr_err e;
	char text[128];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++) {
		snprintf(text, sizeof(text), "%s%s:path=0,side=server,for=0", kinds[i],
			i == 0 ? getpid_text() : "");
		assert_int_equal(dr_fault_spec_parse(text, &f, NULL), 0);
		w.opt.trusted = false;
		assert_int_equal(dr_inject_check(&w.s, &f, &e), -EACCES);
		assert_non_null(
			strstr(e.text, "start it as root with --allow-faults --key-file FILE"));
		w.opt.key_file = "key";
		w.s.plan.server_faults = false;
		assert_int_equal(dr_inject_check(&w.s, &f, &e), -EACCES);
		assert_non_null(strstr(e.text, "were not announced"));
		w.s.plan.server_faults = true;
		if (i == 0)
			assert_int_equal(dr_inject_check(&w.s, &f, &e), 0);
		w.opt.key_file = NULL;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_key_is_needed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(each_is_undone_by_its_id, set_up, tear_down),
		cmocka_unit_test_setup_teardown(all_are_undone_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_failed_undo_is_repeated, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_guard_dies, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_keeper_dies, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_fault_that_stays, set_up, tear_down),
	};

	dr_log_set_level(DR_LOG_ERROR + 1);
	return cmocka_run_group_tests_name("faults of a session", tests, NULL, NULL);
}
