/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fuzz target over the empty input and its corpus, tests/fuzz/corpus/X: what was ever found stays found. A test per
 * target, in a process of its own; the name says how many inputs it had. Prints TAP. Run from the root of the tree.
 *
 *   replay_test X FILE...      only these inputs, in this process
 */
#include "tests/fuzz/lib/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void replay_file(const struct fz_target *t, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *data;

	dr_assert(fd >= 0 && fstat(fd, &st) == 0);
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	dr_assert(data && read(fd, data, (size_t)st.st_size) == st.st_size);
	close(fd);
	fz_run(t, data, (size_t)st.st_size);
	free(data);
}

static int is_input(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

/* Whether the target took all its inputs. */
static bool replay(const struct fz_target *t, int number, char *at)
{
	struct dirent **entry;
	char folder[128];
	int status, n;
	pid_t child;

	snprintf(folder, sizeof(folder), "tests/fuzz/corpus/%s", t->name);
	n = scandir(folder, &entry, is_input, alphasort);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		fz_run(t, (const uint8_t *)"", 0);
		for (int i = 0; i < n; i++) {
			snprintf(at, PATH_MAX, "%s/%s", folder, entry[i]->d_name);
			replay_file(t, at);
		}
		exit(0); /* lint-ok: a sanitizer looks for leaks then */
	}
	dr_assert(child > 0 && waitpid(child, &status, 0) == child);
	if (status != 0)
		printf("# it ended with %#x; again: replay_test %s %s\n", (unsigned)status, t->name,
			at);
	printf("%sok %d - %s: %d inputs\n", n > 0 && status == 0 ? "" : "not ", number, t->name, n);
	for (int i = 0; i < n; i++)
		free(entry[i]);
	free(n >= 0 ? entry : NULL);
	return n > 0 && status == 0;
}

int main(int argc, char **argv)
{
	char *at = mmap(NULL, PATH_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failed = 0, number = 0;

	dr_assert(at != MAP_FAILED);
	for (const struct fz_target *t = fz_targets; t; t = t->next)
		if (argc == 1)
			failed += !replay(t, ++number, at);
		else if (strcmp(t->name, argv[1]) == 0)
			for (number = 2; number < argc; number++)
				replay_file(t, argv[number]);
	if (argc == 1)
		printf("1..%d\n", number);
	return failed || number == 0;
}
