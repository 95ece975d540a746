/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/units.h"
#include "tests/plugin/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Collectives over a plugin's calls, again and again, while commands do something to the network.
 *
 *   ring_main [OPTION...] PLUGIN
 *     --netns A,B,C     a rank in each of these network namespaces
 *     --ranks N         N ranks in this namespace (2)
 *     --remote R,A:P    two ranks on two hosts; here rank R. Rank 0 listens at IPv4 address A, port P. Its --do and
 *                       --iters count
 *     --version V       of the ABI (11)
 *     --bytes N         of the vector (3M)
 *     --op NAME         all-reduce, all-to-all or mixed (mixed)
 *     --do N:COMMAND    after N more iterations since the last command; COMMAND runs in a shell of this namespace,
 *                       while the ranks go on; up to 8 of them
 *     --iters N         so many iterations after the last command (20)
 *     --error S         all ranks have to get an error, at most S seconds after the last command ended
 *     --limit S         for everything (60)
 *     --log             print what the plugin logged
 *
 * Prints one line of key=value. Exit status 0 when every element was right and the end was the expected one.
 */
enum { COMMANDS = 8 };
/* What the ranks and the parent tell each other, in rank_view.value. */
enum { LONGEST_NS, ERROR_NS, CHECKED, SWITCHES, STOP, DONE };

struct settings {
	struct rank_job job;
	const char *op;
	unsigned error_s, iters;
	uint64_t bytes;
	struct {
		uint64_t after;
		const char *command;
	} act[COMMANDS];
	unsigned n_acts;
	/* The watch's. */
	unsigned at;
	uint64_t since;
	pid_t running;
	int64_t ended_ns;
	bool failed;
	struct rank_view *views;
	long long sum[RANK_VALUES], longest_ns, latest_error_ns;
	unsigned errors;
	long long least_switches; /* of a rank */
	unsigned long steps;
};

/* ---- a rank ---- */

static enum nccl_result iterate(struct ring *g, const char *op, uint64_t i)
{
	static enum nccl_result (*const ops[])(
		struct ring *, uint64_t) = { ring_all_reduce, ring_all_to_all };
	unsigned which = (unsigned)(i % DR_ARRAY_LEN(ops));

	if (strcmp(op, "all-reduce") == 0)
		which = 0;
	else if (strcmp(op, "all-to-all") == 0)
		which = 1;
	return ops[which](g, i);
}

/* Rank 0 says whether there is another iteration: g for go, s for stop, e for an error. */
static char token(struct rank *r, char own)
{
	for (unsigned i = 1; i < r->n && r->id == 0; i++)
		rank_send(r, i, &own, 1);
	if (r->id > 0)
		rank_recv(r, 0, &own, 1);
	return own;
}

/* Every rank has to find the error by itself, so none closes before all have one. */
static void after_error(struct rank *r, char last)
{
	atomic_store(&r->view->value[ERROR_NS], dr_now_ns());
	RANK_AT(r, "error, wait for the other ranks");
	if (r->id == 0)
		(void)token(r, 'e');
	while (r->id > 0 && last != 'e')
		last = token(r, 0);
	rank_barrier(r);
}

static void rank_loop(struct rank *r, struct ring *g, const struct settings *s)
{
	enum nccl_result rc = NCCL_SUCCESS;
	char last = 'g';

	for (uint64_t i = 0; rc == NCCL_SUCCESS; i++) {
		int64_t start = dr_now_ns(), took;
		bool stop = atomic_load(&r->view->value[STOP]);

		if (last != 'e')
			last = token(r, stop ? 's' : 'g');
		if (last == 's')
			return;
		rc = iterate(g, s->op, i);
		took = dr_now_ns() - start;
		if (rc == NCCL_SUCCESS && took > atomic_load(&r->view->value[LONGEST_NS]))
			atomic_store(&r->view->value[LONGEST_NS], took);
		atomic_store(&r->view->value[CHECKED], (long long)g->checked);
		atomic_store(&r->view->step, i + 1);
	}
	RANK_CHECK(r, s->error_s > 0, "iteration %lu: %s", atomic_load(&r->view->step),
		dr_nccl_result_name(rc));
	after_error(r, last);
}

static void rank_run_ring(struct rank *r)
{
	const struct settings *s = r->arg;
	static struct ring g;

	ring_open(&g, r, s->bytes);
	rank_loop(r, &g, s);
	atomic_store(&r->view->value[SWITCHES],
		(long long)rank_logged(r, NCCL_LOG_INFO, ": path 0 -> 1") +
			(long long)rank_logged(r, NCCL_LOG_INFO, ": path 1 -> 0"));
	ring_close(&g);
	atomic_store(&r->view->value[DONE], 1);
}

/* ---- the parent ---- */

static void begin_command(struct settings *s)
{
	const char *command = s->act[s->at].command;

	fflush(NULL);
	s->running = fork();
	if (s->running == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
}

static void end_command(struct settings *s, uint64_t step)
{
	int status;

	if (waitpid(s->running, &status, WNOHANG) == 0)
		return;
	if (status != 0) {
		printf("# command %u ended with %#x: %s\n", s->at, (unsigned)status,
			s->act[s->at].command);
		s->failed = true;
	}
	s->running = 0;
	s->ended_ns = dr_now_ns();
	s->since = step;
	s->at++;
}

/* The ranks that are made here. */
static unsigned own_first(const struct settings *s)
{
	return s->job.far ? s->job.remote.id : 0;
}

static unsigned own_end(const struct settings *s)
{
	return s->job.far ? s->job.remote.id + 1 : s->job.n;
}

static void collect(struct settings *s, struct rank_view *views)
{
	memset(s->sum, 0, sizeof(s->sum));
	s->errors = 0;
	s->least_switches = atomic_load(&views[own_first(s)].value[SWITCHES]);
	s->steps = atomic_load(&views[own_first(s)].step);
	for (unsigned i = own_first(s); i < own_end(s); i++) {
		long long error = atomic_load(&views[i].value[ERROR_NS]);

		for (unsigned v = 0; v < RANK_VALUES; v++)
			s->sum[v] += atomic_load(&views[i].value[v]);
		s->longest_ns = DR_MAX(s->longest_ns, atomic_load(&views[i].value[LONGEST_NS]));
		s->latest_error_ns = DR_MAX(s->latest_error_ns, error);
		s->errors += error != 0;
		s->least_switches =
			DR_MIN(s->least_switches, atomic_load(&views[i].value[SWITCHES]));
	}
}

static void watch(void *arg, struct rank_view *views)
{
	struct settings *s = arg;
	uint64_t step = atomic_load(&views[0].step);

	collect(s, views);
	if (s->running)
		end_command(s, step);
	else if (s->at < s->n_acts && step >= s->since + s->act[s->at].after)
		begin_command(s);
	else if (s->at == s->n_acts && step >= s->since + s->iters)
		atomic_store(&views[0].value[STOP], s->failed || s->error_s == 0);
}

static bool as_expected(struct settings *s, double *error_s)
{
	*error_s = s->errors ? (double)(s->latest_error_ns - s->ended_ns) / DR_NS_PER_S : 0;
	unsigned ranks = own_end(s) - own_first(s);

	if (s->at < s->n_acts)
		printf("# only %u of %u commands ran\n", s->at, s->n_acts);
	if (s->error_s > 0 && s->errors < ranks)
		printf("# %u of %u ranks got an error\n", s->errors, ranks);
	if (s->error_s > 0 && *error_s > s->error_s)
		printf("# the last error came after %.1f s\n", *error_s);
	return !s->failed && s->at == s->n_acts && s->sum[DONE] == ranks &&
	       (s->error_s == 0 || (s->errors == ranks && *error_s <= s->error_s));
}

static int run(struct settings *s)
{
	bool passed = rank_run(&s->job);
	double error_s;

	if (s->running) { /* the ranks ended before it */
		int status;

		waitpid(s->running, &status, 0);
	}
	passed = as_expected(s, &error_s) && passed;
	printf("ranks=%u iterations=%lu checked=%lld switches=%lld switches_least=%lld longest_ms=%.1f errors=%u error_s=%.2f "
	       "result=%s\n",
		s->job.n, s->steps, s->sum[CHECKED], s->sum[SWITCHES], s->least_switches,
		(double)s->longest_ns / DR_NS_PER_MS, s->errors, error_s, passed ? "pass" : "fail");
	return !passed;
}

/* ---- options ---- */

static bool add_command(void *to, char *text)
{
	char *after = strsep(&text, ":");
	struct settings *s = to;

	if (!text || s->n_acts == COMMANDS ||
		dr_parse_u64(after, 1, UINT32_MAX, &s->act[s->n_acts].after, NULL) != 0)
		return false;
	s->act[s->n_acts++].command = text;
	return true;
}

int main(int argc, char **argv)
{
	struct settings s = { .op = "mixed", .bytes = 3 << 20, .iters = 20 };
	const struct rank_option options[] = { RANK_IN("ranks", &s.job.n, 2, RANKS_MAX),
		RANK_IS("bytes", RANK_SIZE, &s.bytes), RANK_IS("op", RANK_TEXT, &s.op),
		RANK_BY("do", add_command, &s), RANK_IN("iters", &s.iters, 1, UINT32_MAX),
		RANK_IN("error", &s.error_s, 1, UINT32_MAX), { .name = NULL } };
	int at;

	s.job = (struct rank_job){ .run = rank_run_ring,
		.n = 2,
		.version = 11,
		.limit_s = 60,
		.arg = &s,
		.watch = watch,
		.watch_arg = &s };
	at = rank_options(&s.job, options, argc, argv, 1);
	if (at == 0)
		return 1;
	if (s.job.far && s.job.remote.id != 0)
		s.n_acts = 0;
	s.job.name = s.op;
	s.job.plugin = argv[at];
	setenv("NCCL_DEBUG", "INFO", 0); /* switches are counted in the log, by connection */
	setenv("HA_NCCL_DEBUG", "1", 0);
	return run(&s);
}
