/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CLIENT_H
#define DR_ORCHESTRATOR_SESSION_CLIENT_H

#include "orchestrator/session_inject.h"
#include "orchestrator/session_node.h"

/*
 * The client's side of a session. It runs in a straight line; dr_client_wait turns the loop until
 * something is so, the run is over (status set), or a deadline passes.
 *
 * Control messages, client to server ("t"):
 *   phase {phase}           begin it; answer: phase-ok {index}
 *   mark {which}, stop      as for the own workers
 *   expect {gpu, totals}    both ways: all that GPU's channels sent in this phase
 *   collect {token}         answer: part {token, part}: new rows
 *   inject {id, spec}, undo {id}   answer: fault {id, undo, err, before_ns, after_ns, text}
 *   switch                  planned switch of all that the server sends back to the primary path
 *   finish                  answer: finish {part}
 *   abort {status, text}    the client gives up
 * Server to client, unasked: up {} (its channels carry data), done {index, part, cadence}, part {part},
 *   failed {err, text}.
 */
struct dr_client {
	const struct dr_options *opt;
	struct dr_record *rec;
	struct dr_output *out;
	struct dr_loop loop;
	struct dr_injector inj;
	struct dr_route route;
	struct dr_topo *topo; /* this machine; NULL: unknown */
	struct dr_plan plan;
	struct dr_fault_list faults; /* of the campaign */
	struct dr_boot_client *boot;
	struct dr_control *control;
	struct dr_node *node;

	int status;   /* exit status of what ended the run; 0: goes on */
	bool ending;  /* salvage and goodbye: waits look at nothing but their own condition */
	bool ready;   /* handles exchanged */
	bool peer_up; /* the channels carry data at the server's end too */
	bool lost;    /* control connection is down now */
	bool gone;    /* and will not come back */
	bool dead;    /* the peer's process is known to be gone */
	enum dr_boot_cause lost_cause;
	bool peer_failed; /* server's channels ended */
	int peer_err;
	char peer_text[200];
	int64_t failed_ns; /* when the first channel ended, at either end; 0 */

	uint64_t pings_before;	       /* latency: chunks sent before this phase */
	unsigned n_phases;	       /* begun */
	unsigned phase_ok, phase_done; /* index + 1 of what the server answered last */
	uint64_t collect_token, collected;
	bool finished;
	int64_t cadence_p50_ns, cadence_p99_ns; /* of the server's receivers, last phase */

	/* The fault under way. */
	uint32_t fault_id, server_fault_id;
	bool fault_injected, fault_undone;
	struct dr_fault_report injected, undone;

	int64_t progress_ns; /* when the live line was last shown */
	uint64_t progress_bytes;
	char progress_what[64];
};

/* 0; -ECANCELED the run is over (c->status); -ETIMEDOUT; -ENOTCONN: needs the server and it is out of
 * reach for good. */
typedef bool (*dr_client_until)(const struct dr_client *c, const void *arg);
int dr_client_wait(struct dr_client *c, dr_client_until until, const void *arg, int64_t deadline_ns,
	bool needs_server) DR_MUST_CHECK;
/* Let time pass. */
int dr_client_sleep(struct dr_client *c, int64_t ns) DR_MUST_CHECK;
/* End the run with this status (the first one stays) and an error for the record. */
void dr_client_end(struct dr_client *c, int status, const char *fmt, ...) DR_PRINTF(3, 4);
/* Takes the reference; an object that is NULL ends the run. */
void dr_client_send(struct dr_client *c, json_t *msg);
/* New rows of the server are in the record afterwards. */
int dr_client_collect(struct dr_client *c, int64_t deadline_ns) DR_MUST_CHECK;
/* Fresh statistics of the own workers. */
int dr_client_snapshot(struct dr_client *c) DR_MUST_CHECK;
/* The same, when the run is over: waits a moment at most. */
void dr_client_last_snapshot(struct dr_client *c);

/* session_offer.c. What a client with these options offers over this route; p is zeroed. topo: this
 * machine, kept in the plan; NULL: nothing is known of its places. Errors of dr_kind_rails, and -EINVAL
 * for --map and --spread. doctor asks with it. */
int dr_client_plan(const struct dr_options *o, const struct dr_route *route,
	const struct dr_topo *topo, struct dr_plan *p, struct dr_err *e) DR_MUST_CHECK;

/* session_phase.c: all phases of the options. */
void dr_client_phases(struct dr_client *c);
/* Begin a phase at both ends; end it: stop, drain, results. For the campaign too. */
int dr_client_phase_begin(struct dr_client *c, const struct dr_phase *phase) DR_MUST_CHECK;
int dr_client_phase_end(struct dr_client *c) DR_MUST_CHECK;
void dr_client_mark(struct dr_client *c, int which);
/* The whole of one phase: warm-up and ns when it has no iterations. */
int dr_client_measure(struct dr_client *c, const struct dr_phase *phase, int64_t warmup_ns,
	int64_t ns) DR_MUST_CHECK;
/* session_matrix.c. "GPU 3 over eth1" of a phase that is a cell. */
void dr_client_cell_name(
	const struct dr_client *c, const struct dr_phase *phase, char *buf, size_t len);
/* How many measurements, and for about how long. */
void dr_client_matrix_announce(const struct dr_client *c, FILE *f);
/* Every GPU over every rail alone, all GPUs over each, all over all. The bandwidth of
 * the last is the run's. */
int dr_client_matrix(struct dr_client *c, const struct dr_phase *phase) DR_MUST_CHECK;
/* After an early end: what this end measured so far. */
void dr_client_salvage(struct dr_client *c);

/* Phases as JSON, for the control connection. */
json_t *dr_phase_to_json(const struct dr_phase *p);
int dr_phase_from_json(const json_t *j, struct dr_phase *out) DR_MUST_CHECK;

#endif
