/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_MTU_H
#define DR_ORCHESTRATOR_SESSION_MTU_H

#include "orchestrator/plan/plan.h"
#include "topology/mtu_rail.h"

/*
 * The test of all pairs of NICs of a plan and of their path MTU (topology/mtu_search.h). The ends
 * tell each other their ports in offer and reply. A peer of an earlier version has none: then
 * nothing is tested.
 *
 * open -> (offer and reply) -> start -> tick ... -> close. One thread, non-blocking.
 */
struct dr_mtu_check {
	enum dr_plan_end side;
	unsigned n_rails; /* of the plan, as numbered when the test began; 0: not started */
	struct dr_mtu_rail *rail[DR_RAILS_MAX]; /* NULL: not tested */
	uint32_t full_bytes[DR_RAILS_MAX];
	unsigned n_own;
	struct dr_mtu_own {
		struct dr_mtu_rail end;
		char address[64];
		uint16_t port;
	} own[DR_NICS_MAX]; /* of the client: of all that it offers */
};

/* The local ends of the plan's rails get a port, at the client those that it offers:
 * dr_plan_rail.mtu_port. m is zeroed, or of an earlier test. What cannot be opened is not tested.
 * */
void dr_mtu_check_open(struct dr_mtu_check *m, struct dr_plan *p, enum dr_plan_end side,
	uint16_t port_min, uint16_t port_max);
/* Both ends' rails are matched, and the peer's ports known. */
void dr_mtu_check_start(struct dr_mtu_check *m, const struct dr_plan *p,
	const uint8_t token[DR_TOKEN_LEN], struct dr_poller *poller, int64_t now);
int64_t dr_mtu_check_deadline(const struct dr_mtu_check *m);
void dr_mtu_check_tick(struct dr_mtu_check *m, int64_t now);
/* The results of the rail are final. */
bool dr_mtu_check_rail_over(const struct dr_mtu_check *m, unsigned rail);
/* Allowed on a zeroed one, and twice. */
void dr_mtu_check_close(struct dr_mtu_check *m);

/* What the test found in that direction, for people: "WHAT; WHAT TO DO". HOLE where larger packets
 * do not arrive and nobody adapts their size. */
enum dr_mtu_state dr_mtu_describe(const struct dr_plan *p, const struct dr_mtu_check *m,
	unsigned rail, enum dr_plan_end receiver, struct dr_err *text);

#endif
