/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"
#include "tests/exhaustive/search.h"

#include <stdlib.h>
#include <string.h>

/*
 * exhaustive_main [full | NAME=VALUE...], values also from the environment as EXH_NAME. Without any: the
 * runs of the table below, in about four minutes on one core and 1.5 GB; with "full" also its larger
 * ones. With values: one run.
 *
 *	kind=stream|remote-write|plugin  connector=sender|receiver  parts=1,2,1 (a message each)
 *	window=2  faults=2  dups=0  holds=0  frames=4  late=0 (1 sender, 2 receiver, 3 both)
 *	lazy=0  any=0  cold=0  prompt=0 (model.h: struct ex_scope)  mem=2048 (MiB)  states=0 (no bound)
 *	clock=0, and with 1: may=0 (sum of 1 a path breaks, 2 a rail is cut, 4 an end is stopped, 8 a fence is
 *	never done, 16 something happens later, 32 a completion is lost)  idle=0  no_failback=0  told=0  flaps=0
 *	grey=0  rounds=0  hold_ms=100  lost_ms=300  stuck_ms=300  stop_ms=1000  stride_ms=0
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
	/* with a clock: any number of flaps */
	{ EX_STREAM, "clock=1 parts=1 idle=1 flaps=1 faults=0 stride_ms=50" },
	{ EX_REMOTE_WRITE, "clock=1 parts=1 idle=1 flaps=1 faults=0 no_failback=1" },
	/* paths break, in time or late; rails are cut, also from the first dial on */
	{ EX_STREAM, "clock=1 parts=1 idle=1 faults=2 may=17" },
	{ EX_STREAM, "clock=1 parts=1 idle=1 faults=1 may=2" },
	{ EX_REMOTE_WRITE, "clock=1 parts=1 idle=1 faults=1 may=2 connector=receiver" },
	{ EX_STREAM, "clock=1 parts=1 cold=1 faults=1 may=3" },
	/* a fence is never done, completions are lost, nothing is ever reported */
	{ EX_STREAM, "clock=1 parts=1 faults=2 may=9" },
	{ EX_PLUGIN, "clock=1 parts=2 faults=2 may=9" },
	{ EX_REMOTE_WRITE, "clock=1 parts=1,1 faults=1 may=33" },
	{ EX_REMOTE_WRITE, "clock=1 parts=1 grey=1 rounds=61 faults=1 may=1" },
	/* an end is stopped: the other knows at once, some time, never */
	{ EX_STREAM, "clock=1 parts=1 idle=1 faults=1 may=4 told=1 stop_ms=40000" },
	{ EX_STREAM, "clock=1 parts=1 faults=1 may=4 stop_ms=31000 stride_ms=2000" },
	{ EX_REMOTE_WRITE, "clock=1 parts=1 faults=2 may=5 told=2 stop_ms=31000 stride_ms=2000 "
			   "connector=receiver" },
	/* larger ones, with "full" */
	{ EX_STREAM, "clock=1 parts=1 faults=2 may=5 told=1 stop_ms=40000 stride_ms=1000 "
		     "lost_ms=1500" },
	{ EX_STREAM, "clock=1 parts=1 idle=1 faults=1 may=4" },
	{ EX_REMOTE_WRITE, "parts=1,2,1 faults=2 holds=1 prompt=1 mem=4000" },
	{ EX_PLUGIN, "parts=1,2,1 faults=2 holds=1 prompt=1 mem=4000" },
};
enum { LARGER = 4 };

enum {
	O_WINDOW,
	O_FAULTS,
	O_DUPS,
	O_HOLDS,
	O_FRAMES,
	O_LATE,
	O_LAZY,
	O_ANY,
	O_COLD,
	O_PROMPT,
	O_MEM,
	O_STATES,
	O_CLOCK,
	O_MAY,
	O_IDLE,
	O_NO_FAILBACK,
	O_TOLD,
	O_FLAPS,
	O_GREY,
	O_ROUNDS,
	O_HOLD_MS,
	O_LOST_MS,
	O_STUCK_MS,
	O_STOP_MS,
	O_STRIDE_MS,
	O_NUMBERS
};
static const char *const names[O_NUMBERS] = { "window", "faults", "dups", "holds", "frames", "late",
	"lazy", "any", "cold", "prompt", "mem", "states", "clock", "may", "idle", "no_failback",
	"told", "flaps", "grey", "rounds", "hold_ms", "lost_ms", "stuck_ms", "stop_ms",
	"stride_ms" };
static const uint64_t at_most[O_NUMBERS] = { 4, 7, 7, 3, 6, 3, 1, 1, 1, 1, 1 << 20, UINT32_MAX / 2,
	1, 63, 1, 1, 2, 1, 1, 64, 1000, 10000, 10000, 40000, 10000 };

struct options {
	unsigned kind, connector;
	char parts[32];
	uint64_t v[O_NUMBERS];
};

static const struct options defaults = { .connector = EX_TX,
	.parts = "1,2,1",
	.v = { [O_WINDOW] = 2,
		[O_FAULTS] = 2,
		[O_FRAMES] = 4,
		[O_MEM] = 2048,
		[O_HOLD_MS] = 100,
		[O_LOST_MS] = 300,
		[O_STUCK_MS] = 300,
		[O_STOP_MS] = 1000 } };

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
	char buf[256], *p = buf, *w;

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
		.frames = (unsigned)o->v[O_FRAMES],
		.lazy = o->v[O_LAZY] != 0,
		.any_order = o->v[O_ANY] != 0,
		.cold = o->v[O_COLD] != 0,
		.prompt = o->v[O_PROMPT] != 0,
		.clock = o->v[O_CLOCK] != 0,
		.may = (unsigned)o->v[O_MAY],
		.idle = o->v[O_IDLE] != 0,
		.no_failback = o->v[O_NO_FAILBACK] != 0,
		.told = (unsigned)o->v[O_TOLD],
		.flaps = o->v[O_FLAPS] != 0,
		.grey = o->v[O_GREY] != 0,
		.rounds = (unsigned)o->v[O_ROUNDS],
		.hold_ns = (int64_t)o->v[O_HOLD_MS] * DR_NS_PER_MS,
		.lost_ns = (int64_t)o->v[O_LOST_MS] * DR_NS_PER_MS,
		.stuck_ns = (int64_t)o->v[O_STUCK_MS] * DR_NS_PER_MS,
		.stop_ns = (int64_t)o->v[O_STOP_MS] * DR_NS_PER_MS,
		.stride_ns = (int64_t)o->v[O_STRIDE_MS] * DR_NS_PER_MS,
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
	for (unsigned i = 0; i < O_NUMBERS; i++) {
		if (i < O_MEM && o->v[i] != 0)
			printf(" %s %llu", names[i], (unsigned long long)o->v[i]);
		else if (i >= O_CLOCK && o->v[O_CLOCK] != 0 && o->v[i] != defaults.v[i])
			printf(" %s %llu", names[i], (unsigned long long)o->v[i]);
	}
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
	for (unsigned i = 0; i < EX_RARES; i++)
		sum->rare[i] += r.rare[i];
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
	for (unsigned i = 0; i < EX_RARES && worst == 0; i++)
		if (sum.rare[i] == 0) {
			printf("result %u of the rules of time is never reached: the search has gone blind\n",
				i);
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
	static const char *const words[] = { "kind", "connector", "parts" };
	struct options o = defaults;
	struct ex_result sum = { .states = 0 };
	bool full = argc == 2 && strcmp(argv[1], "full") == 0, any = argc > 1 && !full;
	int rc = 0;

	for (unsigned i = 0; i < DR_ARRAY_LEN(words) + O_NUMBERS && rc == 0; i++) {
		const char *name = i < O_NUMBERS ? names[i] : words[i - O_NUMBERS], *v;
		char env[32];

		snprintf(env, sizeof(env), "EXH_%s", name);
		v = getenv(env);
		any |= v != NULL;
		rc = v != NULL ? set(&o, name, strlen(name), v) : 0;
	}
	for (int i = 1; i < argc && !full && rc == 0; i++)
		rc = set_words(&o, argv[i]);
	rc = rc != 0 ? 3 : any ? one(&o, &sum) : table(full);
	if (rc == 3)
		fprintf(stderr,
			"exhaustive: full, or NAME=VALUE; see tests/exhaustive/exhaustive_main.c\n");
	return rc;
}
