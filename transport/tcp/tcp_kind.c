/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/kind.h"
#include "transport/tcp/tcp.h"

const struct dr_transport_kind dr_tcp_kind = {
	.name = "tcp",
	.ops = &dr_tcp_ops,
	.about = "sockets bound to their NIC",
};
