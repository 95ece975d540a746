/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_PLAN_SETTINGS_H
#define DR_ORCHESTRATOR_PLAN_SETTINGS_H

#include "channel/manager.h"
#include "topology/netdev.h"

/* Settings of a host and its NICs that change the figures of a run, as far as the kernel tells them. */
struct dr_settings_nic {
	int tso, gso, gro; /* 1 on, 0 off, -1 unknown */
};

struct dr_settings {
	char congestion_control[16]; /* "": unknown */
	uint64_t rmem_max, wmem_max; /* third numbers of tcp_rmem, tcp_wmem, bytes; 0: unknown */
	struct dr_settings_nic nic[DR_RAILS_MAX];
};

/* root: see base/sysfile.h. The NICs are left unknown. */
void dr_settings_read(const char *root, struct dr_settings *out);
/* Of this host, in the caller's network namespace. */
void dr_settings_read_nic(const char *ifname, struct dr_settings_nic *out);

#endif
