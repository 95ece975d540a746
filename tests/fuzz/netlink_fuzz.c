/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers and notifications of rtnetlink: the list of devices, counters, routes, what is saved of a
 * device, and the link monitor. The first byte says which; the rest are messages, see lib/fake_nl.h.
 */
#include "tests/fuzz/lib/fake_nl.h"
#include "tests/fuzz/lib/fuzz.h"
#include "topology/linkmon.h"
#include "topology/netdev.h"

#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { IFS_MAX = 64 };

static void text_ends(const char *s, size_t size)
{
	dr_assert(memchr(s, 0, size));
}

static void list(void)
{
	struct dr_netdev *v;
	struct dr_err e = { 0 };
	size_t n;

	if (fz_failed(dr_netdev_list(&v, &n, &e), &e))
		return;
	for (size_t i = 0; i < n; i++) {
		text_ends(v[i].name, sizeof(v[i].name));
		text_ends(v[i].kind, sizeof(v[i].kind));
		dr_assert(v[i].n_addrs <= DR_NETDEV_ADDRS_MAX);
		dr_assert(i == 0 || v[i].ifindex >= v[i - 1].ifindex);
		for (unsigned k = 0; k < v[i].n_addrs; k++)
			dr_assert(v[i].addrs[k].addr.ss_family == AF_INET ||
				  v[i].addrs[k].addr.ss_family == AF_INET6);
	}
	dr_netdev_list_free(v);
}

/* What the monitor told, to compare with what it knows. */
struct told {
	struct dr_linkmon *m;
	int ifindex[IFS_MAX], up[IFS_MAX];
	unsigned n;
};

static void set(struct told *t, int ifindex, int up)
{
	unsigned i;

	for (i = 0; i < t->n && t->ifindex[i] != ifindex; i++)
		;
	if (i == IFS_MAX)
		return;
	t->n = DR_MAX(t->n, i + 1);
	t->ifindex[i] = ifindex;
	t->up[i] = up;
}

static void on_change(int ifindex, void *arg)
{
	struct told *t = arg;

	set(t, ifindex, dr_linkmon_state(t->m, ifindex));
}

/* A device that is gone may be back, which is told when it is up. */
static bool agrees(int up, int state)
{
	return up < 0 ? state <= 0 : state == up;
}

/* What the messages say, read in the plainest way. */
static void read_links(const struct nlmsghdr *nlh, size_t len, struct told *out)
{
	int left = (int)len;

	for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left)) {
		const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
		unsigned both = IFF_UP | IFF_LOWER_UP;

		if (nlh->nlmsg_type == NLMSG_DONE || nlh->nlmsg_type == NLMSG_ERROR ||
			(nlh->nlmsg_flags & NLM_F_DUMP_INTR))
			return;
		if ((nlh->nlmsg_type != RTM_NEWLINK && nlh->nlmsg_type != RTM_DELLINK) ||
			mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifi) || ifi->ifi_family)
			continue;
		set(out, ifi->ifi_index,
			nlh->nlmsg_type == RTM_DELLINK ? -1 : (ifi->ifi_flags & both) == both);
	}
}

static void monitor(void)
{
	struct told told = { .n = 0 }, said = { .n = 0 };
	struct dr_linkmon *m;
	int fd[2];

	dr_assert(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd) == 0);
	fake_nl.fd = fd[0];
	if (dr_linkmon_open(&m, NULL) == 0) {
		told.m = m;
		for (int i = 0; i < 8 && fake_nl.len > 0; i++) {
			size_t len;
			void *p = fake_nl_part(&len);

			read_links(p, len, &said);
			if (len > 0)
				dr_assert(send(fd[1], p, len, 0) == (ssize_t)len);
			free(p);
			dr_assert(dr_linkmon_progress(m, on_change, &told) >= 0);
			for (unsigned k = 0; k < told.n; k++)
				dr_assert(agrees(told.up[k], dr_linkmon_state(m, told.ifindex[k])));
			for (unsigned k = 0; k < said.n; k++) {
				int state = dr_linkmon_state(m, said.ifindex[k]);

				dr_assert(said.up[k] < 0 ? state < 0 : state == said.up[k]);
			}
		}
		dr_linkmon_close(m);
	}
	fake_nl.fd = -1;
	close(fd[0]);
	close(fd[1]);
}

static void routes(void)
{
	struct dr_netdev_rail r[2] = { { .ifindex = 2 }, { .ifindex = 3 } };

	dr_netdev_rail_routes(r, 2);
	for (unsigned i = 0; i < 2; i++) {
		dr_assert(r[i].routes.n <= DR_ROUTES_MAX && (r[i].routes.known || !r[i].routes.n));
		for (unsigned k = 0; k < r[i].routes.n; k++)
			dr_assert(r[i].routes.to[k].bits <=
				  (r[i].routes.to[k].family == AF_INET ? 32 : 128));
	}
}

FUZZ(z)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001) };
	struct dr_netdev_snapshot snap = { 0 };
	struct dr_netdev_counters c;
	struct dr_netdev d;
	uint8_t what = fz_u8(z) % 5;

	fake_nl = (struct fake_nl){ .answers = z->p, .len = z->n, .fd = -1 };
	if (what == 0) {
		list();
	} else if (what == 1) {
		monitor();
	} else if (what == 2) {
		(void)!dr_netdev_counters(3, &c, NULL);
	} else if (what == 3) {
		if (dr_netdev_toward((struct sockaddr *)&to, NULL, &d, NULL) == 0)
			text_ends(d.name, sizeof(d.name));
		routes();
	} else if (dr_netdev_save(3, &snap, NULL) == 0) {
		/* What was saved of a device is what restore takes for it. */
		dr_assert(snap.len > 0 || snap.addresses + snap.routes + snap.neighbours == 0);
		(void)!dr_netdev_restore(3, &snap, NULL);
		dr_netdev_snapshot_fini(&snap);
	}
}
