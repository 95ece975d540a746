/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_PEER_H
#define DR_ORCHESTRATOR_DOCTOR_PEER_H

#include "orchestrator/doctor/checks.h"
#include "orchestrator/options/options.h"
#include "orchestrator/plan/probe.h"
#include "topology/pmtu.h"
#include "topology/route.h"

/* The other end: what it reports, and checks of both. */

/* ---- probe.c ---- */

/*
 * Request the NICs and GPUs of the server on o->host (--port, --control, --key-file). Blocks for at most
 * --connect-timeout; SIGINT and SIGTERM end it. peer_version: the server's build version, at least 64 bytes.
 * *status on failure: the exit status, 3 if the cause is the peer, 1 or 2 if it is this end.
 */
int dr_doctor_probe(const struct dr_options *o, const struct dr_route *route,
	struct dr_plan_probe *out, char *peer_version, int *status, struct dr_err *e) DR_MUST_CHECK;

/* ---- peer.c ---- */

/* Compares the two ends: GPU counts, rails without partner; link, speed and MTU of each pair. */
void dr_check_peer(struct dr_doctor *d, const struct dr_plan_probe *probe);

/* The server's end of a rail. */
struct dr_doctor_end {
	struct sockaddr_storage addr; /* AF_UNSPEC: the rail has no partner */
	unsigned mtu;		      /* 0: unknown */
};
/* Of each rail, in their order. */
void dr_doctor_ends(const struct dr_doctor *d, const struct dr_plan_probe *probe,
	struct dr_doctor_end out[DR_RAILS_MAX]);

void dr_check_pmtu(struct dr_doctor *d, const struct dr_doctor_nic *nic,
	const struct dr_doctor_end *peer, const struct dr_pmtu *got);

#endif
