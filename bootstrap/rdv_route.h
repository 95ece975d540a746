/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_RDV_ROUTE_H
#define DR_BOOTSTRAP_RDV_ROUTE_H

#include "bootstrap/rdv.h"

/* Ways from this host to the addresses of a handle, in the order in which they are tried. */
struct dr_rdv_route {
	struct dr_addr to;
	const struct dr_rdv_addr *from; /* borrowed; NULL: the kernel's choice */
};
enum { DR_RDV_ROUTES_MAX = 32 + DR_RDV_HANDLE_ADDRS_MAX };

/* Writes up to DR_RDV_ROUTES_MAX and returns their number. The first is local[0]'s first shared subnet, if it has one. */
unsigned dr_rdv_routes(const struct dr_rdv_handle *h, const struct dr_rdv_addr *local,
	unsigned n_local, struct dr_rdv_route *out);

#endif
