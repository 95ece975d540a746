/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_NET_H
#define DR_BOOTSTRAP_NET_H

#include "bootstrap/bootstrap.h"

#include <sys/socket.h>

/* Addresses and non-blocking TCP sockets of the bootstrap. */
struct dr_addr {
	struct sockaddr_storage ss;
	socklen_t len;
};
enum { DR_ADDRS_MAX = 16, DR_ADDR_TEXT = 80 };

/* "192.0.2.7:20000", "[2001:db8::7]:20000"; IPv4-mapped addresses as IPv4. port 0: without it. */
void dr_addr_format(const struct dr_addr *a, char *buf, size_t cap);
/* A numeric address, "fe80::1%eth0" included. -EINVAL. */
int dr_addr_parse(const char *text, struct dr_addr *out);
/* Every address of a host, port 0; may block. -ENXIO with the resolver's reason. */
int dr_addr_resolve(
	const char *host, struct dr_addr *out, unsigned cap, unsigned *n, struct dr_err *e);
/* Is it an address of this host? Also true for all of 127.0.0.0/8, and for every address with ip_nonlocal_bind. */
bool dr_addr_is_local(const struct dr_addr *a);
/* What --control names: one numeric address of this host, or an interface's addresses (IPv4 first). -ENODEV; the text
 * lists the addresses of this host, or -EADDRNOTAVAIL: an IPv6 address that is tentative. */
int dr_addr_local(
	const char *spec, struct dr_addr *out, unsigned cap, unsigned *n, struct dr_err *e);

/* Listen on a->port (0: the kernel's choice, written back to a). a->len 0: the wildcard, IPv4 and
 * IPv6. -EADDRINUSE and others with text. */
int dr_net_listen(struct dr_addr *a, int *out_fd, struct dr_err *e);
/* Where a connection starts; NULL: the kernel's choice. */
struct dr_net_from {
	const struct dr_addr *addr; /* one of the peer's family is taken */
	unsigned n;		    /* 0: the kernel's choice */
	const char *device;	    /* bound to this interface; NULL: to none */
};
/* Start to connect. 0 (under way or done) or -errno; -EADDRNOTAVAIL too when none of `from` is of the family. */
int dr_net_connect(const struct dr_addr *to, const struct dr_net_from *from, int *out_fd);
/* From now on the kernel fails the connection with ETIMEDOUT once the peer's kernel has acknowledged nothing for ns, be
 * it sent data or, without any, keepalive probes (every second). A shut window counts as no answer: a peer that may be
 * busy for longer must not be sent more than its receive buffer takes. */
void dr_net_watch(int fd, int64_t ns);
/* What a failed connect (dialling) or a failed read or write means. */
enum dr_boot_cause dr_net_cause(int err, bool dialling);

#endif
