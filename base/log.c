/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

/*
 * Settings are atomics and a line is built on the stack, so that logging takes no lock (a child may
 * log right after a fork). Only a sink is called under one, to keep its calls apart.
 */
enum {
	TEXT_MAX = 1000,
	SHOWN_MAX = 40,
	/* A byte of text takes at most 6 in JSON ("\u00ff"); the rest is time, level and component. */
	LINE_MAX_BYTES = TEXT_MAX * 6 + 1024,
};

static _Atomic int min_level = DR_LOG_INFO;
static _Atomic int as_json;
/* The text in use is in one of the two slots; a new one is written into the other, then shown. */
struct shown {
	char slot[2][SHOWN_MAX];
	_Atomic(const char *) now;
};
static struct shown prefix, run_id;

/* Members of JSON text, each with a comma behind it. */
enum { NODE_MAX = 64, NODE_TEXT_MAX = NODE_MAX * 6 + 48 };
static char node_members[NODE_TEXT_MAX];
static _Atomic(const char *) node;
static _Thread_local const char *thread_run;
static _Thread_local int thread_gpu = -1;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int sink_set;
static dr_log_sink_fn sink;
static void *sink_arg;

static const char *const level_name[] = {
	[DR_LOG_ERROR] = "error",
	[DR_LOG_WARN] = "warn",
	[DR_LOG_INFO] = "info",
	[DR_LOG_DEBUG] = "debug",
};

void dr_log_set_level(enum dr_log_level level)
{
	atomic_store_explicit(&min_level, (int)level, memory_order_relaxed);
}

enum dr_log_level dr_log_level(void)
{
	return (enum dr_log_level)atomic_load_explicit(&min_level, memory_order_relaxed);
}

void dr_log_set_json(int on)
{
	atomic_store_explicit(&as_json, on, memory_order_relaxed);
}

int dr_log_is_json(void)
{
	return atomic_load_explicit(&as_json, memory_order_relaxed);
}

static void show(struct shown *s, const char *text)
{
	char *slot = s->slot[atomic_load(&s->now) == s->slot[0]];

	if (text)
		snprintf(slot, SHOWN_MAX, "%s", text);
	/* Release: pairs with the acquire in put_component() and put_context(). */
	atomic_store_explicit(&s->now, text ? slot : NULL, memory_order_release);
}

void dr_log_set_prefix(const char *word)
{
	show(&prefix, word);
}

void dr_log_set_run(const char *id)
{
	show(&run_id, id);
}

void dr_log_set_gpu(int gpu)
{
	thread_gpu = gpu;
}

void dr_log_set_thread_run(const char *id)
{
	thread_run = id;
}

void dr_log_set_sink(dr_log_sink_fn fn, void *arg)
{
	pthread_mutex_lock(&sink_lock);
	sink = fn;
	sink_arg = arg;
	atomic_store(&sink_set, !!fn);
	pthread_mutex_unlock(&sink_lock);
}

/* Appends; the last byte of buf stays free for the terminator, and `keep` more for what follows. */
struct line {
	char *buf;
	size_t cap, len, keep;
};

static void put(struct line *l, const char *s, size_t n)
{
	if (l->len + n + l->keep >= l->cap)
		return;
	memcpy(l->buf + l->len, s, n);
	l->len += n;
}

static void put_str(struct line *l, const char *s)
{
	put(l, s, strlen(s));
}

static void put_json_char(struct line *l, const char *s, size_t n, bool clean)
{
	char esc[8];

	if (*s == '"' || *s == '\\') {
		put(l, (char[]){ '\\', *s }, 2);
	} else if (*s == '\n') {
		put_str(l, "\\n");
	} else if (*s == '\t') {
		put_str(l, "\\t");
	} else if (clean) {
		put(l, s, n);
	} else if ((unsigned char)*s < 0x80) {
		snprintf(esc, sizeof(esc), "\\u%04x", (unsigned char)*s);
		put_str(l, esc);
	} else {
		put_str(l, "\\ufffd");
	}
}

static void put_text(struct line *l, const char *text, int json)
{
	size_t left = strlen(text), n;
	bool clean;

	for (; left; text += n, left -= n) {
		n = dr_text_char(text, left, &clean);
		if (json)
			put_json_char(l, text, n, clean);
		else if (clean)
			put(l, text, n);
		else
			put_str(l, (unsigned char)*text < 0x80 ? " " : "?");
	}
}

static void put_component(struct line *l, const char *component, int json)
{
	const char *p = atomic_load_explicit(&prefix.now, memory_order_acquire);

	if (p) {
		put_text(l, p, json);
		put_str(l, "/");
	}
	put_text(l, component, json);
}

void dr_log_set_node(const char *name, int rank)
{
	struct line l = { .buf = node_members, .cap = sizeof(node_members), .keep = 1 };
	char cut[NODE_MAX + 1], number[32];

	atomic_store(&node, NULL);
	if (name) {
		dr_text_copy(cut, sizeof(cut), name);
		put_str(&l, "\"node\":\"");
		put_text(&l, cut, 1);
		put_str(&l, "\",");
	}
	if (rank >= 0) {
		snprintf(number, sizeof(number), "\"rank\":%d,", rank);
		put_str(&l, number);
	}
	node_members[l.len] = '\0';
	/* Release: pairs with the acquire in put_context(). */
	atomic_store_explicit(&node, node_members, memory_order_release);
}

/* What a JSON line says about its origin; each member with a comma behind it. */
static void put_context(struct line *l)
{
	const char *run =
		thread_run ? thread_run : atomic_load_explicit(&run_id.now, memory_order_acquire);
	const char *members = atomic_load_explicit(&node, memory_order_acquire);
	char text[64];

	if (run && *run) {
		snprintf(text, sizeof(text), "\"run_id\":\"%.39s\",", run);
		put_str(l, text);
	}
	if (members)
		put_str(l, members);
	if (thread_gpu >= 0) {
		snprintf(text, sizeof(text), "\"gpu\":%d,", thread_gpu);
		put_str(l, text);
	}
}

size_t dr_log_format(char *buf, size_t len, int json, const struct dr_log_line *line)
{
	const char *end = json ? "\"}\n" : "\n";
	struct line l = { .buf = buf, .cap = len, .keep = strlen(end) };
	char time[32], head[96];

	dr_assert(len > l.keep && (size_t)line->level < DR_ARRAY_LEN(level_name));
	dr_wall_format(line->wall_ns, time, sizeof(time));
	if (json)
		snprintf(head, sizeof(head), "{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"",
			time, level_name[line->level]);
	else
		snprintf(head, sizeof(head), "%.23sZ %s ", time, level_name[line->level]);
	put_str(&l, head);
	put_component(&l, line->component, json);
	put_str(&l, json ? "\"," : ": ");
	if (json) {
		put_context(&l);
		put_str(&l, line->members ? line->members : "");
		put_str(&l, line->members ? ",\"text\":\"" : "\"text\":\"");
	}
	put_text(&l, line->text, json);
	l.keep = 0;
	put_str(&l, end);
	buf[l.len] = '\0';
	return l.len;
}

static atomic_bool live;

void dr_log_set_live(bool shown)
{
	atomic_store(&live, shown);
}

static void put_line(const char *line, size_t len)
{
	static const char erase[] = "\r\033[K";
	ssize_t done;

	if (atomic_exchange(&live, false))
		put_line(erase, sizeof(erase) - 1);
	do
		done = write(STDERR_FILENO, line, len);
	while (done < 0 && errno == EINTR);
}

static void emit(enum dr_log_level level, const char *component, const char *text)
{
	const struct dr_log_line parts = { dr_wall_ns(), level, component, text, NULL };
	char line[LINE_MAX_BYTES];

	put_line(line, dr_log_format(line, sizeof(line), dr_log_is_json(), &parts));
}

void dr_log(enum dr_log_level level, const char *component, const char *fmt, ...)
{
	char text[TEXT_MAX];
	int saved = errno;
	va_list ap;

	if ((int)level > atomic_load_explicit(&min_level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		text[0] = '\0';
	else if (n >= (int)sizeof(text))
		memcpy(text + sizeof(text) - 4, "...", 4);
	if (atomic_load(&sink_set)) {
		pthread_mutex_lock(&sink_lock);
		if (sink)
			sink(level, component, text, sink_arg);
		pthread_mutex_unlock(&sink_lock);
	} else {
		emit(level, component, text);
	}
	errno = saved;
}

/* ---- lines for people ---- */

static void say(enum dr_log_level level, const char *component, const char *plain, const char *text)
{
	char line[TEXT_MAX + 32];

	if (dr_log_is_json()) {
		emit(level, component, text);
		return;
	}
	int n = snprintf(line, sizeof(line) - 1, "%s%s", plain, text);
	size_t len = DR_MIN((size_t)n, sizeof(line) - 2);
	line[len] = '\n';
	put_line(line, len + 1);
}

void dr_say(const char *component, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) >= 0)
		say(DR_LOG_INFO, component, "", text);
	va_end(ap);
}

void dr_log_members(
	enum dr_log_level level, const char *component, const char *members, const char *text)
{
	const struct dr_log_line line = { dr_wall_ns(), level, component, text, members };
	size_t len = LINE_MAX_BYTES + strlen(members) + strlen(text) * 6;
	char *buf = dr_log_is_json() ? dr_calloc(1, len) : NULL;

	if (buf)
		put_line(buf, dr_log_format(buf, len, 1, &line));
	else if (dr_log_is_json())
		emit(level, component, text);
	dr_free(buf);
}

void dr_complain(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) >= 0)
		say(DR_LOG_ERROR, "dualrail", "dualrail: ", text);
	va_end(ap);
}

/* What the stream was given since the last end of a line. */
static char table_line[TEXT_MAX];
static size_t table_len;

static void table_char(char c)
{
	if (c != '\n') {
		if (table_len < sizeof(table_line) - 1)
			table_line[table_len++] = c;
		return;
	}
	table_line[table_len] = '\0';
	if (table_line[strspn(table_line, " ")])
		emit(DR_LOG_INFO, "table", table_line);
	table_len = 0;
}

static ssize_t table_write(void *cookie, const char *buf, size_t len)
{
	(void)cookie;
	for (size_t i = 0; i < len; i++)
		table_char(buf[i]);
	return (ssize_t)len;
}

FILE *dr_log_tables(void)
{
	static FILE *f;

	if (!dr_log_is_json())
		return stderr;
	if (!f)
		f = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = table_write });
	if (!f)
		return stderr;
	setvbuf(f, NULL, _IOLBF, 0);
	return f;
}
