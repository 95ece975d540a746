/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/record/otlp.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"

/*
 * A thread sends, so that a collector delays neither a result nor a server's next client. The text is final when it is handed
 * over.
 *
 * Invariants
 *  1. A run is sent within one timeout from the begin of its first attempt, and all within one from dr_otlp_stop.
 *  2. Each run is sent, or there is one warning that says why not.
 *  3. An answer is repeated after only if OTLP/HTTP names its status for it; the same bytes are sent again.
 */
enum { JOBS_MAX = 8, WHY_MAX = 400 };
#define COMPONENT "otlp"
#define BACKOFF_NS (500 * DR_NS_PER_MS)
#define BACKOFF_MAX_NS (5 * DR_NS_PER_S)

struct job {
	char run_id[48];
	char *text; /* of malloc */
	size_t len;
};
struct dr_otlp {
	struct dr_otlp_settings s;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct job job[JOBS_MAX]; /* a ring */
	size_t first, n;
	bool stop;
	int64_t stop_ns;
};

/* ---- answers ---- */

/* A quarter less or more, so that the ends of many runs do not come back together. */
static int64_t backoff_ns(unsigned attempt, uint64_t draw)
{
	int64_t ns = BACKOFF_NS << DR_MIN(attempt, 4u);

	ns = DR_MIN(ns, BACKOFF_MAX_NS);
	return ns - ns / 4 + (int64_t)(draw % (uint64_t)(ns / 2 + 1));
}

int64_t dr_otlp_retry_ns(const struct dr_http_answer *a, unsigned attempt, uint64_t draw)
{
	switch (a->status) {
	case 429:
	case 502:
	case 503:
	case 504:
		return a->retry_after_ns > 0 ? a->retry_after_ns : backoff_ns(attempt, draw);
	default:
		return 0;
	}
}

/* The collector's words, cleaned; "": none. */
static void quote(char *to, size_t len, const json_t *text)
{
	char clean[200] = "";

	if (json_is_string(text))
		dr_text_copy(clean, sizeof(clean), json_string_value(text));
	snprintf(to, len, "%s%s", clean[0] ? ": " : "", clean);
}

/* A status outside 200 to 299, or spans that were rejected; false: all is well. */
static bool explain(const struct dr_http_answer *a, unsigned attempts, char *why, size_t len)
{
	json_t *doc = json_loadb(a->body, a->len, 0, NULL);
	const json_t *part = json_object_get(doc, "partialSuccess");
	const json_t *count = json_object_get(part, "rejectedSpans");
	bool passed = a->status >= 200 && a->status < 300;
	char words[220], times[32] = "";
	uint64_t rejected = 0;

	/* 64-bit integers are strings in this encoding; some collectors write a number. */
	if (json_is_integer(count) && json_integer_value(count) > 0)
		rejected = (uint64_t)json_integer_value(count);
	else if (json_is_string(count) &&
		 dr_parse_u64(json_string_value(count), 0, UINT64_MAX, &rejected, NULL))
		rejected = 0;
	quote(words, sizeof(words),
		json_object_get(passed ? part : doc, passed ? "errorMessage" : "message"));
	if (attempts > 1)
		snprintf(times, sizeof(times), " (%u attempts)", attempts);
	if (!passed)
		snprintf(why, len, "HTTP status %d%s%s", a->status, times, words);
	else if (rejected)
		snprintf(why, len, "%llu spans were rejected%s", (unsigned long long)rejected,
			words);
	else if (words[0])
		snprintf(why, len, "the collector warns%s", words);
	else
		why[0] = '\0';
	json_decref(doc);
	return why[0] != '\0';
}

/* ---- the thread ---- */

static void pause_until(struct dr_otlp *o, int64_t ns)
{
	struct timespec at = { .tv_sec = ns / DR_NS_PER_S, .tv_nsec = ns % DR_NS_PER_S };

	pthread_mutex_lock(&o->lock);
	while (dr_now_ns() < ns)
		pthread_cond_timedwait(&o->wake, &o->lock, &at);
	pthread_mutex_unlock(&o->lock);
}

static int64_t deadline_of(struct dr_otlp *o)
{
	int64_t ns = dr_now_ns() + o->s.timeout_ns;

	pthread_mutex_lock(&o->lock);
	if (o->stop)
		ns = DR_MIN(ns, o->stop_ns);
	pthread_mutex_unlock(&o->lock);
	return ns;
}

static uint64_t drawn(void)
{
	struct dr_rng rng;

	dr_rng_seed(&rng, (uint64_t)dr_now_ns());
	return dr_rng_u64(&rng);
}

/* "": sent. */
static void deliver(struct dr_otlp *o, const struct job *j, char *why, size_t len)
{
	struct dr_http_request r = { .url = o->s.url,
		.headers = (const char *const *)o->s.headers,
		.n_headers = o->s.n_headers,
		.body = j->text,
		.len = j->len };
	int64_t until = deadline_of(o), wait = 0;
	struct dr_http_answer a = { 0 };
	struct dr_err e = { 0 };
	unsigned attempt = 0;

	for (;; attempt++) {
		r.timeout_ns = until - dr_now_ns();
		if (r.timeout_ns <= 0) {
			snprintf(why, len, "no time is left: the collector is too slow");
			return;
		}
		if (dr_http_post(&r, &a, &e)) {
			snprintf(why, len, "%s", e.text);
			return;
		}
		wait = dr_otlp_retry_ns(&a, attempt, drawn());
		if (!wait || dr_now_ns() + wait >= until)
			break;
		pause_until(o, dr_now_ns() + wait);
	}
	explain(&a, attempt + 1, why, len);
}

static void send_job(struct dr_otlp *o, struct job *j)
{
	char why[WHY_MAX] = "";

	dr_log_set_thread_run(j->run_id);
	deliver(o, j, why, sizeof(why));
	if (why[0])
		dr_warn(COMPONENT, "run %s: spans to %.300s (%s): %s", j->run_id, o->s.url,
			o->s.source, why);
	else
		dr_info(COMPONENT, "run %s: spans were sent to %.300s", j->run_id, o->s.url);
	dr_log_set_thread_run(NULL);
	free(j->text); /* lint-ok: of the caller's open_memstream */
}

static void *thread_main(void *arg)
{
	struct dr_otlp *o = arg;

	pthread_mutex_lock(&o->lock);
	while (o->n || !o->stop) {
		if (!o->n) {
			pthread_cond_wait(&o->wake, &o->lock);
			continue;
		}
		struct job j = o->job[o->first];

		o->first = (o->first + 1) % JOBS_MAX;
		o->n--;
		pthread_mutex_unlock(&o->lock);
		send_job(o, &j);
		pthread_mutex_lock(&o->lock);
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static int start_thread(struct dr_otlp *o)
{
	sigset_t most, old;

	/* Signals are the main thread's, but for that by which capabilities are dropped (base/privileges.c). */
	sigfillset(&most);
	sigdelset(&most, SIGRTMAX - 1);
	pthread_sigmask(SIG_SETMASK, &most, &old);
	int rc = pthread_create(&o->thread, NULL, thread_main, o);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		pthread_setname_np(o->thread, "dr-otlp");
	return -rc;
}

int dr_otlp_start(struct dr_otlp_settings *s, struct dr_otlp **out, struct dr_err *e)
{
	int rc = dr_http_open(e);
	struct dr_otlp *o = rc ? NULL : dr_calloc(1, sizeof(*o));
	pthread_condattr_t monotonic;

	if (rc == 0 && !o)
		rc = dr_err_set(e, -ENOMEM, "%s: out of memory", s->source);
	if (rc) {
		dr_otlp_settings_fini(s);
		return rc;
	}
	o->s = *s;
	s->n_headers = 0;
	pthread_mutex_init(&o->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&o->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	rc = start_thread(o);
	if (rc) {
		dr_err_set(e, rc, "%s: no thread: %s", o->s.source, strerror(-rc));
		dr_otlp_settings_fini(&o->s);
		dr_free(o);
		return rc;
	}
	*out = o;
	return 0;
}

void dr_otlp_send(struct dr_otlp *o, const char *run_id, char *text, size_t len)
{
	struct job j = { .text = text, .len = len };
	bool full;

	snprintf(j.run_id, sizeof(j.run_id), "%s", run_id);
	pthread_mutex_lock(&o->lock);
	full = o->n == JOBS_MAX;
	if (!full)
		o->job[(o->first + o->n++) % JOBS_MAX] = j;
	pthread_cond_signal(&o->wake);
	pthread_mutex_unlock(&o->lock);
	if (!full)
		return;
	dr_warn(COMPONENT, "run %s: spans to %.300s (%s): dropped, %d runs wait for the collector",
		run_id, o->s.url, o->s.source, JOBS_MAX);
	free(text); /* lint-ok: of the caller's open_memstream */
}

void dr_otlp_stop(struct dr_otlp *o)
{
	if (!o)
		return;
	pthread_mutex_lock(&o->lock);
	o->stop = true;
	o->stop_ns = dr_now_ns() + o->s.timeout_ns;
	pthread_cond_signal(&o->wake);
	pthread_mutex_unlock(&o->lock);
	pthread_join(o->thread, NULL);
	pthread_cond_destroy(&o->wake);
	pthread_mutex_destroy(&o->lock);
	dr_otlp_settings_fini(&o->s);
	dr_free(o);
}
