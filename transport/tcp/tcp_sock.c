/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Bytes the kernel takes beyond what the congestion window lets out: a control frame waits behind no
 * more than these. Half of them must cover a wake-up of the sender: 20 us at 100 Gb/s.
 */
enum { NOTSENT_BYTES = 512 << 10 };
/* Longest interval between two retransmissions or window probes. So a peer that stops answering while its
 * window is shut is noticed after two of them, and data flows at once when an outage ends. Kernels before
 * 6.15 do not have the option; they double the interval up to two minutes. */
enum { RTO_MAX_MS = 1000 };
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

void dr_tcp_addr_format(const struct sockaddr_storage *sa, char out[TCP_NAME_LEN])
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)sa;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)sa;
	char addr[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &s6->sin6_addr, addr, sizeof(addr));
		snprintf(out, TCP_NAME_LEN, "[%s]:%u", addr, ntohs(s6->sin6_port));
	} else {
		inet_ntop(AF_INET, &s4->sin_addr, addr, sizeof(addr));
		snprintf(out, TCP_NAME_LEN, "%s:%u", addr, ntohs(s4->sin_port));
	}
}

static void try_option(int fd, int level, int name, int value, const char *what)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)) < 0)
		dr_debug("tcp", "%s=%d: %s", what, value, dr_errno_name(errno));
}

/* Buffers and traffic class; on a listener accepted sockets inherit them, and the window scale of a
 * connection follows from the receive buffer before the handshake. */
static void set_common(const struct tcp_rail *r, int fd)
{
	if (r->par.sockbuf > 0) {
		try_option(fd, SOL_SOCKET, SO_SNDBUF, r->par.sockbuf, "SO_SNDBUF");
		try_option(fd, SOL_SOCKET, SO_RCVBUF, r->par.sockbuf, "SO_RCVBUF");
	}
	if (r->par.dscp > 0) {
		if (r->par.local.ss_family == AF_INET6)
			try_option(fd, IPPROTO_IPV6, IPV6_TCLASS, r->par.dscp << 2, "IPV6_TCLASS");
		else
			try_option(fd, IPPROTO_IP, IP_TOS, r->par.dscp << 2, "IP_TOS");
	}
}

/* Accepted sockets have that of their listener. */
static int set_congestion_control(const struct tcp_rail *r, int fd, int type, struct dr_err *e)
{
	const char *cc = r->tcp.cc;

	if (type != SOCK_STREAM || !cc[0] ||
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) == 0)
		return 0;
	int err = -errno;
	return dr_err_set(e, err, "rail %u: --cc %s: %s; %s", r->base.index, cc, dr_errno_name(err),
		err == -EPERM
			? "it is not among net.ipv4.tcp_allowed_congestion_control; add it there with sysctl"
			: "`sysctl net.ipv4.tcp_available_congestion_control` lists those of this kernel");
}

/* No TCP_USER_TIMEOUT: it ends a connection whose window is shut although the peer's kernel
 * answers each probe, as that of a stopped process does. */
void dr_tcp_sock_tune(const struct tcp_rail *r, int fd)
{
	try_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
	try_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES, "TCP_NOTSENT_LOWAT");
	try_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, RTO_MAX_MS, "TCP_RTO_MAX_MS");
	set_common(r, fd);
}

/* Padded datagrams find out what size passes. */
static void never_fragment(const struct tcp_rail *r, int fd)
{
	if (r->par.local.ss_family == AF_INET6)
		try_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE,
			"IPV6_MTU_DISCOVER");
	else
		try_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER");
}

static int bind_device(const struct tcp_rail *r, int fd, struct dr_err *e)
{
	if (!r->ifname[0])
		return 0;
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, r->ifname, strlen(r->ifname)) == 0)
		return 0;
	int err = -errno;
	return dr_err_set(e, err, "rail %u: cannot bind to device %s: %s; %s", r->base.index,
		r->ifname, dr_errno_name(err),
		err == -ENODEV ? "check its name with `ip link`"
			       : "that needs CAP_NET_RAW on this kernel");
}

const char *dr_tcp_port_advice(uint16_t port)
{
	return port ? "choose other data ports"
		    : "widen net.ipv4.ip_local_port_range with sysctl -w";
}

static int bind_addr(const struct tcp_rail *r, int fd, int type, uint16_t port, struct dr_err *e)
{
	struct sockaddr_storage sa = r->par.local;
	char name[TCP_NAME_LEN];

	dr_sa_set_port(&sa, port);
	if (sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&sa)->sin6_scope_id = r->scope_id;
	/* Let connect() choose the port, so that as many connections fit as there are 4-tuples. */
	if (type == SOCK_STREAM && !port)
		try_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT");
	if (bind(fd, (struct sockaddr *)&sa, dr_sa_len(&sa)) == 0)
		return 0;
	int err = -errno;
	dr_tcp_addr_format(&sa, name);
	return dr_err_set(e, err, "rail %u: cannot bind to %s%s%s: %s; %s", r->base.index, name,
		r->ifname[0] ? " on " : "", r->ifname, dr_errno_name(err),
		err == -EADDRINUSE ? dr_tcp_port_advice(port) : "check the address with `ip addr`");
}

int dr_tcp_sock_open(
	const struct tcp_rail *r, int type, uint16_t port, bool reuse, int *fd, struct dr_err *e)
{
	int family = r->par.local.ss_family, err;
	int s = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (s < 0) {
		err = -errno;
		return dr_err_set(e, err, "rail %u: cannot open a socket: %s; check `ulimit -n`",
			r->base.index, dr_errno_name(err));
	}
	if (reuse)
		try_option(s, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
	if (family == AF_INET6)
		try_option(s, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
	set_common(r, s);
	if (type == SOCK_DGRAM)
		never_fragment(r, s);
	err = set_congestion_control(r, s, type, e);
	if (!err)
		err = bind_device(r, s, e);
	if (!err)
		err = bind_addr(r, s, type, port, e);
	if (err) {
		close(s);
		return err;
	}
	*fd = s;
	return 0;
}
