/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/*
 * observer_main DEVICE DEVICE
 *
 * What the NICs of the receiving end get, seen beside the program: captures the packets that arrive for
 * this host at the two devices, with the kernel's arrival time. Data of a TCP connection counts when it
 * continues what arrived before, as the receiver's kernel sees it; repeated data and data beyond a
 * hole do not. A line on the standard output for each advance of at least BULK bytes:
 *
 *	MICROSECONDS DEVICE CHANNEL     time since 1970; CHANNEL: a number, the same on both devices
 *
 * Control frames are smaller than BULK. The channel is read from the connection's HELLO, the only part
 * of the program's protocol that is known here, so the observer has to run before the program connects.
 * The channels of a GPU have the same primary path; no other GPU may have it there.
 *
 * Prints "ready" on the standard error. SIGTERM ends it, with "lost N" there: packets that the capture
 * missed. Status: 0, 1 when anything was missed or not understood, 2 when it cannot capture here.
 */
enum {
	BULK = 512,
	SNAP = 160, /* Ethernet, IPv4 and TCP headers with all options, and the HELLO */
	FLOWS_MAX = 4096,
	HOLES_MAX = 4096,
	CHANNELS_MAX = 64,
	DEVICES = 2,
	RCVBUF = 64 << 20,
};

struct span {
	uint32_t from, to;
};
struct flow {
	uint32_t src, dst;
	uint16_t sport, dport;
	unsigned dev;
	bool known; /* HELLO read: channel is set */
	unsigned channel;
	uint32_t next;	     /* everything below arrived */
	struct span *beyond; /* arrived behind a hole; ascending, disjoint */
	unsigned n_beyond;
};
struct channel {
	uint32_t number;  /* of its GPU */
	unsigned primary; /* device */
};
struct observer {
	char *const *dev;
	int fd;
	int ifindex[DEVICES];
	struct flow *flow;
	unsigned n_flow;
	struct channel channel[CHANNELS_MAX];
	unsigned n_channel;
	bool failed;
};

static atomic_bool ended;

static void on_signal(int sig)
{
	(void)sig;
	ended = true;
}

/* Sequence numbers wrap. */
static bool below(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static void trouble(struct observer *o, const char *what)
{
	fprintf(stderr, "observer: %s\n", what);
	o->failed = true;
}

static int find_device(const struct observer *o, int ifindex)
{
	for (unsigned i = 0; i < DEVICES; i++)
		if (o->ifindex[i] == ifindex)
			return (int)i;
	return -1;
}

static unsigned find_channel(struct observer *o, const struct tcp_hello *h, unsigned dev)
{
	unsigned primary = h->index == 0 ? dev : !dev;

	for (unsigned i = 0; i < o->n_channel; i++)
		if (o->channel[i].number == h->channel && o->channel[i].primary == primary)
			return i;
	if (o->n_channel == CHANNELS_MAX) {
		trouble(o, "too many channels");
		return 0;
	}
	o->channel[o->n_channel] = (struct channel){ h->channel, primary };
	return o->n_channel++;
}

/* The latest with these addresses and ports. */
static struct flow *find_flow(struct observer *o, const struct flow *like)
{
	for (unsigned i = o->n_flow; i-- > 0;) {
		struct flow *f = &o->flow[i];

		if (f->src == like->src && f->dst == like->dst && f->sport == like->sport &&
			f->dport == like->dport && f->dev == like->dev)
			return f;
	}
	return NULL;
}

static void add_flow(struct observer *o, const struct flow *like, uint32_t next)
{
	struct flow *f = find_flow(o, like);

	if (!f && o->n_flow == FLOWS_MAX) {
		trouble(o, "too many connections");
		return;
	}
	if (f)
		free(f->beyond);
	else
		f = &o->flow[o->n_flow++];
	*f = *like;
	f->next = next;
}

static void keep_beyond(struct observer *o, struct flow *f, struct span s)
{
	unsigned i = 0, end;

	if (!f->beyond)
		f->beyond = calloc(HOLES_MAX, sizeof(*f->beyond));
	if (!f->beyond || f->n_beyond == HOLES_MAX) {
		trouble(o, "too many holes in a connection");
		return;
	}
	while (i < f->n_beyond && below(f->beyond[i].to, s.from))
		i++;
	for (end = i; end < f->n_beyond && !below(s.to, f->beyond[end].from); end++) {
		if (below(f->beyond[end].from, s.from))
			s.from = f->beyond[end].from;
		if (below(s.to, f->beyond[end].to))
			s.to = f->beyond[end].to;
	}
	memmove(&f->beyond[i + 1], &f->beyond[end], (f->n_beyond - end) * sizeof(s));
	f->beyond[i] = s;
	f->n_beyond += 1 - (end - i);
}

/* Returns by how many bytes the connection advanced. */
static uint32_t arrived(struct observer *o, struct flow *f, struct span s)
{
	uint32_t was = f->next;
	unsigned n = 0;

	if (!below(f->next, s.to))
		return 0;
	if (below(f->next, s.from)) {
		keep_beyond(o, f, s);
		return 0;
	}
	f->next = s.to;
	while (n < f->n_beyond && !below(f->next, f->beyond[n].from)) {
		if (below(f->next, f->beyond[n].to))
			f->next = f->beyond[n].to;
		n++;
	}
	f->n_beyond -= n;
	if (n > 0)
		memmove(f->beyond, f->beyond + n, f->n_beyond * sizeof(s));
	return f->next - was;
}

static void segment(struct observer *o, struct flow *like, const struct tcphdr *tcp,
	const uint8_t *payload, size_t have, uint32_t len, int64_t us)
{
	uint32_t seq = ntohl(tcp->seq);
	struct tcp_hello h;
	const char *why;
	struct flow *f;

	if (tcp->syn) {
		add_flow(o, like, seq + 1);
		return;
	}
	f = find_flow(o, like);
	if (!f || len == 0)
		return;
	if (!f->known && seq == f->next) {
		if (have < TCP_HELLO_LEN || dr_tcp_hello_parse(payload, TCP_HELLO_LEN, &h, &why)) {
			f->next = seq + len; /* another service's */
			return;
		}
		f->channel = find_channel(o, &h, f->dev);
		f->known = true;
	}
	if (arrived(o, f, (struct span){ seq, seq + len }) >= BULK && f->known)
		printf("%lld %s %u\n", (long long)us, o->dev[f->dev], f->channel);
}

static void packet(struct observer *o, const uint8_t *b, size_t n, unsigned dev, int64_t us)
{
	const struct iphdr *ip = (const void *)(b + ETH_HLEN);
	struct flow like = { .dev = dev };
	const struct tcphdr *tcp;
	size_t at, total;

	if (n < ETH_HLEN + sizeof(*ip) || ip->version != 4 || ip->protocol != IPPROTO_TCP ||
		(ntohs(ip->frag_off) & 0x1fff) != 0)
		return;
	at = ETH_HLEN + ip->ihl * 4u;
	tcp = (const void *)(b + at);
	if (n < at + sizeof(*tcp))
		return;
	total = ETH_HLEN + (size_t)ntohs(ip->tot_len);
	at += tcp->doff * 4u;
	if (at > n || at > total)
		return;
	like.src = ip->saddr;
	like.dst = ip->daddr;
	like.sport = tcp->source;
	like.dport = tcp->dest;
	segment(o, &like, tcp, b + at, n - at, (uint32_t)(total - at), us);
}

static int64_t time_of(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec ts;

			memcpy(&ts, CMSG_DATA(c), sizeof(ts));
			return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
		}
	return 0;
}

/* All that is there. */
static void drain(struct observer *o)
{
	for (;;) {
		_Alignas(struct cmsghdr) char aux[128];
		_Alignas(4) uint8_t pad[SNAP + 2]; /* the IP header is aligned */
		struct sockaddr_ll from = { 0 };
		struct iovec iov = { pad + 2, SNAP };
		struct msghdr m = { .msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = aux,
			.msg_controllen = sizeof(aux) };
		ssize_t n = recvmsg(o->fd, &m, MSG_DONTWAIT);
		int dev;

		if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
			trouble(o, "the capture failed");
		if (n < 0 && errno != ENETDOWN)
			return;
		dev = n < 0 ? -1 : find_device(o, from.sll_ifindex);
		if (dev >= 0 && from.sll_pkttype == PACKET_HOST)
			packet(o, pad + 2, (size_t)n, (unsigned)dev, time_of(&m));
	}
}

static int open_capture(struct observer *o)
{
	struct sock_filter cut[] = { BPF_STMT(BPF_RET | BPF_K, SNAP) };
	struct sock_fprog prog = { DR_ARRAY_LEN(cut), cut };
	int on = 1, size = RCVBUF;

	o->flow = calloc(FLOWS_MAX, sizeof(*o->flow));
	o->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));
	if (!o->flow || o->fd < 0 ||
		setsockopt(o->fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) ||
		setsockopt(o->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) ||
		setsockopt(o->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		return -1;
	for (unsigned i = 0; i < DEVICES; i++) {
		o->ifindex[i] = (int)if_nametoindex(o->dev[i]);
		if (o->ifindex[i] == 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static char out[1 << 20];
	struct observer o = { .dev = argv + 1 };
	struct sigaction sa = { .sa_handler = on_signal };
	struct tpacket_stats lost = { 0 };
	socklen_t len = sizeof(lost);

	if (argc != 1 + DEVICES || open_capture(&o)) {
		fprintf(stderr, "observer: cannot capture: %s\n", strerror(errno));
		return 2;
	}
	sigaction(SIGTERM, &sa, NULL);
	setvbuf(stdout, out, _IOFBF, sizeof(out));
	fprintf(stderr, "ready\n");
	while (!ended && !o.failed) {
		struct pollfd p = { .fd = o.fd, .events = POLLIN };

		if (poll(&p, 1, 50) >= 0)
			drain(&o);
		fflush(stdout);
	}
	drain(&o);
	if (getsockopt(o.fd, SOL_PACKET, PACKET_STATISTICS, &lost, &len))
		trouble(&o, "no statistics of the capture");
	fprintf(stderr, "lost %u\n", lost.tp_drops);
	for (unsigned i = 0; i < o.n_flow; i++)
		free(o.flow[i].beyond);
	free(o.flow);
	close(o.fd);
	return fflush(stdout) != 0 || o.failed || lost.tp_drops != 0;
}
