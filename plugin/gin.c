/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gin.h"

#include "base/log.h"
#include "base/sysfile.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Versions as ncclGetVersion gives them. */
enum { OWN_SINCE = 22907, SOCKETS_SINCE = 23203, ENABLE_COVERS_RMA_UNTIL = 23004 };

/* As NCCL reads a number (src/misc/param.cc). */
static long long number(const char *value, long long otherwise)
{
	return value && *value ? strtoll(value, NULL, 0) : otherwise;
}

/*
 * Symmetric memory between nodes, which GIN and RMA need, wants windows, cuMem and a type of GIN
 * (src/init.cc of 2.29.7 to 2.30.7). NCCL_GIN_ENABLE=0 takes the type away up to 2.30.4 alone
 * (src/gin/gin_host.cc).
 */
const char *ha_gin_transport(
	int version, char *(*env)(const char *name), bool rdma_device, bool gdrcopy)
{
	bool off = number(env("NCCL_GIN_TYPE"), -1) == 0 ||
		   number(env("NCCL_WIN_ENABLE"), 1) == 0 ||
		   number(env("NCCL_CUMEM_ENABLE"), -2) == 0 ||
		   (version <= ENABLE_COVERS_RMA_UNTIL && number(env("NCCL_GIN_ENABLE"), 1) == 0);

	if (version < OWN_SINCE || off)
		return NULL;
	if (rdma_device && number(env("NCCL_IB_DISABLE"), 0) == 0)
		return "InfiniBand transport";
	return version >= SOCKETS_SINCE && gdrcopy ? "sockets" : NULL;
}

/* Of the NCCL that has the logger: a process may have several, loaded with RTLD_LOCAL. */
static int nccl_version(nccl_logger_fn logger)
{
	int (*get_version)(int *version);
	void *code, *lib, *symbol;
	int version = 0;
	Dl_info at;

	memcpy(&code, &logger, sizeof(code));
	if (!code || !dladdr(code, &at))
		return 0;
	lib = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	symbol = dlsym(lib ? lib : RTLD_DEFAULT, "ncclGetVersion");
	memcpy(&get_version, &symbol, sizeof(symbol));
	if (symbol && get_version(&version) != NCCL_SUCCESS)
		version = 0;
	if (lib)
		dlclose(lib);
	return version;
}

static int found(const char *name, void *arg)
{
	(void)name, (void)arg;
	return 1;
}

void ha_gin_report(nccl_logger_fn logger)
{
	static bool reported;
	int version = reported ? 0 : nccl_version(logger);
	const char *transport = ha_gin_transport(version, getenv,
		dr_sysfile_each("", "/sys/class/infiniband", found, NULL) == 1,
		dr_sysfile_has("", "/dev/gdrdrv"));

	reported = true;
	if (transport)
		dr_info("plugin",
			"GIN and RMA of NCCL %d.%d.%d (device API, put and signal, collectives on symmetric "
			"windows) between nodes use NCCL's own %s, not this plugin, and do not fail over; "
			"NCCL_GIN_TYPE=0 on all ranks turns them off",
			version / 10000, version / 100 % 100, version % 100, transport);
}
