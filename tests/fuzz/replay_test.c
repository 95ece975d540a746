/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fuzz target over its corpus, tests/fuzz/corpus/X: what was ever found stays found. A test per
 * target, which runs in a process of its own; the name says how many inputs it had. Prints TAP.
 * Run from the root of the tree.
 */
#include "base/defs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_target(const struct dirent *d)
{
	size_t len = strlen(d->d_name);

	return len > 5 && strcmp(d->d_name + len - 5, "_fuzz") == 0;
}

/* Its output is shown when it failed. Returns the number of inputs, or -1. */
static long replay(const char *folder, const char *target, const char *name)
{
	char command[8192], line[512], last[512] = "";
	long inputs = -1;
	FILE *f;

	snprintf(command, sizeof(command), "'%s/%s' 'tests/fuzz/corpus/%s' 2>&1", folder, target,
		name);
	f = popen(command, "r");
	dr_assert(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "tests/fuzz/corpus/", 18) != 0 &&
			line[strspn(line, "0123456789\n")])
			printf("# %s", line);
		snprintf(last, sizeof(last), "%s", line);
	}
	if (pclose(f) == 0)
		inputs = strtol(last, NULL, 10);
	else
		printf("# last: %s", last);
	return inputs;
}

int main(int argc, char **argv)
{
	char folder[4096] = ".", *slash = strrchr(argv[0], '/');
	struct dirent **entry;
	int n, failed = 0;

	(void)argc;
	if (slash)
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - argv[0]), argv[0]);
	n = scandir(folder, &entry, is_target, alphasort);
	for (int i = 0; i < n; i++) {
		char name[256];
		long inputs;

		snprintf(name, sizeof(name), "%.*s", (int)strlen(entry[i]->d_name) - 5,
			entry[i]->d_name);
		fflush(stdout);
		inputs = replay(folder, entry[i]->d_name, name);
		failed += inputs <= 0;
		printf("%sok %d - %s: %ld inputs\n", inputs > 0 ? "" : "not ", i + 1, name,
			DR_MAX(inputs, 0L));
		free(entry[i]);
	}
	free(n >= 0 ? entry : NULL);
	printf("1..%d\n", DR_MAX(n, 0));
	return failed || n <= 0;
}
