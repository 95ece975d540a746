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
 * Bind the calling thread to those CPUs of the node that it may use, and prefer the node for pages that it touches
 * first. Call it before the buffers are touched. On error nothing changes: -ENODEV no such node, -EPERM none of its
 * CPUs is allowed (taskset, cpuset), or the system call's error.
 */
int dr_numa_bind_thread(int node, struct dr_err *e) DR_MUST_CHECK;
/* Pages only, for a thread that is already pinned to a CPU. -ENODEV. */
int dr_numa_prefer(int node, struct dr_err *e) DR_MUST_CHECK;

#endif
