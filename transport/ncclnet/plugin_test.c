/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/logger.h"
#include "transport/ncclnet/plugin_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

/* Tables of all versions whose functions record their arguments. */

static struct {
	unsigned version; /* of the function that was called */
	int dev, n, tag;
	size_t size, sizes[2];
	int tags[2];
	void *ctx, *comm, *data, *mhandle;
	uint64_t id;
	int calls;
} got;

static char place[5];
#define CTX ((void *)&place[0])
#define COMM ((void *)&place[1])
#define DATA ((void *)&place[2])
#define MHANDLE ((void *)&place[3])
#define REQUEST ((void *)&place[4])

static enum nccl_result seen(unsigned version)
{
	got.version = version;
	got.calls++;
	return NCCL_SUCCESS;
}

static enum nccl_result opened(unsigned version, int dev, void *handle, void **comm)
{
	got.dev = dev;
	got.data = handle;
	*comm = COMM;
	return seen(version);
}

static enum nccl_result sent(unsigned version, size_t size, int tag, void **request)
{
	got.size = size;
	got.tag = tag;
	*request = REQUEST;
	return seen(version);
}

static enum nccl_result received(unsigned version, int n, const int *tags, void **request)
{
	got.n = n;
	memcpy(got.tags, tags, sizeof(got.tags));
	*request = REQUEST;
	return seen(version);
}

#define PLAIN_INIT(v)                                                                              \
	static enum nccl_result init_v##v(nccl_logger_fn logger)                                   \
	{                                                                                          \
		assert_non_null(logger);                                                           \
		return seen(v);                                                                    \
	}
#define CONTEXT_INIT(v)                                                                            \
	static enum nccl_result init_v##v(void **ctx, uint64_t id,                                 \
		struct nccl_net_comm_config *config, nccl_logger_fn logger,                        \
		nccl_profiler_fn profiler)                                                         \
	{                                                                                          \
		assert_non_null(logger);                                                           \
		assert_null(profiler);                                                             \
		assert_int_equal(config->trafficClass, NCCL_NET_UNDEFINED);                        \
		got.id = id;                                                                       \
		*ctx = CTX;                                                                        \
		return seen(v);                                                                    \
	}                                                                                          \
	static enum nccl_result finalize_v##v(void *ctx)                                           \
	{                                                                                          \
		got.ctx = ctx;                                                                     \
		return seen(v);                                                                    \
	}
#define PLAIN_LISTEN(v)                                                                            \
	static enum nccl_result listen_v##v(int dev, void *handle, void **comm)                    \
	{                                                                                          \
		return opened(v, dev, handle, comm);                                               \
	}
#define CONTEXT_LISTEN(v)                                                                          \
	static enum nccl_result listen_v##v(void *ctx, int dev, void *handle, void **comm)         \
	{                                                                                          \
		got.ctx = ctx;                                                                     \
		return opened(v, dev, handle, comm);                                               \
	}                                                                                          \
	static enum nccl_result connect_v##v(void *ctx, int dev, void *handle, void **comm,        \
		struct nccl_net_device_handle **device)                                            \
	{                                                                                          \
		assert_null(*device);                                                              \
		got.ctx = ctx;                                                                     \
		return opened(v, dev, handle, comm);                                               \
	}
#define DEVICE_CONNECT(v)                                                                          \
	static enum nccl_result connect_v##v(                                                      \
		int dev, void *handle, void **comm, struct nccl_net_device_handle **device)        \
	{                                                                                          \
		assert_null(*device);                                                              \
		return opened(v, dev, handle, comm);                                               \
	}
#define DEVICE_ACCEPT(v)                                                                           \
	static enum nccl_result accept_v##v(                                                       \
		void *listener, void **comm, struct nccl_net_device_handle **device)               \
	{                                                                                          \
		assert_non_null(*device);                                                          \
		return opened(v, -1, listener, comm);                                              \
	}
#define REG(v, type_of_size)                                                                       \
	static enum nccl_result reg_v##v(                                                          \
		void *comm, void *data, type_of_size size, int type, void **mhandle)               \
	{                                                                                          \
		got.comm = comm;                                                                   \
		got.data = data;                                                                   \
		got.n = type;                                                                      \
		got.size = (size_t)size;                                                           \
		*mhandle = MHANDLE;                                                                \
		return seen(v);                                                                    \
	}
#define TRANSFER(v, type_of_size, profile, profiles)                                               \
	static enum nccl_result isend_v##v(void *comm, void *data, type_of_size size, int tag,     \
		void *mhandle profile, void **request)                                             \
	{                                                                                          \
		got.comm = comm;                                                                   \
		got.data = data;                                                                   \
		got.mhandle = mhandle;                                                             \
		return sent(v, (size_t)size, tag, request);                                        \
	}                                                                                          \
	static enum nccl_result irecv_v##v(void *comm, int n, void **data, type_of_size *sizes,    \
		int *tags, void **mhandles profiles, void **request)                               \
	{                                                                                          \
		got.comm = comm;                                                                   \
		got.data = data[0];                                                                \
		got.mhandle = mhandles[0];                                                         \
		got.sizes[0] = (size_t)sizes[0];                                                   \
		got.sizes[1] = (size_t)sizes[1];                                                   \
		return received(v, n, tags, request);                                              \
	}
#define PROPERTIES(v, as)                                                                          \
	static enum nccl_result properties_v##v(int dev, struct nccl_net_properties_v##as *p)      \
	{                                                                                          \
		memset(p, 0, sizeof(*p));                                                          \
		p->speed = 100 * v;                                                                \
		p->maxRecvs = 8;                                                                   \
		p->maxComms = dev;                                                                 \
		p->ptrSupport = NCCL_PTR_HOST;                                                     \
		return seen(v);                                                                    \
	}
#define PROFILE , __attribute__((unused)) void *phandle
#define PROFILES , __attribute__((unused)) void **phandles

static enum nccl_result connect_v6(int dev, void *handle, void **comm)
{
	return opened(6, dev, handle, comm);
}
static enum nccl_result accept_v6(void *listener, void **comm)
{
	return opened(6, -1, listener, comm);
}
static enum nccl_result init_v10(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	assert_non_null(logger);
	assert_null(profiler);
	return seen(10);
}
static enum nccl_result connect_v10(int dev, struct nccl_net_comm_config *config, void *handle,
	void **comm, struct nccl_net_device_handle **device)
{
	assert_int_equal(config->trafficClass, NCCL_NET_UNDEFINED);
	assert_null(*device);
	return opened(10, dev, handle, comm);
}
static enum nccl_result consumed(void *comm, int n, void *request)
{
	(void)comm, (void)n, (void)request;
	return NCCL_SUCCESS;
}
PLAIN_INIT(6)
PLAIN_INIT(7)
PLAIN_INIT(8)
PLAIN_INIT(9)
CONTEXT_INIT(11)
CONTEXT_INIT(12)
PLAIN_LISTEN(6)
PLAIN_LISTEN(7)
PLAIN_LISTEN(8)
PLAIN_LISTEN(9)
PLAIN_LISTEN(10)
CONTEXT_LISTEN(11)
CONTEXT_LISTEN(12)
DEVICE_CONNECT(7)
DEVICE_CONNECT(8)
DEVICE_CONNECT(9)
DEVICE_ACCEPT(7)
DEVICE_ACCEPT(8)
DEVICE_ACCEPT(9)
DEVICE_ACCEPT(10)
DEVICE_ACCEPT(11)
DEVICE_ACCEPT(12)
REG(6, int)
REG(7, int)
REG(8, size_t)
REG(9, size_t)
REG(10, size_t)
REG(11, size_t)
REG(12, size_t)
TRANSFER(6, int, , )
TRANSFER(7, int, , )
TRANSFER(8, int, , )
TRANSFER(9, size_t, , )
TRANSFER(10, size_t, PROFILE, PROFILES)
TRANSFER(11, size_t, PROFILE, PROFILES)
TRANSFER(12, size_t, PROFILE, PROFILES)
PROPERTIES(6, 6)
PROPERTIES(7, 7)
PROPERTIES(8, 8)
PROPERTIES(9, 9)
PROPERTIES(10, 9)
PROPERTIES(11, 11)
PROPERTIES(12, 12)

#define TABLE(v)                                                                                   \
	.name = "test", .init = init_v##v, .listen = listen_v##v, .connect = connect_v##v,         \
	.accept = accept_v##v, .getProperties = properties_v##v, .regMr = reg_v##v,                \
	.isend = isend_v##v, .irecv = irecv_v##v
static const struct nccl_net_v6 v6 = { TABLE(6) };
static const struct nccl_net_v7 v7 = { TABLE(7), .irecvConsumed = consumed };
static const struct nccl_net_v8 v8 = { TABLE(8), .irecvConsumed = consumed };
static const struct nccl_net_v9 v9 = { TABLE(9), .irecvConsumed = consumed };
static const struct nccl_net_v10 v10 = { TABLE(10), .irecvConsumed = consumed };
static const struct nccl_net_v11 v11 = { TABLE(11), .irecvConsumed = consumed,
	.finalize = finalize_v11 };
static const struct nccl_net_v12 v12 = { TABLE(12), .irecvConsumed = consumed,
	.finalize = finalize_v12 };

static void take(struct dr_nccl *n, unsigned version)
{
	const void *const tables[] = { &v6, &v7, &v8, &v9, &v10, &v11, &v12 };

	*n = (struct dr_nccl){ .version = version };
	dr_nccl_take(n, tables[version - DR_NCCL_OLDEST]);
}

/* The call before reached the function of this version. */
static void expect(unsigned version, bool context)
{
	assert_int_equal(got.version, version);
	assert_int_equal(got.calls, 1);
	assert_true(!context || version < 11 || got.ctx == CTX);
	memset(&got, 0, sizeof(got));
}

static void opens(struct dr_nccl *n)
{
	unsigned v = n->version;
	struct nccl_net_device_handle room, *device = &room;
	void *comm;

	assert_int_equal(dr_nccl_init(n), 0);
	assert_true(n->initialised);
	assert_true(v < 11 || (n->ctx == CTX && got.id == 1));
	expect(v, false);
	assert_int_equal(dr_nccl_listen(n, 3, DATA, &comm), 0);
	assert_true(got.dev == 3 && got.data == DATA && comm == COMM);
	expect(v, true);
	assert_int_equal(dr_nccl_connect(n, 4, DATA, &comm), 0);
	assert_true(got.dev == 4 && got.data == DATA && comm == COMM);
	expect(v, true);
	assert_int_equal(dr_nccl_accept(n, DATA, &comm, &device), 0);
	assert_true(got.data == DATA && comm == COMM);
	expect(v, false);
}

static void transfers(struct dr_nccl *n)
{
	struct dr_nccl_buffer b[2] = { { .data = DATA, .size = 1000, .tag = 5 },
		{ .data = COMM, .size = 2000, .tag = 6 } };
	unsigned v = n->version;
	void *request;

	assert_int_equal(dr_nccl_reg(n, COMM, &b[0], NCCL_PTR_CUDA), 0);
	assert_true(got.comm == COMM && got.data == DATA && got.size == 1000);
	assert_true(got.n == NCCL_PTR_CUDA && b[0].mhandle == MHANDLE);
	expect(v, false);
	assert_int_equal(dr_nccl_isend(n, COMM, &b[0], &request), 0);
	assert_true(got.comm == COMM && got.data == DATA && got.mhandle == MHANDLE);
	assert_true(got.size == 1000 && got.tag == 5 && request == REQUEST);
	expect(v, false);
	assert_int_equal(dr_nccl_irecv(n, COMM, 2, b, &request), 0);
	assert_true(got.comm == COMM && got.data == DATA && got.mhandle == MHANDLE && got.n == 2);
	assert_true(got.sizes[0] == 1000 && got.sizes[1] == 2000);
	assert_true(got.tags[0] == 5 && got.tags[1] == 6 && request == REQUEST);
	expect(v, false);
}

static void calls_reach_the_table_of_their_version(void **state)
{
	struct dr_nccl_properties p;
	struct dr_nccl n;

	(void)state;
	for (unsigned v = DR_NCCL_OLDEST; v <= DR_NCCL_NEWEST; v++) {
		take(&n, v);
		assert_true((n.consumed != NULL) == (v >= 7));
		opens(&n);
		transfers(&n);
		assert_int_equal(dr_nccl_properties(&n, 9, &p), 0);
		assert_int_equal(p.speed_mbps, 100 * v);
		assert_true(p.max_comms == 9 && p.max_recvs == 8 && !p.unset && !p.past_end);
		assert_int_equal(p.ptr_support, NCCL_PTR_HOST);
		expect(v, false);
		assert_int_equal(dr_nccl_finalize(&n), 0);
		assert_int_equal(got.calls, v >= 11);
		assert_true(v < 11 || got.ctx == CTX);
		memset(&got, 0, sizeof(got));
		assert_int_equal(dr_nccl_finalize(&n), 0); /* once */
		assert_int_equal(got.calls, 0);
	}
}

/* regMr of versions 6 and 7 has an int for the size. */
static void a_size_that_the_version_cannot_express(void **state)
{
	struct dr_nccl_buffer b = { .data = DATA, .size = (size_t)1 << 31 };
	struct dr_nccl n;

	(void)state;
	take(&n, 7);
	assert_int_equal(dr_nccl_reg(&n, COMM, &b, NCCL_PTR_HOST), -1);
	assert_int_equal(got.calls, 0);
	take(&n, 8);
	assert_int_equal(dr_nccl_reg(&n, COMM, &b, NCCL_PTR_HOST), 0);
	assert_true(got.size == b.size);
	memset(&got, 0, sizeof(got));
}

static void the_first_missing_member_is_named(void **state)
{
	struct nccl_net_v6 t = { .name = "test", .init = init_v6 };
	struct dr_nccl n = { .version = 6 };

	(void)state;
	dr_nccl_take(&n, &t);
	assert_string_equal(n.missing, "devices");
}

static void the_logger_passes_the_levels_of_nccl(void **state)
{
	(void)state;
	assert_int_equal(dr_nccl_log_level(NULL), NCCL_LOG_NONE);
	assert_int_equal(dr_nccl_log_level("warn"), NCCL_LOG_WARN);
	assert_int_equal(dr_nccl_log_level("TRACE"), NCCL_LOG_TRACE);
	assert_int_equal(dr_nccl_log_level("LOUD"), NCCL_LOG_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_reach_the_table_of_their_version),
		cmocka_unit_test(a_size_that_the_version_cannot_express),
		cmocka_unit_test(the_first_missing_member_is_named),
		cmocka_unit_test(the_logger_passes_the_levels_of_nccl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
