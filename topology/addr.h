/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_ADDR_H
#define DR_TOPOLOGY_ADDR_H

#include "base/defs.h"

#include <stdbool.h>
#include <sys/socket.h>

/* IPv4 and IPv6 addresses and blocks of them. No state. */

/* "10.0.0.1", "fe80::1%eth0" into sa (port 0); -EINVAL. */
int dr_netdev_addr_parse(const char *s, struct sockaddr_storage *out) DR_MUST_CHECK;
/* The other way, without port; buf holds at least 64 bytes. */
void dr_netdev_addr_format(const struct sockaddr *sa, char *buf, size_t len);
/* Same family and address (port and scope apart). */
bool dr_netdev_addr_equal(const struct sockaddr *a, const struct sockaddr *b);

/* A block of addresses, or one address with the length of its subnet's prefix. */
struct dr_prefix {
	uint8_t family;	  /* AF_INET, AF_INET6 */
	uint8_t bits;	  /* 0..32, 0..128 */
	uint8_t addr[16]; /* network order; 4 bytes of an IPv4 one, the rest 0 */
};
/* sa with a prefix of so many bits; an IPv4-mapped IPv6 address is IPv4. -EINVAL: no IP address,
 * or more bits than it has. */
int dr_prefix_of(const struct sockaddr *sa, unsigned bits, struct dr_prefix *out) DR_MUST_CHECK;
/* The address alone, port 0. */
void dr_prefix_sockaddr(const struct dr_prefix *p, struct sockaddr_storage *out);
/* Bytes of an address of its family, 4 or 16. */
size_t dr_prefix_len(const struct dr_prefix *p);
/* Clears the bits behind the prefix: "10.0.1.1/24" becomes its subnet. */
void dr_prefix_mask(struct dr_prefix *p);
/* "10.3.0.0/24", "fd00::/8"; -EINVAL. */
int dr_prefix_parse(const char *s, struct dr_prefix *out) DR_MUST_CHECK;
/* buf holds at least 64 bytes. */
void dr_prefix_format(const struct dr_prefix *p, char *buf, size_t len);
/* Does the block hold the address (whose own bits do not matter)? */
bool dr_prefix_holds(const struct dr_prefix *block, const struct dr_prefix *addr);

#endif
