/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>

/* What happens to every call before it does its work: counted, delayed, failed. */

#define NAME(name, err) #name,
static const char *const names[DR_FAKE_N_CALLS] = { DR_FAKE_CALLS(NAME) };
#define FITTING(name, err) err,
static const int fitting[DR_FAKE_N_CALLS] = { DR_FAKE_CALLS(FITTING) };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned counts[DR_FAKE_N_CALLS];
static int delays[DR_FAKE_N_CALLS], always[DR_FAKE_N_CALLS];
static struct {
	bool any;
	enum dr_fake_call call;
	unsigned left;
	int err;
	const char *failed;
} order;
static struct hook {
	int call;
	void (*fn)(void *arg);
	void *arg;
} hook;
static unsigned n_violations;
static char first_violation[200];

void dr_fake_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void dr_fake_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void dr_fake_wait_while(const bool *flag, int ms)
{
	int64_t ns = dr_wall_ns() + ms * DR_NS_PER_MS;
	const struct timespec until = { ns / DR_NS_PER_S, ns % DR_NS_PER_S };

	while (*flag && pthread_cond_timedwait(&changed, &mutex, &until) == 0)
		continue;
}

void dr_fake_wake(void)
{
	pthread_cond_broadcast(&changed);
}

void dr_fake_violation(const char *fmt, ...)
{
	va_list ap;

	if (n_violations++ > 0)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(first_violation, sizeof(first_violation), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "fake verbs: misuse: %s\n", first_violation);
}

unsigned dr_fake_violations(const char **first)
{
	if (first)
		*first = n_violations ? first_violation : NULL;
	return n_violations;
}

void dr_fake_block_ms(int ms)
{
	(void)poll(NULL, 0, ms);
}

static int pick(enum dr_fake_call c)
{
	if (always[c])
		return always[c];
	if (order.left == 0 || (order.any ? fitting[c] == 0 : order.call != c))
		return 0;
	if (--order.left > 0)
		return 0;
	order.failed = names[c];
	return order.err ? order.err : fitting[c];
}

int dr_fake_enter(enum dr_fake_call c)
{
	struct hook h = { 0 };
	int err, ms;

	dr_fake_lock();
	counts[c]++;
	ms = delays[c];
	err = pick(c);
	if (hook.call == (int)c) {
		h = hook;
		hook.fn = NULL;
	}
	dr_fake_unlock();
	if (h.fn)
		h.fn(h.arg);
	if (ms > 0)
		dr_fake_block_ms(ms);
	return err;
}

static int find(const char *call)
{
	for (int i = 0; i < DR_FAKE_N_CALLS; i++)
		if (strcmp(names[i], call) == 0)
			return i;
	dr_fake_violation("the test names a call that there is not: %s", call);
	return -1;
}

void dr_fake_call_fail(const char *call, unsigned k, int err)
{
	int c = 0;

	order.any = strcmp(call, "*") == 0;
	if (!order.any)
		c = find(call);
	if (c < 0)
		return;
	order.call = (enum dr_fake_call)c;
	order.left = k;
	order.err = err;
	order.failed = NULL;
}

const char *dr_fake_call_failed(void)
{
	return order.failed;
}

void dr_fake_call_fail_always(const char *call, int err)
{
	int c = find(call);

	if (c >= 0)
		always[c] = err;
}

void dr_fake_call_delay(const char *call, int ms)
{
	int c = find(call);

	if (c >= 0)
		delays[c] = ms;
}

void dr_fake_call_before(const char *call, void (*fn)(void *arg), void *arg)
{
	hook = (struct hook){ find(call), fn, arg };
}

unsigned dr_fake_call_count(const char *call)
{
	int c = find(call);

	return c >= 0 ? counts[c] : 0;
}

void dr_fake_calls_reset(void)
{
	memset(counts, 0, sizeof(counts));
	memset(delays, 0, sizeof(delays));
	memset(always, 0, sizeof(always));
	memset(&order, 0, sizeof(order));
	hook.fn = NULL;
	n_violations = 0;
}
