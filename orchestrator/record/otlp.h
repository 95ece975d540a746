/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_REPORT_OTLP_H
#define DR_REPORT_OTLP_H

#include "base/defs.h"
#include "base/err.h"
#include "orchestrator/record/http.h"

#include <stdbool.h>

/*
 * Sends the spans of runs to a collector of OpenTelemetry: POST of the text of dr_trace_write, by the rules of OTLP/HTTP (OTLP
 * specification 1.x, "OTLP/HTTP"; variables: "OpenTelemetry Protocol Exporter").
 */

enum { DR_OTLP_URL_MAX = 1000, DR_OTLP_HEADERS_MAX = 32 };
struct dr_otlp_settings {
	char url[DR_OTLP_URL_MAX + 1];
	const char *source; /* the option or variable that gave it */
	bool option;	    /* the option: what does not work is an error, not a warning */
	/* "Name: value", with Content-Type; freed by dr_otlp_settings_fini */
	char *headers[DR_OTLP_HEADERS_MAX];
	size_t n_headers;
	int64_t timeout_ns; /* for a run, with what is repeated */
};

/*
 * option: --trace-endpoint, NULL: not given; it wins over the variables OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT, which env returns
 * (as getenv; NULL: none count). 1: there is a collector; 0: none; -EINVAL: the option is no URL; -ENOMEM. A variable that is
 * wrong is ignored with a warning. With 0 or an error nothing is to be freed.
 */
int dr_otlp_settings(const char *option, char *(*env)(const char *name), struct dr_otlp_settings *s,
	struct dr_err *e) DR_MUST_CHECK;
void dr_otlp_settings_fini(struct dr_otlp_settings *s);

/* Time to wait after the attempt (0, 1 ...) that got the answer; 0: it is final. draw: any random number. */
int64_t dr_otlp_retry_ns(const struct dr_http_answer *a, unsigned attempt, uint64_t draw);

struct dr_otlp;
/*
 * Opens libcurl and starts the thread that sends. It keeps the network namespace of the caller at this time; it loses
 * capabilities with the others (dr_privileges_limit). Takes the settings over, on failure too. Errors: dr_http_open; -ENOMEM.
 */
int dr_otlp_start(struct dr_otlp_settings *s, struct dr_otlp **out, struct dr_err *e) DR_MUST_CHECK;
/* Does not block. text: of malloc, taken over. What fails is a warning: the collector never changes the result of a run. */
void dr_otlp_send(struct dr_otlp *o, const char *run_id, char *text, size_t len);
/* Waits until everything is sent, one timeout at most. NULL is allowed. */
void dr_otlp_stop(struct dr_otlp *o);

#endif
