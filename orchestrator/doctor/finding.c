/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/finding.h"

#include "base/mem.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char *const names[DR_SEVERITIES] = { "ok", "note", "warn", "fail" };

const char *dr_severity_name(enum dr_severity s)
{
	return names[s];
}

void dr_findings_fini(struct dr_findings *f)
{
	dr_free(f->v);
	memset(f, 0, sizeof(*f));
}

static struct dr_finding *new_row(struct dr_findings *f)
{
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 32;
		struct dr_finding *v = dr_realloc(f->v, cap * sizeof(*v));

		if (!v) {
			f->no_memory = true;
			return &f->spare;
		}
		f->v = v;
		f->cap = cap;
	}
	return &f->v[f->n++];
}

/* Bytes of a sysfs file or of a peer may be anything; a terminal gets none that it would obey. */
static void DR_PRINTF(3, 0) fill(char *buf, size_t len, const char *fmt, va_list ap)
{
	vsnprintf(buf, len, fmt, ap);
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

struct dr_finding *dr_findings_add(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const char *fmt, ...)
{
	struct dr_finding *x = new_row(f);
	va_list ap;

	memset(x, 0, sizeof(*x));
	x->severity = s;
	x->check = check;
	snprintf(x->where, sizeof(x->where), "%s", where ? where : "");
	va_start(ap, fmt);
	fill(x->text, sizeof(x->text), fmt, ap);
	va_end(ap);
	return x;
}

struct dr_finding *dr_findings_error(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const struct dr_err *e)
{
	const char *semicolon = strstr(e->text, "; ");
	int len = semicolon ? (int)(semicolon - e->text) : (int)strlen(e->text);
	struct dr_finding *x = dr_findings_add(f, s, check, where, "%.*s", len, e->text);

	if (semicolon)
		dr_finding_remedy(x, "%s", semicolon + 2);
	return x;
}

void dr_finding_found(struct dr_finding *x, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(x->found, sizeof(x->found), fmt, ap);
	va_end(ap);
}

void dr_finding_needed(struct dr_finding *x, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(x->needed, sizeof(x->needed), fmt, ap);
	va_end(ap);
}

void dr_finding_remedy(struct dr_finding *x, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(x->remedy, sizeof(x->remedy), fmt, ap);
	va_end(ap);
}

size_t dr_findings_count(const struct dr_findings *f, enum dr_severity s)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += f->v[i].severity == s;
	return n;
}

/* ---- for people ---- */

enum { CHECK_WIDTH = 12, WHERE_WIDTH = 13 };

static void print_row(const struct dr_finding *x, FILE *out)
{
	fprintf(out, "  %-4s  %-*s %-*s %s\n", dr_severity_name(x->severity), CHECK_WIDTH, x->check,
		WHERE_WIDTH, x->where, x->text);
	if (x->found[0] || x->needed[0])
		fprintf(out, "  %*s%s%s%s%s%s\n", CHECK_WIDTH + WHERE_WIDTH + 8, "",
			x->found[0] ? "found " : "", x->found,
			x->found[0] && x->needed[0] ? ", " : "", x->needed[0] ? "needed " : "",
			x->needed);
	if (x->remedy[0])
		fprintf(out, "  %*s-> %s\n", CHECK_WIDTH + WHERE_WIDTH + 8, "", x->remedy);
}

void dr_findings_print(const struct dr_findings *f, int status, bool quiet, FILE *out)
{
	for (size_t i = 0; i < f->n; i++)
		if (!quiet || f->v[i].severity >= DR_SEVERITY_WARN)
			print_row(&f->v[i], out);
	if (f->no_memory)
		fprintf(out, "  fail  out of memory: there are findings that are not shown\n");
	fprintf(out, "%zu fail, %zu warn, %zu note, %zu ok (exit status %d)\n",
		dr_findings_count(f, DR_SEVERITY_FAIL), dr_findings_count(f, DR_SEVERITY_WARN),
		dr_findings_count(f, DR_SEVERITY_NOTE), dr_findings_count(f, DR_SEVERITY_OK),
		status);
}

/* ---- for machines ---- */

/* Bytes that are no UTF-8 (a device's name) become null. */
static json_t *text_or_null(const char *s)
{
	json_t *j = s && s[0] ? json_string(s) : NULL;

	return j ? j : json_null();
}

static json_t *row_json(const struct dr_finding *x)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "severity",
		dr_severity_name(x->severity), "check", x->check, "where", text_or_null(x->where),
		"text", text_or_null(x->text), "found", text_or_null(x->found), "needed",
		text_or_null(x->needed), "remedy", text_or_null(x->remedy));
}

json_t *dr_findings_json(const struct dr_findings *f, const char *target, int status)
{
	char host[256] = "";
	json_t *rows = json_array(), *counts;

	(void)!gethostname(host, sizeof(host) - 1);
	for (size_t i = 0; i < f->n; i++)
		if (json_array_append_new(rows, row_json(&f->v[i]))) {
			json_decref(rows);
			rows = NULL;
		}
	counts = json_pack("{s:i, s:i, s:i, s:i}", names[0], (int)dr_findings_count(f, 0), names[1],
		(int)dr_findings_count(f, 1), names[2], (int)dr_findings_count(f, 2), names[3],
		(int)dr_findings_count(f, 3));
	/* A NULL among the objects makes this NULL, and the others are given back. */
	return json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "schema", "dualrail-doctor/1",
		"version", DR_VERSION, "status", status == 0 ? "pass" : "fail", "exit_code", status,
		"host", text_or_null(host), "target", text_or_null(target), "counts", counts,
		"findings", rows);
}
