/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_FINDING_H
#define DR_ORCHESTRATOR_CHECKS_FINDING_H

#include "base/defs.h"
#include "base/err.h"
#include "base/fields.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/*
 * The findings of `dualrail doctor`, one row each. A check adds rows and cannot fail: if memory runs out,
 * the rows are dropped and no_memory is set.
 */
enum dr_severity {
	DR_SEVERITY_OK,	  /* checked, no problem */
	DR_SEVERITY_NOTE, /* information; or the check was not possible */
	DR_SEVERITY_WARN, /* a run works, but its results may be below what the hardware can do */
	DR_SEVERITY_FAIL, /* stops a run, or makes its results wrong */
};
enum { DR_SEVERITIES = 4 };
/* "ok", "note", "warn", "fail". */
const char *dr_severity_name(enum dr_severity s);

struct dr_finding {
	enum dr_severity severity;
	const char *check; /* "mtu": name of the check for programs; static */
	char where[48];	   /* NIC or GPU; "": the machine */
	char text[256];	   /* the finding */
	char found[96];	   /* the value found and the value needed; "": none */
	char needed[96];
	char remedy[256]; /* the fix, a command if there is one; "" if ok */
};

struct dr_findings {
	struct dr_finding *v;
	size_t n, cap;
	bool no_memory;
	struct dr_finding spare; /* the row to write to if there is no memory */
};
void dr_findings_fini(struct dr_findings *f);

/*
 * A new row, valid until the next one; never NULL. fmt has up to four lines: text, found, needed, remedy. Lines
 * may be empty, and trailing ones omitted. where may be NULL.
 */
struct dr_finding *dr_findings_add(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const char *fmt, ...) DR_PRINTF(5, 6);
/* Note: the check was not possible, because `path` cannot be read. */
void dr_findings_unreadable(struct dr_findings *f, const char *check, const char *path);
/* A row for an error, whose text has the form "what failed: why; what to do". */
struct dr_finding *dr_findings_error(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const struct dr_err *e);

size_t dr_findings_count(const struct dr_findings *f, enum dr_severity s);

/* The first failure, with its remedy, as one line; "": there is none. */
void dr_findings_failure(const struct dr_findings *f, char *buf, size_t len);
/* As a table. quiet: only warn and fail. status: the exit status. */
void dr_findings_print(const struct dr_findings *f, int status, bool quiet, FILE *out);
/* The document "dualrail-doctor/1"; its schema is made from this table. */
extern const struct dr_fields dr_doctor_fields;
/* target: HOST or NULL. A new object; NULL: no memory. */
json_t *dr_findings_json(const struct dr_findings *f, const char *target, int status);

#endif
