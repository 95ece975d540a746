/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/defs.h"

/* One write(2) and no locks: this may run in any thread and after a fork. */
_Noreturn void dr_assert_fail(const char *expr, const char *file, int line)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "dualrail: bug at %s:%d: assertion failed: %s\n", file,
		line, expr);

	if (n >= (int)sizeof(text)) {
		n = sizeof(text) - 1;
		text[n - 1] = '\n';
	}
	ssize_t done = n > 0 ? write(STDERR_FILENO, text, (size_t)n) : 0;
	(void)done;
	abort();
}
