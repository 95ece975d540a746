/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/dev_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/*
 * GID tables. One call brings the valid entries of all ports of a device; the library makes up for
 * a kernel that has no such command. Software RoCE has 1024 places.
 */

static bool is_none(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return memcmp(gid, &none, sizeof(none)) == 0;
}

int dr_verbs_gid_at(const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port, uint32_t index,
	struct ibv_gid_entry *out)
{
	memset(out, 0, sizeof(*out));
	int rc = dr_verbs_neg(ibv->query_gid_ex(ctx, port, index, out, 0, sizeof(*out)));
	if (rc == 0 && is_none(&out->gid))
		rc = -ENODATA;
	return rc;
}

/* How many entries all ports may have; 0: not known. A table that is one short is refused. */
static size_t places(const struct dr_ibv *ibv, struct ibv_context *ctx)
{
	struct ibv_device_attr d = { 0 };
	size_t n = 0;

	if (ibv->query_device(ctx, &d))
		return 0;
	for (unsigned port = 1; port <= d.phys_port_cnt; port++) {
		struct ibv_port_attr a = { 0 };

		if (ibv->query_port(ctx, (uint8_t)port, &a))
			return 0;
		n += (size_t)a.gid_tbl_len;
	}
	return n;
}

void dr_verbs_gids_begin(
	struct dr_verbs_gids *g, const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port)
{
	size_t max = places(ibv, ctx);

	*g = (struct dr_verbs_gids){ .port = port };
	g->all = max > 0 ? dr_calloc(max, sizeof(*g->all)) : NULL;
	ssize_t n = g->all ? ibv->query_gid_table(ctx, g->all, max, 0, sizeof(*g->all)) : 0;
	g->end = n > 0 && (size_t)n <= max ? (size_t)n : 0;
}

bool dr_verbs_gids_next(struct dr_verbs_gids *g, struct ibv_gid_entry *out)
{
	while (g->at < g->end) {
		*out = g->all[g->at++];
		if (out->port_num == g->port && !is_none(&out->gid))
			return true;
	}
	return false;
}

void dr_verbs_gids_end(struct dr_verbs_gids *g)
{
	dr_free(g->all);
}
