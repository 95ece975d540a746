/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <stdlib.h>
#include <string.h>

struct tcpx_settings tcpx_settings;

unsigned long tcpx_number(const char *name, unsigned long unset)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 0) : unset;
}

static bool read_memory(bool *cuda)
{
	const char *memory = getenv(tcpx_kind.memory);

	*cuda = memory && strcmp(memory, "cuda") == 0;
	if (!memory || !*memory || *cuda || strcmp(memory, "host") == 0)
		return true;
	min_log(MIN_LEVEL_WARN, "%s=%s is neither host nor cuda", tcpx_kind.memory, memory);
	return false;
}

bool tcpx_settings_read(struct tcpx_settings *out, uint32_t chunk)
{
	unsigned long socks =
		tcpx_number("NCCL_NSOCKS_PERTHREAD", 1) * tcpx_number("NCCL_SOCKET_NTHREADS", 1);

	if (socks == 0 || socks > TCPX_SOCKETS_MAX) {
		min_log(MIN_LEVEL_WARN, "%lu data connections, 1 to %d are possible", socks,
			TCPX_SOCKETS_MAX);
		return false;
	}
	*out = (struct tcpx_settings){ .n_socks = (unsigned)socks,
		.chunk = (uint32_t)tcpx_number("NCCL_DYNAMIC_CHUNK_SIZE", chunk) };
	return read_memory(&out->cuda);
}
