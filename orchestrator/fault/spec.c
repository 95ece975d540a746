/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t TIME_MAX_NS = 1000000 * DR_NS_PER_S;

/* The keys of a specification, in the order of the canonical form. */
enum key_type { NUMBER, WORD, TIME, NAME };
struct key {
	const char *name, *form; /* form: of a WORD its choices */
	enum key_type type;
	size_t offset;
	int min, max;
	int absent; /* the value that the canonical form leaves out; NUMBER, WORD, TIME; ALWAYS: none */
};
#define AT(field) offsetof(struct dr_fault_spec, field)
enum { ALWAYS = -2 };
static const struct key keys[] = {
	{ "path", "0|1", NUMBER, AT(path), 0, 1, ALWAYS },
	{ "nic", "NAME", NAME, AT(nic), 0, 0, 0 },
	{ "side", "client|server", WORD, AT(side), 0, 0, ALWAYS },
	{ "at", "TIME", TIME, AT(at_ns), 0, 0, ALWAYS },
	{ "for", "TIME", TIME, AT(for_ns), 0, 0, ALWAYS },
	{ "repeat", "N", NUMBER, AT(repeat), 1, 1000000, 1 },
	{ "every", "TIME", TIME, AT(every_ns), 0, 0, 0 },
	{ "dir", "both|in|out", WORD, AT(dir), 0, 0, DR_FAULT_BOTH },
	{ "gpu", "N", NUMBER, AT(gpu), 0, 1023, -1 },
	{ "channel", "N", NUMBER, AT(channel), 0, 65535, -1 },
};

static void keys_text(char *buf, size_t len)
{
	buf[0] = '\0';
	for (size_t i = 0; i < DR_ARRAY_LEN(keys); i++)
		dr_append(buf, len, "%s%s=%s", i ? ", " : "", keys[i].name, keys[i].form);
}

bool dr_fault_name_valid(const char *s, size_t size)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	size_t len = strlen(s);

	return len > 0 && len < size && strspn(s, ok) == len;
}

static int no_kind(const char *name, struct dr_err *e)
{
	char names[256];

	dr_fault_kinds_names(false, names, sizeof(names));
	return dr_err_set(e, -EINVAL, "no kind '%.40s'; kinds are %s", name, names);
}

static int parse_kind(char *s, struct dr_fault_spec *out, struct dr_err *e)
{
	char *value = strchr(s, '=');
	size_t kind = strcspn(s, ",");

	if (s[kind])
		return dr_err_set(e, -EINVAL, "write %.*s:%.80s, with \":\" behind the kind",
			(int)kind, s, s + kind + 1);
	if (value)
		*value++ = '\0';
	out->kind = dr_fault_kind_find(s, &out->on_path);
	if (!out->kind)
		return no_kind(s, e);
	if (!value != !out->kind->value)
		return value ? dr_err_set(e, -EINVAL, "%s takes no value ('=%.40s')", s, value)
			     : dr_err_set(e, -EINVAL, "write %s=%s", s, out->kind->value);
	if (value && strlen(value) >= sizeof(out->value))
		return dr_err_set(e, -EINVAL, "%s=%.40s: the value is too long", s, value);
	snprintf(out->value, sizeof(out->value), "%s", value ? value : "");
	if (!out->kind->parse || out->kind->parse(out, e) == 0)
		return 0;
	return dr_err_prefix(e, "%s=%s", s, out->kind->value);
}

static int parse_value(const struct key *k, const char *value, char *dst, struct dr_err *e)
{
	uint64_t v = 0;
	int64_t ns = 0;
	int n = 0, rc;

	switch (k->type) {
	case NAME:
		if (!dr_fault_name_valid(value, DR_FAULT_NIC_MAX))
			return dr_err_set(e, -EINVAL, "not a device name");
		memcpy(dst, value, strlen(value) + 1);
		return 0;
	case TIME:
		rc = dr_parse_duration(value, &ns, e);
		if (rc == 0)
			rc = dr_check_duration_unit(value, e);
		/* As for the durations among the options; sums with the clock fit in 64 bits then. */
		if (rc == 0 && ns > TIME_MAX_NS)
			rc = dr_err_set(e, -EINVAL, "too long; use at most 1000000s");
		memcpy(dst, &ns, sizeof(ns));
		return rc;
	case WORD:
		rc = dr_parse_choice(k->form, value, &n, e);
		break;
	default:
		rc = dr_parse_u64(value, (uint64_t)k->min, (uint64_t)k->max, &v, e);
		n = (int)v;
	}
	memcpy(dst, &n, sizeof(n));
	return rc;
}

/* One KEY=VALUE; *seen has a bit per key, so that a repeated one is noticed. */
static int parse_key(char *text, struct dr_fault_spec *out, unsigned *seen, struct dr_err *e)
{
	char *value = strchr(text, '='), names[256];
	size_t k = 0;

	if (value)
		*value++ = '\0';
	while (k < DR_ARRAY_LEN(keys) && strcmp(keys[k].name, text) != 0)
		k++;
	if (!value || k == DR_ARRAY_LEN(keys)) {
		keys_text(names, sizeof(names));
		return dr_err_set(e, -EINVAL, "'%.40s' is not %s; keys are %s", text,
			value ? "a key" : "KEY=VALUE", names);
	}
	if (*seen & (1u << k))
		return dr_err_set(e, -EINVAL, "key '%s' is given twice", text);
	*seen |= 1u << k;
	if (keys[k].offset == AT(dir) && !out->kind->dir) {
		dr_fault_kinds_names(true, names, sizeof(names));
		return dr_err_set(e, -EINVAL, "%s has no direction; dir= is for %s",
			dr_fault_name(out), names);
	}
	if (parse_value(&keys[k], value, (char *)out + keys[k].offset, e))
		return dr_err_prefix(e, "%s=%.40s", text, value);
	return 0;
}

static int finish(struct dr_fault_spec *s, struct dr_err *e)
{
	if (s->repeat > 1 && s->for_ns == 0)
		return dr_err_set(
			e, -EINVAL, "for=0 lasts until the end of the run and cannot be repeated");
	if (s->repeat > 1 && s->every_ns == 0)
		s->every_ns = s->for_ns + 3 * DR_NS_PER_S;
	if (s->repeat == 1 && s->every_ns != 0)
		return dr_err_set(e, -EINVAL, "every= needs repeat=N with N > 1");
	if (s->repeat > 1 && s->every_ns <= s->for_ns)
		return dr_err_set(
			e, -EINVAL, "every= must be longer than for=, else the faults overlap");
	return 0;
}

int dr_fault_spec_parse(const char *s, struct dr_fault_spec *out, struct dr_err *e)
{
	struct dr_fault_spec spec = { .at_ns = 2 * DR_NS_PER_S,
		.for_ns = DR_NS_PER_S,
		.repeat = 1,
		.gpu = -1,
		.channel = -1 };
	char copy[DR_FAULT_SPEC_MAX], *rest = copy;
	unsigned seen = 0;

	if (strlen(s) >= sizeof(copy))
		return dr_err_set(e, -EINVAL, "longer than %zu bytes", sizeof(copy) - 1);
	memcpy(copy, s, strlen(s) + 1);
	int rc = parse_kind(strsep(&rest, ":"), &spec, e);
	while (rc == 0 && rest)
		rc = parse_key(strsep(&rest, ","), &spec, &seen, e);
	if (rc == 0)
		rc = finish(&spec, e);
	if (rc == 0)
		*out = spec;
	else if (e)
		e->code = -EINVAL; /* out of range is not a separate class here */
	return rc ? -EINVAL : 0;
}

static void put_key(const struct key *k, const struct dr_fault_spec *s, char *buf, size_t len)
{
	const char *src = (const char *)s + k->offset;
	char text[DR_FAULT_NIC_MAX];
	int64_t v = 0;
	int n;

	if (k->type == NAME) {
		snprintf(text, sizeof(text), "%s", src);
		v = text[0];
	} else if (k->type == TIME) {
		memcpy(&v, src, sizeof(v));
		dr_format_duration_exact(v, text, sizeof(text));
	} else {
		memcpy(&n, src, sizeof(n));
		v = n;
		snprintf(text, sizeof(text), "%d", n);
		if (k->type == WORD)
			dr_format_choice(k->form, n, text, sizeof(text));
	}
	if (v != k->absent)
		dr_append(buf, len, ",%s=%s", k->name, text);
}

void dr_fault_spec_format(const struct dr_fault_spec *s, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s%s", dr_fault_name(s), s->value[0] ? "=" : "", s->value);
	size_t colon = strlen(buf);
	for (size_t i = 0; i < DR_ARRAY_LEN(keys); i++)
		put_key(&keys[i], s, buf, len);
	if (buf[colon])
		buf[colon] = ':';
}
