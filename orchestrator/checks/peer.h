/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PEER_H
#define DR_ORCHESTRATOR_CHECKS_PEER_H

#include "orchestrator/checks/doctor_priv.h"
#include "orchestrator/options/options.h"
#include "orchestrator/plan/probe.h"
#include "orchestrator/session/mtu.h"
#include "orchestrator/session/session.h"
#include "topology/route.h"

/* The other end: what it reports, and checks of both. */

/* What the test of the path MTU found on a rail. */
struct dr_doctor_path {
	char nic[IFNAMSIZ], peer_nic[IFNAMSIZ];
	char address[64]; /* of the NIC here */
	char peer_address[64];
	int err;		  /* no connection to the server's NIC; see struct dr_mtu_rail */
	unsigned nic_mtu;	  /* the smaller one of both NICs */
	struct dr_mtu_way way[2]; /* by receiver, enum dr_plan_end */
	bool hole[2];		  /* see dr_mtu_way_hole */
	char option[32];	  /* of the transport kind, that avoids the holes; "": none */
};
struct dr_doctor_paths {
	unsigned n;
	struct dr_doctor_path v[DR_RAILS_MAX];
};

/* All that is known of the other end. */
struct dr_doctor_peer {
	char version[64]; /* of its build */
	struct dr_plan_probe probe;
	struct dr_doctor_paths paths;
};

/* ---- probe.c ---- */

/*
 * As --user, request the NICs and GPUs of the server on o->host (--port, --control, --key-file) and
 * test the path MTU. Blocks for at most --connect-timeout and 7 s; SIGINT and SIGTERM end it.
 * *status on failure: the exit status, 3 if the cause is the peer, 1 or 2 if it is this end.
 */
int dr_doctor_probe(const struct dr_options *o, const struct dr_route *route,
	const struct dr_rights *r, struct dr_doctor_peer *out, int *status, struct dr_err *e)
	DR_MUST_CHECK;

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

/* The server's addresses of the rails, in their order; AF_UNSPEC: the rail has no partner. */
void dr_doctor_ends(const struct dr_doctor *d, const struct dr_plan_probe *probe,
	struct sockaddr_storage out[DR_RAILS_MAX]);

/* ---- path_mtu.c ---- */

/* The result of a rail of the plan; the test is over. */
void dr_doctor_path_mtu(const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail,
	struct dr_doctor_path *out);
/* One finding for each direction. */
void dr_check_path_mtu(struct dr_doctor *d, const struct dr_doctor_path *p);

#endif
