/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_ACT_NIC_H
#define DR_ORCHESTRATOR_FAULT_ACT_NIC_H

#include "orchestrator/fault/state.h"
#include "topology/netdev.h"

/*
 * What addr-del does, in the three steps of act.c. s->undo holds the address; every function may be
 * repeated.
 */

/* "NAME@ADDRESS" or "NAME" into the name (cap bytes); the address, or "". */
const char *dr_act_nic_split(const char *nic, char *name, size_t cap);

/* Looks for the address ("": the device's first global one), keeps it and what goes with it. -EBUSY
 * when the kernel would take other addresses with it, -EADDRNOTAVAIL. */
int dr_act_addr_look(struct dr_state *s, const struct dr_netdev *d, const char *address,
	struct dr_err *e) DR_MUST_CHECK;
int dr_act_addr_del(const struct dr_state *s, struct dr_err *e) DR_MUST_CHECK;
int dr_act_addr_back(const struct dr_state *s, struct dr_err *e) DR_MUST_CHECK;

#endif
