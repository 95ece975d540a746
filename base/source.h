/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_SOURCE_H
#define DR_BASE_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * Where connections come from, and how many descriptors they may use: the rules that all listeners share. An
 * IPv4-mapped IPv6 address counts as its IPv4 address.
 */
enum { DR_NETWORKS_MAX = 64 };

/* Networks in CIDR notation. */
struct dr_networks {
	unsigned n;
	struct dr_network {
		uint8_t addr[16];
		uint8_t bytes, bits; /* 4 or 16; length of the prefix */
	} v[DR_NETWORKS_MAX];
};

/* "10.0.0.0/8,2001:db8::/32,192.0.2.7"; an address without a length is one host. -EINVAL: not of this form, or bits
 * behind the prefix are set; -ERANGE: more than DR_NETWORKS_MAX. */
int dr_networks_parse(const char *text, struct dr_networks *out, struct dr_err *e) DR_MUST_CHECK;
bool dr_networks_have(const struct dr_networks *l, const struct sockaddr_storage *a);

/* Of an address of IPv4 or IPv6: its length, its port in the host's byte order. */
socklen_t dr_sa_len(const struct sockaddr_storage *sa);
uint16_t dr_sa_port(const struct sockaddr_storage *sa);
void dr_sa_set_port(struct sockaddr_storage *sa, uint16_t port);
/* A link-local address of IPv6 without its interface: no socket can use it. */
bool dr_sa_lacks_scope(const struct sockaddr_storage *sa);

/* The address without port; returns its bytes, 4 or 16; 0: it is of another family. */
unsigned dr_host_bytes(const struct sockaddr_storage *a, uint8_t out[16]);

/* The same host; ports are ignored. */
bool dr_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

/* fd was opened just now, so the lower ones are taken: fewer descriptors are free than are reserved for data (a quarter of
 * the process's limit, at most 256). */
bool dr_files_scarce(int fd);

#endif
