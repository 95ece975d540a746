/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/plugin/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The contract between NCCL and a network plugin, without NCCL and without a GPU.
 *
 *   contract_main [--versions 6-12] [--netns A,B|--remote RANK,ADDRESS:PORT] [--brief] [--times] PLUGIN [CASE...]
 *
 * Each case runs for each version of the ABI that it concerns, in processes of its own, and prints a line of TAP. With
 * --brief only those whose calls differ between the versions. With --netns the two ranks run in these network
 * namespaces, with --remote on two hosts with one SEED: rank 0 listens at that address. CASE: whole names, or the beginnings of names.
 *
 * Environment: SEED (random; it is printed), CYCLES of the cases with cycles, LIMIT (60), the seconds of a case; what the
 * plugin itself reads.
 */
static const struct contract_cases *const all[] = { &contract_life, &contract_unload,
	&contract_open, &contract_peers, &contract_data, &contract_close };

struct settings {
	struct rank_job job;
	unsigned oldest, newest;
	char **names;
	int n_names;
	bool times, brief;
	unsigned done, failed;
};

static bool wanted(const struct settings *s, const char *name)
{
	for (int i = 0; i < s->n_names; i++)
		if (strncmp(name, s->names[i], strlen(s->names[i])) == 0)
			return true;
	return s->n_names == 0;
}

static void run_one(struct settings *s, const struct contract_case *c, unsigned version)
{
	struct rank_job job = s->job;
	int64_t start = dr_now_ns();
	bool two = job.netns[0] || job.far, skipped = two ? c->ranks > 2 : c->rails, passed;

	job.name = c->name;
	job.run = c->run;
	job.n = c->ranks;
	job.version = version;
	job.limit_s = (unsigned)contract_env("LIMIT", 60);
	passed = skipped || rank_run(&job);
	s->failed += !passed;
	printf("%sok %u - v%u %s", passed ? "" : "not ", ++s->done, version, c->name);
	if (skipped)
		printf(" # SKIP needs %s", two ? "three ranks" : "two devices");
	else if (s->times)
		printf(" # %.2f s", (double)(dr_now_ns() - start) / DR_NS_PER_S);
	printf("\n");
	fflush(stdout);
}

static void run_all(struct settings *s)
{
	for (unsigned v = s->oldest; v <= s->newest; v++)
		for (unsigned g = 0; g < DR_ARRAY_LEN(all); g++)
			for (unsigned i = 0; i < all[g]->n; i++) {
				const struct contract_case *c = &all[g]->of[i];

				if (s->brief && !c->each)
					continue;
				if (wanted(s, c->name) && v >= c->from && (!c->to || v <= c->to))
					run_one(s, c, v);
			}
	printf("1..%u\n", s->done);
}

static bool versions(void *to, char *text)
{
	struct settings *s = to;
	char end;
	int n = sscanf(text, "%u-%u%c", &s->oldest, &s->newest, &end);

	if (n == 1)
		s->newest = s->oldest;
	return (n == 1 || n == 2) && s->oldest >= DR_NCCL_OLDEST && s->newest <= DR_NCCL_NEWEST &&
	       s->oldest <= s->newest;
}

int main(int argc, char **argv)
{
	struct settings s = { .oldest = DR_NCCL_OLDEST, .newest = DR_NCCL_NEWEST };
	const struct rank_option options[] = { RANK_BY("versions", versions, &s),
		RANK_IS("brief", RANK_FLAG, &s.brief), RANK_IS("times", RANK_FLAG, &s.times),
		{ .name = NULL } };
	uint64_t random;
	int at = rank_options(&s.job, options, argc, argv, 1);

	if (at == 0 || dr_random_bytes(&random, sizeof(random)) != 0)
		return 1;
	s.job.plugin = argv[at];
	s.names = argv + at + 1;
	s.n_names = argc - at - 1;
	s.job.seed = contract_env("SEED", random >> 40);
	setenv("NCCL_DEBUG", "INFO", 0);
	printf("# SEED=%llu\n", (unsigned long long)s.job.seed);
	run_all(&s);
	return s.failed > 0 || s.done == 0;
}
