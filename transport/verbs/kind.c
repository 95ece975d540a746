/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/kind.h"

#include "base/units.h"
#include "transport/verbs/ibv.h"
#include "transport/verbs/mem.h"
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* ---- options ---- */

#define AT(field) offsetof(struct dr_verbs_params, field)

/* An index, or NCCL's -1. */
static int parse_gid(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t n = 0;

	(void)row;
	*(int *)dst = -1;
	if (!text || strcmp(text, "auto") == 0 || strcmp(text, "-1") == 0)
		return 0;
	if (dr_parse_u64(text, 0, 65535, &n, NULL))
		return dr_err_set(e, -EINVAL,
			"\"%.40s\" is not an index of a GID table; use 0 to 65535 or auto", text);
	*(int *)dst = (int)n;
	return 0;
}

static const char mtus[] = "auto|256|512|1024|2048|4096";

static void mtu_words(char *buf, size_t len)
{
	dr_append(buf, len, "%s", mtus);
}

static int parse_mtu(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	int n = 0, rc = text ? dr_parse_choice(mtus, text, &n, e) : 0;

	(void)row;
	*(unsigned *)dst = n ? 128u << n : 0;
	return rc;
}

/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "qps", .kind = DR_OPT_UINT, .arg = "N", .def = "1", .min = 1,
	  .max = DR_VERBS_QPS_MAX,
	  .commands = DR_CMDBIT_RUN, .offset = AT(qps), .env = { "NCCL_IB_QPS_PER_CONNECTION" },
	  .help = "Data queue pairs per path." },
	{ .name = "gid", .kind = DR_OPT_CUSTOM, .arg = "INDEX|auto", .def = "auto",
	  .parse = parse_gid, .commands = DR_CMDBIT_ALL | DR_CMDBIT_DOCTOR, .offset = AT(gid_index),
	  .env = { "NCCL_IB_GID_INDEX" },
	  .help = "Index in the GID tables of this end. auto: the entry of the rail's address, "
		  "RoCE v2 preferred to v1." },
	{ .name = "mtu", .kind = DR_OPT_CUSTOM, .arg = "BYTES", .def = "auto",
	  .parse = parse_mtu, .words = mtu_words,
	  .commands = DR_CMDBIT_RUN, .offset = AT(mtu),
	  .help = "Path MTU. auto: the smaller active MTU of both ports." },
	{ .name = "sl", .kind = DR_OPT_UINT, .arg = "N", .max = 15,
	  .commands = DR_CMDBIT_RUN, .offset = AT(sl), .env = { "NCCL_IB_SL" },
	  .help = "Service level." },
	{ .name = "tc", .kind = DR_OPT_UINT, .arg = "N", .max = 255,
	  .commands = DR_CMDBIT_RUN, .offset = AT(tc), .env = { "NCCL_IB_TC" },
	  .help = "Traffic class; on RoCE four times the DSCP." },
	{ .name = "ib-timeout", .kind = DR_OPT_UINT, .arg = "N", .def = "14", .max = 31,
	  .commands = DR_CMDBIT_RUN, .offset = AT(timeout), .env = { "NCCL_IB_TIMEOUT" },
	  .help = "Local ACK timeout: 4.096 us * 2^N. 0: infinite." },
	{ .name = "ib-retry", .kind = DR_OPT_UINT, .arg = "N", .def = "7", .max = 7,
	  .commands = DR_CMDBIT_RUN, .offset = AT(retry), .env = { "NCCL_IB_RETRY_CNT" },
	  .help = "Transport retry count. Software RoCE (rxe) treats 7 as infinite." },
	{ .name = "register", .kind = DR_OPT_CHOICE, .arg = "WHEN", .def = "eager",
	  .choices = "eager|lazy",
	  .commands = DR_CMDBIT_ALL, .offset = AT(lazy_mr),
	  .help = "When memory is registered with a NIC. eager: with every NIC at the start. "
		  "lazy: with each NIC at its first use." },
};
/* clang-format on */

/* ---- parameters ---- */

#define FIELD(name, least, most, says)                                                             \
	DR_FIELD(#name, DR_F_UINT, struct dr_verbs_params, name, .flags = DR_F_REQUIRED,           \
		.min = (least), .max = (most), .text = (says))
static const struct dr_field shared_fields[] = {
	FIELD(qps, 1, DR_VERBS_QPS_MAX, "Data queue pairs per path"),
	FIELD(mtu, 0, 4096, "Path MTU in bytes, 0: the ports'"),
	FIELD(sl, 0, 15, "Service level"),
	FIELD(tc, 0, 255, "Traffic class"),
	FIELD(timeout, 0, 31, "Local ACK timeout, 4.096 us * 2^N, 0: infinite"),
	FIELD(retry, 0, 7, "Transport retry count"),
};
static DR_FIELDS(shared, "ib", shared_fields, struct dr_verbs_params,
	.text = "Parameters of the verbs transport");

/* NCCL's defaults are timeout 20 and retry 7, which is half a minute; a tool that measures failover
 * takes perftest's timeout and the retries that every RC driver bounds except rxe. */
void dr_verbs_params_init(struct dr_verbs_params *p)
{
	memset(p, 0, sizeof(*p));
	p->gid_index = -1;
	p->timeout = 14;
	p->retry = 7;
	p->qps = 1;
}

/* IBA 9.7.6.1.3: a NIC may take up to four times its local ACK timeout; this is the nominal value. */
int64_t dr_verbs_retry_ns(const struct dr_verbs_params *p)
{
	return p->timeout == 0 ? DR_NEVER : INT64_C(4096) << p->timeout;
}

int64_t dr_verbs_window_ns(const struct dr_verbs_params *p)
{
	int64_t retry = dr_verbs_retry_ns(p);

	return retry == DR_NEVER ? DR_NEVER : retry * (p->retry + 1);
}

int64_t dr_verbs_answer_ns(const struct dr_verbs_params *p)
{
	int64_t retry = dr_verbs_retry_ns(p);

	return retry == DR_NEVER ? VB_ANSWER_NS : DR_MAX(VB_ANSWER_NS, 4 * retry);
}

static int check(const void *params, bool conservative, struct dr_err *e)
{
	const struct dr_verbs_params *p = params;

	if (conservative && p->timeout == 0)
		return dr_err_set(e, -EINVAL,
			"--ib-timeout 0 never gives up, so --detect conservative would never switch; "
			"use 1 to 31");
	return 0;
}

static const char *warning(const void *params, bool conservative)
{
	const struct dr_verbs_params *p = params;

	return conservative && p->retry == 7
		       ? "--ib-retry 7: software RoCE (rxe) treats 7 as infinite and never gives "
			 "up; use 6 or less with --detect conservative"
		       : NULL;
}

static void windows(const void *params, int64_t *window_ns, int64_t *retry_ns)
{
	*window_ns = dr_verbs_window_ns(params);
	*retry_ns = dr_verbs_retry_ns(params);
}

/* ---- probing a rail ---- */

/* drivers/infiniband: iboe_get_mtu() subtracts the headers of RoCE from the net device's MTU: GRH 40,
 * UDP 8, BTH 12, extended headers 32, ICRC 4. */
enum { ROCE_HEADERS = 96, IB_MTU_MAX = 4096, IB_MTU_MIN = 256 };

static unsigned ib_mtu_within(unsigned netdev_mtu)
{
	unsigned mtu = IB_MTU_MAX;

	while (mtu > IB_MTU_MIN && mtu + ROCE_HEADERS > netdev_mtu)
		mtu /= 2;
	return mtu;
}

static struct dr_kind_finding *add(
	struct dr_kind_probe *out, enum dr_kind_level level, const char *check)
{
	struct dr_kind_finding *x = &out->v[out->n++];

	dr_assert(out->n <= DR_KIND_FINDINGS_MAX);
	*x = (struct dr_kind_finding){ .level = level, .check = check };
	return x;
}

static void find_mtu(const struct dr_verbs_dev *d, struct dr_kind_probe *out)
{
	unsigned possible = ib_mtu_within(out->netdev_mtu);

	if (!d->roce || (d->mtu >= possible && d->mtu >= IB_MTU_MAX))
		return;
	struct dr_kind_finding *x =
		add(out, d->mtu < possible ? DR_KIND_WARN : DR_KIND_NOTE, "rdma-mtu");
	snprintf(x->found, sizeof(x->found), "%u", d->mtu);
	if (d->mtu < possible) {
		snprintf(x->text, sizeof(x->text),
			"%s uses less than the net device's MTU of %u allows", d->name,
			out->netdev_mtu);
		snprintf(x->needed, sizeof(x->needed), "%u", possible);
		snprintf(x->remedy, sizeof(x->remedy),
			"set the MTU again so that the driver follows: ip link set %s mtu 1500; ip link "
			"set %s mtu %u",
			d->ifname, d->ifname, out->netdev_mtu);
	} else {
		snprintf(x->text, sizeof(x->text),
			"%s has small packets because the net device's MTU is %u", d->name,
			out->netdev_mtu);
		snprintf(x->needed, sizeof(x->needed), "%d", IB_MTU_MAX);
		snprintf(x->remedy, sizeof(x->remedy),
			"ip link set %s mtu 9000 (switch and peer too)", d->ifname);
	}
}

static void find_gid(const struct dr_verbs_dev *d, struct dr_kind_probe *out)
{
	struct dr_kind_finding *x;

	if (!d->roce || d->gid_type == IBV_GID_TYPE_ROCE_V2) {
		x = add(out, DR_KIND_OK, "rdma");
		snprintf(x->text, sizeof(x->text), "%s port %u is active, GID %u%s, MTU %u",
			d->name, d->port, d->gid_index, d->roce ? " (RoCE v2)" : "", d->mtu);
		return;
	}
	x = add(out, DR_KIND_WARN, "rdma-gid");
	snprintf(x->text, sizeof(x->text),
		"%s has the rail's address as RoCE v1 only, which has neither routing nor DSCP",
		d->name);
	snprintf(x->found, sizeof(x->found), "GID %u, RoCE v1", d->gid_index);
	snprintf(x->needed, sizeof(x->needed), "a RoCE v2 entry of the same address");
	snprintf(x->remedy, sizeof(x->remedy),
		"rdma link show %s/%u; without --gid a v2 entry is preferred; else change the driver's "
		"setting (mlx: cma_roce_mode)",
		d->name, d->port);
}

void dr_verbs_findings(const struct dr_verbs_dev *d, struct dr_kind_probe *out)
{
	find_gid(d, out);
	find_mtu(d, out);
}

static int probe(const struct dr_rail_params *rail, const void *params, struct dr_kind_probe *out,
	struct dr_err *e)
{
	struct dr_verbs_dev d;
	int rc = dr_verbs_dev_open(rail, params, &d, e);

	if (rc)
		return rc;
	if (out)
		dr_verbs_findings(&d, out);
	dr_verbs_dev_close(&d);
	return 0;
}

/* ---- packets ---- */

/* IP and UDP, or GRH and none; BTH, RETH, immediate value, ICRC. */
static unsigned headers(bool v6)
{
	return (v6 ? 48 : 28) + 12 + 16 + 4 + 4;
}

static unsigned packet_bytes(const void *params, unsigned mtu, bool v6)
{
	const struct dr_verbs_params *p = params;
	unsigned ib = ib_mtu_within(mtu);

	return DR_MIN((p->mtu ? DR_MIN(p->mtu, ib) : ib) + headers(v6), mtu);
}

static bool fit_packets(unsigned bytes, bool v6, char *buf, size_t len)
{
	unsigned ib = IB_MTU_MAX;

	while (ib >= IB_MTU_MIN && ib + headers(v6) > bytes)
		ib /= 2;
	snprintf(buf, len, "--mtu %u", ib);
	return ib >= IB_MTU_MIN;
}

/* ---- a peer without key ---- */

static void distrust(void *params)
{
	((struct dr_verbs_params *)params)->distrusts = true;
}

/* A GID of RoCE is an IP address. With --gid it may be another one than the NIC's in the plan: allowed for a peer with the key
 * if this end has --gid too. A GID of InfiniBand names a port, which the plan does not know. */
static int handle_host(
	const void *params, const void *handle, size_t len, struct sockaddr_storage *out)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct dr_verbs_params *p = params;
	struct dr_verbs_addr a;
	const char *why;
	int rc = dr_verbs_addr_parse(handle, len, &a, &why);

	if (rc)
		return rc;
	if (!a.roce || (!p->distrusts && p->gid_index >= 0))
		return -ENOENT;
	if (memcmp(a.gid, mapped, sizeof(mapped)) == 0)
		dr_path_host(AF_INET, a.gid + sizeof(mapped), out);
	else
		dr_path_host(AF_INET6, a.gid, out);
	return 0;
}

/* ---- the descriptor ---- */

static const struct dr_kind_fault faults[] = {
	{ "qp-error", "the path's queue pairs fail", "queue pairs put into the error state",
		dr_verbs_path_error },
	{ 0 },
};

const struct dr_transport_kind dr_verbs_kind = {
	.name = "verbs",
	.ops = &dr_verbs_ops,
	.about = "RoCE and InfiniBand",
	.package = DR_IBV_PACKAGES,
	.bypass = true,
	.options = { "Transport verbs", rows, DR_ARRAY_LEN(rows) },
	.params_size = sizeof(struct dr_verbs_params),
	.shared = &shared,
	.check = check,
	.warning = warning,
	.windows = windows,
	.nics_help =
		"RDMA devices (mlx5_0, rxe0) are accepted too; the default is the NICs that have "
		"an RDMA device",
	.netdev_of = dr_verbs_netdev_of,
	.ports = dr_verbs_ports,
	.probe = probe,
	.packet_bytes = packet_bytes,
	.fit_packets = fit_packets,
	.check_name = "rdma",
	.faults = faults,
	.memory = dr_verbs_mr_choice,
	.distrust = distrust,
	.handle_host = handle_host,
};
