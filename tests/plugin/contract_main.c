/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/plugin/contract.h"
#include "tests/plugin/remote.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The contract between NCCL and a network plugin, without NCCL and without a GPU.
 *
 *   contract_main [--versions 6-12] [--netns A,B|--remote RANK,ADDRESS:PORT] [--brief] [--times] PLUGIN [CASE...]
 *   contract_main --list
 *
 * Each case runs for each version of the ABI that it concerns, in processes of its own, and prints a line of TAP. With
 * --brief only those whose calls differ between the versions. With --netns the two ranks run in these network
 * namespaces, with --remote on two hosts with one SEED: rank 0 listens at that address. CASE: whole names, or the beginnings of names.
 *
 * Environment: SEED (random; it is printed), CYCLES of the cases with cycles, LIMIT for all seconds of a case; what the
 * plugin itself reads.
 */
static const struct contract_cases *const all[] = { &contract_life, &contract_unload,
	&contract_open, &contract_peers, &contract_data, &contract_group, &contract_close };

struct settings {
	const char *plugin, *netns[2];
	unsigned oldest, newest;
	uint64_t seed;
	char **names;
	int n_names;
	bool times, brief, far;
	struct rank_remote remote;
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
	unsigned limit = c->limit_s ? c->limit_s : 20;
	struct rank_job job = { .name = c->name,
		.run = c->run,
		.n = c->ranks,
		.version = version,
		.limit_s = (unsigned)contract_env("LIMIT", limit),
		.plugin = s->plugin,
		.netns = s->netns[0] ? s->netns : NULL,
		.remote = s->far ? &s->remote : NULL,
		.seed = s->seed };
	char reason[400] = "";
	int64_t start = dr_now_ns();
	bool rails = s->netns[0] || s->far;
	enum rank_outcome o =
		c->rails && !rails ? RANK_SKIPPED : rank_run(&job, reason, sizeof(reason));

	if (c->rails && !rails)
		snprintf(reason, sizeof(reason), "needs two devices");
	s->failed += o == RANK_FAILED;
	printf("%sok %u - v%u %s", o == RANK_FAILED ? "not " : "", ++s->done, version, c->name);
	if (o == RANK_SKIPPED)
		printf(" # SKIP %s", reason);
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

static int list(void)
{
	for (unsigned g = 0; g < DR_ARRAY_LEN(all); g++)
		for (unsigned i = 0; i < all[g]->n; i++)
			printf("%s\n", all[g]->of[i].name);
	return 0;
}

static bool versions(struct settings *s, const char *text)
{
	char end;
	int n = sscanf(text, "%u-%u%c", &s->oldest, &s->newest, &end);

	if (n == 1)
		s->newest = s->oldest;
	return (n == 1 || n == 2) && s->oldest >= HOST_OLDEST && s->newest <= HOST_NEWEST &&
	       s->oldest <= s->newest;
}

static bool namespaces(struct settings *s, char *text)
{
	s->netns[0] = strsep(&text, ",");
	s->netns[1] = text;
	return text && *text;
}

static int usage(void)
{
	fprintf(stderr,
		"contract_main [--versions 6-12] [--netns A,B|--remote RANK,ADDRESS:PORT] [--brief] [--times]\n"
		"  PLUGIN [CASE...]\n"
		"contract_main --list\n");
	return 1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "versions", required_argument, NULL, 'v' },
		{ "netns", required_argument, NULL, 'n' },
		{ "remote", required_argument, NULL, 'r' }, { "times", no_argument, NULL, 't' },
		{ "brief", no_argument, NULL, 'b' }, { "list", no_argument, NULL, 'l' },
		{ NULL, 0, NULL, 0 } };
	struct settings s = { .oldest = HOST_OLDEST, .newest = HOST_NEWEST };
	uint64_t random;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'l')
			return list();
		else if (o == 't')
			s.times = true;
		else if (o == 'b')
			s.brief = true;
		else if (o == 'r' && rank_remote_parse(optarg, &s.remote))
			s.far = true;
		else if (!(o == 'v' && versions(&s, optarg)) &&
			 !(o == 'n' && namespaces(&s, optarg)))
			return usage();
	}
	if (optind == argc || dr_random_bytes(&random, sizeof(random)) != 0)
		return usage();
	s.plugin = argv[optind];
	s.names = argv + optind + 1;
	s.n_names = argc - optind - 1;
	s.seed = contract_env("SEED", random >> 40);
	setenv("NCCL_DEBUG", "INFO", 0);
	printf("# SEED=%llu\n", (unsigned long long)s.seed);
	run_all(&s);
	return s.failed > 0 || s.done == 0;
}
