/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: one byte chooses the command, then an argument a line. */
#include "tests/fuzz/lib/options_check.h"

enum { ARGS_MAX = 40 };

static char names[][8] = { "server", "client", "demo" }, host[] = "127.0.0.1";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	unsigned command = fz_u8(&z) % 3;
	char *argv[ARGS_MAX + 3], *text = fz_text(&z, 4096), *rest = text, *arg;
	int argc = 0;

	clearenv();
	argv[argc++] = names[command];
	if (command == 1)
		argv[argc++] = host;
	/* Files are for config_fuzz. */
	while (argc < ARGS_MAX && (arg = strsep(&rest, "\n")) != NULL)
		if (!strstr(arg, "conf"))
			argv[argc++] = arg;
	argv[argc] = NULL;
	fz_options(1u << command, argc, argv);
	free(text);
	return 0;
}
