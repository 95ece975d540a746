/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_VALUES_H
#define DR_ORCHESTRATOR_OUTPUT_VALUES_H

#include <stdbool.h>
#include <string.h>

/* Values of the enum fields of rows.h that are not another module's. Their names are in fields.c. */

enum dr_verdict {
	DR_VERDICT_PASS,
	DR_VERDICT_WRONG,	 /* data lost, doubled, reordered or corrupted */
	DR_VERDICT_HANG,	 /* no delivery within the trial's deadline */
	DR_VERDICT_CLEAN_ERROR,	 /* the channel ended with an error at both ends */
	DR_VERDICT_MISSED_FAULT, /* the fault hit nothing, or nothing was in flight */
	DR_VERDICT_FAIL,	 /* the gap is above --max-gap */
	DR_VERDICT_INCOMPLETE,	 /* the run ended during the trial, or a gap is missing */
	DR_VERDICTS
};

enum dr_comparison {
	DR_COMPARISON_OK,
	DR_COMPARISON_BELOW,
	DR_COMPARISON_NOT_RUN, /* the baseline has it, this run has not */
	DR_COMPARISON_NEW      /* this run has it, the baseline has not */
};

/* What a figure of a baseline is of. */
enum dr_figure_kind { DR_FIGURE_GPU, DR_FIGURE_NIC, DR_FIGURE_PAIR };
enum { DR_FIGURE_RUNS = 32 };

/* Why a run ended with exit status 3, or why the server refused it with another one. README: "Exit status". */
enum dr_reason {
	DR_REASON_NONE = -1,
	DR_REASON_UNREACHABLE, /* no route, no answer, or the name does not resolve */
	DR_REASON_REFUSED,     /* the host answers, no server listens */
	DR_REASON_TIMEOUT,     /* connected, but a step took too long */
	DR_REASON_BUSY,	       /* the server serves another client */
	DR_REASON_KEY,	       /* keys differ, or one end has none */
	DR_REASON_VERSION,     /* protocol versions differ */
	DR_REASON_PROTOCOL,    /* not dualrail, or bytes that break the protocol */
	DR_REASON_DECLINED,    /* the server refused the parameters, or cannot run them */
	DR_REASON_PATHS,       /* the data paths did not come up */
	DR_REASON_DIED,	       /* the peer's process is gone */
	DR_REASON_ENDED,       /* the peer ended the run */
	DR_REASON_LOST,	       /* the control connection was lost and did not come back */
	DR_REASON_LOCAL,       /* this end failed before the exchange was complete */
};

/* The note of a trial `manual` that nobody did; of one whose NIC the transport did not use. */
#define DR_NOTE_NOBODY "nobody broke the path"
#define DR_NOTE_UNUSED "the transport used another NIC"
/* The reasons of an unused NIC that failed the proof before the run; the peer's address follows. */
#define DR_NO_ANSWER "no answer from"
#define DR_LOSES_LARGE "loses large packets with"
static inline bool dr_reason_unproven(const char *reason)
{
	return strncmp(reason, DR_NO_ANSWER, strlen(DR_NO_ANSWER)) == 0 ||
	       strncmp(reason, DR_LOSES_LARGE, strlen(DR_LOSES_LARGE)) == 0;
}

#endif
