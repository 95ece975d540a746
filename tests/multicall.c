/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The main function of FOLDER/tests, which holds all X_test.c of a folder. It runs the one whose name it is called
 * by, as the link FOLDER/X_test, or that the first argument names: FOLDER/tests X_test [ARGUMENT...].
 * The Makefile defines TESTS as T(a_test) T(b_test) ... and renames main of X_test.o to X_test_main.
 */

#define T(name) int name##_main(int argc, char **argv);
TESTS
#undef T

#define T(name) { #name, name##_main },
static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} tests[] = { TESTS };

int main(int argc, char **argv)
{
	for (int given = 0; given < argc && given < 2; given++) {
		const char *slash = strrchr(argv[given], '/'),
			   *name = slash ? slash + 1 : argv[given];

		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if (strcmp(name, tests[i].name) == 0)
				return tests[i].main(argc - given, argv + given);
	}
	fprintf(stderr, "usage: %s TEST [ARGUMENT...]\ntests:", argv[0]);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		fprintf(stderr, " %s", tests[i].name);
	fprintf(stderr, "\n");
	return EXIT_FAILURE;
}
