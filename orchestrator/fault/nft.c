/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/nft.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <libmnl/libmnl.h>
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
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { BATCH_MAX = 8192, MODULUS = 1000000, NO_SUCH_IFINDEX = 0x7ffffffe };

/* How to drop, best first; the next is tried when the kernel does not know one. */
enum way { NETDEV_FORWARD, NETDEV_DROP, INET_OUTPUT, N_WAYS };
static const char *const way_names[N_WAYS] = { "netdev hooks", "netdev hooks, plain drop",
	"netdev ingress and inet output hooks (ARP still leaves)" };

struct dr_nft {
	struct mnl_socket *sock;
	uint32_t seq;
	char table[64], ifname[IFNAMSIZ];
	unsigned ifindex;
	enum way way;
	bool in, out;
	uint32_t threshold; /* drops when a draw below MODULUS is below this; MODULUS: always */
};

struct batch {
	struct mnl_nlmsg_batch *b;
	uint32_t *seq, first;
	bool failed;
	/* libmnl wants room for one message past the limit. */
	char buf[2 * BATCH_MAX];
};

static void batch_begin(struct batch *b, uint32_t *seq)
{
	b->b = mnl_nlmsg_batch_start(b->buf, BATCH_MAX);
	b->seq = seq;
	b->first = *seq + 1;
	b->failed = !b->b;
	if (b->failed)
		return;
	nftnl_batch_begin(mnl_nlmsg_batch_current(b->b), ++*seq);
	mnl_nlmsg_batch_next(b->b);
}

static struct nlmsghdr *batch_msg(struct batch *b, uint16_t type, uint16_t family, uint16_t flags)
{
	return nftnl_nlmsg_build_hdr(mnl_nlmsg_batch_current(b->b), type, family,
		(uint16_t)(flags | NLM_F_ACK), ++*b->seq);
}

/* Send, and read one answer per message between begin and end; the first error decides. */
static int batch_commit(struct batch *b, struct mnl_socket *sock)
{
	uint32_t want;
	char buf[16384];
	int rc = 0;

	if (b->failed) {
		if (b->b)
			mnl_nlmsg_batch_stop(b->b);
		return -ENOMEM;
	}
	want = *b->seq - b->first;
	nftnl_batch_end(mnl_nlmsg_batch_current(b->b), ++*b->seq);
	mnl_nlmsg_batch_next(b->b);
	if (mnl_socket_sendto(sock, mnl_nlmsg_batch_head(b->b), mnl_nlmsg_batch_size(b->b)) < 0)
		rc = -errno;
	mnl_nlmsg_batch_stop(b->b);
	while (rc == 0 && want > 0) {
		ssize_t n = mnl_socket_recvfrom(sock, buf, sizeof(buf));
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

static void add_table(struct batch *b, const char *name, uint16_t family, bool remove)
{
	struct nftnl_table *t = nftnl_table_alloc();

	if (!t) {
		b->failed = true;
		return;
	}
	nftnl_table_set_str(t, NFTNL_TABLE_NAME, name);
	if (!remove)
		nftnl_table_set_u32(t, NFTNL_TABLE_FLAGS, NFT_TABLE_F_OWNER);
	nftnl_table_nlmsg_build_payload(batch_msg(b, remove ? NFT_MSG_DELTABLE : NFT_MSG_NEWTABLE,
						family, remove ? 0 : NLM_F_CREATE | NLM_F_EXCL),
		t);
	mnl_nlmsg_batch_next(b->b);
	nftnl_table_free(t);
}

static void add_chain(
	struct batch *b, const struct dr_nft *n, uint16_t family, const char *name, uint32_t hook)
{
	struct nftnl_chain *c = nftnl_chain_alloc();

	if (!c) {
		b->failed = true;
		return;
	}
	nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, n->table);
	nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
	nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, "filter");
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, -500); /* before anybody else's */
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, NF_ACCEPT);
	if (family == NFPROTO_NETDEV)
		nftnl_chain_set_str(c, NFTNL_CHAIN_DEV, n->ifname);
	nftnl_chain_nlmsg_build_payload(
		batch_msg(b, NFT_MSG_NEWCHAIN, family, NLM_F_CREATE | NLM_F_EXCL), c);
	mnl_nlmsg_batch_next(b->b);
	nftnl_chain_free(c);
}

static struct nftnl_expr *add_expr(struct batch *b, struct nftnl_rule *r, const char *name)
{
	struct nftnl_expr *x = nftnl_expr_alloc(name);

	if (x)
		nftnl_rule_add_expr(r, x);
	else
		b->failed = true;
	return x;
}

/* The packet goes on to the next expression only when register 1 compares as op with value. */
static void add_compare(struct batch *b, struct nftnl_rule *r, uint32_t op, uint32_t value)
{
	struct nftnl_expr *x = add_expr(b, r, "cmp");

	if (!x)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_OP, op);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_DATA, value);
}

static void add_draw(struct batch *b, struct nftnl_rule *r, uint32_t threshold)
{
	struct nftnl_expr *x;

	if (threshold >= MODULUS)
		return;
	x = add_expr(b, r, "numgen");
	if (x) {
		nftnl_expr_set_u32(x, NFTNL_EXPR_NG_DREG, NFT_REG_1);
		nftnl_expr_set_u32(x, NFTNL_EXPR_NG_MODULUS, MODULUS);
		nftnl_expr_set_u32(x, NFTNL_EXPR_NG_TYPE, NFT_NG_RANDOM);
	}
	/* "Less than" compares bytes, so the number is needed in network order. */
	x = add_expr(b, r, "byteorder");
	if (x) {
		nftnl_expr_set_u32(x, NFTNL_EXPR_BYTEORDER_DREG, NFT_REG_1);
		nftnl_expr_set_u32(x, NFTNL_EXPR_BYTEORDER_SREG, NFT_REG_1);
		nftnl_expr_set_u32(x, NFTNL_EXPR_BYTEORDER_OP, NFT_BYTEORDER_HTON);
		nftnl_expr_set_u32(x, NFTNL_EXPR_BYTEORDER_LEN, 4);
		nftnl_expr_set_u32(x, NFTNL_EXPR_BYTEORDER_SIZE, 4);
	}
	add_compare(b, r, NFT_CMP_LT, htobe32(threshold));
}

static void add_end(struct batch *b, struct nftnl_rule *r, bool forward)
{
	struct nftnl_expr *x = add_expr(b, r, "immediate");

	if (!x)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DREG, forward ? NFT_REG_1 : NFT_REG_VERDICT);
	if (!forward) {
		nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_VERDICT, NF_DROP);
		return;
	}
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DATA, NO_SUCH_IFINDEX);
	x = add_expr(b, r, "fwd");
	if (x)
		nftnl_expr_set_u32(x, NFTNL_EXPR_FWD_SREG_DEV, NFT_REG_1);
}

static void add_rule(
	struct batch *b, const struct dr_nft *n, uint16_t family, const char *chain, bool forward)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	struct nftnl_expr *x;

	if (!r) {
		b->failed = true;
		return;
	}
	nftnl_rule_set_str(r, NFTNL_RULE_TABLE, n->table);
	nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, chain);
	nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, family);
	if (family != NFPROTO_NETDEV && (x = add_expr(b, r, "meta"))) {
		nftnl_expr_set_u32(x, NFTNL_EXPR_META_KEY, NFT_META_OIF);
		nftnl_expr_set_u32(x, NFTNL_EXPR_META_DREG, NFT_REG_1);
		add_compare(b, r, NFT_CMP_EQ, n->ifindex);
	}
	add_draw(b, r, n->threshold);
	add_end(b, r, forward);
	nftnl_rule_nlmsg_build_payload(
		batch_msg(b, NFT_MSG_NEWRULE, family, NLM_F_CREATE | NLM_F_APPEND), r);
	mnl_nlmsg_batch_next(b->b);
	nftnl_rule_free(r);
}

static bool uses_netdev(const struct dr_nft *n)
{
	return n->in || n->way != INET_OUTPUT;
}

static int install(struct dr_nft *n, int64_t *before_ns, int64_t *after_ns)
{
	bool inet_out = n->out && n->way == INET_OUTPUT;
	struct batch b;
	int rc;

	batch_begin(&b, &n->seq);
	if (!b.failed && uses_netdev(n))
		add_table(&b, n->table, NFPROTO_NETDEV, false);
	if (!b.failed && n->in) {
		add_chain(&b, n, NFPROTO_NETDEV, "in", NF_NETDEV_INGRESS);
		add_rule(&b, n, NFPROTO_NETDEV, "in", false);
	}
	if (!b.failed && n->out && !inet_out) {
		add_chain(&b, n, NFPROTO_NETDEV, "out", NF_NETDEV_EGRESS);
		add_rule(&b, n, NFPROTO_NETDEV, "out", n->way == NETDEV_FORWARD);
	}
	if (!b.failed && inet_out) {
		add_table(&b, n->table, NFPROTO_INET, false);
		add_chain(&b, n, NFPROTO_INET, "out", NF_INET_LOCAL_OUT);
		add_rule(&b, n, NFPROTO_INET, "out", false);
	}
	*before_ns = dr_now_ns();
	rc = batch_commit(&b, n->sock);
	*after_ns = dr_now_ns();
	return rc;
}

static int open_socket(struct mnl_socket **out, struct dr_err *e)
{
	struct timeval tv = { .tv_sec = 5 };
	int rc = 0;

	*out = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
	if (!*out || mnl_socket_bind(*out, 0, MNL_SOCKET_AUTOPID) < 0)
		rc = -errno;
	if (rc < 0 && *out)
		mnl_socket_close(*out);
	if (rc == -EPROTONOSUPPORT)
		rc = -EOPNOTSUPP;
	if (rc < 0)
		return dr_err_set(e, rc,
			"open nf_tables: %s; blackhole and loss need a kernel with nf_tables",
			strerror(-rc));
	setsockopt(mnl_socket_get_fd(*out), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return 0;
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

int dr_nft_open(const char *ifname, enum dr_fault_dir dir, double percent, struct dr_nft **out,
	int64_t *before_ns, int64_t *after_ns, struct dr_err *e)
{
	static unsigned serial;
	struct dr_nft *n = dr_calloc(1, sizeof(*n));
	int rc;

	if (!n)
		return dr_err_set(e, -ENOMEM, "packet filter on %s: out of memory", ifname);
	snprintf(n->ifname, sizeof(n->ifname), "%s", ifname);
	snprintf(n->table, sizeof(n->table), "dualrail-%ld-%u", (long)getpid(), ++serial);
	n->ifindex = if_nametoindex(ifname);
	n->in = dir != DR_FAULT_OUT;
	n->out = dir != DR_FAULT_IN;
	n->threshold = (uint32_t)(percent / 100 * MODULUS + 0.5);
	rc = n->ifindex ? open_socket(&n->sock, e) : dr_err_set(e, -ENODEV, "no device %s", ifname);
	if (rc < 0) {
		dr_free(n);
		return rc;
	}
	for (int way = 0; way < N_WAYS; way++) {
		n->way = (enum way)way;
		rc = install(n, before_ns, after_ns);
		if (rc == 0 || rc == -EPERM || rc == -ENODEV || rc == -ETIMEDOUT || !n->out)
			break;
	}
	if (rc < 0) {
		mnl_socket_close(n->sock);
		dr_free(n);
		return explain(e, rc, ifname);
	}
	*out = n;
	return 0;
}

int dr_nft_close(struct dr_nft *n, int64_t *before_ns, int64_t *after_ns, struct dr_err *e)
{
	int64_t t0, t1;
	struct batch b;
	int rc;

	if (!n)
		return 0;
	batch_begin(&b, &n->seq);
	if (!b.failed && uses_netdev(n))
		add_table(&b, n->table, NFPROTO_NETDEV, true);
	if (!b.failed && n->out && n->way == INET_OUTPUT)
		add_table(&b, n->table, NFPROTO_INET, true);
	t0 = dr_now_ns();
	rc = batch_commit(&b, n->sock);
	t1 = dr_now_ns();
	/* Whatever the answer was: closing the socket ends every table that it owns. */
	mnl_socket_close(n->sock);
	if (before_ns)
		*before_ns = t0;
	if (after_ns)
		*after_ns = t1;
	if (rc < 0 && rc != -ENOENT)
		dr_err_set(e, rc, "remove the packet filter from %s: %s", n->ifname, strerror(-rc));
	dr_free(n);
	return rc == -ENOENT ? 0 : rc;
}

const char *dr_nft_how(const struct dr_nft *n)
{
	return way_names[n->way];
}

int dr_nft_probe(struct dr_err *e)
{
	struct dr_nft n = { 0 };
	struct batch b;
	int rc = open_socket(&n.sock, e);

	if (rc < 0)
		return rc;
	snprintf(n.table, sizeof(n.table), "dualrail-probe-%ld", (long)getpid());
	batch_begin(&b, &n.seq);
	if (!b.failed)
		add_table(&b, n.table, NFPROTO_NETDEV, false);
	rc = batch_commit(&b, n.sock);
	mnl_socket_close(n.sock);
	return rc < 0 ? explain(e, rc, "any device") : 0;
}
