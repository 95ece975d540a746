/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void dr_addr_format(const struct dr_addr *a, char *buf, size_t cap)
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "?";
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&a->ss;
	bool mapped = a->ss.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
	if (mapped)
		inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], host, sizeof(host));
	else
		getnameinfo((const struct sockaddr *)&a->ss, a->len, host, sizeof(host), NULL, 0,
			NI_NUMERICHOST);
	bool brackets = a->ss.ss_family == AF_INET6 && !mapped;
	uint16_t port = dr_sa_port(&a->ss);
	if (port)
		snprintf(buf, cap, brackets ? "[%s]:%u" : "%s:%u", host, port);
	else
		snprintf(buf, cap, "%s", host);
}

static unsigned from_addrinfo(const struct addrinfo *list, struct dr_addr *out, unsigned cap)
{
	unsigned n = 0;
	for (const struct addrinfo *ai = list; ai && n < cap; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		memset(&out[n], 0, sizeof(out[n]));
		memcpy(&out[n].ss, ai->ai_addr, ai->ai_addrlen);
		out[n++].len = ai->ai_addrlen;
	}
	return n;
}

int dr_addr_parse(const char *text, struct dr_addr *out)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *list;
	/* getaddrinfo accepts "7" and "0x7f.1" as IPv4; users mean something else. */
	struct in_addr four;
	if (!strchr(text, ':') && inet_pton(AF_INET, text, &four) != 1)
		return -EINVAL;
	if (getaddrinfo(text, NULL, &hints, &list))
		return -EINVAL;
	unsigned n = from_addrinfo(list, out, 1);
	freeaddrinfo(list);
	return n ? 0 : -EINVAL;
}

int dr_addr_resolve(
	const char *host, struct dr_addr *out, unsigned cap, unsigned *n, struct dr_err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
	int rc = getaddrinfo(host, NULL, &hints, &list);
	if (rc)
		return dr_err_set(e, -ENXIO, "cannot resolve the name %s: %s", host,
			rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	*n = from_addrinfo(list, out, cap);
	freeaddrinfo(list);
	return *n ? 0 : dr_err_set(e, -ENXIO, "the name %s has no IPv4 or IPv6 address", host);
}

static unsigned interface_addresses(const char *name, int family, struct dr_addr *out, unsigned cap)
{
	struct ifaddrs *list;
	unsigned n = 0;
	if (getifaddrs(&list))
		return 0;
	for (const struct ifaddrs *i = list; i && n < cap; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != family ||
			strcmp(i->ifa_name, name) != 0)
			continue;
		memset(&out[n], 0, sizeof(out[n]));
		out[n].ss.ss_family = (sa_family_t)family;
		out[n].len = dr_sa_len(&out[n].ss);
		memcpy(&out[n].ss, i->ifa_addr, out[n].len);
		n++;
	}
	freeifaddrs(list);
	return n;
}

/* "lo 127.0.0.1, eth0 192.0.2.7", cut with "..." where it does not fit. */
static void list_local(char *buf, size_t len)
{
	struct ifaddrs *list;
	size_t at = 0;
	buf[0] = '\0';
	if (getifaddrs(&list))
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		struct dr_addr a = { .len = 0 };
		char text[DR_ADDR_TEXT];
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		if (family != AF_INET && family != AF_INET6)
			continue;
		a.len = family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
		memcpy(&a.ss, i->ifa_addr, a.len);
		dr_addr_format(&a, text, sizeof(text));
		size_t need = strlen(i->ifa_name) + strlen(text) + 8;
		if (at + need >= len) {
			snprintf(buf + at, len - at, "%s", ", ...");
			break;
		}
		at += (size_t)snprintf(
			buf + at, len - at, "%s%s %s", at ? ", " : "", i->ifa_name, text);
	}
	freeifaddrs(list);
}

/* Can a socket have it? Other errors, as no descriptor, say nothing about the address. */
bool dr_addr_is_local(const struct dr_addr *a)
{
	int fd = socket(a->ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 || bind(fd, (const struct sockaddr *)&a->ss, a->len) ? errno : 0;
	if (fd >= 0)
		close(fd);
	return err != EADDRNOTAVAIL && err != EAFNOSUPPORT && err != EINVAL;
}

/* An IPv6 address of this host cannot be used before its duplicate address detection has ended. */
static bool is_configured(const struct dr_addr *a)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->ss;
	struct ifaddrs *list;
	bool found = false;
	if (a->ss.ss_family != AF_INET6 || getifaddrs(&list))
		return false;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		const struct sockaddr_in6 *own = (const struct sockaddr_in6 *)i->ifa_addr;
		found |= own && own->sin6_family == AF_INET6 &&
			 memcmp(&own->sin6_addr, &in6->sin6_addr, sizeof(own->sin6_addr)) == 0;
	}
	freeifaddrs(list);
	return found;
}

static int unusable(const char *spec, const struct dr_addr *a, struct dr_err *e)
{
	if (dr_sa_lacks_scope(&a->ss))
		return dr_err_set(e, -ENODEV,
			"--control %.50s: a link-local address needs its interface; write %.50s%%INTERFACE, "
			"or name the interface alone",
			spec, spec);
	return dr_err_set(e, -EADDRNOTAVAIL,
		"--control %.50s: the address cannot be used yet (tentative) or any more; wait for its "
		"duplicate address detection, about 2 s, and see `ip -6 address`",
		spec);
}

int dr_addr_local(
	const char *spec, struct dr_addr *out, unsigned cap, unsigned *n, struct dr_err *e)
{
	bool numeric = dr_addr_parse(spec, out) == 0;
	char there[120];
	*n = numeric && dr_addr_is_local(out);
	if (!numeric) {
		*n = interface_addresses(spec, AF_INET, out, cap);
		*n += interface_addresses(spec, AF_INET6, out + *n, cap - *n);
	}
	if (*n)
		return 0;
	if (numeric && (dr_sa_lacks_scope(&out->ss) || is_configured(out)))
		return unusable(spec, out, e);
	list_local(there, sizeof(there));
	return dr_err_set(e, -ENODEV, "--control %.50s: %s; use one of: %s", spec,
		numeric		       ? "not an address of this host"
		: if_nametoindex(spec) ? "the interface has no IP address"
				       : "neither an IP address nor an interface of this host",
		there);
}

static int listen_errno(const struct dr_addr *a, int err, struct dr_err *e)
{
	char text[DR_ADDR_TEXT];
	if (a->len)
		dr_addr_format(a, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%u", dr_sa_port(&a->ss));
	if (err == EADDRINUSE)
		return dr_err_set(e, -err,
			"cannot listen on TCP port %s: in use; `ss -ltnp sport = :%u` names the process: stop "
			"it, or choose other ports with --port",
			text, (unsigned)dr_sa_port(&a->ss));
	if (err == EADDRNOTAVAIL)
		return dr_err_set(
			e, -ENODEV, "cannot listen on %s: not an address of this host", text);
	if (err == EACCES)
		return dr_err_set(e, -err,
			"cannot listen on TCP port %s: ports below 1024 need CAP_NET_BIND_SERVICE; "
			"choose other ports with --port",
			text);
	return dr_err_set(e, -err, "cannot listen on TCP port %s: %s", text, strerror(err));
}

/* 0 with *out_fd, or errno. */
static int try_listen(struct dr_addr *a, int v6only, int *out_fd)
{
	int one = 1;
	int fd = socket(a->ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a->ss.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
	struct dr_addr got = *a;
	if (bind(fd, (const struct sockaddr *)&a->ss, a->len) || listen(fd, SOMAXCONN) ||
		getsockname(fd, (struct sockaddr *)&got.ss, &got.len)) {
		int err = errno;
		close(fd);
		return err;
	}
	*a = got;
	*out_fd = fd;
	return 0;
}

int dr_net_listen(struct dr_addr *a, int *out_fd, struct dr_err *e)
{
	int err;
	if (a->len) {
		err = try_listen(a, 1, out_fd);
		return err ? listen_errno(a, err, e) : 0;
	}
	uint16_t port = dr_sa_port(&a->ss);
	struct dr_addr any = { .len = sizeof(struct sockaddr_in6) };
	any.ss.ss_family = AF_INET6;
	dr_sa_set_port(&any.ss, port);
	err = try_listen(&any, 0, out_fd);
	if (err == EAFNOSUPPORT || err == EADDRNOTAVAIL) { /* no IPv6 on this host */
		memset(&any, 0, sizeof(any));
		any.ss.ss_family = AF_INET;
		any.len = sizeof(struct sockaddr_in);
		dr_sa_set_port(&any.ss, port);
		err = try_listen(&any, 0, out_fd);
	}
	if (err)
		return listen_errno(a, err, e);
	dr_sa_set_port(&a->ss, dr_sa_port(&any.ss));
	return 0;
}

/* 0 or errno. */
static int start_from(int fd, int family, const struct dr_net_from *from)
{
	unsigned i = 0;
	int one = 1;
	if (from->device && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, from->device,
				    (socklen_t)strlen(from->device)))
		return errno;
	if (from->n == 0)
		return 0;
	while (i < from->n && from->addr[i].ss.ss_family != family)
		i++;
	if (i == from->n)
		return EADDRNOTAVAIL;
	/* connect() chooses the port, so that there are as many connections as there are 4-tuples. */
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&from->addr[i].ss, from->addr[i].len))
		return errno;
	return 0;
}

int dr_net_connect(const struct dr_addr *to, const struct dr_net_from *from, int *out_fd)
{
	int one = 1;
	int fd = socket(to->ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	int err = from ? start_from(fd, to->ss.ss_family, from) : 0;
	if (!err && connect(fd, (const struct sockaddr *)&to->ss, to->len) && errno != EINPROGRESS)
		err = errno;
	if (err) {
		close(fd);
		return -err;
	}
	*out_fd = fd;
	return 0;
}

/* With TCP_USER_TIMEOUT the kernel does not count keepalive probes; it compares the time since the last answer. */
void dr_net_watch(int fd, int64_t ns)
{
	int one = 1, ms = (int)(ns / DR_NS_PER_MS);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

enum dr_boot_cause dr_net_cause(int err, bool dialling)
{
	switch (err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
	case ECONNABORTED:
		return dialling ? DR_BOOT_REFUSED : DR_BOOT_RESET;
	case ENOMEM:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
	case EADDRNOTAVAIL: /* no free local port, or no address of this family */
		return DR_BOOT_LOCAL;
	default: /* ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ... */
		return dialling ? DR_BOOT_UNREACHABLE : DR_BOOT_SILENT;
	}
}
