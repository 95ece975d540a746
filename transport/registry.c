/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path.h"

#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <string.h>

/* Every kind that a user can name in this build. The simulated one is not: tests name it directly. */
static const struct dr_transport_ops *const kinds[] = {
	&dr_tcp_ops,
	&dr_verbs_ops,
};

const struct dr_transport_ops *dr_transport_find(const char *name)
{
	size_t i;

	for (i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

/* In the order of `kinds`. */
const char *dr_transport_names(void)
{
	return "tcp, verbs";
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
	return dr_err_set(e, -ENOTSUP, "%s reaches host memory alone", r->ops->name);
}
