/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_PROBE_H
#define DR_ORCHESTRATOR_SESSION_PROBE_H

#include "bootstrap/bootstrap.h"
#include "orchestrator/output/values.h"
#include "orchestrator/plan/probe.h"
#include "orchestrator/session/mtu.h"
#include "orchestrator/session/session.h"

/*
 * The first half of a client's bootstrap: hello, key, offer, reply. The offer is the one of a
 * client with the same options, so the pairs of NICs are those of a run. Then both ends test each
 * pair (mtu.h), and this end drops the session: the server is free for the next client. A run
 * begins with it, so that only NICs that answer become rails; doctor prints what it found.
 */
struct dr_probe {
	const struct dr_options *opt;
	const struct dr_rights *rights; /* to be reduced once it has connected; NULL: they are */
	const struct dr_boot_key *key;	/* NULL: read from --key-file */
	struct dr_loop *loop;
	int64_t patience_ns; /* to connect */
	bool wait_busy;
	/* For a run: it is over when each pair has passed full packets, or after a second, and says
	 * what it waits for. Else it goes on until the path MTU of each pair is known, up to 7 s. */
	bool brief;
	/* The offer; with the pairs of NICs afterwards. n_rails 0: the server would refuse a run. */
	struct dr_plan plan;

	/* What was found. */
	struct dr_plan_probe peer;
	struct dr_mtu_check mtu; /* of plan.rail[] */
	char version[64];	 /* of the server's build */
	int status;		 /* on failure: the exit status, */
	enum dr_reason reason;	 /* and of DR_EXIT_PEER the reason */

	/* Its own. */
	struct dr_boot_client *boot;
	bool answered, dropped, over;
	int64_t answered_ns;
	int rc;
	struct dr_err *e;
};

/* Blocks until it is over; SIGINT and SIGTERM end it. 0, or -errno with e, status and reason. */
int dr_probe_run(struct dr_probe *p, struct dr_err *e) DR_MUST_CHECK;
/* Allowed on a zeroed one, and twice. */
void dr_probe_close(struct dr_probe *p);
/* The pair is a rail: the other end answered over it, packets of full size too, or it was not
 * tested. */
bool dr_probe_answers(const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail);
/* Why the other end of the rail does not answer at this end, with what to do. */
void dr_probe_why(const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail, char *buf,
	size_t len);
/* Why data paths on these rails do not come up at this end: "NIC ADDRESS: cause", of one rail. */
void dr_rails_why(
	const struct dr_plan *p, enum dr_plan_end here, uint32_t rails, char *buf, size_t len);

/* What a client or doctor waits for, for people. */
void dr_dial_tell(const struct dr_options *o, const struct dr_boot_client *boot);

#endif
