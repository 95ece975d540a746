/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/locality.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Machines as letters: a row per GPU, a column per NIC. */
static uint8_t distance(char c)
{
	switch (c) {
	case 's':
		return DR_DISTANCE(DR_LOCALITY_SWITCH, 2u);
	case 'S':
		return DR_DISTANCE(DR_LOCALITY_SWITCH, 4u);
	case 'r':
		return DR_DISTANCE(DR_LOCALITY_ROOT, 0u);
	case 'n':
		return DR_DISTANCE(DR_LOCALITY_NODE, 0u);
	case 'x':
		return DR_DISTANCE(DR_LOCALITY_SYSTEM, 0u);
	default:
		return DR_DISTANCE_UNKNOWN;
	}
}

/* port, card, branch: a digit per NIC. */
static void make(struct dr_locality *l, const char *const *rows, const char *port, const char *card,
	const char *branch)
{
	memset(l, 0, sizeof(*l));
	l->n_nics = (unsigned)strlen(port);
	for (; rows[l->n_gpus]; l->n_gpus++) {
		l->gpu[l->n_gpus].order = (uint16_t)l->n_gpus;
		for (unsigned r = 0; r < l->n_nics; r++)
			l->gpu[l->n_gpus].distance[r] = distance(rows[l->n_gpus][r]);
	}
	for (unsigned r = 0; r < l->n_nics; r++)
		l->nic[r] = (struct dr_locality_nic){ (uint16_t)r, (uint16_t)(port[r] - '0'),
			(uint16_t)(card[r] - '0'), (uint16_t)(branch[r] - '0'), false };
}

/* "01" is primary 0, shadow 1; several pairs in one word. */
static void expect(const struct dr_locality *a, const struct dr_locality *b, const char *want)
{
	struct dr_locality_choice c[DR_LOCALITY_GPUS_MAX];
	char got[256] = "";
	size_t at = 0;

	assert_true(dr_locality_choose(a, b, a->n_gpus, a->n_nics, c));
	for (unsigned k = 0; k < a->n_gpus; k++) {
		for (unsigned i = 0; i < c[k].n; i++)
			at += (size_t)snprintf(got + at, sizeof(got) - at, "%u%u",
				c[k].pair[i].primary, c[k].pair[i].shadow);
		at += (size_t)snprintf(got + at, sizeof(got) - at, " ");
	}
	assert_string_equal(got, want);
}

static void a_switch_shares_its_nics(void **state)
{
	static const char *const rows[] = { "ssnn", "ssnn", "nnss", "nnss", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "1234", "1234", "1122");
	expect(&l, NULL, "02 13 20 31 ");
	/* Without the switches' names a shadow may be the neighbour. */
	make(&l, rows, "1234", "1234", "0000");
	expect(&l, NULL, "01 10 23 32 ");
}

static void more_nics_than_gpus(void **state)
{
	static const char *const one[] = { "nnnn", NULL };
	static const char *const two[] = { "nnnn", "nnnn", NULL };
	static const char *const three[] = { "nnnn", "nnnn", "nnnn", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, one, "1234", "1234", "0000");
	expect(&l, NULL, "01102332 ");
	make(&l, two, "1234", "1234", "0000");
	expect(&l, NULL, "0110 2332 ");
	make(&l, three, "1234", "1234", "0000");
	expect(&l, NULL, "01 10 2332 ");
}

static void nearer_by_bridges(void **state)
{
	static const char *const rows[] = { "sS", "Ss", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "12", "12", "11");
	expect(&l, NULL, "01 10 ");
}

static void a_port_is_never_its_own_shadow(void **state)
{
	static const char *const rows[] = { "nnx", "nnx", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "112", "112", "000");
	expect(&l, NULL, "02 12 ");
	make(&l, rows, "111", "111", "000");
	expect(&l, NULL, "00 11 ");
	/* Another card before the other port of this one, but not at any distance. */
	make(&l, (const char *const[]){ "nnn", NULL }, "123", "112", "000");
	expect(&l, NULL, "021221 ");
	make(&l, (const char *const[]){ "nnx", NULL }, "123", "112", "000");
	expect(&l, NULL, "0110 ");
}

static void shadows_share_the_load(void **state)
{
	static const char *const rows[] = { "snnn", "snnn", "snnn", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "1234", "1234", "1234");
	expect(&l, NULL, "01 02 03 ");
}

/* The server sees its NIC 0 far away and its NICs 0 and 1 on one port: that counts as well. */
static void both_ends_count(void **state)
{
	static const char *const client[] = { "nnn", NULL };
	static const char *const server[] = { "xnn", NULL };
	static const char *const nothing[] = { "???", NULL };
	struct dr_locality a, b;

	(void)state;
	make(&a, client, "123", "123", "000");
	make(&b, server, "113", "113", "000");
	expect(&a, NULL, "011021 ");
	expect(&a, &b, "1221 ");
	make(&b, nothing, "123", "123", "000");
	expect(&a, &b, "011021 ");
}

static void nothing_known_is_no_map(void **state)
{
	static const char *const rows[] = { "??", "??", NULL };
	static const char *const some[] = { "??", "n?", NULL };
	struct dr_locality_choice c[2];
	struct dr_locality l;

	(void)state;
	make(&l, rows, "12", "12", "00");
	assert_false(dr_locality_choose(&l, NULL, 2, 2, c));
	assert_false(dr_locality_choose(NULL, NULL, 2, 2, c));
	make(&l, some, "12", "12", "00");
	expect(&l, NULL, "0110 01 ");
}

static void rails_left_out_are_renumbered(void **state)
{
	static const char *const rows[] = { "ssnn", "nnss", NULL };
	static const uint8_t keep[] = { 3, 1 };
	struct dr_locality l, got;

	(void)state;
	make(&l, rows, "1234", "1234", "1122");
	dr_locality_select(&l, keep, 2, &got);
	expect(&got, NULL, "10 01 ");
	assert_int_equal(got.nic[0].port, 4);
}

static void numbers_of_the_input_mean_nothing(void **state)
{
	static const char *const rows[] = { "nn", "nn", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "12", "12", "00");
	expect(&l, NULL, "01 10 ");
	l.gpu[0].order = 7;
	expect(&l, NULL, "10 01 ");
	l.nic[0].order = 9;
	expect(&l, NULL, "01 10 ");
}

static void a_spare_is_a_shadow_only(void **state)
{
	static const char *const rows[] = { "snn", "snn", NULL };
	struct dr_locality l;

	(void)state;
	make(&l, rows, "123", "123", "000");
	l.nic[0].spare = true;
	expect(&l, NULL, "12 21 ");
	l.nic[2].spare = true;
	expect(&l, NULL, "10 10 ");
	l.nic[1].spare = true;
	expect(&l, NULL, "01 02 ");
}

static void json_and_back(void **state)
{
	static const char *const rows[] = { "sn?", "xsr", NULL };
	struct dr_locality l, back;
	json_t *j;

	(void)state;
	make(&l, rows, "123", "112", "010");
	l.gpu[0].order = 7;
	j = dr_locality_to_json(&l);
	memset(&back, 0xee, sizeof(back));
	assert_int_equal(dr_locality_from_json(&back, j, NULL), 0);
	assert_memory_equal(&back, &l, sizeof(l));
	json_decref(j);
}

static void distances_that_make_no_sense_are_refused(void **state)
{
	static const char *const bad[] = { "{\"gpus\":[[0,1,2]],\"nics\":[[0,0,0,0]]}",
		"{\"gpus\":[[0,65]],\"nics\":[[0,0,0,0]]}",
		"{\"gpus\":[[-1,1]],\"nics\":[[0,0,0,0]]}",
		"{\"gpus\":[[0,1]],\"nics\":[[0,0,65536,0]]}",
		"{\"gpus\":[7],\"nics\":[[0,0,0,0]]}", "{\"gpus\":[[0,1]],\"nics\":[7]}" };
	struct dr_locality l;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *j = json_loads(bad[i], 0, NULL);

		assert_non_null(j);
		assert_int_equal(dr_locality_from_json(&l, j, &e), -EPROTO);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_switch_shares_its_nics),
		cmocka_unit_test(more_nics_than_gpus),
		cmocka_unit_test(nearer_by_bridges),
		cmocka_unit_test(a_port_is_never_its_own_shadow),
		cmocka_unit_test(shadows_share_the_load),
		cmocka_unit_test(both_ends_count),
		cmocka_unit_test(nothing_known_is_no_map),
		cmocka_unit_test(rails_left_out_are_renumbered),
		cmocka_unit_test(numbers_of_the_input_mean_nothing),
		cmocka_unit_test(a_spare_is_a_shadow_only),
		cmocka_unit_test(json_and_back),
		cmocka_unit_test(distances_that_make_no_sense_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
