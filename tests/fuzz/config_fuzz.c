/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: one byte chooses the command, the rest is the file. */
#include "tests/fuzz/lib/options_check.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char names[][8] = { "server", "client", "demo" }, host[] = "127.0.0.1";
static char option[] = "--config";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	unsigned command = fz_u8(&z) % 3;
	char path[64], *argv[5];
	int argc = 0, fd = memfd_create("config", MFD_CLOEXEC);

	clearenv();
	dr_assert(fd >= 0 && write(fd, z.n ? (const void *)z.p : "", z.n) == (ssize_t)z.n);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	argv[argc++] = names[command];
	if (command == 1)
		argv[argc++] = host;
	argv[argc++] = option;
	argv[argc++] = path;
	argv[argc] = NULL;
	fz_options(1u << command, argc, argv);
	close(fd);
	return 0;
}
