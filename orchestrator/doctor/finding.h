/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_FINDING_H
#define DR_ORCHESTRATOR_DOCTOR_FINDING_H

#include "base/defs.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/*
 * What `dualrail doctor` found, one row each. A check adds rows and cannot fail: without memory the
 * rows are dropped and no_memory says so.
 */
enum dr_severity {
	DR_SEVERITY_OK,	  /* looked at, nothing to say */
	DR_SEVERITY_NOTE, /* worth knowing; or could not be looked at */
	DR_SEVERITY_WARN, /* the run works, its figures may be worse than the hardware's */
	DR_SEVERITY_FAIL, /* stops a run, or makes it measure something else than it says */
};
enum { DR_SEVERITIES = 4 };
/* "ok", "note", "warn", "fail". */
const char *dr_severity_name(enum dr_severity s);

struct dr_finding {
	enum dr_severity severity;
	const char *check; /* "mtu": a word for machines; static */
	char where[48];	   /* NIC, GPU or "" for the node */
	char text[256];	   /* what it is */
	char found[96];	   /* value found and value needed; "" where there is none */
	char needed[96];
	char remedy[256]; /* what to do, a command where there is one; "" for ok */
};

struct dr_findings {
	struct dr_finding *v;
	size_t n, cap;
	bool no_memory;
	struct dr_finding spare; /* what is written to when there is no memory */
};
void dr_findings_fini(struct dr_findings *f);

/* A new row, valid until the next one; never NULL. where may be NULL. */
struct dr_finding *dr_findings_add(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const char *fmt, ...) DR_PRINTF(5, 6);
/* A row of an error, whose text reads "what was tried: why; what to do". */
struct dr_finding *dr_findings_error(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const struct dr_err *e);
/* The rest of a row. */
void dr_finding_found(struct dr_finding *x, const char *fmt, ...) DR_PRINTF(2, 3);
void dr_finding_needed(struct dr_finding *x, const char *fmt, ...) DR_PRINTF(2, 3);
void dr_finding_remedy(struct dr_finding *x, const char *fmt, ...) DR_PRINTF(2, 3);

size_t dr_findings_count(const struct dr_findings *f, enum dr_severity s);

/* For people; quiet: only what is wrong (warn, fail). `status` is the exit status. */
void dr_findings_print(const struct dr_findings *f, int status, bool quiet, FILE *out);
/* Schema "dualrail-doctor/1"; target NULL: none. A new object; NULL: no memory. */
json_t *dr_findings_json(const struct dr_findings *f, const char *target, int status);

#endif
