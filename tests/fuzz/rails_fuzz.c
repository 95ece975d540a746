/* SPDX-License-Identifier: Apache-2.0 */
/* --rails against three devices: what is accepted are rails of those, none twice, within the limit. */
#include "tests/fuzz/lib/fake_nl.h"
#include "tests/fuzz/lib/fuzz.h"
#include "topology/netdev.h"

#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

enum { RAILS_MAX = 4, ANSWERS_MAX = 64 };

static uint8_t answers[ANSWERS_MAX * 1024];
static size_t answers_len;

/* lo, eth1 10.0.1.1 and fd00::1, eth2 without an address: answers to one dr_netdev_list. */
static void make_answers(void)
{
	static const char *const names[] = { "lo", "eth1", "eth2" };
	static const uint8_t v4[2][4] = { { 127, 0, 0, 1 }, { 10, 0, 1, 1 } };
	static const uint8_t v6[16] = { 0xfd, [15] = 1 };

	for (int addresses = 0; addresses < 2; addresses++) {
		uint8_t *at = answers + answers_len;
		size_t len = 0;

		for (int i = 0; i < 3; i++) {
			struct ifinfomsg ifi = { .ifi_index = i + 1,
				.ifi_flags = IFF_UP | IFF_LOWER_UP | (i == 0 ? IFF_LOOPBACK : 0) };
			struct ifaddrmsg ifa = { .ifa_index = i == 0 ? 1 : 2,
				.ifa_family = i < 2 ? AF_INET : AF_INET6,
				.ifa_prefixlen = 24 };
			size_t body_len = addresses ? sizeof(ifa) : sizeof(ifi);
			uint32_t buf[256];
			void *body;
			struct nlmsghdr *nlh = dr_nl_msg(
				buf, addresses ? RTM_NEWADDR : RTM_NEWLINK, 0, body_len, &body);

			memcpy(body, addresses ? (void *)&ifa : &ifi, body_len);
			if (addresses)
				mnl_attr_put(nlh, IFA_ADDRESS, i < 2 ? 4 : 16, i < 2 ? v4[i] : v6);
			else
				mnl_attr_put_strz(nlh, IFLA_IFNAME, names[i]);
			memcpy(at + 2 + len, buf, nlh->nlmsg_len);
			len += nlh->nlmsg_len;
		}
		at[0] = (uint8_t)(len >> 8);
		at[1] = (uint8_t)len;
		answers_len += 2 + len;
	}
}

/* NAME@ADDRESS is a rail of that device. */
static void named(const char *list, const struct dr_netdev_rail *r, int n)
{
	for (int i = 0; i < n && list; i++) {
		size_t len = strcspn(list, "@,");

		if (list[len] == '@')
			dr_assert(
				strlen(r[i].ifname) == len && strncmp(list, r[i].ifname, len) == 0);
		list = list[strcspn(list, ",")] ? strchr(list, ',') + 1 : NULL;
	}
}

FUZZ(z)
{
	struct dr_netdev_rail r[RAILS_MAX];
	struct sockaddr_storage control;
	struct dr_err e = { 0 };
	bool with_control = fz_u8(z) & 1;
	char *s = fz_text(z, 1024);
	int n;

	if (answers_len == 0)
		while (answers_len + 1024 < sizeof(answers))
			make_answers();
	dr_assert(dr_netdev_addr_parse("10.0.1.1", &control) == 0);
	fake_nl = (struct fake_nl){ .answers = answers, .len = answers_len, .fd = -1 };
	n = dr_netdev_rails(s, with_control ? (struct sockaddr *)&control : NULL, r, RAILS_MAX, &e);
	(void)fz_failed(DR_MIN(n, 0), &e);
	dr_assert(n != 0 && n <= RAILS_MAX);
	for (int i = 0; i < n; i++) {
		dr_assert(r[i].ifindex == 1 || r[i].ifindex == 2);
		dr_assert(strcmp(r[i].ifname, r[i].ifindex == 1 ? "lo" : "eth1") == 0);
		dr_assert(r[i].prefix >= 1 && r[i].prefix <= 128);
		for (int k = 0; k < i; k++)
			dr_assert(!dr_netdev_addr_equal(
				(struct sockaddr *)&r[i].addr, (struct sockaddr *)&r[k].addr));
	}
	named(s, r, n);
}
