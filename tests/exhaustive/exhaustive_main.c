/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"
#include "tests/exhaustive/search.h"

#include <stdlib.h>
#include <string.h>

/*
 * exhaustive_main [full | NAME=VALUE...], values also from the environment as EXH_NAME. Without any: the
 * runs of the table below, in about three minutes on one core and 1.5 GB; with "full" also its larger
 * ones. With values: one run.
 *
 *	kind=stream|remote-write|plugin  connector=sender|receiver  parts=1,2,1 (a message each)
 *	window=2  faults=2  dups=0  holds=0  leaves=0  frames=4  late=0 (1 sender, 2 receiver, 3 both)
 *	lazy=0  any=0  cold=0  prompt=0 (model.h: struct ex_scope)  mem=2048 (MiB)  states=0 (no bound)
 *
 * Status: 0 all searched and well, 1 something is broken, 2 stopped at a bound, 3 usage.
 */
static const struct row {
	enum ex_personality kind;
	const char *args;
} rows[] = {
	/* two faults */
	{ EX_STREAM, "parts=1,2,1 faults=2 holds=1 prompt=1" },
	{ EX_REMOTE_WRITE, "parts=1,2,1 faults=2 prompt=1" },
	{ EX_PLUGIN, "parts=1,2 faults=2 prompt=1" },
	{ EX_REMOTE_WRITE, "parts=2 faults=2 holds=1 prompt=1" },
	{ EX_PLUGIN, "parts=2 faults=2 holds=1 prompt=1" },
	{ EX_STREAM, "parts=2 faults=2 prompt=1 connector=receiver" },
	{ EX_REMOTE_WRITE, "parts=2 faults=2 prompt=1 connector=receiver" },
	{ EX_PLUGIN, "parts=2 faults=2 prompt=1 connector=receiver" },
	/* one fault, and everything else at any moment */
	{ EX_STREAM, "parts=1,2,1 faults=1 dups=1 holds=1 late=3 lazy=1 prompt=1" },
	{ EX_REMOTE_WRITE, "parts=1,2,1 faults=1 holds=1 late=3 lazy=1 prompt=1 any=1" },
	{ EX_PLUGIN, "parts=1,2,1 faults=1 holds=1 late=3 lazy=1 prompt=1" },
	{ EX_STREAM, "parts=1,2,1 faults=1 holds=1 late=3 lazy=1 prompt=1 connector=receiver" },
	{ EX_REMOTE_WRITE,
		"parts=1,2,1 faults=1 holds=1 late=3 lazy=1 prompt=1 connector=receiver" },
	{ EX_PLUGIN, "parts=1,2,1 faults=1 holds=1 late=3 lazy=1 prompt=1 connector=receiver" },
	/* from the first dial on */
	{ EX_STREAM, "parts=1 faults=1 holds=1 lazy=1 cold=1 prompt=1" },
	{ EX_REMOTE_WRITE, "parts=1 faults=1 holds=1 lazy=1 cold=1 prompt=1" },
	{ EX_STREAM, "parts=1 faults=1 holds=1 lazy=1 cold=1 connector=receiver prompt=1" },
	{ EX_REMOTE_WRITE, "parts=1 faults=1 holds=1 lazy=1 cold=1 connector=receiver prompt=1" },
	/* a degraded rail is left */
	{ EX_STREAM, "parts=1,2 faults=1 holds=1 leaves=1 prompt=1" },
	{ EX_REMOTE_WRITE, "parts=1,2 faults=1 leaves=1 prompt=1" },
	{ EX_PLUGIN, "parts=1,2 faults=1 leaves=1 prompt=1" },
	{ EX_STREAM, "parts=1,2 faults=1 holds=1 leaves=1 prompt=1 connector=receiver" },
	{ EX_REMOTE_WRITE, "parts=2 faults=1 leaves=1 prompt=1 connector=receiver" },
	/* larger ones, with "full" */
	{ EX_REMOTE_WRITE, "parts=1,2,1 faults=2 holds=1 prompt=1 mem=4000" },
	{ EX_PLUGIN, "parts=1,2,1 faults=2 holds=1 prompt=1 mem=4000" },
};
enum { LARGER = 2 };

enum {
	O_WINDOW,
	O_FAULTS,
	O_DUPS,
	O_HOLDS,
	O_LEAVES,
	O_FRAMES,
	O_LATE,
	O_LAZY,
	O_ANY,
	O_COLD,
	O_PROMPT,
	O_MEM,
	O_STATES,
	O_NUMBERS
};
static const char *const names[O_NUMBERS] = { "window", "faults", "dups", "holds", "leaves",
	"frames", "late", "lazy", "any", "cold", "prompt", "mem", "states" };
static const uint64_t at_most[O_NUMBERS] = { 4, 7, 7, 3, 3, 6, 3, 1, 1, 1, 1, 1 << 20,
	UINT32_MAX / 2 };

struct options {
	unsigned kind, connector;
	char parts[32];
	uint64_t v[O_NUMBERS];
};

static const struct options defaults = { .connector = EX_TX,
	.parts = "1,2,1",
	.v = { [O_WINDOW] = 2, [O_FAULTS] = 2, [O_FRAMES] = 4, [O_MEM] = 2048 } };

static int set(struct options *o, const char *name, size_t n, const char *value)
{
	if (n == 4 && memcmp(name, "kind", n) == 0) {
		for (o->kind = 0; o->kind < EX_PERSONALITIES; o->kind++)
			if (strcmp(value, ex_personality_name(o->kind)) == 0)
				return 0;
		return -1;
	}
	if (n == 9 && memcmp(name, "connector", n) == 0) {
		o->connector = strcmp(value, "receiver") == 0 ? EX_RX : EX_TX;
		return o->connector == EX_RX || strcmp(value, "sender") == 0 ? 0 : -1;
	}
	if (n == 5 && memcmp(name, "parts", n) == 0) {
		snprintf(o->parts, sizeof(o->parts), "%s", value);
		return 0;
	}
	for (unsigned i = 0; i < O_NUMBERS; i++)
		if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
			return dr_parse_u64(value, 0, at_most[i], &o->v[i], NULL);
	return -1;
}

static int set_words(struct options *o, const char *words)
{
	char buf[128], *p = buf, *w;

	snprintf(buf, sizeof(buf), "%s", words);
	while ((w = strsep(&p, " ")) != NULL) {
		char *eq = strchr(w, '=');

		if (eq == NULL || set(o, w, (size_t)(eq - w), eq + 1) != 0)
			return -1;
	}
	return 0;
}

static int scope_of(const struct options *o, struct ex_scope *sc)
{
	*sc = (struct ex_scope){ .kind = o->kind,
		.connector = o->connector,
		.window = (unsigned)o->v[O_WINDOW],
		.faults = (unsigned)o->v[O_FAULTS],
		.dups = (unsigned)o->v[O_DUPS],
		.holds = (unsigned)o->v[O_HOLDS],
		.leaves = (unsigned)o->v[O_LEAVES],
		.frames = (unsigned)o->v[O_FRAMES],
		.lazy = o->v[O_LAZY] != 0,
		.any_order = o->v[O_ANY] != 0,
		.cold = o->v[O_COLD] != 0,
		.prompt = o->v[O_PROMPT] != 0,
		.late_users = { o->v[O_LATE] & 1, o->v[O_LATE] & 2 } };
	for (const char *p = o->parts; *p != '\0'; p++) {
		if (*p == ',')
			continue;
		if (*p < '1' || *p > '4' || sc->msgs == EX_MSGS_MAX)
			return -1;
		sc->parts[sc->msgs++] = (unsigned)(*p - '0');
	}
	if (sc->msgs == 0 || sc->window == 0 || sc->frames == 0)
		return -1;
	ex_scope_init(sc);
	return 0;
}

static int one(const struct options *o, struct ex_result *sum)
{
	struct ex_limits lim = { .bytes = o->v[O_MEM] << 20, .states = o->v[O_STATES] };
	struct ex_result r;
	struct ex_scope sc;
	bool ok;

	if (scope_of(o, &sc) != 0)
		return 3;
	printf("%-12s %-8s dials, parts %s", ex_personality_name(o->kind),
		o->connector == EX_TX ? "sender" : "receiver", o->parts);
	for (unsigned i = 0; i < O_MEM; i++)
		if (o->v[i] != 0)
			printf(" %s %llu", names[i], (unsigned long long)o->v[i]);
	printf("\n");
	fflush(stdout);
	ok = ex_search(&sc, &lim, stdout, &r);
	printf("      %llu states, %llu transitions, depth %u; transfers done %llu, channels ended %llu, "
	       "answers on a path not proposed %llu; %.1f s, %llu MiB; expected misses %.1g%s\n",
		(unsigned long long)r.states, (unsigned long long)r.transitions, r.depth,
		(unsigned long long)r.done, (unsigned long long)r.dead,
		(unsigned long long)r.elsewhere, r.seconds, (unsigned long long)(r.bytes >> 20),
		r.misses,
		!ok	     ? ": BROKEN"
		: r.complete ? ""
			     : ": STOPPED at a bound");
	fflush(stdout);
	sum->states += r.states;
	sum->transitions += r.transitions;
	sum->depth = DR_MAX(sum->depth, r.depth);
	sum->seconds += r.seconds;
	sum->misses += r.misses;
	sum->elsewhere += r.elsewhere;
	for (unsigned i = 0; i < EX_TR_KINDS; i++)
		sum->seen[i] += r.seen[i];
	return !ok ? 1 : r.complete ? 0 : 2;
}

static int table(bool full)
{
	struct ex_result sum = { .states = 0 };
	uint64_t elsewhere[EX_PERSONALITIES] = { 0 };
	unsigned n = DR_ARRAY_LEN(rows) - (full ? 0 : LARGER);
	int worst = 0;

	for (unsigned i = 0; i < n && worst == 0; i++) {
		struct options o = defaults;
		uint64_t before = sum.elsewhere;

		o.kind = rows[i].kind;
		worst = set_words(&o, rows[i].args) == 0 ? one(&o, &sum) : 3;
		elsewhere[rows[i].kind] += sum.elsewhere - before;
	}
	for (unsigned i = 0; i < EX_TR_KINDS && worst == 0; i++)
		if (sum.seen[i] == 0) {
			printf("no step of kind %u was ever taken: the search has gone blind\n", i);
			worst = 1;
		}
	for (unsigned i = 0; i < EX_PERSONALITIES && worst == 0; i++)
		if (elsewhere[i] == 0) {
			printf("%s: the receiver never answers on a path that was not proposed: the "
			       "search has gone blind\n",
				ex_personality_name(i));
			worst = 1;
		}
	printf("exhaustive: %llu states, %llu transitions, depth %u, expected misses %.1g, %.0f s: %s\n",
		(unsigned long long)sum.states, (unsigned long long)sum.transitions, sum.depth,
		sum.misses, sum.seconds, worst == 0 ? "nothing broken" : "NOT WELL");
	return worst;
}

int main(int argc, char **argv)
{
	static const char *const all[] = { "kind", "connector", "parts", "window", "faults", "dups",
		"holds", "leaves", "frames", "late", "lazy", "any", "cold", "prompt", "mem",
		"states" };
	struct options o = defaults;
	struct ex_result sum = { .states = 0 };
	bool full = argc == 2 && strcmp(argv[1], "full") == 0, any = argc > 1 && !full;
	int rc = 0;

	for (unsigned i = 0; i < DR_ARRAY_LEN(all) && rc == 0; i++) {
		char env[32];
		const char *v;

		snprintf(env, sizeof(env), "EXH_%s", all[i]);
		v = getenv(env);
		any |= v != NULL;
		rc = v != NULL ? set(&o, all[i], strlen(all[i]), v) : 0;
	}
	for (int i = 1; i < argc && !full && rc == 0; i++)
		rc = set_words(&o, argv[i]);
	rc = rc != 0 ? 3 : any ? one(&o, &sum) : table(full);
	if (rc == 3)
		fprintf(stderr,
			"exhaustive: full, or NAME=VALUE; see tests/exhaustive/exhaustive_main.c\n");
	return rc;
}
