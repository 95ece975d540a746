/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_NAMES_H
#define DR_PLUGIN_NAMES_H

#include "base/err.h"

#include <stdbool.h>

/*
 * A list of device names in NCCL's syntax (NCCL_SOCKET_IFNAME, NCCL_IB_HCA): names separated by commas, each a prefix
 * of the devices' names. "=" before the list: whole names. "^" before the list: every device but these; "^=" both.
 * ":PORT" behind a name restricts it to this port of an RDMA device. Pure functions, no state.
 */
enum { HA_NAMES_MAX = 32, HA_NAME_BYTES = 64 };

struct ha_names {
	bool exclude, exact;
	unsigned n; /* 0: there is no list, every device matches */
	struct ha_name {
		char text[HA_NAME_BYTES];
		int port; /* -1: every port */
	} v[HA_NAMES_MAX];
};

/* "" is no list. Empty names between commas are skipped, as by NCCL. -EINVAL: no name at all ("^"), a port that is no
 * number, a name that is too long, or more than HA_NAMES_MAX of them. */
int ha_names_parse(const char *text, struct ha_names *out, struct dr_err *e) DR_MUST_CHECK;
/* Is the device one of those wanted? port -1: the device has no ports. */
bool ha_names_match(const struct ha_names *l, const char *name, int port);
/* Does the list itself have the name, by "^" or not? */
bool ha_names_listed(const struct ha_names *l, const char *name, int port);
/* The list as text; "" when there is none. */
void ha_names_format(const struct ha_names *l, char *buf, size_t len);

#endif
