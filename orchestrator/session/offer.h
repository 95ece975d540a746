/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_OFFER_H
#define DR_ORCHESTRATOR_SESSION_OFFER_H

#include "bootstrap/bootstrap.h"
#include "orchestrator/options/options.h"
#include "orchestrator/plan/plan.h"
#include "topology/route.h"

/*
 * What this end offers for the plan's transport: as dr_route_rails, but the kind's own names of
 * NICs are accepted in --rails, and each rail is probed, so that what is missing is reported
 * before the peer is called. Without --rails, NICs that the kind cannot use are left out.
 * Errors: those of dr_netdev_rails and of the kind's probe; -EMSGSIZE for parameters that a NIC cannot do.
 */
struct dr_rails {
	struct dr_netdev_rail v[DR_NICS_MAX];
	unsigned n;
};
int dr_rails_find(const struct dr_options *o, const struct dr_plan *p, const struct dr_route *route,
	struct dr_rails *out, struct dr_err *e) DR_MUST_CHECK;
/* The route of the control connection with --control: to host, or NULL: to the peer that out names already (at a
 * server). Errors of dr_route_to_host; -ENODEV: --control is nothing of this host. */
int dr_rails_route(const struct dr_options *o, const char *host, struct dr_route *out,
	struct dr_err *e) DR_MUST_CHECK;
/* A list like --rails, --map or --spread with the kind's names of NICs replaced by those of their net
 * devices; other items stay. false: buf is too short. kind may be NULL.
 * e: why the last unknown name is none of the kind's; untouched when there was none. */
bool dr_rails_rename(const struct dr_transport_kind *kind, const char *text, char *buf, size_t len,
	struct dr_err *e);

/*
 * What a client with these options offers, for a run and for doctor's probe. settings: what the options
 * alone determine. plan: the whole, over this route, settings included. topo: this machine, kept in
 * the plan; NULL: its places are unknown. Errors of dr_rails_find, and -EINVAL for --map and --spread.
 */
void dr_client_settings(const struct dr_options *o, struct dr_plan *p);
/* NICs that the peer does not answer on. */
struct dr_silent_nics {
	unsigned n;
	struct dr_silent_nic {
		char name[IFNAMSIZ];
		char address[64], peer[64];
		const char *what; /* DR_NO_ANSWER, DR_LOSES_LARGE */
	} v[DR_RAILS_MAX];
};
/* without: NICs that are not offered; NULL: none. */
int dr_client_plan(const struct dr_options *o, const struct dr_route *route,
	const struct dr_topo *topo, const struct dr_silent_nics *without, struct dr_plan *p,
	struct dr_err *e) DR_MUST_CHECK;

/*
 * How a client or doctor connects to a server. Host, GPUs, port, local address, key and timeout of the
 * control connection are those of the options.
 */
struct dr_dial {
	const struct dr_options *opt;
	const struct dr_boot_key *key; /* NULL: read from --key-file */
	bool pair;		       /* more GPUs than the server has are no reason to refuse */
	int64_t patience_ns;	       /* for a server that is still to be started, or */
	bool wait_busy;		       /* that serves another client */
	const struct dr_boot_ops *ops;
	void *arg;
	struct dr_poller *poller;
};
/* Takes the reference of the offer; NULL: there was no memory for it. Errors of dr_boot_key_read and
 * dr_boot_client_create; on failure *out is as it was. */
int dr_dial(const struct dr_dial *d, json_t *offer, struct dr_boot_client **out, struct dr_err *e)
	DR_MUST_CHECK;

#endif
