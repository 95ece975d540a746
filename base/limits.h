/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_LIMITS_H
#define DR_BASE_LIMITS_H

#include <stdint.h>

/*
 * What this process may use: descriptors, memory, processors, ports. `root` is as of
 * base/sysfile.h. The groups are the process's own cgroup and all above it, version 2, and for
 * memory also version 1. Thread safe.
 */

/* Open descriptors: raises the soft limit to `need`, at most to the hard one; 0: leaves it.
 * Returns the soft limit; UINT64_MAX: none. */
uint64_t dr_limit_files(uint64_t need);
/* Bytes that can be allocated: of the host, and below the limit of each group, page cache
 * included. UINT64_MAX: unknown. */
uint64_t dr_limit_memory(const char *root);
/* Ports of net.ipv4.ip_local_port_range, which IPv6 uses, too, in the thread's namespace. */
unsigned dr_limit_ports(const char *root);

struct dr_limit_cpu {
	double cpus; /* the smallest quota (cpu.max) of the groups; NAN: none */
	/* Sums of the groups since they exist. */
	int64_t throttled;    /* times that their processes had to wait for the next period */
	int64_t throttled_ns; /* how long */
};
void dr_limit_cpu(const char *root, struct dr_limit_cpu *out);

#endif
