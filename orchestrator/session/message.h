/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_MESSAGE_H
#define DR_ORCHESTRATOR_SESSION_MESSAGE_H

#include "bootstrap/bootstrap.h"
#include "channel/manager.h"
#include "orchestrator/fault/fault.h"
#include "orchestrator/options/run.h"

/*
 * The messages on the control connection of an open session: JSON objects {"t": name, members}. One
 * table of fields per kind (message.c) drives writing, reading and the range checks. Members that a
 * kind does not have are ignored when it is written and zero when it is read.
 */
enum dr_message_kind {
	/* Client to server. */
	DR_MSG_PHASE,	/* phase: begin it; answer: PHASE_OK */
	DR_MSG_MARK,	/* which: mark 0 or 1 of the phase */
	DR_MSG_STOP,	/* the phase's senders stop */
	DR_MSG_COLLECT, /* token; answer: PART */
	DR_MSG_INJECT,	/* fault.id, text: as in --fault; answer: FAULT */
	DR_MSG_UNDO,	/* fault.id; answer: FAULT */
	DR_MSG_SWITCH,	/* failback of all channels that the server sends on */
	DR_MSG_GAPS, /* index: trial, which: DR_CMD_GAPS, since_ns on the server's clock; its rows come in a PART */
	/* Both. */
	DR_MSG_ABORT, /* status, text: this end gives up */
	DR_MSG_EXPECT, /* gpu, totals, bytes: chunks and bytes that each channel of that GPU has sent so far */
	DR_MSG_FINISH, /* the session is over; answer: FINISH with part */
	/* Server to client. */
	DR_MSG_UP,	 /* the server's channels carry data */
	DR_MSG_PHASE_OK, /* index */
	DR_MSG_DONE,	 /* index, part, cadences: the phase is over at the server */
	DR_MSG_PART,	 /* token (0: unasked), part: rows that are new */
	DR_MSG_FAULT,	 /* fault, on the server's clock */
	DR_MSG_FAILED,	 /* err, text: channels ended at the server */
	DR_MSG_KINDS
};

struct dr_message {
	enum dr_message_kind kind;
	struct dr_phase phase;
	unsigned which, index, gpu; /* gpu: position */
	int64_t since_ns;
	uint64_t token;
	int status, err; /* exit status; 0 or -errno */
	struct dr_fault_report fault;
	int64_t cadence_p50_ns, cadence_p99_ns; /* DR_UNSET: nothing was received */
	unsigned n_totals;
	uint64_t totals[DR_GPU_CHANNELS_MAX];
	unsigned n_bytes; /* 0: not told */
	uint64_t bytes[DR_GPU_CHANNELS_MAX];
	char text[DR_FAULT_SPEC_MAX];
	json_t *part; /* borrowed: of dr_record_part, or of the object that was read; NULL: none */
};

/* A new object; NULL: no memory. */
json_t *dr_message_to_json(const struct dr_message *m);
/* Any JSON is safe. -ENOENT: a kind that this version does not have; -EPROTO: e names the field. */
int dr_message_read(const json_t *j, struct dr_message *out, struct dr_err *e) DR_MUST_CHECK;

#endif
