/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/bugs.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugins/net/net.h"

enum { ACTIONS_MAX = 8, BLOCK_MS = 800 };

static struct action {
	char what[8], call[24];
	unsigned long after;
	atomic_ulong calls;
	atomic_bool mine;
} actions[ACTIONS_MAX];
static unsigned n_actions;
static bool read_before;
static _Atomic uint64_t words;

_Static_assert(FN_BUG_N <= 64, "words");

#define WORD(name, word) word,
static const char *const word[] = { FN_BUGS(WORD) };

/* What is no word is an action. */
static void read_one(const char *text, uint64_t *all)
{
	struct action *a = &actions[n_actions];

	for (int i = 0; i < FN_BUG_N; i++)
		if (strcmp(text, word[i]) == 0) {
			*all |= UINT64_C(1) << i;
			return;
		}
	if (read_before)
		return;
	a->after = 1;
	if (n_actions == ACTIONS_MAX ||
		sscanf(text, "%7[a-z]:%23[A-Za-z]@%lu", a->what, a->call, &a->after) < 2)
		fn_misuse("FAKENET_BUGS: there is no %s", text);
	n_actions++;
}

void fn_bugs_read(void)
{
	char text[256], *next = text, *one;
	const char *bugs = getenv("FAKENET_BUGS");
	uint64_t all = 0;

	(void)snprintf(text, sizeof(text), "%s", bugs ? bugs : "");
	while ((one = strsep(&next, ",")) != NULL)
		if (*one)
			read_one(one, &all);
	read_before = true;
	atomic_store(&words, all);
}

bool fn_bug(enum fn_bug b)
{
	return atomic_load_explicit(&words, memory_order_relaxed) >> b & 1;
}

bool fn_bug_null(const char *call)
{
	for (unsigned i = 0; i < n_actions; i++)
		if (strcmp(actions[i].what, "null") == 0 && strcmp(actions[i].call, call) == 0)
			return true;
	return false;
}

static bool is_due(struct action *a, const char *call)
{
	const char *once = getenv("FAKENET_ONCE");

	if (strcmp(a->call, call) != 0 || atomic_fetch_add(&a->calls, 1) + 1 < a->after)
		return false;
	if (!once || unlink(once) == 0)
		atomic_store(&a->mine, true);
	return atomic_load(&a->mine);
}

/* All memory that this process shares with others. */
static void fill_shared(int byte)
{
	unsigned long from, to;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 && strstr(line, "rw-s"))
			memset((void *)from, byte, to - from);
	if (maps)
		(void)fclose(maps);
}

enum fn_result fn_entered(const char *call)
{
	for (unsigned i = 0; i < n_actions; i++) {
		struct action *a = &actions[i];

		if (!is_due(a, call))
			continue;
		if (strcmp(a->what, "crash") == 0)
			abort(); /* lint-ok: the bug */
		if (strcmp(a->what, "smash") == 0) {
			fill_shared(0xff);
			abort(); /* lint-ok: the bug */
		}
		if (strcmp(a->what, "future") == 0)
			fill_shared(0x7f);
		if (strcmp(a->what, "exit") == 0)
			exit(0); /* lint-ok: the bug */
		while (strcmp(a->what, "hang") == 0 || strcmp(a->what, "future") == 0)
			(void)poll(NULL, 0, -1);
		if (strcmp(a->what, "blocks") == 0)
			(void)poll(NULL, 0, BLOCK_MS);
		if (strcmp(a->what, "error") == 0)
			return FN_INTERNAL_ERROR;
	}
	return FN_OK;
}
