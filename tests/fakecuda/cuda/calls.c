/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include "base/clock.h"

#include <stdarg.h>
#include <time.h>

#define NAME(field, symbol, args) #symbol,
static const char *const names[DR_FGPU_N_CALLS] = { DR_CUDA_CALLS(
	NAME, NAME) "cuDriverGetVersion" };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool configured;
static unsigned counts[DR_FGPU_N_CALLS], always[DR_FGPU_N_CALLS];
static struct {
	bool any;
	int call;
	unsigned left, result;
	const char *failed;
} order;
static struct {
	int call; /* -1: none */
	bool told;
	char file[PATH_MAX];
} hold = { .call = -1 };
static unsigned n_violations;
static char first_violation[240];

_Thread_local struct CUctx_st *dr_fgpu_current;

/* ---- the lock ---- */

void dr_fgpu_lock(void)
{
	pthread_mutex_lock(&mutex);
	if (!configured) {
		configured = true;
		dr_fgpu_configure();
	}
}

void dr_fgpu_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void dr_fgpu_wait_on(pthread_cond_t *c, int64_t until_ns)
{
	struct timespec ts = { .tv_sec = until_ns / DR_NS_PER_S,
		.tv_nsec = until_ns % DR_NS_PER_S };

	if (until_ns == DR_NEVER)
		pthread_cond_wait(c, &mutex);
	else
		(void)pthread_cond_clockwait(c, &mutex, CLOCK_MONOTONIC, &ts);
}

void dr_fgpu_wait(int64_t until_ns)
{
	dr_fgpu_wait_on(&cond, until_ns);
}

void dr_fgpu_changed(void)
{
	pthread_cond_broadcast(&cond);
}

/* ---- every call ---- */

/* What a call fails with when the test does not say. */
static unsigned fitting(enum dr_fgpu_call c)
{
	switch (c) {
	case DR_FGPU_CALL_cuMemAlloc_v2:
	case DR_FGPU_CALL_cuMemHostAlloc:
	case DR_FGPU_CALL_cuStreamCreate:
	case DR_FGPU_CALL_cuEventCreate:
	case DR_FGPU_CALL_cuDevicePrimaryCtxRetain:
		return DR_CUDA_OUT_OF_MEMORY;
	case DR_FGPU_CALL_cuModuleLoadDataEx:
		return DR_CUDA_INVALID_PTX;
	case DR_FGPU_CALL_cuGetErrorName:
	case DR_FGPU_CALL_cuGetErrorString:
		return DR_CUDA_INVALID_VALUE;
	default:
		return DR_CUDA_UNKNOWN;
	}
}

static unsigned pick(enum dr_fgpu_call c)
{
	if (always[c])
		return always[c];
	if (order.left == 0 || (!order.any && order.call != (int)c))
		return 0;
	if (--order.left > 0)
		return 0;
	order.failed = names[c];
	return order.result ? order.result : fitting(c);
}

static void wait_while_held(enum dr_fgpu_call c)
{
	while (hold.call == (int)c && access(hold.file, F_OK) == 0) {
		if (!hold.told)
			(void)fprintf(stderr, "fake cuda: %s is held\n", names[c]);
		hold.told = true;
		dr_fgpu_wait(dr_now_ns() + 10 * DR_NS_PER_MS);
	}
}

unsigned dr_fgpu_enter(enum dr_fgpu_call c)
{
	dr_fgpu_lock();
	wait_while_held(c);
	counts[c]++;
	return pick(c);
}

unsigned dr_fgpu_enter_ctx(enum dr_fgpu_call c, struct CUctx_st **ctx)
{
	unsigned result = dr_fgpu_enter(c);

	*ctx = dr_fgpu_current;
	if (!*ctx || (*ctx)->retained == 0) {
		dr_fgpu_violation("%s without a current context", names[c]);
		return DR_CUDA_INVALID_CONTEXT;
	}
	return (*ctx)->failed ? (*ctx)->failed : result;
}

unsigned dr_fgpu_leave(unsigned result)
{
	dr_fgpu_unlock();
	return result;
}

/* ---- misuse ---- */

void dr_fgpu_violation(const char *fmt, ...)
{
	va_list ap;

	if (n_violations++ > 0)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(first_violation, sizeof(first_violation), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "fake cuda: misuse: %s\n", first_violation);
}

unsigned dr_fgpu_violations(const char **first)
{
	if (first)
		*first = n_violations ? first_violation : NULL;
	return n_violations;
}

/* ---- what tests order ---- */

static int find(const char *call)
{
	for (int i = 0; i < DR_FGPU_N_CALLS; i++)
		if (strcmp(names[i], call) == 0)
			return i;
	dr_fgpu_violation("the test names a call that there is not: %s", call);
	return -1;
}

void dr_fgpu_hold_call(const char *call, const char *file)
{
	hold.call = find(call);
	(void)snprintf(hold.file, sizeof(hold.file), "%s", file);
}

void dr_fgpu_fail_call(const char *call, unsigned k, unsigned result)
{
	order.any = strcmp(call, "*") == 0;
	order.call = order.any ? 0 : find(call);
	order.left = k;
	order.result = result;
	order.failed = NULL;
}

const char *dr_fgpu_failed(void)
{
	return order.failed;
}

void dr_fgpu_fail_always(const char *call, unsigned result)
{
	int c = find(call);

	if (c >= 0)
		always[c] = result;
}

unsigned dr_fgpu_count(const char *call)
{
	int c = find(call);

	return c >= 0 ? counts[c] : 0;
}

void dr_fgpu_tell_counts(void)
{
	for (int i = 0; i < DR_FGPU_N_CALLS; i++)
		if (counts[i] > 0)
			(void)fprintf(stderr, "fake cuda: %u %s\n", counts[i], names[i]);
}

void dr_fgpu_calls_reset(void)
{
	memset(counts, 0, sizeof(counts));
	memset(always, 0, sizeof(always));
	memset(&order, 0, sizeof(order));
	n_violations = 0;
}
