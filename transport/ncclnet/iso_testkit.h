/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_ISO_TESTKIT_H
#define DR_TRANSPORT_NCCLNET_ISO_TESTKIT_H

#include "base/clock.h"
#include "base/sysfile.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* For the tests of isolated plugins. */

#define until(cond)                                                                                \
	do {                                                                                       \
		int64_t end = dr_now_ns() + 60 * DR_NS_PER_S;                                      \
		while (!(cond)) {                                                                  \
			(void)poll(NULL, 0, 1);                                                    \
			if (dr_now_ns() > end)                                                     \
				fail_msg("never: %s", #cond);                                      \
		}                                                                                  \
	} while (0)

/* A signal that stops a process takes effect some time after kill(). */
struct running {
	pid_t pid;
	unsigned n;
};

static inline int count_running(const char *tid, void *arg)
{
	struct running *r = arg;
	char stat[128];
	const char *state;

	(void)dr_sysfile_text(stat, sizeof(stat), "", "/proc/%d/task/%s/stat", r->pid, tid);
	state = strrchr(stat, ')');
	r->n += !state || state[2] != 'T';
	return 0;
}

static inline bool all_stopped(pid_t pid)
{
	struct running r = { .pid = pid };
	char tasks[64];

	(void)snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
	(void)dr_sysfile_each("", tasks, count_running, &r);
	return r.n == 0;
}

#endif
