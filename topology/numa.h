/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NUMA_H
#define DR_TOPOLOGY_NUMA_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>

/*
 * NUMA nodes of the running machine, through libnuma. Thread safe. Numbers are the kernel's, which are
 * hwloc's os indexes too.
 */

/* Nodes that have CPUs; 1 where the kernel has no NUMA. */
unsigned dr_numa_nodes(void);
/* -1: no such CPU, or no NUMA. */
int dr_numa_node_of_cpu(int cpu);

/*
 * From now on the calling thread runs on the CPUs of the node only, as far as it was allowed to use
 * them before, and pages that it touches first come from there as long as there are any. To be called
 * before its buffers are touched. Errors, nothing changed: -ENODEV no such node, -EPERM none of its
 * CPUs is allowed (taskset, cpuset), or the system call's.
 */
int dr_numa_bind_thread(int node, struct dr_err *e) DR_MUST_CHECK;
/* Pages only, for a thread that is pinned to a CPU already. -ENODEV. */
int dr_numa_prefer(int node, struct dr_err *e) DR_MUST_CHECK;

#endif
