/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/lib/fuzz.h"

struct fz_target *fz_targets;

void fz_add(struct fz_target *t, const char *file)
{
	struct fz_target **at = &fz_targets;

	snprintf(t->name, sizeof(t->name), "%s", strrchr(file, '/') + 1);
	*strstr(t->name, "_fuzz.c") = 0;
	while (*at && strcmp((*at)->name, t->name) < 0)
		at = &(*at)->next;
	t->next = *at;
	*at = t;
}

void fz_run(const struct fz_target *t, const uint8_t *data, size_t size)
{
	struct fz z = { .p = data, .n = size, .fd = -1 };

	t->run(&z);
	while (z.n_own)
		free(z.own[--z.n_own]);
	free(z.own);
	if (z.fd >= 0)
		close(z.fd);
}

/* libFuzzer's. A program with it has one target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fz_run(fz_targets, data, size);
	return 0;
}
