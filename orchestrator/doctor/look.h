/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_LOOK_H
#define DR_ORCHESTRATOR_DOCTOR_LOOK_H

#include "base/err.h"
#include "topology/netdev.h"

#include <jansson.h>

/*
 * What a server tells doctor of itself. doctor makes the same offer as a client and marks it; the server
 * matches rails as for a run, answers with the pairs and with its NICs, and no session follows. A
 * server that does not know the mark answers as to a client: then its NICs are not known.
 *
 *   offer + {"look": true}   ->  {"rails": as dr_plan_reply, "look": {"gpus": n, "why": text|null,
 *                                 "nics": [{name, address, prefix, mtu, speed_mbps, running}]}}
 */
enum { DR_LOOK_NICS_MAX = 64 };

struct dr_look_nic {
	char name[IFNAMSIZ];
	char address[64];
	unsigned mtu;
	int64_t speed_mbps; /* -1: unknown */
	bool running;
};

struct dr_look_pair {
	char client[64], server[64]; /* addresses */
};

struct dr_look {
	bool tells; /* it knows doctor: n_gpus, nic and why mean something */
	unsigned n_gpus;
	char why[200]; /* why it would refuse a run; "": it would not */
	unsigned n_nics, n_pairs;
	struct dr_look_nic nic[DR_LOOK_NICS_MAX];
	struct dr_look_pair pair[DR_LOOK_NICS_MAX];
};

/* Marks an offer; 0 or -1 (no memory). */
int dr_look_mark(json_t *offer);
bool dr_look_marked(const json_t *offer);
/* The server's answer: pairs is dr_plan_reply's, or has no rails when they do not match; taken
 * over. why NULL: nothing to say. A new object; NULL: no memory, as when pairs is. */
json_t *dr_look_reply(
	json_t *pairs, const struct dr_netdev_rail *nic, unsigned n, size_t gpus, const char *why);
/* Any JSON is safe: -EPROTO. */
int dr_look_read(const json_t *reply, struct dr_look *out, struct dr_err *e) DR_MUST_CHECK;

#endif
