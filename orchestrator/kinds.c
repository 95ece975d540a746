/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/kinds.h"

#include "base/log.h"
#include "base/mem.h"
#include "transport/staged/staged.h"
#include "transport/verbs/dev.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct dr_kind {
	const struct dr_transport_ops *ops;
	bool verbs;
	struct dr_verbs_params ib;
};

_Static_assert(DR_VERBS_QPS_MAX == 4, "the range of --qps in options_paths.c and plan_json.c");

static bool is_verbs(const char *transport)
{
	return strcmp(transport, "verbs") == 0;
}

/* ---- options ---- */

/* Only what was typed for this run: NCCL's variables may be set for others. */
static int check_options(const struct dr_options *o, struct dr_err *e)
{
	static const char *const names[] = { "qps", "gid", "mtu", "sl", "tc", "ib-timeout",
		"ib-retry", "register" };

	for (size_t i = 0; i < DR_ARRAY_LEN(names); i++)
		if (strcmp(dr_opts_source(o->table, names[i]), "command line") == 0)
			return dr_err_set(e, -EINVAL,
				"--%s means nothing with --transport %s; use --transport verbs",
				names[i], o->transport);
	return 0;
}

int dr_kind_fault(const char *transport, const struct dr_fault_spec *s, struct dr_err *e)
{
	if (is_verbs(transport) || s->kind != DR_FAULT_QP_ERROR)
		return 0;
	return dr_err_set(e, -EINVAL,
		"--fault %s needs --transport verbs; with %s use close, link-down or blackhole",
		dr_fault_kind_name(s->kind), transport);
}

int dr_kind_check(const struct dr_options *o, struct dr_err *e)
{
	bool verbs = is_verbs(o->transport);
	bool follows = o->command == DR_CMDBIT_SERVER && !dr_opts_given(o->table, "transport");
	int rc = verbs || follows ? 0 : check_options(o, e);

	for (unsigned i = 0; rc == 0 && i < o->faults.n; i++)
		rc = dr_kind_fault(o->transport, &o->faults.v[i], e);
	if (rc == 0 && verbs && o->detect == DR_DETECT_CONSERVATIVE && o->ib_timeout == 0)
		return dr_err_set(e, -EINVAL,
			"--ib-timeout 0 never gives up, so --detect conservative would never switch; "
			"use 1 to 31");
	return rc;
}

void dr_kind_plan(const struct dr_options *o, struct dr_plan *p)
{
	snprintf(p->transport, sizeof(p->transport), "%s", o->transport);
	if (!is_verbs(o->transport))
		return;
	p->ib = (struct dr_plan_ib){ .qps = (unsigned)o->qps,
		.mtu = o->mtu ? 128u << o->mtu : 0,
		.sl = (unsigned)o->sl,
		.tc = (unsigned)o->tc,
		.timeout = (unsigned)o->ib_timeout,
		.retry = (unsigned)o->ib_retry };
}

int dr_kind_follow(const struct dr_options *o, const struct dr_plan *p, struct dr_err *e)
{
	if (dr_opts_given(o->table, "transport") && strcmp(o->transport, p->transport) != 0)
		return dr_err_set(e, -EPROTO,
			"transports differ: client %s, server %s; give both the same --transport, or "
			"none to the server",
			p->transport, o->transport);
	if (!dr_transport_find(p->transport))
		return dr_err_set(e, -ENOTSUP,
			"transport %s of the client is not in the server's build (built: %s)",
			p->transport, dr_transport_names());
	return 0;
}

static void fill_params(
	const struct dr_options *o, const struct dr_plan *p, struct dr_verbs_params *out)
{
	dr_verbs_params_init(out);
	out->gid_index = o->gid;
	out->lazy_mr = o->lazy;
	out->qps = p->ib.qps;
	out->mtu = p->ib.mtu;
	out->sl = p->ib.sl;
	out->tc = p->ib.tc;
	out->timeout = p->ib.timeout;
	out->retry = p->ib.retry;
}

int dr_kind_create(
	const struct dr_options *o, const struct dr_plan *p, struct dr_kind **out, struct dr_err *e)
{
	struct dr_kind *k = dr_calloc(1, sizeof(*k));

	if (!k)
		return dr_err_set(e, -ENOMEM, "out of memory");
	k->ops = dr_transport_find(p->transport);
	k->verbs = is_verbs(p->transport);
	fill_params(o, p, &k->ib);
	if (k->verbs && p->detect == DR_DETECT_CONSERVATIVE && k->ib.retry == 7)
		dr_warn("verbs",
			"--ib-retry 7: software RoCE (rxe) takes that for \"for ever\" and never gives "
			"up; use 6 or less with --detect conservative");
	*out = k;
	return 0;
}

void dr_kind_destroy(struct dr_kind *k)
{
	dr_free(k);
}

void dr_kind_manager(struct dr_kind *k, struct dr_manager_params *out)
{
	out->transport = k->ops;
	if (!k->verbs)
		return;
	out->kind_params = &k->ib;
	out->hw_window_ns = dr_verbs_window_ns(&k->ib);
	out->hw_retry_ns = dr_verbs_retry_ns(&k->ib);
}

void dr_kind_qp_error(struct dr_path *p)
{
	p = dr_staged_inner(p);
	dr_assert(p->ops == &dr_verbs_ops); /* dr_kind_fault said so */
	dr_verbs_path_error(p);
}

const char *(*dr_kind_memory_words(const struct dr_transport_ops *t))(const struct dr_mr *mr)
{
	return t == &dr_verbs_ops ? dr_verbs_mr_choice : NULL;
}

/* ---- rails ---- */

/* A name that is neither a net device nor an address here, but an RDMA device. */
static bool rdma_name(const char *name, char *ifname, struct dr_err *e)
{
	struct sockaddr_storage sa;
	struct dr_netdev d;

	if (!*name || strspn(name, "0123456789") == strlen(name) ||
		dr_netdev_addr_parse(name, &sa) == 0 || dr_netdev_by_name(name, &d, NULL) == 0)
		return false;
	return dr_verbs_netdev_of(name, ifname, IFNAMSIZ, e) == 0;
}

/* e: what was wrong with the last name that is unknown; untouched when there was none. */
static bool rename_items(const char *text, char *buf, size_t len, struct dr_err *e)
{
	static const char ends[] = ",;=@";
	char name[128], ifname[IFNAMSIZ];
	size_t at = 0;

	while (*text && at < len) {
		size_t n = strcspn(text, ends);
		const char *item = name;

		if (n >= sizeof(name))
			return false;
		memcpy(name, text, n);
		name[n] = '\0';
		if (rdma_name(name, ifname, e))
			item = ifname;
		at += (size_t)snprintf(buf + at, len - at, "%s%.1s", item, text + n);
		text += n + (text[n] != '\0');
	}
	return at < len;
}

bool dr_kind_rename(const struct dr_plan *p, const char *text, char *buf, size_t len)
{
	struct dr_err e;

	if (!is_verbs(p->transport))
		return (size_t)snprintf(buf, len, "%s", text) < len;
	buf[0] = '\0';
	return rename_items(text, buf, len, &e);
}

/* Each rail as the session will open it. `choose`: NICs without an RDMA device are left out. */
static int try_rails(const struct dr_verbs_params *p, struct dr_netdev_rail *r, unsigned n,
	bool choose, struct dr_err *e)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++) {
		struct dr_rail_params rp = {
			.index = i, .ifname = r[i].ifname, .local = r[i].addr
		};
		struct dr_verbs_dev d;
		int rc = dr_verbs_dev_open(&rp, p, &d, e);

		if (rc == 0)
			dr_verbs_dev_close(&d);
		else if (rc != -ENODEV || !choose)
			return dr_err_prefix(e, "rail %s", r[i].ifname);
		if (rc == 0)
			r[kept++] = r[i];
	}
	return kept ? (int)kept : -ENODEV;
}

int dr_kind_rails(const struct dr_options *o, const struct dr_plan *p, const struct dr_route *route,
	struct dr_netdev_rail *out, unsigned cap, struct dr_err *e)
{
	bool verbs = is_verbs(p->transport), choose = !o->rails || strcmp(o->rails, "auto") == 0;
	struct dr_err why = { 0 };
	struct dr_verbs_params params;
	char list[1024] = "auto";
	int n;

	if (!choose && !rename_items(o->rails, list, sizeof(list), &why))
		return dr_err_set(e, -EINVAL, "--rails: too long");
	n = dr_route_rails(choose && !verbs ? o->rails : list, route, out, cap, e);
	/* No net device of that name either: then it was to be an RDMA device. */
	if (n == -ENODEV && verbs && why.code)
		return dr_err_set(e, -ENODEV, "--rails: %s", why.text);
	if (n < 0 || !verbs)
		return n;
	fill_params(o, p, &params);
	n = try_rails(&params, out, (unsigned)n, choose, e);
	return n == -EINVAL ? -EMSGSIZE : n;
}

int dr_kind_rdma(const struct dr_options *o, const struct dr_netdev_rail *rail,
	struct dr_kind_rdma *out, struct dr_err *e)
{
	struct dr_rail_params rp = { .ifname = rail->ifname, .local = rail->addr };
	struct dr_verbs_params params;
	struct dr_verbs_dev d;
	int rc;

	dr_verbs_params_init(&params);
	params.gid_index = o->gid;
	rc = dr_verbs_dev_open(&rp, &params, &d, e);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->device, sizeof(out->device), "%s", d.name);
	out->port = d.port;
	out->gid_index = d.gid_index;
	out->roce = d.roce;
	out->v2 = d.gid_type == IBV_GID_TYPE_ROCE_V2;
	out->mtu = d.mtu;
	dr_verbs_dev_close(&d);
	return 0;
}

bool dr_kind_spare(const struct dr_options *o, const struct dr_plan *p,
	const struct dr_route *route, const struct dr_netdev_rail *rails, unsigned n,
	struct dr_netdev_rail *out)
{
	struct dr_verbs_params params;
	struct dr_err why;

	if (!dr_route_spare(o->rails, route, rails, n, out))
		return false;
	if (!is_verbs(p->transport))
		return true;
	fill_params(o, p, &params);
	return try_rails(&params, out, 1, true, &why) == 1;
}
