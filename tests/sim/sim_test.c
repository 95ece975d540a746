/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded simulation of failover: the ChannelManagers of two processes and their control conversation, the objects
 * that ship, over simulated rails in virtual time. A seed draws everything: personality, managers, channels,
 * windows, parts, delays, the faults and when they strike. Checked in each schedule; the first word
 * of a failure says which check it was:
 *
 *  content   by (seed, channel, seq, part): nothing lost, doubled, reordered or corrupted (order)
 *  memory    no write into, no read from, no posting of a buffer that its user has back; none comes
 *            back while a path that is not fenced has it posted
 *  word      a send completes after its delivery
 *  progress  while one rail works and the faults have stopped, all arrives and all paths come up
 *  death     a channel ends only when the faults were such; outcome: then it ends at both ends
 *  calm      stalls, lost control, completions that come twice, frames that are lost or come again
 *            switch nothing; nor does the loss of the idle path
 *  gap       the reported gap is the one that the receiver's user saw, and its parts add up
 *  bound     where one rail is never touched, a switch takes no more than fences and round trips;
 *            kept: and its connections stay
 *  close     a user that gives a channel up gets its memory back in 500 ms, and nothing touches it any
 *            more; the peer ends too; nobody has an error unless messages were outstanding, and no
 *            delivered message is reported as failed by its sender
 *  handshake a handshake that begins on rails that work ends within 250 ms; who comes up is joined to
 *            the path of its channel, index and generation, whatever strangers say (memory: violations)
 *  beat      managers that share heartbeats: the tick is in time while any of them runs, and each one that
 *            runs takes the verdicts at once
 *  others    where nothing is wrong but that some managers stand, the channels of the others go on
 *  both      while both rails are cut, every channel ends at each end that runs
 *  twice     completions that come twice are counted as refused
 *  control   messages of the control conversation arrive once and in order
 *
 * and over all seeds (2000 and more) the rare states were reached (coverage counters).
 *
 * sim_test [--seeds N] [--seed S] [--without MASK] [-v]; environment SEEDS, SEED, WITHOUT. A
 * failure prints the line that replays it, and one with fewer faults that fails too (unless
 * SHRINK=0).
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
enum { FAILURES_MAX = 3 };

static_assert(sizeof(sim_cover) % sizeof(uint64_t) == 0, "counters only: they are added up");

struct job {
	struct sim_cover cover;
	uint64_t seed; /* under way */
	int failures;
	bool done;
};

static void failed(uint64_t seed, uint32_t without, const char *why)
{
	const char *less;

	printf("FAIL seed %" PRIu64 ": %s\nreplay with: make sim SEED=%" PRIu64, seed, why, seed);
	if (without != 0)
		printf(" WITHOUT=%#x", without);
	printf("\n");
	fflush(stdout);
	less = getenv("SHRINK");
	if (without == 0 && !sim_verbose && (less == NULL || strcmp(less, "0") != 0))
		sim_shrink(seed);
}

/* Every `stride`-th seed from first on; stops after a few failures. */
static void run_seeds(
	uint64_t first, uint64_t end, uint64_t stride, uint32_t without, struct job *out)
{
	for (uint64_t s = first; s < end && out->failures < FAILURES_MAX; s += stride) {
		char why[400];

		out->seed = s;
		if (sim_schedule_run(s, without, why, sizeof(why)) != 0) {
			out->failures++;
			failed(s, without, why);
		}
	}
	out->cover = sim_cover;
	out->done = true;
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

/* One child a processor; their counters come back through shared memory. */
static int run_all(uint64_t first, uint64_t n, uint32_t without)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t k = DR_MIN((uint64_t)DR_MAX(1, DR_MIN(cpus, 16)), n);
	struct job *jobs = mmap(
		NULL, k * sizeof(*jobs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failures = 0;

	dr_assert(jobs != MAP_FAILED);
	fflush(stdout);
	for (uint64_t i = 0; i < k; i++) {
		pid_t pid = fork();

		dr_assert(pid >= 0);
		if (pid == 0) {
			run_seeds(first + i, first + n, k, without, &jobs[i]);
			_exit(0);
		}
	}
	for (uint64_t i = 0; i < k; i++) {
		int status;

		if (wait(&status) < 0)
			failures++;
	}
	for (uint64_t i = 0; i < k; i++) {
		if (!jobs[i].done) {
			failures++;
			failed(jobs[i].seed, without, "assert: the process ended, see above");
		}
		add_cover(&jobs[i].cover);
		failures += jobs[i].failures;
	}
	return failures;
}

static void parse_args(
	int argc, char **argv, uint64_t *n, uint64_t *first, bool *one, uint32_t *without)
{
	const char *seeds = getenv("SEEDS"), *seed = getenv("SEED"), *less = getenv("WITHOUT");

	if (seeds != NULL && seeds[0])
		*n = strtoull(seeds, NULL, 0);
	if (seed != NULL && seed[0]) {
		*first = strtoull(seed, NULL, 0);
		*one = seeds == NULL || !seeds[0];
	}
	if (less != NULL && less[0])
		*without = (uint32_t)strtoul(less, NULL, 0);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-v") == 0) {
			sim_verbose = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
			*n = strtoull(argv[++i], NULL, 0);
		} else if (i + 1 < argc && strcmp(argv[i], "--without") == 0) {
			*without = (uint32_t)strtoul(argv[++i], NULL, 0);
		} else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
			*first = strtoull(argv[++i], NULL, 0);
			*one = true;
		}
	}
}

int main(int argc, char **argv)
{
	uint64_t n = SEEDS_DEFAULT, first = (uint64_t)dr_wall_ns() % 1000000007u;
	int64_t t0 = dr_now_ns();
	uint32_t without = 0;
	bool one = false;
	struct job job = { 0 };
	int failures;
	double s;

	parse_args(argc, argv, &n, &first, &one, &without);
	n = one ? 1 : DR_MAX(n, 1u);
	dr_log_set_level(sim_verbose && one ? DR_LOG_DEBUG : DR_LOG_ERROR);
	(void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
	(void)mallopt(M_MMAP_THRESHOLD, 64 << 20);
	printf("sim: %" PRIu64 " schedules from seed %" PRIu64 "\n", n, first);
	if (one) {
		run_seeds(first, first + 1, 1, without, &job);
		failures = job.failures;
	} else {
		failures = run_all(first, n, without);
	}
	s = (double)(dr_now_ns() - t0) / 1e9;
	printf("sim: %" PRIu64 " schedules, %d failed, %.1f s, %.0f a second\n",
		sim_cover.schedules, failures, s, (double)sim_cover.schedules / s);
	if (failures == 0 && n >= COVER_MIN && sim_covered() != 0) {
		printf("FAIL: a rare state was never reached (0 above)\n");
		failures++;
	}
	return failures != 0;
}
