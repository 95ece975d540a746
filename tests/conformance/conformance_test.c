/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

#include "base/log.h"
#include "transport/kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The path contract (transport/path.h) run over every kind of path. A test is "kind: case"; one of them
 * alone: conformance_test 'tcp: sizes' ('*' and '?' match).
 */

#define FAKE "../plugins/libnccl-net-fake.so"
#define HA "../../libnccl-net-ha.so"

#define KIND(of, ...)                                                                              \
	{                                                                                          \
		.name = of, __VA_ARGS__                                                            \
	}
#define NCCL(plugin) .transport = "nccl", .file = plugin
#define STAGED(...) .staged = true, .copier = { __VA_ARGS__ }

static const struct cf_kind kinds[] = {
	{ .name = "sim-stream", .personality = DR_SIM_STREAM },
	{ .name = "sim-remote-write", .personality = DR_SIM_REMOTE_WRITE },
	{ .name = "sim-plugin", .personality = DR_SIM_PLUGIN },
	KIND("faulty(sim-stream)", .personality = DR_SIM_STREAM, .faulty = true),
	KIND("faulty(sim-remote-write)", .personality = DR_SIM_REMOTE_WRITE, .faulty = true),
	{ .name = "tcp", .transport = "tcp" },
	KIND("tcp+poller", .transport = "tcp", .poller = true),
	KIND("faulty(tcp)", .transport = "tcp", .faulty = true),
	KIND("faulty(tcp)+poller", .transport = "tcp", .faulty = true, .poller = true),
	{ .name = "verbs", .transport = "verbs" },
	KIND("verbs+poller", .transport = "verbs", .poller = true, .qps = 3),
	KIND("faulty(verbs)", .transport = "verbs", .faulty = true, .qps = 4),
	{ .name = "nccl(socket)", .transport = "nccl", .file = FAKE },
	KIND("nccl(busy socket)", NCCL(FAKE), .busy = true),
	KIND("nccl(socket v6)+poller", NCCL(FAKE), .version = 6, .poller = true),
	{ .name = "nccl(ha)", .transport = "nccl", .file = HA },
	KIND("nccl(ha v8)+poller", NCCL(HA), .version = 8, .poller = true),
	KIND("nccl(pieces)", NCCL(FAKE), .fake = "pieces"),
	KIND("faulty(nccl(pieces))+poller", NCCL(FAKE), .fake = "pieces", .faulty = true,
		.poller = true),
	KIND("nccl(fast)", NCCL(FAKE), .fake = "fast"),
	KIND("faulty(nccl(fast))+poller", NCCL(FAKE), .fake = "fast", .faulty = true,
		.poller = true),
	KIND("faulty(nccl(socket))", NCCL(FAKE), .faulty = true),
	KIND("staged(nccl(socket))+poller", NCCL(FAKE), .poller = true,
		STAGED(.seed = 7, .looks_max = 5)),
	KIND("staged(sim-stream)", .personality = DR_SIM_STREAM, STAGED(.seed = 1, .looks_max = 3)),
	KIND("staged(sim-remote-write)", .personality = DR_SIM_REMOTE_WRITE,
		STAGED(.seed = 2, .looks_max = 8)),
	KIND("staged(faulty(sim-plugin))", .personality = DR_SIM_PLUGIN, .faulty = true,
		STAGED(.seed = 3, .looks_max = 3, .outstanding = 3)),
	KIND("staged(tcp)", .transport = "tcp", STAGED(.seed = 4, .looks_max = 3)),
	KIND("staged(tcp)+poller", .transport = "tcp", .poller = true,
		STAGED(.seed = 5, .looks_max = 20, .outstanding = 4)),
	KIND("staged(verbs)+poller", .transport = "verbs", .poller = true, .qps = 2,
		STAGED(.seed = 6, .looks_max = 5)),
};

struct job {
	const struct cf_kind *kind;
	const struct cf_case *c;
	struct cf f;
	char name[80];
};

enum { JOBS_MAX = 1600 };
static struct job *jobs;
static struct CMUnitTest tests[JOBS_MAX];
static size_t n_jobs;

static int setup(void **state)
{
	struct job *j = *state;

	cf_open(&j->f, j->kind);
	return 0;
}

static void run(void **state)
{
	struct job *j = *state;

	j->c->run(&j->f);
}

static int teardown(void **state)
{
	struct job *j = *state;

	cf_shut(&j->f);
	return 0;
}

static unsigned add(const struct cf_kind *k, const struct cf_case *c, size_t n)
{
	const char *why = NULL;
	const struct dr_transport_ops *ops = cf_kind_ops(k, &why);
	unsigned skipped = 0;

	for (; n-- > 0; c++) {
		struct job *j = &jobs[n_jobs];

		if (!ops || (ops->caps & c->needs) != c->needs) {
			printf("SKIP %s: %s: %s\n", k->name, c->name, ops ? c->why : why);
			skipped++;
			continue;
		}
		dr_assert(n_jobs < JOBS_MAX);
		j->kind = k;
		j->c = c;
		(void)snprintf(j->name, sizeof(j->name), "%s: %s", k->name, c->name);
		tests[n_jobs++] = (struct CMUnitTest){ j->name, run, setup, teardown, j };
	}
	return skipped;
}

static bool listed(const char *transport)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (kinds[i].transport && strcmp(kinds[i].transport, transport) == 0)
			return true;
	return false;
}

static unsigned add_cases(const struct cf_kind *k)
{
	return add(k, cf_cases_life, cf_n_cases_life) + add(k, cf_cases_data, cf_n_cases_data);
}

/* A registered kind that is not in the list above runs too, alone and with a poller. */
static unsigned add_registered(void)
{
	static struct cf_kind more[DR_KINDS_MAX][2];
	static char names[DR_KINDS_MAX][DR_KIND_NAME_MAX + 8];
	const struct dr_transport_kind *t;
	unsigned skipped = 0;

	for (size_t i = 0; (t = dr_transport_kind_at(i)) != NULL; i++) {
		if (listed(t->name))
			continue;
		(void)snprintf(names[i], sizeof(names[i]), "%s+poller", t->name);
		more[i][0] = (struct cf_kind){ .name = t->name, .transport = t->name };
		more[i][1] =
			(struct cf_kind){ .name = names[i], .transport = t->name, .poller = true };
		skipped += add_cases(&more[i][0]) + add_cases(&more[i][1]);
	}
	return skipped;
}

/* ThreadSanitizer sees a race only where a kind has a thread beside its caller's: verbs' helper, our plugin's. */
static bool worthwhile(const struct cf_kind *k)
{
#if defined(__SANITIZE_THREAD__)
	return !k->faulty && k->transport &&
	       (strcmp(k->transport, "verbs") == 0 || (k->file && strcmp(k->file, HA) == 0));
#else
	return k->name;
#endif
}

int main(int argc, char **argv)
{
	unsigned skipped = 0;
	int failed;

	jobs = calloc(JOBS_MAX, sizeof(*jobs));
	dr_assert(jobs != NULL);
	dr_log_set_level(DR_LOG_ERROR);
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (worthwhile(&kinds[i]))
			skipped += add_cases(&kinds[i]);
	skipped += add_registered();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = _cmocka_run_group_tests("conformance", tests, n_jobs, NULL, NULL);
	printf("conformance: %zu cases, %d failed, %u skipped\n", n_jobs, failed, skipped);
	free(jobs);
	return failed != 0;
}
