/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_ENV_H
#define DR_TESTS_PLUGINS_ENV_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The lines NAME=VALUE that libnccl-net-fake.so reads when it is loaded, also by a process that got its environment before
 * (FAKENET_FILE). Returns 0, or -1.
 */
static inline int fakenet_env(const char *lines)
{
	static int fd = -1;
	char path[64];

	if (fd < 0) {
		fd = memfd_create("fakenet", 0);
		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
		if (fd < 0 || setenv("FAKENET_FILE", path, 1) != 0)
			return -1;
	}
	if (ftruncate(fd, 0) != 0)
		return -1;
	return pwrite(fd, lines, strlen(lines), 0) == (ssize_t)strlen(lines) ? 0 : -1;
}

#endif
