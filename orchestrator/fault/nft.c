/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/nft.h"

#include "base/clock.h"
#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

enum { BATCH_MAX = 8192, MODULUS = 1000000, NO_SUCH_IFINDEX = 0x7ffffffe };

/* How to drop, best first; the next one is used if the kernel does not support it. */
enum method { NETDEV_FORWARD, NETDEV_DROP, INET_OUTPUT, N_METHODS };
static const char *const method_names[N_METHODS] = { "netdev hooks", "netdev hooks, plain drop",
	"netdev ingress and inet output hooks (ARP still leaves)" };

struct dr_nft {
	struct dr_nl nl;
	char table[64], ifname[IFNAMSIZ];
	unsigned ifindex;
	enum method method;
	bool in, out;
	uint32_t threshold; /* drops when a draw below MODULUS is below this; MODULUS: always */
};

/* A transaction: messages between a begin and an end. */
struct batch {
	struct dr_nl *nl;
	uint32_t first;	      /* sequence number of the begin */
	struct nlmsghdr *msg; /* the last one, still growing */
	bool failed;	      /* no memory for a part of it */
	_Alignas(struct nlmsghdr) char buf[BATCH_MAX];
};

/* Where the next message begins. */
static char *batch_end(const struct batch *b)
{
	return mnl_nlmsg_get_payload_tail(b->msg);
}

static void batch_begin(struct batch *b, struct dr_nl *nl)
{
	b->nl = nl;
	b->first = ++nl->seq;
	b->msg = nftnl_batch_begin(b->buf, b->first);
	b->failed = false;
}

static struct nlmsghdr *batch_msg(struct batch *b, uint16_t type, uint16_t family, uint16_t flags)
{
	dr_assert(batch_end(b) < b->buf + BATCH_MAX / 2);
	b->msg = nftnl_nlmsg_build_hdr(
		batch_end(b), type, family, (uint16_t)(flags | NLM_F_ACK), ++b->nl->seq);
	return b->msg;
}

/* Send, and read one acknowledgement per message between begin and end; the first error decides. */
static int batch_commit(struct batch *b)
{
	uint32_t want = b->nl->seq - b->first;
	char buf[16384];
	int rc = 0;

	if (b->failed)
		return -ENOMEM;
	b->msg = nftnl_batch_end(batch_end(b), ++b->nl->seq);
	if (mnl_socket_sendto(b->nl->sock, b->buf, (size_t)(batch_end(b) - b->buf)) < 0)
		rc = -errno;
	while (rc == 0 && want > 0) {
		ssize_t n = mnl_socket_recvfrom(b->nl->sock, buf, sizeof(buf));
		const struct nlmsghdr *nlh = (const struct nlmsghdr *)buf;
		int left = (int)n;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left)) {
			const struct nlmsgerr *err = mnl_nlmsg_get_payload(nlh);

			if (nlh->nlmsg_type != NLMSG_ERROR || nlh->nlmsg_seq < b->first)
				continue;
			if (err->error && rc == 0)
				rc = err->error;
			want -= want > 0;
		}
	}
	return rc;
}

static void *need(struct batch *b, void *p)
{
	b->failed |= !p;
	return p;
}

static void add_table(struct batch *b, const char *name, uint16_t family, bool remove)
{
	struct nftnl_table *t = need(b, nftnl_table_alloc());

	if (!t)
		return;
	nftnl_table_set_str(t, NFTNL_TABLE_NAME, name);
	if (!remove)
		nftnl_table_set_u32(t, NFTNL_TABLE_FLAGS, NFT_TABLE_F_OWNER);
	nftnl_table_nlmsg_build_payload(batch_msg(b, remove ? NFT_MSG_DELTABLE : NFT_MSG_NEWTABLE,
						family, remove ? 0 : NLM_F_CREATE | NLM_F_EXCL),
		t);
	nftnl_table_free(t);
}

static void add_chain(
	struct batch *b, const struct dr_nft *n, uint16_t family, const char *name, uint32_t hook)
{
	struct nftnl_chain *c = need(b, nftnl_chain_alloc());

	if (!c)
		return;
	nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, n->table);
	nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
	nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, "filter");
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, -500); /* before all others */
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, NF_ACCEPT);
	if (family == NFPROTO_NETDEV)
		nftnl_chain_set_str(c, NFTNL_CHAIN_DEV, n->ifname);
	nftnl_chain_nlmsg_build_payload(
		batch_msg(b, NFT_MSG_NEWCHAIN, family, NLM_F_CREATE | NLM_F_EXCL), c);
	nftnl_chain_free(c);
}

struct attr {
	uint16_t type;
	uint32_t value;
};

static void add_expr(
	struct batch *b, struct nftnl_rule *r, const char *name, const struct attr *attrs, size_t n)
{
	struct nftnl_expr *x = need(b, nftnl_expr_alloc(name));

	if (!x)
		return;
	for (size_t i = 0; i < n; i++)
		nftnl_expr_set_u32(x, attrs[i].type, attrs[i].value);
	nftnl_rule_add_expr(r, x);
}
#define ADD(b, r, name, ...)                                                                       \
	add_expr(b, r, name, (const struct attr[]){ __VA_ARGS__ },                                 \
		sizeof((const struct attr[]){ __VA_ARGS__ }) / sizeof(struct attr))

/* The packet goes on to the next expression only when register 1 compares as op with value. */
static void add_compare(struct batch *b, struct nftnl_rule *r, uint32_t op, uint32_t value)
{
	ADD(b, r, "cmp", { NFTNL_EXPR_CMP_SREG, NFT_REG_1 }, { NFTNL_EXPR_CMP_OP, op },
		{ NFTNL_EXPR_CMP_DATA, value });
}

static void add_draw(struct batch *b, struct nftnl_rule *r, uint32_t threshold)
{
	if (threshold >= MODULUS)
		return;
	ADD(b, r, "numgen", { NFTNL_EXPR_NG_DREG, NFT_REG_1 }, { NFTNL_EXPR_NG_MODULUS, MODULUS },
		{ NFTNL_EXPR_NG_TYPE, NFT_NG_RANDOM });
	/* "Less than" compares bytes, so the number is needed in network order. */
	ADD(b, r, "byteorder", { NFTNL_EXPR_BYTEORDER_DREG, NFT_REG_1 },
		{ NFTNL_EXPR_BYTEORDER_SREG, NFT_REG_1 },
		{ NFTNL_EXPR_BYTEORDER_OP, NFT_BYTEORDER_HTON }, { NFTNL_EXPR_BYTEORDER_LEN, 4 },
		{ NFTNL_EXPR_BYTEORDER_SIZE, 4 });
	add_compare(b, r, NFT_CMP_LT, htobe32(threshold));
}

/* A chain with one rule at a hook of the family. */
static void add_filter(struct batch *b, const struct dr_nft *n, uint16_t family, const char *chain,
	uint32_t hook, bool forward)
{
	struct nftnl_rule *r = need(b, nftnl_rule_alloc());

	if (!r)
		return;
	add_chain(b, n, family, chain, hook);
	nftnl_rule_set_str(r, NFTNL_RULE_TABLE, n->table);
	nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, chain);
	nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, family);
	if (family != NFPROTO_NETDEV) {
		ADD(b, r, "meta", { NFTNL_EXPR_META_KEY, NFT_META_OIF },
			{ NFTNL_EXPR_META_DREG, NFT_REG_1 });
		add_compare(b, r, NFT_CMP_EQ, n->ifindex);
	}
	add_draw(b, r, n->threshold);
	if (forward) {
		ADD(b, r, "immediate", { NFTNL_EXPR_IMM_DREG, NFT_REG_1 },
			{ NFTNL_EXPR_IMM_DATA, NO_SUCH_IFINDEX });
		ADD(b, r, "fwd", { NFTNL_EXPR_FWD_SREG_DEV, NFT_REG_1 });
	} else {
		ADD(b, r, "immediate", { NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT },
			{ NFTNL_EXPR_IMM_VERDICT, NF_DROP });
	}
	nftnl_rule_nlmsg_build_payload(
		batch_msg(b, NFT_MSG_NEWRULE, family, NLM_F_CREATE | NLM_F_APPEND), r);
	nftnl_rule_free(r);
}

static bool uses_inet(const struct dr_nft *n)
{
	return n->out && n->method == INET_OUTPUT;
}

/* The tables that the method needs. */
static void add_tables(struct batch *b, const struct dr_nft *n, bool remove)
{
	if (n->in || n->method != INET_OUTPUT)
		add_table(b, n->table, NFPROTO_NETDEV, remove);
	if (uses_inet(n))
		add_table(b, n->table, NFPROTO_INET, remove);
}

static int commit(struct batch *b, struct dr_fault_report *r)
{
	r->before_ns = dr_now_ns();
	int rc = batch_commit(b);
	r->after_ns = dr_now_ns();
	return rc;
}

static int install(struct dr_nft *n, struct dr_fault_report *r)
{
	struct batch b;

	batch_begin(&b, &n->nl);
	add_tables(&b, n, false);
	if (n->in)
		add_filter(&b, n, NFPROTO_NETDEV, "in", NF_NETDEV_INGRESS, false);
	if (uses_inet(n))
		add_filter(&b, n, NFPROTO_INET, "out", NF_INET_LOCAL_OUT, false);
	else if (n->out)
		add_filter(&b, n, NFPROTO_NETDEV, "out", NF_NETDEV_EGRESS,
			n->method == NETDEV_FORWARD);
	return commit(&b, r);
}

static int open_socket(struct dr_nl *nl, struct dr_err *e)
{
	int rc = dr_nl_open(nl, NETLINK_NETFILTER, 0, NULL);

	if (rc == -EPROTONOSUPPORT)
		rc = -EOPNOTSUPP;
	return rc < 0 ? dr_err_set(e, rc,
				"open nf_tables: %s; blackhole and loss need a kernel with nf_tables",
				strerror(-rc))
		      : 0;
}

static int explain(struct dr_err *e, int rc, const char *ifname)
{
	if (rc == -EPERM)
		return dr_err_set(e, rc,
			"packet filter on %s: %s; needs CAP_NET_ADMIN over this network namespace (run as "
			"root)",
			ifname, strerror(EPERM));
	if (rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT || rc == -EINVAL || rc == -ENOENT)
		return dr_err_set(e, -EOPNOTSUPP,
			"packet filter on %s: this kernel's nf_tables lacks the netdev family or owned "
			"tables (%s; Linux 5.16 has all); use link-down",
			ifname, strerror(-rc));
	return dr_err_set(e, rc, "packet filter on %s: %s", ifname, strerror(-rc));
}

/* By the socket's address, which is unique in the network namespace; a pid is not. */
static void name_table(const struct dr_nl *nl, char *buf, size_t len)
{
	snprintf(buf, len, "dualrail-%u", mnl_socket_get_portid(nl->sock));
}

int dr_nft_open(const char *ifname, enum dr_fault_dir dir, double percent, struct dr_nft **out,
	struct dr_fault_report *r, struct dr_err *e)
{
	struct dr_nft *n = dr_calloc(1, sizeof(*n));

	if (!n)
		return dr_err_set(e, -ENOMEM, "packet filter on %s: out of memory", ifname);
	snprintf(n->ifname, sizeof(n->ifname), "%s", ifname);
	n->ifindex = if_nametoindex(ifname);
	n->in = dir != DR_FAULT_OUT;
	n->out = dir != DR_FAULT_IN;
	n->threshold = (uint32_t)(percent / 100 * MODULUS + 0.5);
	int rc = n->ifindex ? open_socket(&n->nl, e)
			    : dr_err_set(e, -ENODEV, "no device %s", ifname);
	if (rc < 0) {
		dr_free(n);
		return rc;
	}
	name_table(&n->nl, n->table, sizeof(n->table));
	for (n->method = 0; n->method < N_METHODS; n->method++) {
		rc = install(n, r);
		if (rc == 0 || rc == -EPERM || rc == -ENODEV || rc == -ETIMEDOUT || !n->out)
			break;
	}
	if (rc < 0) {
		dr_nl_close(&n->nl);
		dr_free(n);
		return explain(e, rc, ifname);
	}
	*out = n;
	return 0;
}

void dr_nft_close(struct dr_nft *n, struct dr_fault_report *r)
{
	struct batch b;

	batch_begin(&b, &n->nl);
	add_tables(&b, n, true);
	(void)commit(&b, r);
	/* Whatever the answer was: closing the socket removes every table that it owns. */
	dr_nl_close(&n->nl);
	dr_free(n);
}

const char *dr_nft_how(const struct dr_nft *n)
{
	return method_names[n->method];
}

int dr_nft_probe(struct dr_err *e)
{
	struct dr_nl nl;
	char table[64];
	struct batch b;
	int rc = open_socket(&nl, e);

	if (rc < 0)
		return rc;
	name_table(&nl, table, sizeof(table));
	batch_begin(&b, &nl);
	add_table(&b, table, NFPROTO_NETDEV, false);
	rc = batch_commit(&b);
	dr_nl_close(&nl);
	return rc < 0 ? explain(e, rc, "any device") : 0;
}
