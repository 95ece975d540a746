/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static unsigned rails(struct dr_netdev_rail *r, const char *const *addr, unsigned n)
{
	memset(r, 0, n * sizeof(*r));
	for (unsigned i = 0; i < n; i++) {
		snprintf(r[i].ifname, sizeof(r[i].ifname), "eth%u", i);
		assert_int_equal(dr_netdev_addr_parse(addr[i], &r[i].addr), 0);
		r[i].prefix = 24;
		r[i].nic = i;
		r[i].speed_mbps = 100000;
	}
	return n;
}

static void make(struct dr_plan *p, const char *const *addr, unsigned n_rails, unsigned n_gpus)
{
	struct dr_netdev_rail r[DR_RAILS_MAX];

	memset(p, 0, sizeof(*p));
	dr_plan_set_rails(p, r, rails(r, addr, n_rails));
	p->n_gpus = n_gpus;
	for (unsigned k = 0; k < n_gpus; k++)
		p->gpu[k][0] = p->gpu[k][1] = 10 + k;
	p->n_each = 3;
	p->forward = true;
	p->window = 16;
	p->chunk_max = 4096;
	p->heartbeat_ns = 10 * DR_NS_PER_MS;
	snprintf(p->transport, sizeof(p->transport), "tcp");
}

static const char *const four[] = { "10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1" };

static void the_automatic_map_is_even(void **state)
{
	static const unsigned want[8] = { 0, 0, 1, 1, 2, 2, 3, 3 };
	struct dr_plan p;

	(void)state;
	make(&p, four, 4, 8);
	for (unsigned k = 0; k < 8; k++) {
		struct dr_plan_map m = dr_plan_paths(&p, k, 0);

		assert_int_equal(m.primary, want[k]);
		assert_int_equal(m.shadow, want[k] ^ 1);
	}
	make(&p, four, 3, 3);
	assert_int_equal(dr_plan_paths(&p, 2, 0).shadow, 0);
	make(&p, four, 1, 2);
	assert_int_equal(dr_plan_paths(&p, 1, 0).primary, dr_plan_paths(&p, 1, 0).shadow);
}

static void channels_spread(void **state)
{
	struct dr_plan p;
	struct dr_err e;

	(void)state;
	make(&p, four, 4, 4);
	p.reverse = p.lat = true;
	assert_int_equal(dr_plan_n_channels(&p), 8);
	snprintf(p.transport, sizeof(p.transport), "tcp");
	assert_int_equal(dr_plan_n_handles(&p), 16); /* 4 of them for the heartbeats of all GPUs */
	assert_int_equal(dr_plan_n_peer_handles(&p), 4);
	assert_true(dr_plan_from_client(&p, 2));
	assert_false(dr_plan_from_client(&p, 3));
	assert_true(dr_plan_from_client(&p, 6));
	assert_false(dr_plan_from_client(&p, 7));
	assert_int_equal(dr_plan_parse_spread(&p, "all", &e), 0);
	assert_int_equal(dr_plan_paths(&p, 1, 2).primary, 3);
	assert_int_equal(dr_plan_paths(&p, 1, 2).shadow, 2);
	assert_int_equal(dr_plan_paths(&p, 1, 6).primary, 1); /* latency: the GPU's own */
	assert_int_equal(dr_plan_parse_spread(&p, "eth2,0", &e), 0);
	assert_int_equal(dr_plan_paths(&p, 3, 0).primary, 2);
	assert_int_equal(dr_plan_paths(&p, 3, 0).shadow, 0);
	assert_int_equal(dr_plan_parse_spread(&p, "eth9", &e), -EINVAL);
}

static void each_rail_gets_its_channels(void **state)
{
	struct dr_phase ph = { .kind = DR_PHASE_BW };
	unsigned on[DR_RAILS_MAX] = { 0 };
	struct dr_plan p;
	struct dr_err e;

	(void)state;
	make(&p, four, 4, 3);
	p.reverse = p.lat = true;
	p.spread = DR_SPREAD_EACH;
	assert_int_equal(dr_plan_n_channels(&p), 2 * 3 * 4 + 2);
	assert_int_equal(dr_plan_check(&p, &e), 0);
	for (unsigned c = 0; c < dr_plan_n_bulk(&p); c++) {
		struct dr_plan_map m = dr_plan_paths(&p, 1, c);

		assert_int_equal(dr_plan_from_client(&p, c), c < 12);
		assert_int_not_equal(m.primary, m.shadow);
		on[m.primary] += c < 12 ? 1 : 100;
	}
	for (unsigned r = 0; r < 4; r++)
		assert_int_equal(on[r], 303);
	/* A rail that has no partner drops out, its channels with it. */
	p.n_rails = 3;
	assert_int_equal(dr_plan_n_bulk(&p), 18);
	ph.gpu_mask = ph.rail_mask = 1 << 2;
	assert_true(dr_plan_fits_phase(&p, &ph));
	ph.rail_mask = 1 << 3;
	assert_false(dr_plan_fits_phase(&p, &ph));
	p.n_rails = 4;
	p.n_each = 8;
	assert_int_equal(dr_plan_check(&p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "--channels"));
}

static void phases_that_nobody_takes_part_in(void **state)
{
	struct dr_phase ph = { .kind = DR_PHASE_BW };
	struct dr_plan p;

	(void)state;
	make(&p, four, 4, 4);
	assert_true(dr_plan_fits_phase(&p, &ph));
	ph.gpu_mask = UINT32_MAX;
	assert_true(dr_plan_fits_phase(&p, &ph));
	ph.gpu_mask = 1 << 4;
	assert_false(dr_plan_fits_phase(&p, &ph));
	ph.gpu_mask = 0;
	ph.rail_mask = 1; /* of GPU 0 alone */
	assert_false(dr_plan_fits_phase(&p, &ph));
	ph.gpu_mask = 1;
	assert_true(dr_plan_fits_phase(&p, &ph));
	ph.kind = DR_PHASE_LAT;
	assert_false(dr_plan_fits_phase(&p, &ph));
	p.lat = true;
	assert_false(dr_plan_fits_phase(&p, &ph));
	ph.rail_mask = 0;
	assert_true(dr_plan_fits_phase(&p, &ph));
}

static void a_map_names_rails(void **state)
{
	struct dr_plan p;
	struct dr_err e;

	(void)state;
	make(&p, four, 4, 3);
	assert_int_equal(dr_plan_parse_map(&p, "10=eth3,eth1;12=10.0.0.1", &e), 0);
	assert_int_equal(dr_plan_paths(&p, 0, 1).primary, 3);
	assert_int_equal(dr_plan_paths(&p, 0, 1).shadow, 1);
	assert_int_equal(dr_plan_paths(&p, 1, 0).primary, 1); /* not named: automatic */
	assert_int_equal(dr_plan_paths(&p, 2, 0).shadow, 0);  /* no shadow */
	assert_int_equal(dr_plan_parse_map(&p, "9=eth0", &e), -EINVAL);
	assert_int_equal(dr_plan_parse_map(&p, "10", &e), -EINVAL);
	assert_int_equal(dr_plan_parse_map(&p, "10=eth0,x", &e), -EINVAL);
}

static void rails_match_by_subnet_then_by_order(void **state)
{
	static const char *const turned[] = { "10.0.1.2", "10.0.0.2" };
	static const char *const other[] = { "10.9.0.2", "10.9.1.2" };
	static const char *const one[] = { "10.0.1.2" };
	struct dr_netdev_rail r[4];
	struct dr_plan p;
	struct dr_err e;

	(void)state;
	make(&p, four, 2, 2);
	assert_int_equal(dr_plan_pair_nics(&p, r, rails(r, turned, 2), false, &e), 0);
	assert_string_equal(p.rail[0][DR_PLAN_SERVER].address, "10.0.0.2");
	make(&p, four, 2, 2);
	assert_int_equal(dr_plan_pair_nics(&p, r, rails(r, other, 2), false, &e), 0);
	assert_string_equal(p.rail[1][DR_PLAN_SERVER].address, "10.9.1.2");
	make(&p, four, 4, 2);
	assert_int_equal(dr_plan_pair_nics(&p, r, rails(r, other, 2), false, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "10.0.3.1"));
	assert_non_null(strstr(e.text, "10.9.1.2"));
	/* Named rails must all take part; automatic ones without a partner are left out. */
	make(&p, four, 2, 2);
	assert_int_equal(dr_plan_pair_nics(&p, r, rails(r, one, 1), false, &e), -EADDRNOTAVAIL);
	p.rails_auto = true;
	assert_int_equal(dr_plan_pair_nics(&p, r, rails(r, one, 1), false, &e), 0);
	assert_int_equal(p.n_rails, 1);
	assert_string_equal(p.rail[0][DR_PLAN_CLIENT].address, "10.0.1.1");
}

static void route(struct dr_plan_rail *r, struct dr_netdev_rail *own, const char *to)
{
	struct dr_routes *t = r ? &r->routes : &own->routes;

	t->known = true;
	if (to)
		assert_int_equal(dr_prefix_parse(to, &t->to[t->n++]), 0);
}

/* Three nodes, a subnet for each two: eth1 is the cable, eth0 leads to the third. */
static const char *const mesh_a[] = { "10.13.0.1", "10.12.0.1" };
static const char *const mesh_b[] = { "10.23.0.2", "10.12.0.2" };

/* The client's management NIC. */
static void offer_spare(struct dr_plan *c, const struct dr_netdev_rail *spare)
{
	struct dr_plan_rail *r = &c->offered[c->n_offered];

	dr_plan_set_rail(r, spare);
	r->rank = DR_NIC_MANAGEMENT;
	r->nic = (uint8_t)c->n_offered++;
}

static bool server_named;

/* Over the wire and back: client and server have agreed. spare: the server's management NIC. */
static int agree(struct dr_plan *c, struct dr_plan *s, const struct dr_netdev_rail *rail,
	unsigned n, const struct dr_netdev_rail *spare, struct dr_err *e)
{
	struct dr_netdev_rail own[DR_RAILS_MAX];
	json_t *j = dr_plan_offer(c);
	int rc;

	memcpy(own, rail, n * sizeof(*own));
	if (spare) {
		own[n] = *spare;
		own[n].rank = DR_NIC_MANAGEMENT;
		own[n].nic = DR_RAILS_MAX;
		n++;
	}

	assert_int_equal(dr_plan_read_offer(s, j, e), 0);
	json_decref(j);
	rc = dr_plan_pair_nics(s, own, n, server_named, e);
	if (rc)
		return rc;
	s->n_gpus = c->n_gpus;
	memcpy(s->gpu, c->gpu, sizeof(s->gpu));
	j = dr_plan_reply(s);
	assert_int_equal(dr_plan_read_reply(c, j, e), 0);
	json_decref(j);
	assert_int_equal(dr_plan_check(c, e), 0);
	assert_int_equal(dr_plan_check(s, e), 0);
	assert_int_equal(c->n_rails, s->n_rails);
	for (unsigned k = 0; k < c->n_gpus; k++)
		for (unsigned ch = 0; ch < dr_plan_n_channels(c); ch++) {
			struct dr_plan_map a = dr_plan_paths(c, k, ch);
			struct dr_plan_map b = dr_plan_paths(s, k, ch);

			assert_memory_equal(&a, &b, sizeof(a));
		}
	return 0;
}

static void a_routed_rail_is_a_shadow_only(void **state)
{
	struct dr_netdev_rail r[2];
	struct dr_plan c, s;
	struct dr_err e;
	char text[256];

	(void)state;
	make(&c, mesh_a, 2, 4);
	c.rails_auto = true;
	route(&c.offered[0], NULL, "10.23.0.0/24");
	route(&c.offered[1], NULL, NULL);
	rails(r, mesh_b, 2);
	route(NULL, &r[0], "10.13.0.0/24");
	route(NULL, &r[1], NULL);
	assert_int_equal(agree(&c, &s, r, 2, NULL, &e), 0);
	assert_int_equal(c.n_rails, 2);
	assert_true(c.rail[0][DR_PLAN_CLIENT].routed && s.rail[0][DR_PLAN_SERVER].routed);
	assert_false(c.rail[1][DR_PLAN_CLIENT].routed);
	assert_string_equal(c.rail[0][DR_PLAN_SERVER].address, "10.23.0.2");
	for (unsigned k = 0; k < 4; k++) {
		assert_int_equal(dr_plan_paths(&c, k, 0).primary, 1);
		assert_int_equal(dr_plan_paths(&c, k, 0).shadow, 0);
	}
	assert_true(dr_plan_describe(&c, DR_PLAN_CLIENT, 0, true, text, sizeof(text)));
	assert_non_null(strstr(text, "primary eth1 10.12.0.1, shadow eth0 10.13.0.1 (routed)"));
	assert_int_equal(strncmp(text, "GPU ", 4), 0);
	assert_false(dr_plan_describe(&c, DR_PLAN_CLIENT, 1, true, text, sizeof(text)));
	assert_true(dr_plan_describe_routed(&c, 0, text, sizeof(text)));
	assert_false(dr_plan_describe_routed(&c, 1, text, sizeof(text)));
	assert_int_equal(dr_plan_parse_spread(&c, "all", &e), 0);
	assert_int_equal(dr_plan_paths(&c, 0, 1).primary, 1);
	assert_int_equal(dr_plan_paths(&c, 0, 1).shadow, 0);
	/* --map means what it says. */
	assert_int_equal(dr_plan_parse_map(&c, "11=eth0,eth1", &e), 0);
	c.spread = DR_SPREAD_NEAREST;
	assert_int_equal(dr_plan_paths(&c, 1, 0).primary, 0);
}

static void without_a_route_back_there_is_no_shadow(void **state)
{
	struct dr_netdev_rail r[2];
	struct dr_plan c, s;
	struct dr_err e;

	(void)state;
	make(&c, mesh_a, 2, 2);
	c.rails_auto = true;
	route(&c.offered[0], NULL, "10.23.0.0/24");
	route(&c.offered[1], NULL, NULL);
	rails(r, mesh_b, 2);
	route(NULL, &r[0], NULL);
	route(NULL, &r[1], "10.13.0.0/24"); /* back by the cable */
	assert_int_equal(agree(&c, &s, r, 2, NULL, &e), 0);
	assert_int_equal(c.n_rails, 1);
	assert_string_equal(c.rail[0][DR_PLAN_CLIENT].address, "10.12.0.1");
	/* Named, it has to take part. */
	make(&c, mesh_a, 2, 2);
	route(&c.offered[0], NULL, "10.23.0.0/24");
	assert_int_equal(agree(&c, &s, r, 2, NULL, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "10.13.0.1/24,10.12.0.1/24"));
	assert_non_null(strstr(e.text, "10.23.0.2/24,10.12.0.2/24"));
	assert_non_null(strstr(e.text, "--rails"));
}

/* The cable carries control too: it is the rail all the same, since no other shares a subnet. */
static void the_control_nic_helps_out(void **state)
{
	struct dr_netdev_rail r[2], spare[1];
	struct dr_plan c, s;
	struct dr_err e;

	(void)state;
	make(&c, mesh_a, 1, 2);
	c.rails_auto = true;
	rails(spare, &mesh_a[1], 1);
	snprintf(spare[0].ifname, sizeof(spare[0].ifname), "cable");
	offer_spare(&c, &spare[0]);
	route(&c.offered[0], NULL, "10.23.0.0/24");
	rails(r, mesh_b, 2);
	route(NULL, &r[0], "10.13.0.0/24");
	assert_int_equal(agree(&c, &s, r, 1, &r[1], &e), 0);
	assert_int_equal(c.n_rails, 2);
	assert_string_equal(c.rail[1][DR_PLAN_CLIENT].name, "cable");
	assert_int_equal(dr_plan_paths(&c, 0, 0).primary, 1);
	/* With another rail in one subnet it stays out of it. */
	make(&c, four, 1, 2);
	c.rails_auto = true;
	offer_spare(&c, &spare[0]);
	rails(r, four, 1);
	assert_int_equal(dr_netdev_addr_parse("10.0.0.2", &r[0].addr), 0);
	assert_int_equal(agree(&c, &s, r, 1, &spare[0], &e), 0);
	assert_int_equal(c.n_rails, 1);
	assert_string_equal(c.rail[0][DR_PLAN_CLIENT].name, "eth0");
}

/* Both ends have eth0 and eth1; control runs over eth0. */
static void the_control_nic_is_a_rail_at_both_ends_or_none(void **state)
{
	static const char *const server[] = { "10.0.0.2", "10.0.1.2" };
	struct dr_netdev_rail r[2], spare[1];
	struct dr_plan c, s;
	struct dr_err e;

	(void)state;
	rails(r, server, 2);
	/* The client has it as a rail, the server as a spare. */
	make(&c, four, 2, 2);
	c.rails_auto = true;
	assert_int_equal(agree(&c, &s, &r[1], 1, &r[0], &e), 0);
	assert_int_equal(c.n_rails, 2);
	assert_string_equal(s.rail[0][DR_PLAN_SERVER].address, "10.0.0.2");
	assert_false(dr_plan_on_spare(&c));
	/* The server has it as a rail, the client as a spare. */
	make(&c, &four[1], 1, 2);
	c.rails_auto = true;
	rails(spare, four, 1);
	offer_spare(&c, spare);
	assert_int_equal(agree(&c, &s, r, 2, NULL, &e), 0);
	assert_int_equal(c.n_rails, 1);
	assert_string_equal(c.rail[0][DR_PLAN_CLIENT].address, "10.0.1.1");
	/* The server names it. */
	make(&c, &four[1], 1, 2);
	c.rails_auto = true;
	offer_spare(&c, spare);
	server_named = true;
	assert_int_equal(agree(&c, &s, r, 2, NULL, &e), 0);
	server_named = false;
	assert_int_equal(c.n_rails, 2);
	make(&c, &four[1], 1, 2);
	c.rails_auto = true;
	offer_spare(&c, spare);
	assert_int_equal(agree(&c, &s, r, 1, NULL, &e), 0);
	assert_int_equal(c.n_rails, 1);
	assert_true(dr_plan_on_spare(&c));
}

/* Of a node with more NICs than a run has rails: those that pair, at most 16. */
static void rails_are_chosen_after_pairing(void **state)
{
	enum { NICS = 64 };
	static struct dr_netdev_rail own[NICS], theirs[NICS];
	static struct dr_plan c, s;
	char address[32];
	struct dr_err e;
	json_t *j;

	(void)state;
	for (unsigned i = 0; i < NICS; i++) {
		own[i] = (struct dr_netdev_rail){ .nic = i, .prefix = 24 };
		snprintf(own[i].ifname, sizeof(own[i].ifname), "eth%u", i);
		theirs[i] = own[i];
		snprintf(address, sizeof(address), "10.1.%u.1", i);
		assert_int_equal(dr_netdev_addr_parse(address, &own[i].addr), 0);
		snprintf(address, sizeof(address), "10.%u.%u.2", i < 40 ? 2 : 1, i);
		assert_int_equal(dr_netdev_addr_parse(address, &theirs[i].addr), 0);
	}
	make(&c, four, 1, 2);
	dr_plan_set_rails(&c, own, NICS);
	c.rails_auto = true;
	j = dr_plan_offer(&c);
	assert_int_equal(dr_plan_read_offer(&s, j, &e), 0);
	json_decref(j);
	assert_int_equal(dr_plan_pair_nics(&s, theirs, NICS, false, &e), 0);
	assert_int_equal(s.n_rails, DR_RAILS_MAX);
	j = dr_plan_reply(&s);
	assert_int_equal(dr_plan_read_reply(&c, j, &e), 0);
	json_decref(j);
	for (unsigned i = 0; i < DR_RAILS_MAX; i++) {
		snprintf(address, sizeof(address), "10.1.%u.1", 40 + i);
		assert_string_equal(c.rail[i][DR_PLAN_CLIENT].address, address);
	}
}

/* What the peer says of routes is checked. */
static void bad_routes_are_an_error(void **state)
{
	static const char *const bad[] = { "7", "[7]", "[\"10.0.0.1\"]", "[\"10.0.0.0/33\"]",
		"[\"\"]", "{}" };
	struct dr_plan c, s;
	struct dr_err e;
	json_t *j;

	(void)state;
	make(&c, four, 1, 1);
	route(&c.offered[0], NULL, "10.9.0.0/16");
	j = dr_plan_offer(&c);
	assert_int_equal(dr_plan_read_offer(&s, j, &e), 0);
	assert_memory_equal(
		&s.offered[0].routes, &c.offered[0].routes, sizeof(c.offered[0].routes));
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_object_set_new(json_array_get(json_object_get(j, "rails"), 0), "routes",
			json_loads(bad[i], JSON_DECODE_ANY, NULL));
		assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	}
	json_decref(j);
}

static void both_ends_come_to_the_same_plan(void **state)
{
	static const char *const server[] = { "10.0.3.2", "10.0.1.2", "10.0.2.2", "10.0.0.2" };
	struct dr_netdev_rail r[4];
	struct dr_manager_params m;
	struct dr_plan c, s;
	struct dr_err e;
	json_t *j;

	(void)state;
	make(&c, four, 4, 4);
	c.lat = c.failback = true;
	c.seed = 77;
	assert_int_equal(dr_plan_parse_map(&c, "11=eth3,eth2", &e), 0);
	assert_int_equal(dr_plan_parse_spread(&c, "all", &e), 0);
	j = dr_plan_offer(&c);
	assert_non_null(j);
	assert_int_equal(dr_plan_read_offer(&s, j, &e), 0);
	json_decref(j);
	assert_int_equal(dr_plan_pair_nics(&s, r, rails(r, server, 4), false, &e), 0);
	s.n_gpus = c.n_gpus;
	memcpy(s.gpu, c.gpu, sizeof(s.gpu));
	j = dr_plan_reply(&s);
	assert_int_equal(dr_plan_read_reply(&c, j, &e), 0);
	json_decref(j);
	assert_int_equal(dr_plan_check(&c, &e), 0);
	assert_int_equal(dr_plan_check(&s, &e), 0);
	for (unsigned k = 0; k < 4; k++) {
		for (unsigned ch = 0; ch < dr_plan_n_channels(&c); ch++) {
			struct dr_plan_map a = dr_plan_paths(&c, k, ch);
			struct dr_plan_map b = dr_plan_paths(&s, k, ch);

			assert_memory_equal(&a, &b, sizeof(a));
		}
	}
	for (unsigned i = 0; i < 4; i++)
		assert_string_equal(
			c.rail[i][DR_PLAN_SERVER].address, s.rail[i][DR_PLAN_SERVER].address);
	assert_int_equal(s.seed, 77);
	dr_plan_manager(&s, DR_PLAN_SERVER, &m);
	assert_string_equal(s.transport, "tcp"); /* nobody said */
}

static void the_server_takes_the_clients_transport(void **state)
{
	struct dr_plan c, s;
	struct dr_err e;
	json_t *j;

	(void)state;
	make(&c, four, 2, 2);
	snprintf(c.transport, sizeof(c.transport), "verbs");
	*(struct dr_verbs_params *)&c.kind_params = (struct dr_verbs_params){
		.qps = 4, .mtu = 2048, .sl = 3, .tc = 106, .timeout = 20, .retry = 6
	};
	j = dr_plan_offer(&c);
	assert_int_equal(dr_plan_read_offer(&s, j, &e), 0);
	assert_string_equal(s.transport, "verbs");
	assert_memory_equal(&s.kind_params, &c.kind_params, sizeof(c.kind_params));
	json_object_set_new(json_object_get(j, "ib"), "qps", json_integer(5));
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	json_object_set_new(json_object_get(j, "ib"), "qps", json_integer(1));
	json_object_set_new(json_object_get(j, "ib"), "timeout", json_integer(32));
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	json_object_del(json_object_get(j, "ib"), "timeout");
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	assert_non_null(strstr(e.text, "ib.timeout: missing"));
	json_object_del(j, "ib");
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	json_object_del(j, "transport");
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	json_object_set_new(j, "transport", json_string("a name beyond measure"));
	assert_int_equal(dr_plan_read_offer(&s, j, &e), -EPROTO);
	json_decref(j);
}

/* Each key of an offer left out, and each given another type: refused, never more. */
static void a_bad_offer_is_an_error(void **state)
{
	struct dr_plan p, s;
	struct dr_err e;
	const char *key;
	json_t *good, *v;

	(void)state;
	make(&p, four, 2, 2);
	good = dr_plan_offer(&p);
	json_object_foreach(good, key, v)
	{
		json_t *bad = json_deep_copy(good);

		json_object_del(bad, key);
		assert_int_equal(dr_plan_read_offer(&s, bad, &e), -EPROTO);
		json_object_set_new(bad, key, json_real(0.5));
		assert_int_equal(dr_plan_read_offer(&s, bad, &e), -EPROTO);
		json_decref(bad);
	}
	json_object_set_new(good, "window", json_integer(100000));
	assert_int_equal(dr_plan_read_offer(&s, good, &e), -EPROTO);
	assert_non_null(strstr(e.text, "offer.window: 100000 is not an integer from 1 to "));
	json_object_set_new(good, "window", json_integer(1));
	json_object_set_new(good, "interval_ns", json_integer(1));
	assert_int_equal(dr_plan_read_offer(&s, good, &e), -EPROTO);
	json_object_set_new(good, "interval_ns", json_integer(0));
	json_object_set_new(good, "map", json_pack("[[i,i]]", 0, -1));
	assert_int_equal(dr_plan_read_offer(&s, good, &e), -EPROTO);
	assert_non_null(strstr(e.text, "offer.map"));
	json_object_set_new(good, "map", json_pack("[[i,i]]", -1, -1));
	assert_int_equal(dr_plan_read_offer(&s, good, &e), 0);
	assert_int_equal(s.map[0].primary, DR_PLAN_AUTO);
	json_decref(good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_automatic_map_is_even),
		cmocka_unit_test(channels_spread),
		cmocka_unit_test(each_rail_gets_its_channels),
		cmocka_unit_test(phases_that_nobody_takes_part_in),
		cmocka_unit_test(a_map_names_rails),
		cmocka_unit_test(rails_match_by_subnet_then_by_order),
		cmocka_unit_test(a_routed_rail_is_a_shadow_only),
		cmocka_unit_test(without_a_route_back_there_is_no_shadow),
		cmocka_unit_test(the_control_nic_helps_out),
		cmocka_unit_test(the_control_nic_is_a_rail_at_both_ends_or_none),
		cmocka_unit_test(rails_are_chosen_after_pairing),
		cmocka_unit_test(bad_routes_are_an_error),
		cmocka_unit_test(both_ends_come_to_the_same_plan),
		cmocka_unit_test(the_server_takes_the_clients_transport),
		cmocka_unit_test(a_bad_offer_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
