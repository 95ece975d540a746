/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State files of the guard, which a later run reads: bytes in them are refused or are what would have
 * been written; and no bytes of a snapshot make requests but for that device.
 *
 *	u8: 1 raw bytes; else the checksum is put right | bytes
 */
#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/fault/kind_priv.h"
#include "tests/fuzz/lib/fake_nl.h"
#include "tests/fuzz/lib/fuzz.h"

#include <linux/rtnetlink.h>
#include <sys/types.h>

/* The checksum of what follows, magic and version, the place. */
enum { SUM_LEN = 8, PLACE_END = SUM_LEN + 4 + 4 + sizeof(struct dr_state_where) };

static void put_checksum(uint8_t *p, size_t len)
{
	uint64_t h = dr_mix64(len - SUM_LEN);

	for (size_t i = SUM_LEN; i < len; i++)
		h = dr_mix64(h ^ p[i]);
	memcpy(p, &h, SUM_LEN);
}

static void seen(const struct nlmsghdr *nlh, void *arg)
{
	const struct dr_state *s = arg;
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	const struct ndmsg *ndm = mnl_nlmsg_get_payload(nlh);

	dr_assert(nlh->nlmsg_type == RTM_NEWADDR || nlh->nlmsg_type == RTM_NEWROUTE ||
		  nlh->nlmsg_type == RTM_NEWNEIGH);
	dr_assert(nlh->nlmsg_type != RTM_NEWADDR || (int)ifa->ifa_index == s->ifindex);
	dr_assert(nlh->nlmsg_type != RTM_NEWNEIGH || ndm->ndm_ifindex == s->ifindex);
	dr_assert(nlh->nlmsg_len <= DR_NL_BUF);
}

FUZZ(z)
{
	bool raw = fz_u8(z) & 1;
	struct dr_state_where w;
	struct dr_state s;
	pid_t pid = 0;
	size_t len, again_len;
	uint8_t *p = fz_bytes(z, 1 << 16, &len), *again;

	if (!raw && len >= SUM_LEN)
		put_checksum(p, len);
	if (!fz_taken(dr_state_decode(p, len, &s, &w, &pid)))
		return;
	dr_assert(s.kind && memchr(s.nic, 0, sizeof(s.nic)));
	fake_nl = (struct fake_nl){ .fd = -1, .seen = seen, .arg = &s };
	(void)!dr_netdev_restore(s.ifindex, &s.snap, NULL);
	fake_nl.seen = NULL;
	dr_assert(dr_state_encode(&s, &w, &again, &again_len) == 0);
	/* Bytes behind the end of a name or of the command are not kept. */
	dr_assert(again_len <= len);
	fz_same(p + SUM_LEN, PLACE_END - SUM_LEN, again + SUM_LEN, PLACE_END - SUM_LEN);
	dr_free(again);
	dr_state_fini(&s);
}
