/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/ends.h"

#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* libnccl-net-fake.so: its devices, and comms that come up, do not, or are not wanted. */

static struct ends e;

/* ---- devices ---- */

static void list_devices(void)
{
	struct dr_nccl n = ends_load(0);
	struct dr_nccl_properties p;
	int ndev;

	MUST(dr_nccl_init(&n) == NCCL_SUCCESS && n.devices(&ndev) == NCCL_SUCCESS);
	for (int i = 0; i < ndev; i++) {
		MUST(dr_nccl_properties(&n, i, &p) == NCCL_SUCCESS);
		(void)fprintf(stderr, "%s %d;", p.name, i);
		MUST(getenv("FAKENET_IFNAME") || strcmp(p.name, "lo") != 0);
	}
	MUST(dr_nccl_finalize(&n) == NCCL_SUCCESS);
	(void)fprintf(stderr, "of %d", ndev);
}

/* In a namespace of its own whose loopback has ::1 alone. */
static void use_ipv6(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	struct sockaddr_in none = { .sin_family = AF_INET };
	int fd;

	if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0)
		ends_skip("no network namespace");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	r.ifr_flags = IFF_UP;
	MUST(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &r) == 0);
	memcpy(&r.ifr_addr, &none, sizeof(none));
	if (ioctl(fd, SIOCSIFADDR, &r) != 0 || access("/proc/net/if_inet6", F_OK) != 0)
		ends_skip("no IPv6 in a network namespace");
	(void)close(fd);
	ends_init(&e, FN_PAGE);
	(void)ends_wait(&e, ends_send(&e, 0, 8), ends_receive(&e, 0, 8));
	ends_fini(&e);
}

/* ---- comms that come up ---- */

static void use_one_handle(void)
{
	enum { N = 5 };
	void *scomm[N], *rcomm[N], *none = &none;

	ends_listen(&e);
	/* Nobody is there yet: no comm, and no waiting. */
	MUST(dr_nccl_accept(&e.net, e.lcomm, &none, NULL) == NCCL_SUCCESS && !none);
	for (int i = 0; i < N; i++) {
		ends_connect(&e);
		scomm[i] = e.scomm;
		rcomm[i] = e.rcomm;
	}
	for (int i = 1; i < N; i++) {
		MUST(e.net.close_recv(rcomm[i]) == NCCL_SUCCESS);
		MUST(e.net.close_send(scomm[i]) == NCCL_SUCCESS);
	}
	e.scomm = scomm[0];
	e.rcomm = rcomm[0];
	ends_close(&e);
}

/* What the child listens on: the only sockets that it has. */
static struct sockaddr_in listens(void)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	for (int fd = 3; fd < 64; fd++) {
		int on = 0;
		socklen_t size = sizeof(on);

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on) {
			MUST(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
			return a;
		}
	}
	MUST(!"a listener");
	return a;
}

static int start(int flags)
{
	const struct sockaddr_in to = listens();
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	MUST(fd >= 0);
	MUST(connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 || flags);
	return fd;
}

/* Connections of others: silent ones, one that closes, and one with bytes that mean nothing. */
static void meet_strangers(void)
{
	enum { N = 20 };
	static const char noise[32] = "GET / HTTP/1.0\r\n\r\n";
	struct nccl_net_device_handle *device = &e.device;
	int fd[N];

	ends_listen(&e);
	for (int i = 0; i < N; i++)
		fd[i] = start(0);
	(void)close(fd[0]);
	MUST(send(fd[1], noise, sizeof(noise), MSG_NOSIGNAL) == sizeof(noise));
	for (int i = 0; i < 3; i++)
		MUST(dr_nccl_accept(&e.net, e.lcomm, &e.rcomm, &device) == NCCL_SUCCESS &&
			!e.rcomm);
	MUST(ends_dial(&e) == NCCL_SUCCESS);
	while (!e.rcomm)
		MUST(dr_nccl_accept(&e.net, e.lcomm, &e.rcomm, &device) == NCCL_SUCCESS);
	for (int i = 1; i < N; i++)
		(void)close(fd[i]);
	ends_close(&e);
}

/* ---- comms that take long, and that fail ---- */

/* Connections that wait in the kernel until no more do. */
static unsigned n_crowd;
static int crowd[1024];

static void make_crowd(void)
{
	struct pollfd p = { .events = POLLOUT };

	do {
		MUST(n_crowd < LENGTH(crowd));
		p.fd = crowd[n_crowd++] = start(SOCK_NONBLOCK);
	} while (poll(&p, 1, 0) == 1);
}

static void drop_crowd(void)
{
	while (n_crowd > 0)
		(void)close(crowd[--n_crowd]);
}

/* While the listener's queue is full, connect returns without a comm, and continues when it is called again. */
static void connect_slowly(void)
{
	unsigned before;

	ends_listen(&e);
	make_crowd();
	before = ends_descriptors();
	for (int i = 0; i < 3; i++) {
		MUST(dr_nccl_connect(&e.net, 0, e.handle, &e.scomm) == NCCL_SUCCESS && !e.scomm);
		MUST(ends_descriptors() == before + 1);
	}
	IN_TIME
	{
		if (!e.scomm)
			MUST(dr_nccl_connect(&e.net, 0, e.handle, &e.scomm) == NCCL_SUCCESS);
		MUST(dr_nccl_accept(&e.net, e.lcomm, &e.rcomm, NULL) == NCCL_SUCCESS);
		if (e.scomm && e.rcomm)
			break;
	}
	drop_crowd();
	ends_close(&e);
}

/* The listener is closed meanwhile; the handle does not name the connection that failed any more. */
static void fail_later(void)
{
	ends_listen(&e);
	make_crowd();
	MUST(dr_nccl_connect(&e.net, 0, e.handle, &e.scomm) == NCCL_SUCCESS && !e.scomm);
	MUST(e.net.close_listen(e.lcomm) == NCCL_SUCCESS);
	for (int i = 0; i < 2; i++)
		MUST(ends_dial(&e) == NCCL_REMOTE_ERROR && !e.scomm);
	drop_crowd();
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
}

/* A device that there is not, and a listener that is gone. */
static void fail_to_connect(void)
{
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	void *comm = &comm;

	ends_listen(&e);
	MUST(dr_nccl_connect(&e.net, 1, e.handle, &comm) == NCCL_INTERNAL_ERROR && !comm);
	comm = &comm;
	MUST(dr_nccl_listen(&e.net, 1, handle, &comm) == NCCL_INTERNAL_ERROR && !comm);
	MUST(e.net.close_listen(e.lcomm) == NCCL_SUCCESS);
	MUST(ends_dial(&e) == NCCL_REMOTE_ERROR && !e.scomm);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
}

/* NCCL closes nothing of a connection that has not come up. */
static void leave_all(void)
{
	unsigned before;
	void *more;

	if (ends_way->version < 11) /* it has no finalize */
		return;
	ends_listen(&e);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
	before = ends_descriptors();
	ends_init(&e, FN_PAGE);
	if (!e.lcomm)
		MUST(dr_nccl_listen(&e.net, 0, e.handle, &e.lcomm) == NCCL_SUCCESS);
	MUST(dr_nccl_connect(&e.net, 0, e.handle, &more) == NCCL_SUCCESS);
	MUST(ends_descriptors() > before + 3);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
	MUST(ends_descriptors() == before);
	free(e.out);
	free(e.in);
}

/* clang-format off */
static const struct ends_case cases[] = {
	{ NEWEST("interfaces are chosen by prefix", list_devices, SOCKET),
		.env = "FAKENET_IFNAME=nothing,,lo", .says = "lo 0;of 1" },
	{ NEWEST("a longer name is no prefix", list_devices, SOCKET),
		.env = "FAKENET_IFNAME=lo-and-more", .says = "of 0" },
	{ NEWEST("loopback has to be named", list_devices, SOCKET), .env = "FAKENET_IFNAME", .says = "of " },
	{ NEWEST("connects over IPv6", use_ipv6, ANY_FAKE) },
	{ EACH("connects many by one handle", use_one_handle, SOCKET) },
	{ NEWEST("strangers are no peers", meet_strangers, ANY_FAKE) },
	{ NEWEST("connects in several calls", connect_slowly, SOCKET) },
	{ NEWEST("fails in a later call", fail_later, SOCKET) },
	{ EACH("connect tells failures", fail_to_connect, ANY_FAKE) },
	{ EACH("finalize closes the rest", leave_all, SOCKET | DIRECT) },
};
/* clang-format on */

int main(void)
{
	return ends_main(cases, LENGTH(cases), ends_setup, NULL);
}
