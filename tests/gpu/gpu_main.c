/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <stdio.h>
#include <string.h>

/*
 * For scripts/gpu/check.sh.
 *   gpu_main list    a line for each GPU, "ordinal bus-id free-bytes"; none: the reason and status 77
 *   gpu_main ptx WHAT    the code of the kernels, for ptxas; WHAT: pattern, unpack
 */

static int say_free(unsigned ordinal)
{
	struct dr_gpu *g;
	uint64_t unused;
	struct dr_err e;
	int rc = dr_gpu_open(ordinal, &g, &e);

	if (rc == 0) {
		rc = dr_gpu_memory(g, &unused, NULL, &e);
		if (rc == 0)
			printf("%u %s %llu\n", ordinal, dr_gpu_info(g)->bus_id,
				(unsigned long long)unused);
		dr_gpu_close(g);
	}
	if (rc)
		fprintf(stderr, "%s\n", e.text);
	return rc;
}

static int list(void)
{
	struct dr_gpu_info info;
	struct dr_err e;
	int n = dr_gpu_list(&info, 1, &e);

	if (n < 0) {
		printf("%s\n", e.text);
		return 77;
	}
	for (int i = 0; i < n; i++)
		if (say_free((unsigned)i))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "ptx") == 0 && strcmp(argv[2], "pattern") == 0)
		return fputs(dr_gpu_pattern_ptx, stdout) < 0;
	if (argc == 3 && strcmp(argv[1], "ptx") == 0 && strcmp(argv[2], "unpack") == 0)
		return fputs(dr_gpu_unpack_ptx, stdout) < 0;
	if (argc == 2 && strcmp(argv[1], "list") == 0)
		return list();
	fprintf(stderr, "gpu_main list|ptx pattern|ptx unpack\n");
	return 1;
}
