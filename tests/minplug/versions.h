/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_MINPLUG_VERSIONS_H
#define DR_TESTS_MINPLUG_VERSIONS_H

#include "tests/minplug/net/abi.h"

/*
 * A plugin's tables behind one set of calls, those of version 12 as far as the tests need them. Older versions get
 * sizes as int, no context and no properties that they do not have (0).
 */
enum { VERSION_FIRST = 6, VERSION_LAST = 12 };

struct net {
	int version;
	const void *table;
	const char *name;
	enum min_result (*init)(const struct net *, min_logger log, void **ctx);
	enum min_result (*devices)(const struct net *, int *n);
	enum min_result (*properties)(const struct net *, int dev, struct min_props_v12 *out);
	enum min_result (*listen)(
		const struct net *, void *ctx, int dev, void *handle, void **lcomm);
	enum min_result (*connect)(
		const struct net *, void *ctx, int dev, void *handle, void **scomm);
	enum min_result (*accept)(const struct net *, void *lcomm, void **rcomm);
	enum min_result (*reg)(
		const struct net *, void *comm, void *data, size_t size, int type, void **mh);
	enum min_result (*dereg)(const struct net *, void *comm, void *mh);
	enum min_result (*isend)(const struct net *, void *scomm, void *data, size_t size, int tag,
		void *mh, void **request);
	/* Of n buffers, all with this size and tag. */
	enum min_result (*irecv)(const struct net *, void *rcomm, int n, void *data, size_t size,
		int tag, void *mh, void **request);
	enum min_result (*iflush)(
		const struct net *, void *rcomm, void *data, int size, void *mh, void **request);
	enum min_result (*test)(const struct net *, void *request, int *done, int *sizes);
	enum min_result (*close_send)(const struct net *, void *scomm);
	enum min_result (*close_recv)(const struct net *, void *rcomm);
	enum min_result (*close_listen)(const struct net *, void *lcomm);
	/* Versions 6 to 10: nothing. */
	enum min_result (*finalize)(const struct net *, void *ctx);
	/* Members that a plugin in host memory with one buffer per receive leaves NULL. */
	int (*optional)(const struct net *);
};

/* Of the library that dlopen() returned; table is NULL if it does not have this version. */
struct net net_load(void *lib, int version);

#endif
