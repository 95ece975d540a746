/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CLIENT_PRIV_H
#define DR_ORCHESTRATOR_SESSION_CLIENT_PRIV_H

#include "base/clock.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/session_priv.h"

#include <errno.h>

/*
 * The client's end of a session, for its own files. It runs in a straight line: dr_client_wait turns the
 * loop until a condition holds, the run is over (s.status is set) or a deadline passes.
 *   client.c        from the dial to the end; ready, gone, dead
 *   client_wait.c   what ends the run; the server's messages; the live line
 *   client_phase.c  the phases, --matrix included
 *   campaign.c      the failover test; campaign_rows.c, campaign_gaps.c: the switches and gaps in its record;
 *                   campaign_nics.c: whether the NIC was in use
 */
struct dr_client {
	struct dr_session s;
	struct dr_fault_list faults; /* of the campaign */
	struct dr_thresholds thresholds;
	struct dr_boot_client *boot;
	struct dr_boot_key key;	      /* of --key-file */
	struct dr_silent_nics silent; /* left out */

	int64_t connect_until_ns; /* end of --connect-timeout */

	bool ending;	  /* salvage and goodbye: a wait checks its own condition only */
	bool ready;	  /* handles exchanged */
	bool peer_up;	  /* the channels carry data at the server's end too */
	bool gone;	  /* the control connection is lost and will not come back */
	bool dead;	  /* the peer's process is known to be gone */
	bool peer_failed; /* server's channels ended */
	int peer_err;
	char peer_text[300];

	uint64_t pings_before;	       /* latency: chunks sent before this phase */
	unsigned n_phases;	       /* begun */
	unsigned phase_ok, phase_done; /* index + 1 of what the server answered last */
	uint64_t collect_token, collected;
	bool finished;
	int64_t cadence_p50_ns, cadence_p99_ns; /* of the server's receivers, last phase */

	/* The current fault; the ids of those at the server are DR_CLIENT_SERVER_FAULT and above. */
	uint32_t fault_id;
	struct {
		bool done;
		struct dr_fault_report rep;
	} fault[2]; /* [0] injected, [1] undone */

	int64_t progress_ns;	   /* when the live line was last shown */
	int64_t progress_until_ns; /* end of what runs; 0: not known */
	uint64_t progress_bytes;
	char progress_what[64];
};
#define DR_CLIENT_SERVER_FAULT 0x80000000u

/* The client of a callback's argument. */
static inline struct dr_client *dr_client_of(void *session)
{
	return dr_container_of(session, struct dr_client, s);
}

/*
 * client_wait.c. Turn the loop until `condition`, an expression, holds; for ns at most. 0; -ECANCELED the run is
 * over (s.status); -ETIMEDOUT; -ENOTCONN: needs the server and it is out of reach for good.
 */
#define dr_client_wait(c, condition, ns, needs_server)                                             \
	({                                                                                         \
		int64_t deadline_ = dr_now_ns() + (ns);                                            \
		int rc_ = dr_client_check(c);                                                      \
		while (rc_ == 0 && !(condition))                                                   \
			rc_ = dr_client_turn((c), deadline_, (needs_server));                      \
		rc_;                                                                               \
	})
int dr_client_check(struct dr_client *c) DR_MUST_CHECK;
int dr_client_turn(struct dr_client *c, int64_t deadline_ns, bool needs_server) DR_MUST_CHECK;
/* Let time pass. */
int dr_client_sleep(struct dr_client *c, int64_t ns) DR_MUST_CHECK;
/* End the run with this status (the first one stays) and an error for the record. */
#define dr_client_end(c, status, ...) dr_client_end_for((c), (status), DR_REASON_NONE, __VA_ARGS__)
/* The same with the reason, which every error of DR_EXIT_PEER has. */
void dr_client_end_for(struct dr_client *c, int status, enum dr_reason reason, const char *fmt, ...)
	DR_PRINTF(4, 5);
/* New rows of the server are in the record afterwards. */
int dr_client_collect(struct dr_client *c, int64_t ns) DR_MUST_CHECK;
/* Does this cause say that the server's process is gone? */
bool dr_client_peer_dead(enum dr_boot_cause cause);
extern const struct dr_session_ops dr_client_ops;

/* client_phase.c: all phases of the options. */
void dr_client_phases(struct dr_client *c);
/* Begin a phase at both ends; end it: stop, drain, results. For the campaign too. */
int dr_client_phase_begin(struct dr_client *c, const struct dr_phase *phase) DR_MUST_CHECK;
int dr_client_phase_end(struct dr_client *c) DR_MUST_CHECK;
/* MARK, STOP or SWITCH at both ends. */
void dr_client_both(struct dr_client *c, enum dr_message_kind kind, unsigned which);
/* --matrix: how many measurements, and for about how long. */
void dr_client_matrix_announce(const struct dr_client *c);
/* Say what each channel waits for. */
void dr_client_stalled(struct dr_client *c, const char *why);
/* At the end, early or not: what this end measured so far. */
void dr_client_salvage(struct dr_client *c);

/*
 * campaign.c, with campaign_rows.c and campaign_gaps.c. The failover test: traffic runs on while faults are injected and undone, trial after trial. Every
 * trial becomes a dr_fault_row; what the receivers saw counts.
 */

/* c->faults: those of the options, or without any the default: link-down and blackhole
 * on path 0 of the client, close where that is not permitted. -EACCES, -EPERM, -ENODEV.. (exit 2). */
int dr_campaign_faults(struct dr_client *c, struct dr_err *e) DR_MUST_CHECK;
/* 0, or what dr_client_wait returned when the run ended early. */
int dr_campaign_run(struct dr_client *c, const struct dr_phase *phase) DR_MUST_CHECK;

#endif
