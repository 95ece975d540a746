/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/nic_list.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/*
 * A list in words: NICs with ';', each "ADDRESS/BITS" and the blocks that its routes lead to; '*' behind
 * the bits: the management NIC, '-': slow, '!': none; '+': a further address of the NIC; '?' for
 * the routes: not known. Pairs in words: "a=b" direct, "a~b" routed.
 */
enum { LIST_MAX = 8 };
struct node {
	struct dr_nic nic[LIST_MAX];
	struct dr_routes routes[LIST_MAX];
	unsigned n;
};
enum want { AUTO, ALL };

static void parse_nic(struct node *node, char *s)
{
	static const char ranks[] = "*-!";
	char *save = NULL, *t = strtok_r(s, " ", &save), *more = NULL;
	struct dr_routes *r = &node->routes[node->n];
	unsigned first = node->n;

	*r = (struct dr_routes){ .known = true };
	for (t = strtok_r(t, "+", &more); t; t = strtok_r(NULL, "+", &more)) {
		struct dr_nic *nic = &node->nic[node->n++];
		const char *rank = strchr(ranks, t[strlen(t) - 1]);

		assert_true(node->n <= LIST_MAX);
		*nic = (struct dr_nic){ .nic = (uint8_t)first, .routes = r };
		nic->rank = rank ? (uint8_t)(rank - ranks + DR_NIC_MANAGEMENT) : DR_NIC_RAIL;
		if (rank)
			t[strlen(t) - 1] = '\0';
		assert_int_equal(dr_prefix_parse(t, &nic->addr), 0);
	}
	for (t = strtok_r(NULL, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
		if (strcmp(t, "?") == 0)
			r->known = false;
		else
			assert_int_equal(dr_prefix_parse(t, &r->to[r->n++]), 0);
	}
}

static void parse(struct node *node, const char *s)
{
	char buf[1024], *save = NULL;

	node->n = 0;
	snprintf(buf, sizeof(buf), "%s", s);
	for (char *t = strtok_r(buf, ";", &save); t; t = strtok_r(NULL, ";", &save))
		parse_nic(node, t);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void address(const struct dr_nic *nic, char *buf, size_t len)
{
	dr_prefix_format(&nic->addr, buf, len);
	*strchr(buf, '/') = '\0';
}

/* The pairs as words, sorted, so that the order of the lists is forgotten. */
static void pairs_in_words(
	const struct node *a, const struct node *b, enum want want, char *buf, size_t len)
{
	struct dr_nic_pair pair[DR_NICS_MAX];
	struct node named = *a;
	char text[LIST_MAX][130];
	size_t at = 0;

	for (unsigned i = 0; i < a->n; i++)
		named.nic[i].named = want == ALL;
	unsigned n = dr_nic_pair_up(named.nic, a->n, b->nic, b->n, pair);

	for (unsigned i = 0; i < n; i++) {
		char x[64], y[64];

		address(&a->nic[pair[i].a], x, sizeof(x));
		address(&b->nic[pair[i].b], y, sizeof(y));
		snprintf(text[i], sizeof(text[i]), "%s%c%s", x, pair[i].routed ? '~' : '=', y);
		assert_true(i == 0 || pair[i].a > pair[i - 1].a);
	}
	qsort(text, n, sizeof(text[0]), by_text);
	buf[0] = '\0';
	for (unsigned i = 0; i < n; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? " " : "", text[i]);
}

/* The k-th order of the list; false: there are fewer. */
static bool permute(struct node *out, const struct node *in, unsigned k)
{
	unsigned left[LIST_MAX], n = in->n;

	for (unsigned i = 0; i < n; i++)
		left[i] = i;
	*out = *in;
	for (unsigned i = 0; i < in->n; i++, n--) {
		unsigned at = k % n;

		k /= n;
		out->nic[i] = in->nic[left[at]];
		out->nic[i].routes = in->nic[left[at]].routes;
		memmove(&left[at], &left[at + 1], (n - at - 1) * sizeof(left[0]));
	}
	return k == 0;
}

/* In the mesh A-B is 10.12, A-C 10.13, B-C 10.23; routes to the others' subnet lead through the third. */
#define MESH_A "10.12.0.1/24 10.12.0.0/24;10.13.0.1/24 10.13.0.0/24 10.23.0.0/24"
#define MESH_B "10.12.0.2/24 10.12.0.0/24;10.23.0.2/24 10.23.0.0/24 10.13.0.0/24"
/* The ring A-B-C-D: each has two neighbours; the node opposite is reached through either. */
#define RING_A "10.12.0.1/30 10.23.0.0/30;10.14.0.1/30 10.34.0.0/30"
#define RING_B "10.12.0.2/30 10.14.0.0/30;10.23.0.1/30 10.34.0.0/30"
#define RING_C "10.23.0.2/30 10.12.0.0/30;10.34.0.1/30 10.14.0.0/30"

static const struct {
	const char *name, *a, *b;
	enum want want;
	const char *pairs;
	bool ordered; /* the order of the lists matters */
} cases[] = {
	{ "mesh: the cable, and round by the third node", MESH_A, MESH_B, AUTO,
		"10.12.0.1=10.12.0.2 10.13.0.1~10.23.0.2", false },
	{ "mesh without routes: the cable alone", "10.12.0.1/24;10.13.0.1/24",
		"10.12.0.2/24;10.23.0.2/24", AUTO, "10.12.0.1=10.12.0.2", false },
	{ "mesh, a route at one end only", MESH_A, "10.12.0.2/24;10.23.0.2/24", AUTO,
		"10.12.0.1=10.12.0.2", false },
	{ "mesh, the route leaves by the cable itself",
		"10.12.0.1/24 10.23.0.0/24;10.13.0.1/24 10.13.0.0/24",
		"10.12.0.2/24 10.13.0.0/24;10.23.0.2/24", AUTO, "10.12.0.1=10.12.0.2", false },
	{ "mesh of four: of two ways round the one with the lowest addresses",
		"10.12.0.1/24;10.13.0.1/24 10.23.0.0/24;10.14.0.1/24 10.24.0.0/24",
		"10.12.0.2/24;10.23.0.2/24 10.13.0.0/24;10.24.0.2/24 10.14.0.0/24", AUTO,
		"10.12.0.1=10.12.0.2 10.13.0.1~10.23.0.2", false },
	{ "ring, neighbours: the cable, no other way round", RING_A, RING_B, AUTO,
		"10.12.0.1=10.12.0.2", false },
	{ "ring, opposite: through either neighbour", RING_A, RING_C, AUTO,
		"10.12.0.1~10.23.0.2 10.14.0.1~10.34.0.1", false },
	{ "line: through the node between", "10.12.0.1/24 10.23.0.0/24",
		"10.23.0.3/24 10.12.0.0/24", AUTO, "10.12.0.1~10.23.0.3", false },
	{ "two subnets: two rails, nothing routed though it could be",
		"10.0.0.1/24 0.0.0.0/0;10.0.1.1/24 0.0.0.0/0",
		"10.0.1.2/24 0.0.0.0/0;10.0.0.2/24 0.0.0.0/0", AUTO,
		"10.0.0.1=10.0.0.2 10.0.1.1=10.0.1.2", false },
	{ "IPv6 beside IPv4", "fd00:12::1/64;fd00:13::1/64 fd00:23::/64;10.9.0.1/24 0.0.0.0/0",
		"10.8.0.2/24;fd00:23::2/64 fd00:13::/64;fd00:12::2/64", AUTO,
		"fd00:12::1=fd00:12::2 fd00:13::1~fd00:23::2", false },
	{ "nothing shared, no routes", "10.1.0.1/24 10.1.0.0/24", "10.2.0.1/24 10.2.0.0/24", AUTO,
		"", false },
	{ "nothing shared, routes not known: believed", "10.1.0.1/24 ?", "10.2.0.1/24 ?", AUTO,
		"10.1.0.1~10.2.0.1", false },
	{ "addresses of /32 behind gateways, a network per NIC",
		"10.1.0.1/32 10.1.0.0/16;10.2.0.1/32 10.2.0.0/16",
		"10.2.0.9/32 10.2.0.0/16;10.1.0.9/32 10.1.0.0/16", AUTO,
		"10.1.0.1~10.1.0.9 10.2.0.1~10.2.0.9", false },
	{ "a leaf for each NIC, default routes: in the order given",
		"10.1.0.1/31 0.0.0.0/0;10.1.1.1/31 0.0.0.0/0",
		"10.2.0.1/31 0.0.0.0/0;10.2.1.1/31 0.0.0.0/0", AUTO,
		"10.1.0.1~10.2.0.1 10.1.1.1~10.2.1.1", true },
	{ "all in one subnet: in the order given", "10.0.0.1/16;10.0.0.2/16;10.0.0.3/16",
		"10.0.0.11/16;10.0.0.12/16;10.0.0.13/16", AUTO,
		"10.0.0.1=10.0.0.11 10.0.0.2=10.0.0.12 10.0.0.3=10.0.0.13", true },
	{ "the longer prefix decides", "10.0.0.1/8;10.1.0.1/24", "10.1.0.2/24;10.0.0.2/8", AUTO,
		"10.0.0.1=10.0.0.2 10.1.0.1=10.1.0.2", false },
	{ "whose only partner is taken gets it", "10.1.0.2/8;10.1.0.1/16", "10.1.0.9/8;10.2.0.9/8",
		AUTO, "10.1.0.1=10.1.0.9 10.1.0.2=10.2.0.9", false },
	{ "control alone is shared: it is the rail, the way round its shadow",
		"10.13.0.1/24 10.23.0.0/24;10.12.0.1/24*",
		"10.23.0.2/24 10.13.0.0/24;10.12.0.2/24*", AUTO,
		"10.12.0.1=10.12.0.2 10.13.0.1~10.23.0.2", false },
	{ "control is no rail where there is another", "10.1.0.1/24;10.9.0.1/24* 0.0.0.0/0",
		"10.1.0.2/24;10.9.0.2/24* 0.0.0.0/0", AUTO, "10.1.0.1=10.1.0.2", false },
	{ "control as a last resort, routed", "10.1.0.1/24* 0.0.0.0/0", "10.2.0.1/24* 0.0.0.0/0",
		AUTO, "10.1.0.1~10.2.0.1", false },
	{ "named: all that are named, the rest routed", MESH_A, MESH_B, ALL,
		"10.12.0.1=10.12.0.2 10.13.0.1~10.23.0.2", false },
	{ "named: two cables and a way round", "10.1.0.1/24;10.2.0.1/24;10.3.0.1/24 10.4.0.0/24",
		"10.1.0.2/24;10.2.0.2/24;10.4.0.2/24 10.3.0.0/24", ALL,
		"10.1.0.1=10.1.0.2 10.2.0.1=10.2.0.2 10.3.0.1~10.4.0.2", false },
	{ "named: a cable given up, so that all find a partner",
		"10.1.0.1/24 10.3.0.0/24;10.2.0.1/24 10.1.0.0/24",
		"10.1.0.2/24 10.2.0.0/24;10.3.0.2/24 10.1.0.0/24", ALL,
		"10.1.0.1~10.3.0.2 10.2.0.1~10.1.0.2", false },
	{ "not named: two cables are enough", "10.1.0.1/24;10.2.0.1/24;10.3.0.1/24 10.4.0.0/24",
		"10.1.0.2/24;10.2.0.2/24;10.4.0.2/24 10.3.0.0/24", AUTO,
		"10.1.0.1=10.1.0.2 10.2.0.1=10.2.0.2", false },
	{ "two IPv6 prefixes in another order", "fd12::1/64+2001:db8:1::1/64",
		"2001:db8:1::2/64+fd12::2/64", AUTO, "fd12::1=fd12::2", true },
	{ "the subnet that is shared is that of the second address", "10.50.0.1/24+10.1.0.1/24",
		"10.51.0.1/24+10.1.0.2/24", AUTO, "10.1.0.1=10.1.0.2", false },
	{ "the family that one end lacks", "10.1.0.1/24+fd00::1/64", "fd00::2/64", AUTO,
		"fd00::1=fd00::2", false },
	{ "two addresses of a NIC make one rail", "10.1.0.1/24+fd00::1/64",
		"10.1.0.2/24+fd00::2/64", AUTO, "10.1.0.1=10.1.0.2", true },
	{ "an address that both ends have joins nothing", "172.17.0.1/16;10.1.0.1/24",
		"172.17.0.1/16;10.1.0.2/24", AUTO, "10.1.0.1=10.1.0.2", false },
	{ "nor does one that the peer has where it is no rail", "10.1.0.1/24;10.2.0.1/24",
		"10.1.0.2/24;10.2.0.2/24;10.1.0.1/32!", AUTO, "10.2.0.1=10.2.0.2", false },
	{ "both ends are one host", "10.1.0.1/24;10.2.0.1/24", "10.1.0.1/24;10.2.0.1/24", AUTO,
		"10.1.0.1=10.1.0.1 10.2.0.1=10.2.0.1", true },
	{ "a slow NIC where nothing else is shared", "10.1.0.1/24-;10.2.0.1/24",
		"10.1.0.2/24;10.3.0.1/24 10.3.0.0/24", AUTO, "10.1.0.1=10.1.0.2", false },
	{ "a slow NIC does not follow the peer", "10.1.0.1/24;10.2.0.1/24",
		"10.1.0.2/24-;10.2.0.2/24", AUTO, "10.2.0.1=10.2.0.2", false },
	{ "a management NIC follows the client", "10.1.0.1/24;10.2.0.1/24",
		"10.1.0.2/24*;10.2.0.2/24", AUTO, "10.1.0.1=10.1.0.2 10.2.0.1=10.2.0.2", false },
	{ "named at one end, control named: it pairs with the other's control",
		"10.1.0.1/24;10.9.0.1/24", "10.1.0.2/24;10.9.0.2/24*", ALL,
		"10.1.0.1=10.1.0.2 10.9.0.1=10.9.0.2", false },
};

static void pairs_as_expected_in_any_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		struct node a, b, pa, pb;
		char got[1024];

		parse(&a, cases[i].a);
		parse(&b, cases[i].b);
		for (unsigned ka = 0; permute(&pa, &a, ka); ka++)
			for (unsigned kb = 0; permute(&pb, &b, kb); kb++) {
				if (cases[i].ordered && (ka || kb))
					continue;
				pairs_in_words(&pa, &pb, cases[i].want, got, sizeof(got));
				if (strcmp(got, cases[i].pairs) != 0)
					fail_msg("%s (orders %u, %u): %s", cases[i].name, ka, kb,
						got);
			}
	}
}

/* Both ends' view is the same: the lists may be swapped where nobody has a choice. */
static void pairs_alike_from_either_end(void **state)
{
	struct node a, b;
	char got[1024];

	(void)state;
	parse(&a, MESH_A);
	parse(&b, MESH_B);
	pairs_in_words(&b, &a, AUTO, got, sizeof(got));
	assert_string_equal(got, "10.12.0.2=10.12.0.1 10.23.0.2~10.13.0.1");
}

/* ---- prefixes ---- */

static void prefixes(void **state)
{
	static const char *const bad[] = { "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "fd00::/129",
		"x/8", "/8", "10.0.0.1/8x", "10.0.0.1/-1" };
	struct dr_prefix p, q;
	char text[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++)
		assert_int_equal(dr_prefix_parse(bad[i], &p), -EINVAL);
	assert_int_equal(dr_prefix_parse("10.3.16.0/20", &p), 0);
	dr_prefix_format(&p, text, sizeof(text));
	assert_string_equal(text, "10.3.16.0/20");
	assert_int_equal(dr_prefix_parse("10.3.31.255/32", &q), 0);
	assert_true(dr_prefix_holds(&p, &q));
	assert_int_equal(dr_prefix_parse("10.3.32.0/32", &q), 0);
	assert_false(dr_prefix_holds(&p, &q));
	assert_int_equal(dr_prefix_parse("::/0", &p), 0);
	assert_false(dr_prefix_holds(&p, &q)); /* another family */
	assert_int_equal(dr_prefix_parse("fd00::7/128", &q), 0);
	assert_true(dr_prefix_holds(&p, &q));
	assert_true(dr_prefix_holds(&q, &q));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_as_expected_in_any_order),
		cmocka_unit_test(pairs_alike_from_either_end),
		cmocka_unit_test(prefixes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
