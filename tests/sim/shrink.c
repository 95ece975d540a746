/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Less of a schedule that fails: leaves out one fault or trait after the other and keeps what still
 * fails, until nothing can go. Each try is a process of its own, since an assertion ends it.
 */

static bool fails(uint64_t seed, uint32_t without)
{
	char why[400];
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(0);
		_exit(sim_schedule_run(seed, without, why, sizeof(why)) != 0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid &&
	       !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void sim_shrink(uint64_t seed)
{
	struct sim_schedule s;
	uint32_t without = 0;
	bool less = true;

	if (!fails(seed, 0))
		return;
	sim_draw(&s, seed, 0);
	while (less) {
		less = false;
		for (unsigned bit = 0; bit < SIM_WITHOUT_BITS; bit++) {
			uint32_t tried = without | 1u << bit;

			if ((bit < 16 && bit >= s.n_faults) || tried == without ||
				!fails(seed, tried))
				continue;
			without = tried;
			less = true;
		}
	}
	sim_draw(&s, seed, without);
	printf("smaller: make sim SEED=%" PRIu64 " WITHOUT=0x%x  (%u of %u faults:", seed, without,
		sim_count_faults(&s), s.n_faults);
	for (unsigned i = 0; i < s.n_faults; i++)
		if (!(without & (1u << i)))
			printf(" %s rail %u (%s)", sim_fault_names[s.fault[i].kind],
				s.fault[i].rail, sim_step_names[s.fault[i].step]);
	printf(")\n");
	fflush(stdout);
}
