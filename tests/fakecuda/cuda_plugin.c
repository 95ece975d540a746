/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

/* The table for tests, and what happens at the end. The calls are in cuda/. */

static void get_alive(struct dr_fakecuda_alive *out)
{
	memset(out, 0, sizeof(*out));
	dr_fgpu_lock();
	for (unsigned i = 0; i < DR_FGPU_DEVICES_MAX; i++)
		out->contexts += dr_fgpu_ctx[i].retained;
	out->memories = dr_fgpu_len(dr_fgpu_memories);
	out->pinned = dr_fgpu_len(dr_fgpu_pinneds);
	out->streams = dr_fgpu_len(dr_fgpu_streams);
	out->events = dr_fgpu_len(dr_fgpu_events);
	out->modules = dr_fgpu_len(dr_fgpu_modules);
	dr_fgpu_unlock();
}

static unsigned alive_total(void)
{
	struct dr_fakecuda_alive a;

	get_alive(&a);
	return a.contexts + a.memories + a.pinned + a.streams + a.events + a.modules;
}

static void reset(void)
{
	dr_fgpu_hold(false);
	dr_fgpu_lock();
	while (dr_fgpu_streams)
		dr_fgpu_stream_free((struct CUstream_st *)dr_fgpu_streams);
	while (dr_fgpu_memories)
		dr_fgpu_memory_free((struct dr_fgpu_memory *)dr_fgpu_memories);
	while (dr_fgpu_pinneds)
		dr_fgpu_pinned_free((struct dr_fgpu_pinned *)dr_fgpu_pinneds);
	for (struct dr_fgpu_node *n; (n = dr_fgpu_events) != NULL; free(n))
		dr_fgpu_del(&dr_fgpu_events, n);
	for (struct dr_fgpu_node *n; (n = dr_fgpu_modules) != NULL; free(n))
		dr_fgpu_del(&dr_fgpu_modules, n);
	memset(dr_fgpu_ctx, 0, sizeof(dr_fgpu_ctx));
	dr_fgpu_calls_reset();
	dr_fgpu_streams_reset();
	dr_fgpu_configure();
	dr_fgpu_unlock();
	dr_fgpu_current = NULL;
}

static void set_delay(int64_t ns)
{
	dr_fgpu_lock();
	dr_fgpu_delay(ns);
	dr_fgpu_unlock();
}

/* Order of events matters to nobody here: the process ends, and what it left is told. */
static __attribute__((destructor)) void at_end(void)
{
	struct dr_fakecuda_alive a;
	const char *first;

	get_alive(&a);
	if (dr_fgpu_config.tell_counts)
		dr_fgpu_tell_counts();
	if (alive_total() > 0)
		(void)fprintf(stderr,
			"fake cuda: left behind: %u contexts, %u memories, %u pinned, %u streams, %u events, %u modules\n",
			a.contexts, a.memories, a.pinned, a.streams, a.events, a.modules);
	if (alive_total() > 0 || dr_fgpu_violations(&first) > 0)
		_exit(99);
}

extern DR_EXPORT const struct dr_fakecuda_ctl dr_fakecuda_ctl;
const struct dr_fakecuda_ctl dr_fakecuda_ctl = {
	.reset = reset,
	.fail_call = dr_fgpu_fail_call,
	.failed = dr_fgpu_failed,
	.fail_always = dr_fgpu_fail_always,
	.count = dr_fgpu_count,
	.alive = get_alive,
	.alive_total = alive_total,
	.violations = dr_fgpu_violations,
	.hold = dr_fgpu_hold,
	.delay = set_delay,
	.fail_work = dr_fgpu_fail_work,
	.bytes = dr_fgpu_bytes,
	.pageable = dr_fgpu_pageable,
};
