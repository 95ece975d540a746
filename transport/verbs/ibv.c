/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/ibv.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * Symbols are asked for without a version, which gives the default one of the library that is there:
 * so a table that filled is whole, and what an older library lacks is named.
 *
 * Four calls of verbs.h are macros or inlines over symbols of other shape. ibv_reg_mr: the macro
 * only chooses ibv_reg_mr_iova2 for flags that are not used here. ibv_query_port: the symbol writes
 * no more than the fields up to link_layer, hence "what the caller zeroed". ibv_query_gid_ex
 * and ibv_query_gid_table are _ibv_query_gid_ex and _ibv_query_gid_table, the entry's size passed by hand.
 */
struct symbol {
	const char *name;
	size_t at;
	bool optional;
};

#define NEEDED(field, result, args) { "ibv_" #field, offsetof(struct dr_ibv, field), false },
#define NEEDED_AS(field, symbol, result, args) { #symbol, offsetof(struct dr_ibv, field), false },
#define OPTIONAL(field, symbol, result, args) { #symbol, offsetof(struct dr_ibv, field), true },
static const struct symbol symbols[] = { DR_IBV_CALLS(NEEDED, NEEDED_AS, OPTIONAL) };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dr_ibv table;
static bool loaded;

/* POSIX gives functions as void *; the bytes are copied, since no cast between the two is C. */
static int fill(void *lib, const char *name, struct dr_err *e)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(symbols); i++) {
		void *p = dlsym(lib, symbols[i].name);

		if (!p && !symbols[i].optional)
			return dr_err_set(e, -ENOSYS,
				"%s has no %s: it is too old (rdma-core 34 or newer is needed) or another library",
				name, symbols[i].name);
		memcpy((char *)&table + symbols[i].at, &p, sizeof(p));
	}
	return 0;
}

static int load(struct dr_err *e)
{
	const char *name = secure_getenv("DR_IBVERBS");

	if (!name || !*name)
		name = "libibverbs.so.1";
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();

		return dr_err_set(e, -ENOENT,
			"%s; install libibverbs1 (Debian/Ubuntu: apt-get install " DR_IBV_PACKAGES
			")",
			why ? why : name);
	}
	int rc = fill(lib, name, e);
	if (rc)
		dlclose(lib);
	return rc;
}

/* The library stays open for good: providers of rdma-core keep threads and atexit handlers. */
int dr_ibv_load(const struct dr_ibv **out, struct dr_err *e)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded)
		rc = load(e);
	if (rc == 0)
		loaded = true;
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	*out = &table;
	return 0;
}
