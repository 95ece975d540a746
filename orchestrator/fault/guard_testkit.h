/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_GUARD_TESTKIT_H
#define DR_ORCHESTRATOR_FAULT_GUARD_TESTKIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "orchestrator/demo/lab.h"
#include "orchestrator/fault/guard_priv.h"
#include "topology/netdev.h"

/* Node 0 of a lab with two rails, and a directory for the records of faults. */
static struct dr_err unsupported;
static struct dr_lab lab;
static char dir[64];
static struct dr_guard *guard;

static inline int set_up_lab(void **state)
{
	(void)state;
	if (dr_lab_supported(&unsupported) < 0)
		return 0;
	snprintf(dir, sizeof(dir), "/tmp/dr-guard-test-XXXXXX");
	return mkdtemp(dir) ? dr_lab_create(2, 0, &lab, NULL) || dr_lab_enter(&lab, 0, NULL) : -1;
}

static inline int tear_down_lab(void **state)
{
	(void)state;
	if (unsupported.code)
		return 0;
	dr_lab_destroy(&lab);
	return rmdir(dir); /* fails when a record is left */
}

static inline void need_lab(void)
{
	if (unsupported.code) {
		print_message("SKIP: %s\n", unsupported.text);
		skip();
	}
}

static inline void begin_with(const struct dr_guard_options *opt)
{
	struct dr_guard_options o = opt ? *opt : (struct dr_guard_options){ 0 };
	struct dr_err e;

	need_lab();
	o.state_dir = dir;
	if (dr_guard_start(&o, &guard, &e) < 0)
		fail_msg("%s", e.text);
}

static inline int end(void **state)
{
	(void)state;
	dr_guard_stop(guard);
	guard = NULL;
	return 0;
}

static inline bool is_up(const char *nic)
{
	struct dr_netdev d;

	return dr_netdev_by_name(nic, &d, NULL) == 0 && d.up;
}

#endif
