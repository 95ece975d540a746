/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/kind.h"

#include "transport/ncclnet/kind.h"
#include "transport/tcp/tcp.h"
#include "transport/verbs/kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Every kind that a user can name. */
static const struct dr_transport_kind *const kinds[] = {
	&dr_tcp_kind,
	&dr_verbs_kind,
	&dr_nccl_kind,
};
_Static_assert(DR_ARRAY_LEN(kinds) <= DR_KINDS_MAX, "raise DR_KINDS_MAX");

const struct dr_transport_kind *dr_transport_kind_at(size_t i)
{
	return i < DR_ARRAY_LEN(kinds) ? kinds[i] : NULL;
}

const struct dr_transport_kind *dr_transport_kind(const char *name)
{
	size_t len = strcspn(name, ":");

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++) {
		const struct dr_transport_kind *k = kinds[i];

		if (strlen(k->name) == len && memcmp(k->name, name, len) == 0 &&
			(!name[len] || k->argument))
			return k;
	}
	return NULL;
}

const struct dr_transport_ops *dr_transport_find(const char *name)
{
	const struct dr_transport_kind *k = dr_transport_kind(name);

	return k ? k->ops : NULL;
}

const char *dr_transport_names(char *buf, size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds) && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "", kinds[i]->name);
	return buf;
}

const struct dr_kind_fault *dr_kind_fault(const struct dr_transport_kind *k, const char *name)
{
	for (const struct dr_kind_fault *f = k->faults; f && f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

int dr_kind_fault_check(const struct dr_transport_kind *k, const char *fault, struct dr_err *e)
{
	const struct dr_transport_kind *owner = NULL;

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds) && !owner; i++)
		if (dr_kind_fault(kinds[i], fault))
			owner = kinds[i];
	if (!owner || dr_kind_fault(k, fault))
		return 0;
	return dr_err_set(e, -EINVAL,
		"--fault %s needs --transport %s; with %s use close, link-down or blackhole", fault,
		owner->name, k->name);
}

const char *dr_scope_name(enum dr_scope s)
{
	static const char *const names[] = {
		[DR_SCOPE_OP] = "operation",
		[DR_SCOPE_PATH] = "path",
		[DR_SCOPE_RAIL] = "rail",
		[DR_SCOPE_PEER] = "peer",
		[DR_SCOPE_LOCAL] = "local",
	};

	return (unsigned)s < DR_ARRAY_LEN(names) ? names[s] : "?";
}

int dr_memory_host_only(const struct dr_rail *r, const struct dr_memory *m, struct dr_err *e)
{
	if (m->kind == DR_MEMORY_HOST)
		return 0;
	return dr_err_set(e, -ENOTSUP, "%s supports host memory only", r->ops->name);
}
