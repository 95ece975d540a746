/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/offer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct dr_rdv_addr nic(const char *text, unsigned prefix, unsigned number)
{
	struct dr_rdv_addr a = { .prefix = (uint8_t)prefix, .nic = (uint8_t)number };

	assert_int_equal(dr_addr_parse(text, &a.addr), 0);
	snprintf(a.device, sizeof(a.device), "eth%u", number);
	return a;
}

static struct dr_rdv_addr own_nics[3];

static struct ha_offer offer(void)
{
	struct ha_offer o = { .process = 0x1edcba98765432,
		.session = 7,
		.opens = true,
		.comm = 0xfffffffe,
		.threads = 3,
		.lanes = 2,
		.chunk = 262144,
		.eager = 4096,
		.name = "eth0",
		.transport = "verbs" };

	own_nics[0] = nic("10.0.0.1", 24, 0);
	own_nics[1] = nic("10.0.1.1", 24, 1);
	own_nics[2] = nic("fd00::1", 64, 1);
	ha_offer_nics(&o, own_nics, 3);
	return o;
}

static int choose(const struct ha_offer *o, const char *const *own, unsigned n, bool backup,
	struct ha_answer *p)
{
	struct dr_rdv_addr mine[8];

	for (unsigned i = 0; i < n; i++)
		mine[i] = nic(own[i], 24, i);
	return ha_answer_choose(o, mine, n, backup, p, NULL);
}

static void offer_survives_the_wire(void **state)
{
	struct ha_offer in = offer(), out;
	json_t *j = ha_offer_to_json(&in);

	(void)state;
	assert_int_equal(ha_offer_from_json(j, &out, NULL), 0);
	json_decref(j);
	assert_true(out.process == in.process && out.session == 7 && out.opens);
	assert_true(out.comm == in.comm);
	assert_int_equal(out.threads, 3);
	assert_int_equal(out.lanes, 2);
	assert_int_equal(out.chunk, 262144);
	assert_int_equal(out.eager, 4096);
	assert_string_equal(out.name, "eth0");
	assert_string_equal(out.transport, "verbs");
	assert_int_equal(out.n_nics, 3);
	assert_memory_equal(out.nic, in.nic, 3 * sizeof(in.nic[0]));
}

static void malformed_offers_are_refused(void **state)
{
	static const struct {
		const char *key, *value; /* JSON; NULL: the key is missing */
	} bad[] = {
		{ "process", "\"12\"" },
		{ "process", "-1" },
		{ "process", "9007199254740993" },
		{ "session", NULL },
		{ "opens", "1" },
		{ "comm", "-1" },
		{ "comm", "4294967296" },
		{ "threads", "0" },
		{ "threads", "33" },
		{ "lanes", "65" },
		{ "chunk", "0" },
		{ "chunk", "2000000000" },
		{ "eager", "-1" },
		{ "device", "5" },
		{ "nics", "[]" },
		{ "nics", "[[\"10.0.0/24\", 0, 0]]" },
		{ "nics", "[[\"10.0.0.1/33\", 0, 0]]" },
		{ "nics", "[[\"10.0.0.1/24\", 256, 0]]" },
		{ "nics", "[[\"10.0.0.1/24\", 0, 4]]" },
		{ "nics", "[[\"10.0.0.1/24\", 0, -1]]" },
		{ "nics", "[[\"10.0.0.1/24\", 0]]" },
		{ "nics", "[5]" },
	};
	struct ha_offer in = offer(), out;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *j = ha_offer_to_json(&in);

		if (bad[i].value)
			json_object_set_new(
				j, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
		else
			json_object_del(j, bad[i].key);
		if (ha_offer_from_json(j, &out, NULL) != -EPROTO)
			fail_msg("%s %s was accepted", bad[i].key, bad[i].value);
		json_decref(j);
	}
}

static void rails_join_nics_of_one_subnet(void **state)
{
	static const char *const own[] = { "10.0.1.2", "10.0.0.2" };
	struct ha_offer o = offer();
	struct ha_answer p;

	(void)state;
	assert_int_equal(choose(&o, own, 2, true, &p), 0);
	assert_int_equal(p.n_rails, 2);
	assert_int_equal(p.peer_nic[0], 0); /* the dialling end's device comes first */
	assert_int_equal(p.rail[0].nic, 1);
	assert_int_equal(p.peer_nic[1], 1);
	assert_int_equal(p.rail[1].nic, 0);
	assert_int_equal(choose(&o, own, 2, false, &p), 0);
	assert_int_equal(p.n_rails, 1);
}

/* In a mesh NCCL may connect to a host with the NIC that leads to another one. */
static void rail_without_a_router_comes_first(void **state)
{
	static const char *const own[] = { "10.0.2.2", "10.0.3.2" };
	struct ha_offer o = offer();
	struct ha_answer p;

	(void)state;
	own_nics[1] = nic("10.0.2.1", 24, 1); /* the cable to this host */
	ha_offer_nics(&o, own_nics, 2);
	o.n_nics = 2;
	assert_int_equal(choose(&o, own, 2, true, &p), 0);
	assert_int_equal(p.n_rails, 2);
	assert_int_equal(p.peer_nic[0], 1);
	assert_int_equal(p.rail[0].nic, 0);
	assert_int_equal(p.peer_nic[1], 0);
	assert_int_equal(p.rail[1].nic, 1);
}

/* Two addresses of one NIC are no second rail: it would fail with the first. */
static void rails_are_on_different_nics(void **state)
{
	struct dr_rdv_addr own[] = { nic("10.0.0.2", 24, 0), nic("10.0.1.2", 24, 0) };
	struct ha_offer o = offer();
	struct ha_answer p;

	(void)state;
	assert_int_equal(ha_answer_choose(&o, own, 2, true, &p, NULL), 0);
	assert_int_equal(p.n_rails, 1);
	own[1].nic = 1;
	assert_int_equal(ha_answer_choose(&o, own, 2, true, &p, NULL), 0);
	assert_int_equal(p.n_rails, 2);
	o.nic[1].nic = 0;
	assert_int_equal(ha_answer_choose(&o, own, 2, true, &p, NULL), 0);
	assert_int_equal(p.n_rails, 1);
}

static void plan_survives_the_wire(void **state)
{
	static const char *const own[] = { "10.0.0.2", "10.0.1.2" };
	struct ha_offer o = offer();
	struct ha_answer in, out;
	json_t *j;

	(void)state;
	assert_int_equal(choose(&o, own, 2, true, &in), 0);
	in.threads = 2;
	in.lanes = 1;
	in.chunk = 1000;
	in.eager = 0;
	j = ha_answer_to_json(&in);
	assert_int_equal(ha_answer_from_json(j, &o, own_nics, &out, NULL), 0);
	assert_int_equal(out.n_rails, 2);
	assert_string_equal(out.rail[0].device, "eth0");
	assert_string_equal(out.rail[1].device, "eth1");
	assert_int_equal(out.threads, 2);
	assert_int_equal(out.eager, 0);
	o.n_nics = 1; /* NIC 1 is not there */
	assert_int_equal(ha_answer_from_json(j, &o, own_nics, &out, NULL), -EPROTO);
	o.n_nics = 3;
	json_object_set_new(j, "rails", json_array());
	assert_int_equal(ha_answer_from_json(j, &o, own_nics, &out, NULL), -EPROTO);
	json_decref(j);
}

/* Slots of a comm have the bytes of small messages: a peer does not choose how many. */
static void answers_do_not_exceed_the_offer(void **state)
{
	static const char *const own[] = { "10.0.0.2", "10.0.1.2" };
	struct ha_offer o = offer();
	struct ha_answer in, out;

	(void)state;
	assert_int_equal(choose(&o, own, 2, true, &in), 0);
	for (unsigned i = 0; i <= 4; i++) {
		in.threads = o.threads + (i == 1);
		in.lanes = o.lanes + (i == 2);
		in.chunk = o.chunk + (i == 3);
		in.eager = o.eager + (i == 4);
		json_t *j = ha_answer_to_json(&in);

		assert_int_equal(ha_answer_from_json(j, &o, own_nics, &out, NULL), i ? -EPROTO : 0);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offer_survives_the_wire),
		cmocka_unit_test(malformed_offers_are_refused),
		cmocka_unit_test(rails_join_nics_of_one_subnet),
		cmocka_unit_test(rail_without_a_router_comes_first),
		cmocka_unit_test(rails_are_on_different_nics),
		cmocka_unit_test(plan_survives_the_wire),
		cmocka_unit_test(answers_do_not_exceed_the_offer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
