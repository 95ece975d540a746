/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HA_PLUGIN_RDV_ROUTE_H
#define HA_PLUGIN_RDV_ROUTE_H

#include "plugin/rdv.h"

/* Ways from this host to the addresses of a handle, in the order in which they are tried. */
struct ha_route {
	struct dr_addr to;
	const struct ha_rdv_addr *from; /* borrowed; NULL: the kernel's choice */
};
enum { HA_ROUTES_MAX = 32 + HA_HANDLE_ADDRS_MAX };

/* Writes up to HA_ROUTES_MAX and returns their number. The first is local[0]'s first shared subnet, if it has one. */
unsigned ha_routes(const struct ha_handle *h, const struct ha_rdv_addr *local, unsigned n_local,
	struct ha_route *out);

#endif
