/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_RDMA_H
#define DR_ORCHESTRATOR_DOCTOR_RDMA_H

#include "orchestrator/doctor/checks.h"
#include "orchestrator/kinds.h"

/* As dr_kind_rdma. */
typedef int (*dr_doctor_rdma_fn)(const struct dr_options *o, const struct dr_netdev_rail *rail,
	struct dr_kind_rdma *out, struct dr_err *e);

/*
 * Device, port state, GID of the rail's address and its RoCE version, active MTU against what the net
 * device allows. What is missing stops a run of verbs and is a note for others. named: the rails were,
 * so that each must have a device; else verbs leaves those without one out. True when there is one.
 */
bool dr_check_rdma(const struct dr_options *o, bool verbs, bool named,
	const struct dr_doctor_nic *nic, unsigned n, dr_doctor_rdma_fn probe,
	struct dr_findings *f);

#endif
