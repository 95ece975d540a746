/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/kind.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int parse_cc(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	(void)row;
	(void)e;
	snprintf(dst, sizeof(((struct dr_tcp_params *)dst)->cc), "%s", text ? text : "");
	return 0;
}

static const struct dr_opt rows[] = {
	{ .name = "cc",
		.kind = DR_OPT_CUSTOM,
		.arg = "NAME",
		.parse = parse_cc,
		.commands = DR_CMDBIT_RUN,
		.offset = offsetof(struct dr_tcp_params, cc),
		.help = "Congestion control of the data connections of both ends, e.g. cubic. Default: "
			"net.ipv4.tcp_congestion_control of each end." },
};

static const struct dr_field shared_fields[] = {
	DR_FIELD("cc", DR_F_STR, struct dr_tcp_params, cc,
		.text = "Congestion control, null: the system's"),
};
static DR_FIELDS(shared, "tcp", shared_fields, struct dr_tcp_params,
	.text = "Parameters of the tcp transport");

/* A name that does not fit has lost its end. */
static int check(const void *params, bool conservative, struct dr_err *e)
{
	const struct dr_tcp_params *p = params;

	(void)conservative;
	if (strlen(p->cc) < TCP_CC_LEN && !strpbrk(p->cc, " \t\n/"))
		return 0;
	return dr_err_set(e, -EINVAL,
		"--cc \"%s\" is not the name of a congestion control; `sysctl "
		"net.ipv4.tcp_available_congestion_control` lists those of this kernel",
		p->cc);
}

static void distrust(void *params)
{
	((struct dr_tcp_params *)params)->distrusts = true;
}

static int handle_host(
	const void *params, const void *handle, size_t len, struct sockaddr_storage *out)
{
	struct tcp_rail_handle h;
	const char *why;

	(void)params;
	int rc = dr_tcp_rail_handle_parse(handle, len, &h, &why);

	if (rc == 0)
		dr_path_host(h.family, h.addr, out);
	return rc;
}

const struct dr_transport_kind dr_tcp_kind = {
	.name = "tcp",
	.retransmits = true,
	.ops = &dr_tcp_ops,
	.about = "sockets bound to their NIC",
	.options = { "Transport tcp", rows, DR_ARRAY_LEN(rows) },
	.params_size = sizeof(struct dr_tcp_params),
	.shared = &shared,
	.check = check,
	.distrust = distrust,
	.handle_host = handle_host,
};
