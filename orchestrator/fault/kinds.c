/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/units.h"
#include "transport/kind.h"

#include <string.h>

/* The kinds of fault, in the order of help. */
#define KINDS(X) X(link_down) X(blackhole) X(loss) X(addr_del) X(exec) X(manual) X(close)

#define DECLARE(name) extern const struct dr_fault_kind dr_fault_kind_##name;
KINDS(DECLARE)
#define ENTRY(name) &dr_fault_kind_##name,
static const struct dr_fault_kind *const kinds[] = { KINDS(ENTRY) };

const struct dr_fault_kind *dr_fault_kind_find(
	const char *name, const struct dr_kind_fault **on_path)
{
	const struct dr_transport_kind *t;

	*on_path = NULL;
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	for (size_t i = 0; !*on_path && (t = dr_transport_kind_at(i)) != NULL; i++)
		*on_path = dr_kind_fault(t, name);
	return *on_path ? &dr_fault_kind_close : NULL;
}

bool dr_fault_takes_dir(const struct dr_fault_spec *s)
{
	return s->kind->dir;
}

bool dr_fault_timed(const struct dr_fault_spec *s)
{
	return !s->kind->untimed;
}

const char *dr_fault_name(const struct dr_fault_spec *s)
{
	return s->on_path ? s->on_path->name : s->kind->name;
}

enum dr_fault_by dr_fault_by(const struct dr_fault_spec *s)
{
	return s->kind->by;
}

bool dr_fault_cuts(const struct dr_fault_spec *s)
{
	return !s->kind->cuts || s->kind->cuts(s);
}

static void put_name(char *buf, size_t len, const struct dr_fault_kind *k)
{
	dr_append(buf, len, "%s%s%s%s", *buf ? ", " : "", k->name, k->value ? "=" : "",
		k->value ? k->value : "");
}

void dr_fault_kinds_names(bool with_dir, char *buf, size_t len)
{
	const struct dr_transport_kind *t;

	buf[0] = '\0';
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (kinds[i]->dir || !with_dir)
			put_name(buf, len, kinds[i]);
	for (size_t i = 0; !with_dir && (t = dr_transport_kind_at(i)) != NULL; i++)
		for (const struct dr_kind_fault *f = t->faults; f && f->name; f++)
			dr_append(buf, len, ", %s", f->name);
}

void dr_fault_kinds_words(char *buf, size_t len)
{
	const struct dr_transport_kind *t;

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		dr_append(buf, len, "%s%s", *buf ? "|" : "", kinds[i]->name);
	for (size_t i = 0; (t = dr_transport_kind_at(i)) != NULL; i++)
		for (const struct dr_kind_fault *f = t->faults; f && f->name; f++)
			if (!strstr(buf, f->name))
				dr_append(buf, len, "|%s", f->name);
}

void dr_fault_kinds_help(char *buf, size_t len)
{
	const struct dr_transport_kind *t;

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++) {
		put_name(buf, len, kinds[i]);
		dr_append(
			buf, len, "%s (%s)", kinds[i]->dir ? "[,dir=in|out]" : "", kinds[i]->help);
	}
	for (size_t i = 0; (t = dr_transport_kind_at(i)) != NULL; i++)
		for (const struct dr_kind_fault *f = t->faults; f && f->name; f++)
			dr_append(buf, len, ", with %s %s (%s)", t->name, f->name, f->help);
	dr_append(buf, len, ".");
}
