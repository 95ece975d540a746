/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded simulation of failover: the ChannelManagers of two processes and their control conversation, the objects
 * that ship, over simulated rails in virtual time. A seed draws everything: personality, managers, channels,
 * windows, parts, delays, the faults and when they strike. The first word of a failure says which check it was;
 * the files of run.h say at their heads what they check (memory, handshake: tests of the world, tests/sim/world/check.c).
 * Over all seeds (2000 and more) the rare states were reached (coverage counters).
 *
 * sim_test [--seeds N] [--seed S] [--jobs N] [--without MASK] [-v]; environment SEEDS, SEED, WITHOUT. N schedules
 * from S on; without N the one of S, which -v traces; without S from a random one, and without both the first ones, so
 * that a test of a change fails for what changed. A failure prints the line that
 * replays it, and one with fewer faults that fails too (unless SHRINK=0; the first three of a process). With --jobs
 * so many processes run all the seeds, whatever fails; without, one per processor, 16 at most, each of which stops
 * after three failures.
 */
#include "tests/sim/run.h"

#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
enum { SEEDS_DEFAULT = 200, COVER_MIN = 2000 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SEEDS_DEFAULT = 1000, COVER_MIN = 2000 };
#else
enum { SEEDS_DEFAULT = 2000, COVER_MIN = 2000 };
#endif
enum {
	FAILURES_MAX = 3,	   /* of a process: it stops, unless --jobs is given, */
	SHRUNK_MAX = FAILURES_MAX, /* and makes no more of them smaller */
	JOBS_MAX = 16		   /* unless it is given */
};

static_assert(sizeof(sim_cover) % sizeof(uint64_t) == 0, "counters only: they are added up");

/* The command line and the environment. */
struct how {
	uint64_t first, n;
	uint32_t without;
	unsigned jobs; /* 0: as many as processors */
	bool one;
};

/* One process: every `stride`-th seed. In memory that it shares with its parent. */
struct job {
	struct sim_cover cover;
	uint64_t seed; /* under way */
	int failures;
	pid_t pid; /* 0: over */
	bool done;
};

static void failed(uint64_t seed, uint32_t without, const char *why, bool shrink)
{
	const char *less;

	printf("FAIL seed %" PRIu64 ": %s\nreplay with: make sim SEED=%" PRIu64, seed, why, seed);
	if (without != 0)
		printf(" WITHOUT=%#x", without);
	printf("\n");
	fflush(stdout);
	less = getenv("SHRINK");
	if (shrink && without == 0 && !sim_verbose && (less == NULL || strcmp(less, "0") != 0))
		sim_shrink(seed);
}

static void run_seeds(const struct how *h, uint64_t stride, struct job *j)
{
	uint64_t end = h->first + h->n;

	sim_cover = j->cover; /* of a process before this one */
	for (; j->seed < end && (h->jobs > 0 || j->failures < FAILURES_MAX); j->seed += stride) {
		char why[400];

		if (sim_schedule_run(j->seed, h->without, why, sizeof(why)) != 0)
			failed(j->seed, h->without, why, j->failures++ < SHRUNK_MAX);
		j->cover = sim_cover;
	}
	j->done = true;
}

static void add_cover(const struct sim_cover *from)
{
	uint64_t *sum = (uint64_t *)&sim_cover;
	const uint64_t *add = (const uint64_t *)from;
	uint64_t worst = DR_MAX(sim_cover.worst_gap_ns, from->worst_gap_ns);
	uint64_t late = DR_MAX(sim_cover.worst_late_ns, from->worst_late_ns);

	for (size_t w = 0; w < sizeof(sim_cover) / sizeof(*sum); w++)
		sum[w] += add[w];
	sim_cover.worst_gap_ns = worst;
	sim_cover.worst_late_ns = late;
}

static void start(const struct how *h, uint64_t stride, struct job *j)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	dr_assert(pid >= 0);
	if (pid == 0) {
		run_seeds(h, stride, j);
		fflush(stdout);
		_exit(0);
	}
	j->pid = pid;
}

/* It ended in the middle of a schedule: another process goes on behind that. */
static void go_on(const struct how *h, uint64_t stride, struct job *j)
{
	failed(j->seed, h->without, "assert: the process ended, see above",
		j->failures++ < SHRUNK_MAX);
	j->seed += stride;
	start(h, stride, j);
}

static struct job *job_of(struct job *jobs, uint64_t n, pid_t pid)
{
	for (uint64_t i = 0; i < n; i++)
		if (jobs[i].pid == pid)
			return &jobs[i];
	return NULL;
}

/* Returns the number of failures. */
static int run_all(const struct how *h)
{
	uint64_t cpus = (uint64_t)DR_MAX(1L, sysconf(_SC_NPROCESSORS_ONLN));
	uint64_t k = DR_MIN(h->jobs > 0 ? h->jobs : DR_MIN(cpus, (uint64_t)JOBS_MAX), h->n);
	struct job *jobs = mmap(
		NULL, k * sizeof(*jobs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failures = 0;

	dr_assert(jobs != MAP_FAILED);
	for (uint64_t i = 0; i < k; i++) {
		jobs[i].seed = h->first + i;
		start(h, k, &jobs[i]);
	}
	for (uint64_t left = k; left > 0;) {
		struct job *j = job_of(jobs, k, wait(NULL));

		dr_assert(j != NULL);
		if (!j->done && (h->jobs > 0 || j->failures + 1 < FAILURES_MAX)) {
			go_on(h, k, j);
			continue;
		}
		if (!j->done)
			failed(j->seed, h->without, "assert: the process ended, see above",
				j->failures++ < SHRUNK_MAX);
		j->pid = 0;
		left--;
	}
	for (uint64_t i = 0; i < k; i++) {
		add_cover(&jobs[i].cover);
		failures += jobs[i].failures;
	}
	return failures;
}

/* Nothing is no value; false: it is no number below 2^63. */
static bool number(const char *text, uint64_t *out, bool *given)
{
	char *end;

	if (text == NULL || text[0] == '\0')
		return true;
	*given = true;
	*out = strtoull(text, &end, 0);
	return *end == '\0' && text[0] != '-' && *out <= INT64_MAX;
}

/* A seed alone is one schedule; with a number of them, so many from that one on. */
static bool parse_args(int argc, char **argv, struct how *h)
{
	const char *const option[] = { "--seeds", "--seed", "--without", "--jobs" },
			  *const variable[] = { "SEEDS", "SEED", "WITHOUT", "" };
	uint64_t v[] = { h->n, h->first, 0, 1 };
	bool given[DR_ARRAY_LEN(v)] = { false }, right = true;
	size_t k;

	for (k = 0; k < DR_ARRAY_LEN(v); k++)
		right &= number(getenv(variable[k]), &v[k], &given[k]);
	for (int i = 1; i < argc && right; i++) {
		if (strcmp(argv[i], "-v") == 0) {
			sim_verbose = 1;
			continue;
		}
		for (k = 0; k < DR_ARRAY_LEN(v) && strcmp(argv[i], option[k]) != 0;)
			k++;
		right = k < DR_ARRAY_LEN(v) && ++i < argc && argv[i][0] != '\0' &&
			number(argv[i], &v[k], &given[k]);
	}
	h->one = given[1] && !given[0];
	h->n = h->one ? 1 : v[0];
	h->first = given[0] || given[1] ? v[1] : 1;
	h->without = (uint32_t)v[2];
	h->jobs = given[3] ? (unsigned)v[3] : 0;
	return right && v[0] >= 1 && v[3] >= 1 && (!sim_verbose || h->one);
}

int main(int argc, char **argv)
{
	struct how h = { .n = SEEDS_DEFAULT, .first = (uint64_t)dr_wall_ns() % 1000000007u };
	int64_t t0 = dr_now_ns();
	int failures;
	double s;

	if (!parse_args(argc, argv, &h)) {
		fprintf(stderr,
			"sim: options are [--seeds N] [--seed S] [--jobs N] [--without MASK]; -v traces one "
			"schedule, that of --seed without --seeds\n");
		return 1;
	}
	dr_log_set_level(sim_verbose ? DR_LOG_DEBUG : DR_LOG_ERROR);
	(void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
	(void)mallopt(M_MMAP_THRESHOLD, 64 << 20);
	printf("sim: %" PRIu64 " schedules from seed %" PRIu64 "\n", h.n, h.first);
	if (h.one) {
		struct job job = { .seed = h.first };

		run_seeds(&h, 1, &job);
		failures = job.failures;
	} else {
		failures = run_all(&h);
	}
	s = (double)(dr_now_ns() - t0) / 1e9;
	printf("sim: %" PRIu64 " schedules, %d failed, %.1f s, %.0f a second\n",
		sim_cover.schedules, failures, s, (double)sim_cover.schedules / s);
	if (failures == 0 && h.n >= COVER_MIN && sim_covered() != 0) {
		printf("FAIL: a rare state was never reached (0 above)\n");
		failures++;
	}
	return failures != 0;
}
