/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CLOCK_TESTKIT_H
#define DR_BOOTSTRAP_CLOCK_TESTKIT_H

#include "base/clock.h"
#include "base/defs.h"

/* The clock of everything in this program (the linker's --wrap). It advances between two turns alone, by the time that
 * passed but at most by 1 ms if something happened, and else by the time that was to be waited for. So a process that
 * is not scheduled for a second sees neither a silence nor a conversation of that length. */
int64_t __real_dr_now_ns(void);
int64_t __wrap_dr_now_ns(void);

static struct {
	int64_t now_ns, read_ns; /* what the program sees; the real clock at that time */
} test_clock;

int64_t __wrap_dr_now_ns(void)
{
	if (!test_clock.read_ns)
		test_clock.now_ns = test_clock.read_ns = __real_dr_now_ns();
	return test_clock.now_ns;
}

static void advance_clock(int64_t waited_ns)
{
	int64_t real_ns = __real_dr_now_ns(), now_ns = dr_now_ns();

	test_clock.now_ns =
		now_ns + DR_MIN(real_ns - test_clock.read_ns, DR_MAX(waited_ns, DR_NS_PER_MS));
	test_clock.read_ns = real_ns;
}

#endif
