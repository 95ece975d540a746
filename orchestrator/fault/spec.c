/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/fault.h"

#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t TIME_MAX_NS = 1000000 * DR_NS_PER_S;

enum takes { KIND_ONLY, KIND_PERCENT, KIND_NAME };

static const struct {
	const char *name;
	enum takes takes;
	bool guard, dir;
} kinds[] = {
	[DR_FAULT_LINK_DOWN] = { "link-down", KIND_ONLY, true, false },
	[DR_FAULT_BLACKHOLE] = { "blackhole", KIND_ONLY, true, true },
	[DR_FAULT_LOSS] = { "loss", KIND_PERCENT, true, true },
	[DR_FAULT_CLOSE] = { "close", KIND_ONLY, false, false },
	[DR_FAULT_MANUAL] = { "manual", KIND_ONLY, false, false },
	[DR_FAULT_EXEC] = { "exec", KIND_NAME, true, false },
	[DR_FAULT_QP_ERROR] = { "qp-error", KIND_ONLY, false, false },
	[DR_FAULT_ADDR_DEL] = { "addr-del", KIND_ONLY, true, false },
};
static const char kinds_text[] =
	"link-down, blackhole, loss=PERCENT, addr-del, qp-error, close, manual or exec=NAME";
static const char keys_text[] =
	"path=0|1, nic=NAME, side=client|server, at=TIME, for=TIME, repeat=N, every=TIME, "
	"dir=in|out|both, gpu=N, channel=N";

const char *dr_fault_kind_name(enum dr_fault_kind k)
{
	return kinds[k].name;
}

bool dr_fault_by_guard(enum dr_fault_kind k)
{
	return kinds[k].guard;
}

bool dr_fault_by_channel(enum dr_fault_kind k)
{
	return k == DR_FAULT_CLOSE || k == DR_FAULT_QP_ERROR;
}

/* Letters, digits, '_', '-', '.': 1..size-1 of them. */
static int copy_name(char *out, size_t size, const char *s)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	size_t len = strlen(s);

	if (len == 0 || len >= size || strspn(s, ok) != len)
		return -EINVAL;
	memcpy(out, s, len + 1);
	return 0;
}

static int parse_kind(char *s, struct dr_fault_spec *out, struct dr_err *e)
{
	char *value = strchr(s, '=');
	size_t k;
	int rc;

	if (value)
		*value++ = '\0';
	for (k = 0; k < DR_ARRAY_LEN(kinds) && strcmp(kinds[k].name, s) != 0; k++)
		;
	if (k == DR_ARRAY_LEN(kinds))
		return dr_err_set(
			e, -EINVAL, "--fault: no kind '%.40s'; kinds are %s", s, kinds_text);
	out->kind = (enum dr_fault_kind)k;
	if (kinds[k].takes == KIND_ONLY)
		return !value ? 0
			      : dr_err_set(e, -EINVAL, "--fault %s takes no value ('=%.40s')", s,
					value);
	if (kinds[k].takes == KIND_NAME) {
		if (value && copy_name(out->exec_name, sizeof(out->exec_name), value) == 0)
			return 0;
		return dr_err_set(e, -EINVAL,
			"--fault exec=NAME: '%.40s' is no name given with --fault-exec",
			value ? value : "");
	}
	if (!value)
		return dr_err_set(e, -EINVAL, "--fault loss: write loss=PERCENT, e.g. loss=2.5");
	if (strlen(value) > 1 && value[strlen(value) - 1] == '%')
		value[strlen(value) - 1] = '\0';
	rc = dr_parse_double(value, 0, 100, &out->loss_percent, e);
	if (rc < 0)
		return dr_err_prefix(e, "--fault loss");
	/* The kernel draws from a million. */
	if (out->loss_percent < 0.0001)
		return dr_err_set(e, -EINVAL, "--fault loss=%s: at least 0.0001 percent", value);
	return 0;
}

static int parse_word(const char *key, const char *value, const char *const *words, size_t n,
	int *out, struct dr_err *e)
{
	char accepted[80] = "";
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(words[i], value)) {
			*out = (int)i;
			return 0;
		}
		at += (size_t)snprintf(
			accepted + at, sizeof(accepted) - at, "%s%s", i ? " or " : "", words[i]);
	}
	return dr_err_set(e, -EINVAL, "--fault %s=%.40s: must be %s", key, value, accepted);
}

static int parse_time(const char *value, int64_t *out, struct dr_err *e)
{
	int rc = dr_parse_duration(value, out, e);

	/* As for the durations among the options; sums with the clock fit in 64 bits then. */
	return rc == 0 && *out > TIME_MAX_NS
		       ? dr_err_set(e, -ERANGE, "'%.40s' is too long; use at most 1000000s", value)
		       : rc;
}

static int parse_number(const char *value, uint64_t min, uint64_t max, int *out, struct dr_err *e)
{
	uint64_t v;
	int rc = dr_parse_u64(value, min, max, &v, e);

	if (rc == 0)
		*out = (int)v;
	return rc;
}

/* One KEY=VALUE; *seen has a bit per key, so that a repeated one is noticed. */
static int parse_key(const char *key, const char *value, struct dr_fault_spec *out, unsigned *seen,
	struct dr_err *e)
{
	static const char *const names[] = { "path", "nic", "side", "at", "for", "repeat", "every",
		"dir", "gpu", "channel" };
	static const char *const sides[] = { "client", "server" };
	static const char *const dirs[] = { "both", "in", "out" };
	int rc = 0, n = 0;
	size_t k;

	for (k = 0; k < DR_ARRAY_LEN(names) && strcmp(names[k], key) != 0; k++)
		;
	if (k == DR_ARRAY_LEN(names))
		return dr_err_set(e, -EINVAL, "--fault %s: no key '%.30s'; keys are %s",
			dr_fault_kind_name(out->kind), key, keys_text);
	if (*seen & (1u << k))
		return dr_err_set(e, -EINVAL, "--fault: key '%s' is given twice", key);
	*seen |= 1u << k;
	if (!strcmp(key, "path")) {
		rc = parse_number(value, 0, 1, &n, e);
		out->path = (unsigned)n;
	} else if (!strcmp(key, "nic")) {
		if (copy_name(out->nic, sizeof(out->nic), value) < 0)
			return dr_err_set(e, -EINVAL, "--fault nic=%.40s: no device name", value);
	} else if (!strcmp(key, "side")) {
		rc = parse_word(key, value, sides, DR_ARRAY_LEN(sides), &n, e);
		out->side = (enum dr_fault_side)n;
		return rc;
	} else if (!strcmp(key, "dir")) {
		if (!kinds[out->kind].dir)
			return dr_err_set(e, -EINVAL,
				"--fault %s has no direction: dir= is for "
				"blackhole and loss",
				dr_fault_kind_name(out->kind));
		rc = parse_word(key, value, dirs, DR_ARRAY_LEN(dirs), &n, e);
		out->dir = (enum dr_fault_dir)n;
		return rc;
	} else if (!strcmp(key, "at")) {
		rc = parse_time(value, &out->at_ns, e);
	} else if (!strcmp(key, "for")) {
		rc = parse_time(value, &out->for_ns, e);
	} else if (!strcmp(key, "every")) {
		rc = parse_time(value, &out->every_ns, e);
	} else if (!strcmp(key, "repeat")) {
		rc = parse_number(value, 1, 1000000, &n, e);
		out->repeat = (unsigned)n;
	} else if (!strcmp(key, "gpu")) {
		rc = parse_number(value, 0, 1023, &out->gpu, e);
	} else {
		rc = parse_number(value, 0, 65535, &out->channel, e);
	}
	return rc < 0 ? dr_err_prefix(e, "--fault %s=%.40s", key, value) : 0;
}

static int finish(struct dr_fault_spec *s, struct dr_err *e)
{
	if (s->repeat > 1 && s->for_ns == 0)
		return dr_err_set(e, -EINVAL,
			"--fault: for=0 lasts until the end of the run and cannot be repeated");
	if (s->repeat > 1 && s->every_ns == 0)
		s->every_ns = s->for_ns + 3 * DR_NS_PER_S;
	if (s->repeat == 1 && s->every_ns != 0)
		return dr_err_set(e, -EINVAL, "--fault: every= needs repeat=N with N > 1");
	if (s->repeat > 1 && s->every_ns <= s->for_ns)
		return dr_err_set(e, -EINVAL,
			"--fault: every= must be longer than for=, else the faults overlap");
	return 0;
}

int dr_fault_spec_parse(const char *s, struct dr_fault_spec *out, struct dr_err *e)
{
	struct dr_fault_spec spec = { .at_ns = 2 * DR_NS_PER_S,
		.for_ns = DR_NS_PER_S,
		.repeat = 1,
		.gpu = -1,
		.channel = -1 };
	char copy[DR_FAULT_SPEC_MAX], *rest;
	unsigned seen = 0;
	int rc;

	if (strlen(s) >= sizeof(copy))
		return dr_err_set(e, -EINVAL, "--fault: longer than %zu bytes", sizeof(copy) - 1);
	memcpy(copy, s, strlen(s) + 1);
	rest = strchr(copy, ':');
	if (rest)
		*rest++ = '\0';
	rc = parse_kind(copy, &spec, e);
	while (rc == 0 && rest) {
		char *key = rest, *value;

		rest = strchr(rest, ',');
		if (rest)
			*rest++ = '\0';
		value = strchr(key, '=');
		if (!value)
			return dr_err_set(e, -EINVAL,
				"--fault: '%.40s' is no KEY=VALUE; keys are %s", key, keys_text);
		*value++ = '\0';
		rc = parse_key(key, value, &spec, &seen, e);
	}
	if (rc == 0)
		rc = finish(&spec, e);
	if (rc == 0)
		*out = spec;
	if (rc < 0) { /* out of range is no other class here */
		rc = -EINVAL;
		if (e)
			e->code = rc;
	}
	return rc;
}

static size_t put(char *buf, size_t len, size_t at, const char *fmt, ...) DR_PRINTF(4, 5);
static size_t put(char *buf, size_t len, size_t at, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at < len ? buf + at : NULL, at < len ? len - at : 0, fmt, ap);
	va_end(ap);
	return at + (n > 0 ? (size_t)n : 0);
}

/* Exact, so that it parses back to the same: whole seconds, else ns. */
static size_t put_time(char *buf, size_t len, size_t at, const char *key, int64_t ns)
{
	if (ns % DR_NS_PER_S == 0)
		return put(buf, len, at, ",%s=%llds", key, (long long)(ns / DR_NS_PER_S));
	if (ns % DR_NS_PER_MS == 0)
		return put(buf, len, at, ",%s=%lldms", key, (long long)(ns / DR_NS_PER_MS));
	return put(buf, len, at, ",%s=%lldns", key, (long long)ns);
}

/* The shortest text that reads back as the same number. */
static size_t put_percent(char *buf, size_t len, size_t at, double v)
{
	char text[32];

	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	return put(buf, len, at, "=%s", text);
}

void dr_fault_spec_format(const struct dr_fault_spec *s, char *buf, size_t len)
{
	size_t at = put(buf, len, 0, "%s", dr_fault_kind_name(s->kind));

	if (s->kind == DR_FAULT_LOSS)
		at = put_percent(buf, len, at, s->loss_percent);
	if (s->kind == DR_FAULT_EXEC)
		at = put(buf, len, at, "=%s", s->exec_name);
	at = put(buf, len, at, ":path=%u", s->path);
	if (s->nic[0])
		at = put(buf, len, at, ",nic=%s", s->nic);
	at = put(buf, len, at, ",side=%s", s->side == DR_FAULT_SERVER ? "server" : "client");
	at = put_time(buf, len, at, "at", s->at_ns);
	at = put_time(buf, len, at, "for", s->for_ns);
	if (s->repeat > 1) {
		at = put(buf, len, at, ",repeat=%u", s->repeat);
		at = put_time(buf, len, at, "every", s->every_ns);
	}
	if (s->dir != DR_FAULT_BOTH)
		at = put(buf, len, at, ",dir=%s", s->dir == DR_FAULT_IN ? "in" : "out");
	if (s->gpu >= 0)
		at = put(buf, len, at, ",gpu=%d", s->gpu);
	if (s->channel >= 0)
		put(buf, len, at, ",channel=%d", s->channel);
}

/* Copy of s up to an unescaped comma, "\," made ","; *end is that comma or the end. */
static char *unescape(const char *s, const char **end)
{
	char *out = dr_calloc(1, strlen(s) + 1);
	size_t n = 0;

	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1] == ',')
			s++;
		if (out)
			out[n++] = *s;
	}
	*end = s;
	return out;
}

int dr_fault_execs_add(struct dr_fault_execs *t, const char *s, struct dr_err *e)
{
	static const char form[] = "write NAME=CMD,UNDO with a comma inside a command as '\\,'";
	struct dr_fault_exec x = { 0 }, *v;
	const char *eq = strchr(s, '='), *end, *last;
	char name[DR_FAULT_NAME_MAX];

	if (!eq || (size_t)(eq - s) >= sizeof(name))
		return dr_err_set(e, -EINVAL, "--fault-exec %.60s: %s", s, form);
	memcpy(name, s, (size_t)(eq - s));
	name[eq - s] = '\0';
	if (copy_name(x.name, sizeof(x.name), name) < 0)
		return dr_err_set(
			e, -EINVAL, "--fault-exec: '%s' is no name (letters, digits, _ - .)", name);
	if (dr_fault_execs_find(t, name))
		return dr_err_set(e, -EEXIST, "--fault-exec: '%s' is defined twice", name);
	x.cmd = unescape(eq + 1, &end);
	x.undo = unescape(*end ? end + 1 : end, &last);
	v = x.cmd && x.undo ? dr_realloc(t->v, (t->n + 1) * sizeof(*v)) : NULL;
	if (v)
		t->v = v;
	if (v && *end && !*last && x.cmd[0] && x.undo[0]) {
		t->v[t->n++] = x;
		return 0;
	}
	dr_free(x.cmd);
	dr_free(x.undo);
	if (!v)
		return dr_err_set(e, -ENOMEM, "--fault-exec: out of memory");
	return dr_err_set(e, -EINVAL, "--fault-exec %s: %s; UNDO may be 'true'", name, form);
}

const struct dr_fault_exec *dr_fault_execs_find(const struct dr_fault_execs *t, const char *name)
{
	for (size_t i = 0; t && i < t->n; i++) {
		if (!strcmp(t->v[i].name, name))
			return &t->v[i];
	}
	return NULL;
}

void dr_fault_execs_fini(struct dr_fault_execs *t)
{
	for (size_t i = 0; i < t->n; i++) {
		dr_free(t->v[i].cmd);
		dr_free(t->v[i].undo);
	}
	dr_free(t->v);
	memset(t, 0, sizeof(*t));
}
