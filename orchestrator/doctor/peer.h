/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_PEER_H
#define DR_ORCHESTRATOR_DOCTOR_PEER_H

#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/look.h"

/* Both ends beside each other: GPU counts, rails without partner, link, speed and MTU of each pair. */
void dr_check_peer(const struct dr_doctor_run *run, bool pair, const struct dr_doctor_nic *nic,
	unsigned n, const struct dr_look *look, struct dr_findings *f);

/* The server's end of a rail. */
struct dr_doctor_end {
	struct sockaddr_storage addr; /* AF_UNSPEC: the rail has no partner */
	unsigned mtu;		      /* 0: not known */
};
/* For each of nic, in their order. */
void dr_look_ends(const struct dr_look *look, const struct dr_doctor_nic *nic, unsigned n,
	struct dr_doctor_end *out);

/* ---- pmtu.c: do packets of the rail's MTU arrive at the other end? ---- */

enum dr_pmtu_what {
	DR_PMTU_ARRIVES, /* a packet as large as the MTU was answered */
	DR_PMTU_SMALLER, /* a router, or this kernel, says that it is too large; bytes: what fits */
	DR_PMTU_VANISHES, /* a small one was answered, a large one never */
	DR_PMTU_SILENT,	  /* neither was: a firewall, or nothing is known */
	DR_PMTU_ERROR,	  /* could not be sent; err */
};
struct dr_pmtu {
	enum dr_pmtu_what what;
	unsigned bytes;
	int err;
};
/*
 * Sends datagrams that must not be fragmented, from the rail's NIC to a port that nobody listens on
 * (33434, where traceroute begins): the peer's kernel answers with "port unreachable". The large one fits
 * into both ends' MTU, as TCP's segments do; what stops it lies between. At most 3 s.
 */
void dr_pmtu_probe(
	const struct dr_netdev_rail *rail, const struct dr_doctor_end *peer, struct dr_pmtu *out);
void dr_check_pmtu(const struct dr_doctor_nic *nic, const struct dr_doctor_end *peer,
	const struct dr_pmtu *got, struct dr_findings *f);

#endif
