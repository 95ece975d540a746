/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/record/http.h"

#include <errno.h>

#define OPTION "--trace-endpoint"

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* The functions that are used: those of libcurl 7.66 (2019), which tells Retry-After. */
#define CALLS(X)                                                                                   \
	X(global_init)                                                                             \
	X(easy_init)                                                                               \
	X(easy_setopt)                                                                             \
	X(easy_perform)                                                                            \
	X(easy_getinfo)                                                                            \
	X(easy_strerror)                                                                           \
	X(easy_cleanup)                                                                            \
	X(slist_append)                                                                            \
	X(slist_free_all)

#define MEMBER(name) __typeof__ (&curl_##name)(name);
static struct {
	CALLS(MEMBER)
} curl;
static bool loaded;

const char *dr_http_built_with(void)
{
	return LIBCURL_VERSION;
}

/* POSIX gives functions as void *; the bytes are copied, since no cast between the two is C. */
static int fill(void *lib, const char *name, struct dr_err *e)
{
#define SYMBOL(name) { "curl_" #name, &curl.name },
	const struct {
		const char *name;
		void *to;
	} symbols[] = { CALLS(SYMBOL) };

	for (size_t i = 0; i < DR_ARRAY_LEN(symbols); i++) {
		void *p = dlsym(lib, symbols[i].name);

		if (!p)
			return dr_err_set(e, -ENOENT,
				OPTION ": %s has no %s: it is another library", name,
				symbols[i].name);
		memcpy(symbols[i].to, &p, sizeof(p));
	}
	return 0;
}

/* Debian has the library under two names, by its library for TLS. */
int dr_http_open(struct dr_err *e)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
	const char *given = getenv("DR_LIBCURL"), *name = given && *given ? given : names[0];

	if (loaded)
		return 0;
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib && name == names[0])
		lib = dlopen(name = names[1], RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dr_err_set(e, -ENOENT,
			OPTION
			": %.120s cannot be opened; install libcurl4 (Debian/Ubuntu: apt-get "
			"install libcurl4)",
			name == names[1] ? "libcurl.so.4" : name);
	int rc = fill(lib, name, e);
	if (rc)
		dlclose(lib);
	else if (curl.global_init(CURL_GLOBAL_ALL))
		rc = dr_err_set(e, -ENOENT, OPTION ": %s does not start", name);
	loaded = rc == 0;
	return rc;
}

static size_t on_body(char *from, size_t size, size_t n, void *arg)
{
	struct dr_http_answer *a = arg;
	size_t take = DR_MIN(size * n, DR_HTTP_BODY_MAX - a->len);

	memcpy(a->body + a->len, from, take);
	a->len += take;
	return size * n;
}

static struct curl_slist *headers_of(const struct dr_http_request *r)
{
	struct curl_slist *list = NULL, *more;

	for (size_t i = 0; i < r->n_headers; i++, list = more) {
		more = curl.slist_append(list, r->headers[i]);
		if (!more) {
			curl.slist_free_all(list);
			return NULL;
		}
	}
	return list;
}

static int prepare(CURL *c, const struct dr_http_request *r, struct curl_slist *headers,
	struct dr_http_answer *a)
{
	long ms = (long)DR_MAX(r->timeout_ns / DR_NS_PER_MS, 1);
	CURLcode rc = curl.easy_setopt(c, CURLOPT_URL, r->url);

#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that does not answer must not delay the end. A library that does not know the option waits for it. */
	(void)curl.easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
#endif
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_POST, 1L);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->len);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_TIMEOUT_MS, ms);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, ms);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	rc = rc ? rc : curl.easy_setopt(c, CURLOPT_WRITEDATA, a);
	return rc ? -ENOMEM : 0;
}

static int perform(CURL *c, struct dr_http_answer *a, struct dr_err *e)
{
	char why[CURL_ERROR_SIZE] = "";
	curl_off_t seconds = 0;
	long status = 0, err = 0;

	(void)curl.easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	CURLcode rc = curl.easy_perform(c);
	(void)curl.easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	(void)curl.easy_getinfo(c, CURLINFO_RETRY_AFTER, &seconds);
	(void)curl.easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
	a->status = (int)status;
	a->retry_after_ns = DR_MIN(seconds, (curl_off_t)86400) * DR_NS_PER_S;
	a->body[a->len] = '\0';
	if (rc == CURLE_COULDNT_CONNECT)
		(void)curl.easy_getinfo(c, CURLINFO_OS_ERRNO, &err);
	if (rc)
		return dr_err_set(e, -EIO, "%s%s%s", why[0] ? why : curl.easy_strerror(rc),
			err ? ": " : "", err ? strerror((int)err) : "");
	return 0;
}

int dr_http_post(const struct dr_http_request *r, struct dr_http_answer *a, struct dr_err *e)
{
	struct curl_slist *headers = headers_of(r);
	CURL *c = curl.easy_init();
	int rc = c && (headers || !r->n_headers) ? 0 : -ENOMEM;

	memset(a, 0, sizeof(*a));
	if (rc == 0)
		rc = prepare(c, r, headers, a);
	rc = rc ? dr_err_set(e, rc, "out of memory") : perform(c, a, e);
	if (c)
		curl.easy_cleanup(c);
	curl.slist_free_all(headers);
	return rc;
}

#else

const char *dr_http_built_with(void)
{
	return NULL;
}

int dr_http_open(struct dr_err *e)
{
	return dr_err_set(e, -ENOSYS,
		OPTION ": not in this build: it was made without the headers of libcurl (Debian: "
		       "libcurl4-gnutls-dev)");
}

int dr_http_post(const struct dr_http_request *r, struct dr_http_answer *a, struct dr_err *e)
{
	(void)r;
	(void)a;
	return dr_err_set(e, -EIO, OPTION ": not in this build");
}

#endif
