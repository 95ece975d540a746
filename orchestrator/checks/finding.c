/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/finding.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = { "ok", "note", "warn", "fail", NULL };

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
	struct dr_finding *v = dr_grow(f->v, &f->cap, f->n + 1, sizeof(*v));

	if (!v) {
		f->no_memory = true;
		return &f->spare;
	}
	f->v = v;
	return &v[f->n++];
}

struct dr_finding *dr_findings_add(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const char *fmt, ...)
{
	struct dr_finding *x = new_row(f);
	const struct {
		char *to;
		size_t size;
	} part[] = { { x->text, sizeof(x->text) }, { x->found, sizeof(x->found) },
		{ x->needed, sizeof(x->needed) }, { x->remedy, sizeof(x->remedy) } };
	char buf[sizeof(x->text) + sizeof(x->found) + sizeof(x->needed) + sizeof(x->remedy)];
	char *rest = buf;
	va_list ap;

	memset(x, 0, sizeof(*x));
	x->severity = s;
	x->check = check;
	snprintf(x->where, sizeof(x->where), "%s", where ? where : "");
	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	for (size_t i = 0; i < DR_ARRAY_LEN(part) && rest; i++)
		dr_text_copy(part[i].to, part[i].size, strsep(&rest, "\n"));
	return x;
}

void dr_findings_unreadable(struct dr_findings *f, const char *check, const char *path)
{
	dr_findings_add(f, DR_SEVERITY_NOTE, check, NULL, "not checked: cannot read %s\n\n\n%s",
		path, strncmp(path, "/proc", 5) == 0 ? "mount -t proc proc /proc" : "");
}

struct dr_finding *dr_findings_error(struct dr_findings *f, enum dr_severity s, const char *check,
	const char *where, const struct dr_err *e)
{
	const char *semicolon = strstr(e->text, "; ");
	size_t len = semicolon ? (size_t)(semicolon - e->text) : strlen(e->text);
	struct dr_finding *x = dr_findings_add(f, s, check, where, "%s", "");

	dr_text_copy(x->text, DR_MIN(sizeof(x->text), len + 1), e->text);
	if (semicolon)
		dr_text_copy(x->remedy, sizeof(x->remedy), semicolon + 2);
	return x;
}

size_t dr_findings_count(const struct dr_findings *f, enum dr_severity s)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += f->v[i].severity == s;
	return n;
}

void dr_findings_failure(const struct dr_findings *f, char *buf, size_t len)
{
	size_t i = 0;

	while (i < f->n && f->v[i].severity != DR_SEVERITY_FAIL)
		i++;
	if (i == f->n) {
		snprintf(buf, len, "%s", f->no_memory ? "out of memory" : "");
		return;
	}
	const struct dr_finding *x = &f->v[i];
	snprintf(buf, len, "%s%s%s: %s%s%s", x->check, x->where[0] ? " " : "", x->where, x->text,
		x->remedy[0] ? "; " : "", x->remedy);
}

/* ---- table ---- */

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
		fprintf(out, "  fail  out of memory: some findings are not shown\n");
	fprintf(out, "%zu fail, %zu warn, %zu note, %zu ok (exit status %d)\n",
		dr_findings_count(f, DR_SEVERITY_FAIL), dr_findings_count(f, DR_SEVERITY_WARN),
		dr_findings_count(f, DR_SEVERITY_NOTE), dr_findings_count(f, DR_SEVERITY_OK),
		status);
}

/* ---- JSON ---- */

#define F(kind_, name_, member, text_, ...)                                                        \
	DR_FIELD(name_, DR_F_##kind_, T, member, .text = (text_), __VA_ARGS__)
#define T struct dr_finding
static const struct dr_field finding[] = {
	DR_FIELD_ENUM("severity", T, severity, names, .text = "ok, note, warn or fail"),
	F(TEXT, "check", check, "what was checked, a word"),
	F(STR, "where", where, "NIC or GPU; null: the host"),
	F(STR, "text", text, "the finding"),
	F(STR, "found", found, "value found"),
	F(STR, "needed", needed, "value needed"),
	F(STR, "remedy", remedy, "what to do, a command where there is one"),
};
static DR_FIELDS(finding_fields, "findings", finding, T, .text = "result of one check");
#undef T

struct document {
	const char *version, *target;
	int failed, exit_code;
	char host[256];
	unsigned count[DR_SEVERITIES];
	json_t *findings;
};
static const char *const status_names[] = { "pass", "fail", NULL };
#define T struct document
static const struct dr_field document[] = {
	DR_FIELD_CONST("schema", "dualrail-doctor/1", .text = "format of this document"),
	F(TEXT, "version", version, "version of this program"),
	DR_FIELD_ENUM("status", T, failed, status_names, .text = "outcome", .flags = DR_F_REQUIRED),
	F(SINT, "exit_code", exit_code, "exit status of the program"),
	F(STR, "host", host, "this host"),
	F(TEXT, "target", target, "server that was checked too"),
	F(UINT, "counts.ok", count[DR_SEVERITY_OK], "checks without a finding"),
	F(UINT, "counts.note", count[DR_SEVERITY_NOTE], "notes"),
	F(UINT, "counts.warn", count[DR_SEVERITY_WARN], "warnings"),
	F(UINT, "counts.fail", count[DR_SEVERITY_FAIL], "failures"),
	F(JSON, "findings", findings, "one for each check", .row = &finding_fields),
};
DR_FIELDS(dr_doctor_fields, "doctor", document, T, .text = "what `dualrail doctor` found");
#undef T

json_t *dr_findings_json(const struct dr_findings *f, const char *target, int status)
{
	struct document d = { .version = DR_VERSION,
		.target = target,
		.failed = status != 0,
		.exit_code = status,
		.findings = dr_rows_to_json(&finding_fields, f->v, f->n) };
	json_t *o = NULL;

	(void)!gethostname(d.host, sizeof(d.host) - 1);
	for (unsigned i = 0; i < DR_SEVERITIES; i++)
		d.count[i] = (unsigned)dr_findings_count(f, i);
	if (d.findings)
		o = dr_fields_to_json(&dr_doctor_fields, &d);
	json_decref(d.findings);
	return o;
}
