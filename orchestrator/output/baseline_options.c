/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/output/parts.h"

/*
 * Figures are compared and averaged only where they mean the same. These options of the client, and the
 * GPUs that take part, must be equal in the baseline's runs and in this one. What does not change the meaning of a
 * bandwidth is not here: durations, intervals, outputs, thresholds, detection, faults, the address of the server.
 */
static const struct compared {
	const char *name;
	bool is_size;
} options[] = { { "transport", false }, { "rails", false }, { "map", false }, { "spread", false },
	{ "topology", false }, { "memory", false }, { "channels", false }, { "window", false },
	{ "chunk", true }, { "size", true }, { "begin", true }, { "end", true },
	{ "factor", false }, { "iters", false }, { "rate", false }, { "bidir", false },
	{ "reverse", false }, { "matrix", false }, { "verify", false }, { "poll", false },
	{ "workers", false }, { "pin", false }, { "sockbuf", true }, { "dscp", false },
	{ "cc", false }, { "qps", false }, { "mtu", false }, { "sl", false }, { "tc", false },
	{ "register", false }, { "links", false } };

/* Two command lines that grow together. */
struct sides {
	char was[72], is[72];
};

/* The rest is cut: " ..." */
static void append(char *line, size_t len, const char *text)
{
	size_t used = strlen(line);

	if (used + strlen(text) + 6 <= len)
		dr_append(line, len, "%s%s", used ? " " : "", text);
	else if (used < 4 || strcmp(line + used - 4, " ...") != 0)
		dr_append(line, len, "%s", " ...");
}

static void list_gpus(uint64_t set, char *buf, size_t len)
{
	unsigned gpu[64];
	size_t n = 0;

	for (; set; set &= set - 1)
		gpu[n++] = (unsigned)__builtin_ctzll(set);
	dr_format_list(gpu, n, buf, len);
}

static uint64_t gpu_bit(int64_t gpu)
{
	return gpu >= 0 && gpu < 64 ? (uint64_t)1 << gpu : 0;
}

static uint64_t gpus_of_document(const json_t *doc)
{
	const json_t *v, *list = json_object_get(json_object_get(doc, "topology"), "gpus");
	uint64_t set = 0;
	size_t i;

	json_array_foreach(list, i, v)
	{
		const json_t *n = json_object_get(v, "gpu");

		if (json_is_integer(n))
			set |= gpu_bit(json_integer_value(n));
	}
	return set;
}

static uint64_t gpus_of_record(const struct dr_record *rec)
{
	uint64_t set = 0;

	for (size_t i = 0; i < rec->gpus.n; i++)
		set |= gpu_bit(rec->gpus.v[i].gpu);
	return set;
}

/* Where a difference goes. */
struct taker {
	dr_difference_fn put;
	void *arg;
};

static void compare_gpus(uint64_t was, uint64_t is, const struct taker *to)
{
	char list[80], one[96], two[96];

	if (!was || !is || was == is)
		return;
	list_gpus(was, list, sizeof(list));
	snprintf(one, sizeof(one), "--gpus %s", list);
	list_gpus(is, list, sizeof(list));
	snprintf(two, sizeof(two), "--gpus %s", list);
	to->put(to->arg, one, two);
}

/* null, false, "" and "auto" are the same: not given. */
static bool given(const json_t *v)
{
	const char *s = json_string_value(v);

	return v && !json_is_null(v) && !json_is_false(v) && !(s && (!*s || !strcmp(s, "auto")));
}

/* "--size 64M", "--bidir", "no --rate" */
static void format_option(const struct compared *o, const json_t *v, char *buf, size_t len)
{
	uint64_t n = (uint64_t)json_integer_value(v);

	if (!given(v))
		snprintf(buf, len, "no --%s", o->name);
	else if (json_is_true(v))
		snprintf(buf, len, "--%s", o->name);
	else if (json_is_string(v))
		snprintf(buf, len, "--%s %.60s", o->name, json_string_value(v));
	else if (json_is_real(v))
		snprintf(buf, len, "--%s %.15g", o->name, json_real_value(v));
	else if (o->is_size && n && n % (1 << 20) == 0)
		snprintf(buf, len, "--%s %lluM", o->name, (unsigned long long)(n >> 20));
	else if (o->is_size && n && n % 1024 == 0)
		snprintf(buf, len, "--%s %lluK", o->name, (unsigned long long)(n >> 10));
	else if (json_is_integer(v))
		snprintf(buf, len, "--%s %llu", o->name, (unsigned long long)n);
	else
		snprintf(buf, len, "another --%s", o->name);
}

static bool differ(const json_t *a, const json_t *b)
{
	if (!a || !b) /* a version that does not have it */
		return false;
	return (given(a) || given(b)) && !json_equal(a, b);
}

static void compare_options(const json_t *was, const json_t *is, const struct taker *to)
{
	char one[96], two[96];

	for (size_t i = 0; i < DR_ARRAY_LEN(options); i++) {
		json_t *a = json_object_get(was, options[i].name),
		       *b = json_object_get(is, options[i].name);

		if (!differ(a, b))
			continue;
		format_option(&options[i], a, one, sizeof(one));
		format_option(&options[i], b, two, sizeof(two));
		to->put(to->arg, one, two);
	}
}

void dr_baseline_differences(const json_t *was, const json_t *is, dr_difference_fn put, void *arg)
{
	const struct taker to = { put, arg };

	compare_gpus(gpus_of_document(was), gpus_of_document(is), &to);
	compare_options(json_object_get(was, "options"), json_object_get(is, "options"), &to);
}

static void put_sides(void *arg, const char *was, const char *is)
{
	struct sides *s = arg;

	append(s->was, sizeof(s->was), was);
	append(s->is, sizeof(s->is), is);
}

int dr_baseline_check(const struct dr_baseline_file *file, const struct dr_record *rec,
	const unsigned *gpus, size_t n_gpus, struct dr_err *e)
{
	uint64_t is = gpus_of_record(rec);
	struct sides s = { "", "" };
	const struct taker to = { put_sides, &s };

	if (!file->doc)
		return 0;
	for (size_t i = 0; !rec->gpus.n && i < n_gpus; i++)
		is |= gpu_bit(gpus[i]);
	compare_gpus(gpus_of_document(file->doc), is, &to);
	compare_options(json_object_get(file->doc, "options"), rec->options, &to);
	if (!s.was[0])
		return 0;
	if (file->saves)
		return dr_err_set(e, -EEXIST,
			"--save-baseline %.40s: its runs had %s, this one %s; choose another file, or delete "
			"this one",
			file->path, s.was, s.is);
	return dr_err_set(e, -EEXIST,
		"baseline %.40s: written with %s, this run has %s; use those options or another file",
		file->path, s.was, s.is);
}
