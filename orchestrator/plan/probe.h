/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_PLAN_PROBE_H
#define DR_ORCHESTRATOR_PLAN_PROBE_H

#include "base/err.h"
#include "orchestrator/plan/settings.h"

#include <jansson.h>

/*
 * What a server tells doctor of itself. doctor makes the same offer as a client and marks it; the server
 * matches rails as for a run, answers with the pairs and with its NICs, and no session follows. A
 * server that does not know the mark answers as to a client: then its NICs are not known.
 *
 *   offer + {"look": true}   ->  {"rails": as dr_plan_reply, "look": {"gpus": n, "named": bool, "why": text|null,
 *                                 "congestion_control", "tcp_rmem_max", "tcp_wmem_max",
 *                                 "nics": [{name, address, prefix, mtu, speed_mbps, running, tso, gso, gro}]}}
 * Settings are missing where they are unknown, and from servers that do not tell them.
 */
enum { DR_PLAN_PROBE_NICS_MAX = 64 };

struct dr_plan_probe_nic {
	char name[IFNAMSIZ];
	char address[64];
	unsigned prefix, mtu;
	int64_t speed_mbps; /* -1: unknown */
	bool running;
	int tso, gso, gro; /* as struct dr_settings_nic, plus one: 0 unknown, 1 off, 2 on */
};

struct dr_plan_probe {
	unsigned n_gpus;
	bool named;		     /* the server was told which NICs to use */
	char why[200];		     /* why it would refuse a run; "": it would not */
	struct dr_settings settings; /* those of the NICs are in nic[] */
	unsigned n_nics;
	struct dr_plan_probe_nic nic[DR_PLAN_PROBE_NICS_MAX];
};

/* Marks an offer; 0 or -1 (no memory). */
int dr_plan_probe_mark(json_t *offer);
bool dr_plan_probe_marked(const json_t *offer);
/* What the server tells of itself. */
struct dr_plan_probe_own {
	const struct dr_netdev_rail *nic;
	unsigned n;
	const struct dr_settings *settings; /* its nic[] in the order of `nic` */
	size_t gpus;
	bool named;
	const char *why; /* NULL: nothing to say */
};
/* The server's answer: pairs is dr_plan_reply's, or has no rails when they do not match; taken over. A new object;
 * NULL: no memory, as when pairs is. */
json_t *dr_plan_probe_reply(json_t *pairs, const struct dr_plan_probe_own *own);
/* The pairs are those of dr_plan_read_reply. Any JSON is safe: -EPROTO. */
int dr_plan_probe_read(const json_t *reply, struct dr_plan_probe *out, struct dr_err *e)
	DR_MUST_CHECK;

#endif
