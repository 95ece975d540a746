/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/numa.h"

#include <errno.h>
#include <numa.h>
#include <sched.h>
#include <string.h>

/* Without this test libnuma's calls end the process or return garbage. */
static bool available(void)
{
	return numa_available() >= 0;
}

static bool has_cpus(int node)
{
	struct bitmask *cpus = numa_allocate_cpumask();
	bool any = cpus && numa_node_to_cpus(node, cpus) == 0 && numa_bitmask_weight(cpus) > 0;

	if (cpus)
		numa_free_cpumask(cpus);
	return any;
}

unsigned dr_numa_nodes(void)
{
	unsigned n = 0;

	if (!available())
		return 1;
	for (int node = 0; node <= numa_max_node(); node++)
		n += has_cpus(node);
	return DR_MAX(n, 1u);
}

int dr_numa_node_of_cpu(int cpu)
{
	return available() ? numa_node_of_cpu(cpu) : -1;
}

static int no_node(int node, struct dr_err *e)
{
	return dr_err_set(e, -ENODEV, "no NUMA node %d: this machine has %u nodes with CPUs", node,
		dr_numa_nodes());
}

int dr_numa_prefer(int node, struct dr_err *e)
{
	if (!available() || node < 0 || node > numa_max_node())
		return no_node(node, e);
	numa_set_preferred(node);
	return 0;
}

/* Reduces wanted to the CPUs that the thread may use now. */
static int allowed_of(struct bitmask *wanted)
{
	struct bitmask *now = numa_allocate_cpumask();
	int rc = 0;

	if (!now)
		return -ENOMEM;
	if (numa_sched_getaffinity(0, now) < 0)
		rc = -errno;
	for (unsigned cpu = 0; rc == 0 && cpu < wanted->size; cpu++)
		if (cpu >= now->size || !numa_bitmask_isbitset(now, cpu))
			numa_bitmask_clearbit(wanted, cpu);
	numa_free_cpumask(now);
	return rc;
}

int dr_numa_bind_thread(int node, struct dr_err *e)
{
	if (!available() || node < 0 || node > numa_max_node() || !has_cpus(node))
		return no_node(node, e);
	struct bitmask *cpus = numa_allocate_cpumask();
	if (!cpus)
		return dr_err_set(e, -ENOMEM, "bind to NUMA node %d: out of memory", node);
	int rc = numa_node_to_cpus(node, cpus) ? -errno : allowed_of(cpus);
	if (rc == 0 && numa_bitmask_weight(cpus) == 0)
		rc = -EPERM;
	else if (rc == 0 && numa_sched_setaffinity(0, cpus) < 0)
		rc = -errno;
	numa_free_cpumask(cpus);
	if (rc == -EPERM)
		return dr_err_set(e, rc,
			"bind to NUMA node %d: none of its CPUs is allowed; extend the cpuset or the taskset mask",
			node);
	if (rc)
		return dr_err_set(e, rc, "bind to NUMA node %d: %s", node, strerror(-rc));
	numa_set_preferred(node);
	return 0;
}
