/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_REPORT_HTTP_H
#define DR_REPORT_HTTP_H

#include "base/defs.h"
#include "base/err.h"

/*
 * One POST over HTTP or HTTPS by libcurl, which is opened at run time (DR_LIBCURL=FILE: another library). Redirects are not
 * followed. Proxies and certificates are those that libcurl takes from the environment and the system.
 */
enum { DR_HTTP_BODY_MAX = 4096 };
struct dr_http_request {
	const char *url;
	const char *const *headers; /* "Name: value" */
	size_t n_headers;
	const char *body;
	size_t len;
	int64_t timeout_ns; /* for everything: name, connection, answer; > 0 */
};
struct dr_http_answer {
	int status;
	int64_t retry_after_ns; /* 0: not told */
	char body[DR_HTTP_BODY_MAX +
		  1]; /* the first bytes, with a terminating 0; they may be anything */
	size_t len;
};

/* The version of libcurl's headers; NULL: this build has none, and dr_http_open fails. */
const char *dr_http_built_with(void);
/* Opens the library for good, once, before other threads use it. -ENOSYS: not in this build; -ENOENT: not installed. */
int dr_http_open(struct dr_err *e) DR_MUST_CHECK;
/* After dr_http_open. Blocks, at most for the timeout; one thread. 0: there is an answer of any status; -EIO: none, the
 * text is libcurl's reason; -ENOMEM. */
int dr_http_post(const struct dr_http_request *r, struct dr_http_answer *a, struct dr_err *e)
	DR_MUST_CHECK;

#endif
