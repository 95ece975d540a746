/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_KINDS_H
#define DR_ORCHESTRATOR_KINDS_H

#include "orchestrator/options.h"
#include "orchestrator/plan.h"
#include "orchestrator/session_route.h"

/*
 * What the program knows of particular kinds of transport: their options, their names for NICs, their
 * faults. kinds.c is the one file outside transport/ that includes a kind's own header; everything
 * else goes through transport/path.h.
 */

/* Options and faults that the chosen kind does not have: -EINVAL. */
int dr_kind_check(const struct dr_options *o, struct dr_err *e) DR_MUST_CHECK;
/* The client's options into its plan. */
void dr_kind_plan(const struct dr_options *o, struct dr_plan *p);
/* The server follows the client's plan unless it was told another kind: -EPROTO with both, -ENOTSUP
 * when this build does not have the client's. */
int dr_kind_follow(const struct dr_options *o, const struct dr_plan *p, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * The rails of this end for the plan's kind, as dr_route_rails, which it uses; names of RDMA devices
 * are allowed, and with verbs each rail is tried out, so that what is missing is said before anybody
 * is called. Without --rails those NICs are left out that have no RDMA device. Errors: those of
 * dr_netdev_rails and dr_verbs_dev_open; -EMSGSIZE for --mtu above the port's.
 */
int dr_kind_rails(const struct dr_options *o, const struct dr_plan *p, const struct dr_route *route,
	struct dr_netdev_rail *out, unsigned cap, struct dr_err *e) DR_MUST_CHECK;
/* As dr_route_spare; with verbs only a NIC that has an RDMA device. */
bool dr_kind_spare(const struct dr_options *o, const struct dr_plan *p,
	const struct dr_route *route, const struct dr_netdev_rail *rails, unsigned n,
	struct dr_netdev_rail *out);
/* --map or --spread with the names of RDMA devices in it replaced by those of their net devices;
 * false when buf is too short. Items that are no such name stay as they are. */
bool dr_kind_rename(const struct dr_plan *p, const char *text, char *buf, size_t len);

/* What the verbs kind would use for a rail. */
struct dr_kind_rdma {
	char device[64];
	unsigned port, gid_index;
	bool roce, v2; /* v2: the GID of the rail's address is a RoCE v2 one */
	unsigned mtu;  /* active, bytes */
};
/* Looks and closes again, whatever the run's transport. Errors of dr_verbs_dev_open. */
int dr_kind_rdma(const struct dr_options *o, const struct dr_netdev_rail *rail,
	struct dr_kind_rdma *out, struct dr_err *e) DR_MUST_CHECK;

/* Settings of a session's kind, which dr_manager_params points to. */
struct dr_kind;
int dr_kind_create(const struct dr_options *o, const struct dr_plan *p, struct dr_kind **out,
	struct dr_err *e) DR_MUST_CHECK;
void dr_kind_destroy(struct dr_kind *k);
/* Sets transport, kind_params and hw_window_ns. */
void dr_kind_manager(struct dr_kind *k, struct dr_manager_params *out);

/* Does the kind have this fault? -EINVAL. */
int dr_kind_fault(const char *transport, const struct dr_fault_spec *s, struct dr_err *e)
	DR_MUST_CHECK;
/* What says how a kind reaches GPU memory, in words; NULL: it reaches none. */
const char *(*dr_kind_memory_words(const struct dr_transport_ops *t))(const struct dr_mr *mr);
/* Fault qp-error on a path of the verbs kind. */
void dr_kind_qp_error(struct dr_path *p);

#endif
