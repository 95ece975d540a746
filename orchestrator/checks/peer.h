/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PEER_H
#define DR_ORCHESTRATOR_CHECKS_PEER_H

#include "orchestrator/checks/doctor_priv.h"
#include "orchestrator/options/options.h"
#include "orchestrator/session/probe.h"

/* The other end: what it reports, and checks of both. */

/* ---- peer.c ---- */

/* Compares the two ends: GPU counts, rails without partner; link, speed and MTU of each pair. */
void dr_check_peer(struct dr_doctor *d, const struct dr_probe *probe);

/* settings.c. Compares the settings of the hosts and of the NICs of each pair, and says what they cost where that was
 * measured. own: of this host, its nic[] as those of d. */
void dr_check_peer_settings(
	struct dr_doctor *d, const struct dr_settings *own, const struct dr_probe *probe);

/* The first rail of the plan with this NIC at that end; -1: it has no partner. */
int dr_doctor_rail(const struct dr_plan *plan, enum dr_plan_end end, const char *nic);
/* The server's NIC of that rail; NULL: there is none, or the server does not report it. */
const struct dr_plan_probe_nic *dr_doctor_partner(const struct dr_probe *p, const char *nic);

/* path_mtu.c. Of a rail of the probe's plan: a finding for each direction, or that the server's NIC
 * does not answer. */
void dr_check_path_mtu(struct dr_doctor *d, const struct dr_probe *probe, unsigned rail);

#endif
