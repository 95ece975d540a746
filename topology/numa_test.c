/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/numa.h"

#include <errno.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct job {
	int node, rc;
	unsigned cpus;	/* that the thread may use afterwards */
	bool elsewhere; /* one of them is on another node */
	int mode;	/* memory policy */
	unsigned long nodes;
	int cpu_first; /* -1: of all CPUs allowed */
	struct dr_err e;
};

static void look(struct job *j)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		j->cpus++;
		j->elsewhere = j->elsewhere || dr_numa_node_of_cpu(cpu) != j->node;
	}
	get_mempolicy(&j->mode, &j->nodes, sizeof(j->nodes) * 8, NULL, 0);
}

static void *bind_and_look(void *arg)
{
	struct job *j = arg;
	cpu_set_t one;

	if (j->cpu_first >= 0) {
		CPU_ZERO(&one);
		CPU_SET(j->cpu_first, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
	j->rc = dr_numa_bind_thread(j->node, &j->e);
	look(j);
	return NULL;
}

static void run(struct job *j)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, bind_and_look, j), 0);
	pthread_join(t, NULL);
}

static int a_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	sched_getaffinity(0, sizeof(set), &set);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

static void need_numa(void)
{
	if (dr_numa_node_of_cpu(a_cpu()) < 0) {
		print_message("skipped: this kernel has no NUMA\n");
		skip();
	}
}

static void a_thread_runs_and_allocates_on_its_node(void **state)
{
	struct job j = { .node = dr_numa_node_of_cpu(a_cpu()), .cpu_first = -1 };

	(void)state;
	need_numa();
	run(&j);
	assert_int_equal(j.rc, 0);
	assert_true(j.cpus > 0);
	assert_false(j.elsewhere);
	assert_int_equal(j.mode, MPOL_PREFERRED);
	assert_int_equal(j.nodes, 1ul << j.node);
}

static void what_was_not_allowed_before_is_not_now(void **state)
{
	struct job j = { .node = dr_numa_node_of_cpu(a_cpu()), .cpu_first = a_cpu() };

	(void)state;
	need_numa();
	run(&j);
	assert_int_equal(j.rc, 0);
	assert_int_equal(j.cpus, 1);
}

static void a_node_that_is_not_there(void **state)
{
	struct job j = { .node = 1000, .cpu_first = -1 };
	struct dr_err e;

	(void)state;
	run(&j);
	assert_int_equal(j.rc, -ENODEV);
	assert_non_null(strstr(j.e.text, "1000"));
	assert_int_equal(j.mode, MPOL_DEFAULT);
	assert_int_equal(dr_numa_bind_thread(-1, &e), -ENODEV);
	assert_int_equal(dr_numa_prefer(-1, &e), -ENODEV);
}

static void there_is_a_node(void **state)
{
	(void)state;
	assert_true(dr_numa_nodes() >= 1);
	assert_int_equal(dr_numa_node_of_cpu(1 << 20), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_runs_and_allocates_on_its_node),
		cmocka_unit_test(what_was_not_allowed_before_is_not_now),
		cmocka_unit_test(a_node_that_is_not_there),
		cmocka_unit_test(there_is_a_node),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
