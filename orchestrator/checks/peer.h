/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PEER_H
#define DR_ORCHESTRATOR_CHECKS_PEER_H

#include "orchestrator/checks/doctor_priv.h"
#include "orchestrator/options/options.h"
#include "orchestrator/session/probe.h"

/* The other end: what it reports, and checks of both. */

/* What the test of the path MTU found on a rail. */
struct dr_doctor_path {
	char nic[IFNAMSIZ], peer_nic[IFNAMSIZ];
	char address[64];	  /* of the NIC here */
	char why[400];		  /* the server's NIC does not answer: see dr_reach_describe; "" */
	bool needed;		  /* then no data flows */
	unsigned nic_mtu;	  /* the smaller one of both NICs */
	struct dr_mtu_way way[2]; /* by receiver, enum dr_plan_end */
	bool hole[2];		  /* see dr_mtu_way_hole */
	char option[32];	  /* of the transport kind, that avoids the holes; "": none */
};

/* ---- peer.c ---- */

/* Compares the two ends: GPU counts, rails without partner; link, speed and MTU of each pair. */
void dr_check_peer(struct dr_doctor *d, const struct dr_plan_probe *probe);

/* settings.c. Compares the settings of the hosts and of the NICs of each pair, and says what they cost where that was
 * measured. own: of this host, its nic[] as those of d. */
void dr_check_peer_settings(
	struct dr_doctor *d, const struct dr_settings *own, const struct dr_plan_probe *probe);

/* The server's NIC of a rail; NULL: it has no partner, or the server does not report it. */
const struct dr_plan_probe_nic *dr_doctor_partner(
	const struct dr_plan_probe *probe, const struct dr_netdev_rail *r);

/* ---- path_mtu.c ---- */

/* The result of a rail of the probe's plan. */
void dr_doctor_path_mtu(const struct dr_probe *probe, unsigned rail, struct dr_doctor_path *out);
/* A finding for each direction, or that the server's NIC does not answer. */
void dr_check_path_mtu(struct dr_doctor *d, const struct dr_doctor_path *p);

#endif
