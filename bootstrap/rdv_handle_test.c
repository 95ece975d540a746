/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "bootstrap/rdv_route.h"

#include <errno.h>
#include <netinet/in.h>

/* Handles, and the ways that lead to their addresses. */

static struct dr_rdv_addr address(const char *text, uint8_t prefix)
{
	struct dr_rdv_addr a = { .prefix = prefix };
	assert_int_equal(dr_addr_parse(text, &a.addr), 0);
	return a;
}

static struct dr_rdv_handle some_handle(void)
{
	struct dr_rdv_handle h = {
		.flags = 7, .port = 4711, .process = 0x0102030405060708, .listen = 99
	};
	memset(h.key, 0x5a, sizeof(h.key));
	return h;
}

static void add(struct dr_rdv_handle *h, const char *text, uint8_t prefix, uint8_t nic)
{
	h->addrs[h->n] = address(text, prefix);
	h->addrs[h->n].nic = nic;
	h->n++;
}

static void check_decoded(const struct dr_rdv_handle *want, unsigned n, const uint8_t *bytes)
{
	struct dr_rdv_handle got;
	struct dr_err e = { 0 };
	if (dr_rdv_handle_decode(bytes, &got, &e))
		fail_msg("%s", e.text);
	assert_int_equal(got.flags, want->flags);
	assert_int_equal(got.port, want->port);
	assert_int_equal(got.process, want->process);
	assert_int_equal(got.listen, want->listen);
	assert_memory_equal(got.key, want->key, sizeof(got.key));
	assert_int_equal(got.n, n);
	for (unsigned i = 0; i < n; i++) {
		struct dr_addr a = want->addrs[i].addr;
		dr_sa_set_port(&a.ss, want->port);
		assert_int_equal(got.addrs[i].nic, want->addrs[i].nic);
		assert_int_equal(got.addrs[i].prefix, want->addrs[i].prefix);
		assert_int_equal(got.addrs[i].addr.len, a.len);
		assert_memory_equal(&got.addrs[i].addr.ss, &a.ss, a.len);
	}
}

static void handles_hold_addresses(void **state)
{
	(void)state;
	uint8_t bytes[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_handle four = some_handle(), six = some_handle(), mixed = some_handle();
	add(&four, "10.1.0.1", 24, 0);
	add(&four, "10.2.0.1", 31, 1);
	add(&four, "10.3.0.1", 0, 2);
	add(&four, "10.4.0.1", 32, 3);
	add(&four, "10.5.0.1", 8, 4);
	add(&four, "223.255.255.255", 9, 255);
	assert_int_equal(dr_rdv_handle_encode(&four, bytes), 6);
	check_decoded(&four, 6, bytes);
	for (unsigned i = 0; i < 6; i++)
		add(&six, "2001:db8::1", (uint8_t)(128 - i), (uint8_t)i);
	assert_int_equal(dr_rdv_handle_encode(&six, bytes), 4);
	check_decoded(&six, 4, bytes);
	add(&mixed, "10.1.0.1", 24, 0);
	add(&mixed, "fe80::1", 64, 1);
	add(&mixed, "10.2.0.1", 24, 2);
	assert_int_equal(dr_rdv_handle_encode(&mixed, bytes), 3);
	check_decoded(&mixed, 3, bytes);
}

static void handles_that_lead_nowhere(void **state)
{
	(void)state;
	uint8_t good[DR_RDV_HANDLE_BYTES], bytes[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_handle h = some_handle(), got;
	struct dr_err e;
	assert_int_equal(dr_rdv_handle_encode(&h, bytes), -EINVAL);
	add(&h, "0.0.0.0", 8, 0);
	add(&h, "::", 8, 0);
	add(&h, "224.0.0.1", 8, 0);
	add(&h, "ff02::1", 8, 0);
	assert_int_equal(dr_rdv_handle_encode(&h, bytes), -EINVAL);
	h.n = 0;
	add(&h, "10.1.0.1", 33, 0);
	assert_int_equal(dr_rdv_handle_encode(&h, bytes), -EINVAL);
	h.n = 0;
	add(&h, "10.1.0.1", 24, 0);
	assert_int_equal(dr_rdv_handle_encode(&h, good), 1);
	/* byte, value, words */
	static const struct {
		unsigned at, value;
		const char *text;
	} row[] = {
		{ 0, 'X', "not one of this plugin" },
		{ 4, 2, "version 2" },
		{ 40, 0, "0 addresses" },
		{ 40, 2, "address 2 of 2" },
		{ 40, 7, "7 addresses" },
		{ 41, 5, "address 1 of 1" },
		{ 42, 33, "address 1 of 1" },
		{ 44, 224, "address 1 of 1" },
		{ 48, 1, "bytes after" },
		{ 127, 1, "bytes after" },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		memcpy(bytes, good, sizeof(bytes));
		bytes[row[i].at] = (uint8_t)row[i].value;
		assert_int_equal(dr_rdv_handle_decode(bytes, &got, &e), -EPROTO);
		if (!strstr(e.text, row[i].text))
			fail_msg("\"%s\" lacks \"%s\"", e.text, row[i].text);
	}
	memcpy(bytes, good, sizeof(bytes));
	bytes[6] = bytes[7] = 0;
	assert_int_equal(dr_rdv_handle_decode(bytes, &got, &e), -EPROTO);
	assert_non_null(strstr(e.text, "port 0"));
}

/* ---- routes ------------------------------------------------------------------------------- */

static void check_routes(const struct dr_rdv_handle *h, const struct dr_rdv_addr *local, unsigned n,
	const char *const *want)
{
	struct dr_rdv_route r[DR_RDV_ROUTES_MAX];
	unsigned got = dr_rdv_routes(h, local, n, r), i;
	for (i = 0; i < got && want[i]; i++) {
		char to[DR_ADDR_TEXT], from[DR_ADDR_TEXT] = "-", both[2 * DR_ADDR_TEXT + 2];
		dr_addr_format(&r[i].to, to, sizeof(to));
		if (r[i].from)
			dr_addr_format(&r[i].from->addr, from, sizeof(from));
		snprintf(both, sizeof(both), "%s>%s", from, to);
		assert_string_equal(both, want[i]);
	}
	assert_int_equal(i, got);
	assert_null(want[i]);
}

static void routes_prefer_the_device(void **state)
{
	(void)state;
	struct dr_rdv_handle h = { .n = 0 };
	struct dr_rdv_addr local[3] = { address("10.2.0.9", 24), address("10.1.0.9", 24),
		address("10.3.0.9", 24) };
	add(&h, "10.1.0.1", 24, 0);
	add(&h, "10.2.0.1", 24, 1);
	add(&h, "10.2.0.2", 24, 1);
	add(&h, "192.0.2.1", 24, 2);
	check_routes(&h, local, 3,
		(const char *[]){ "10.2.0.9>10.2.0.1", "10.2.0.9>10.2.0.2", "10.1.0.9>10.1.0.1",
			"->10.1.0.1", "->10.2.0.1", "->10.2.0.2", "->192.0.2.1", NULL });
	check_routes(&h, NULL, 0,
		(const char *[]){ "->10.1.0.1", "->10.2.0.1", "->10.2.0.2", "->192.0.2.1", NULL });
}

static void routes_compare_subnets(void **state)
{
	(void)state;
	static const struct {
		const char *local, *remote;
		uint8_t a, b;
		bool shared;
	} row[] = {
		{ "10.0.0.0", "10.0.0.1", 31, 31, true },
		{ "10.0.0.1", "10.0.0.2", 31, 31, false },
		{ "10.0.0.1", "10.0.0.2", 30, 31, false },
		{ "10.0.0.1", "10.0.0.1", 24, 24,
			false }, /* both hosts have it, or it is this one */
		{ "10.0.0.1", "10.0.0.2", 32, 32, false },
		{ "10.0.0.1", "192.0.2.1", 0, 0, true },
		{ "2001:db8::1", "2001:db8::2", 64, 64, true },
		{ "2001:db8:0:1::1", "2001:db8::2", 64, 64, false },
		{ "2001:db8:0:1::1", "2001:db8::2", 63, 63, true },
		{ "2001:db8::1", "10.0.0.1", 0, 0, false },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		struct dr_rdv_handle h = { .n = 0 };
		struct dr_rdv_route r[DR_RDV_ROUTES_MAX];
		struct dr_rdv_addr local = address(row[i].local, row[i].a);
		add(&h, row[i].remote, row[i].b, 0);
		assert_int_equal(dr_rdv_routes(&h, &local, 1, r), row[i].shared ? 2 : 1);
		assert_ptr_equal(r[0].from, row[i].shared ? &local : NULL);
	}
}

/* Such an address names an interface of this host; without one there is no way. */
static void routes_over_link_local_addresses(void **state)
{
	(void)state;
	struct dr_rdv_handle h = { .n = 0 };
	struct dr_rdv_route r[DR_RDV_ROUTES_MAX];
	struct dr_rdv_addr local = address("fe80::9", 64);
	snprintf(local.device, sizeof(local.device), "lo");
	add(&h, "fe80::1", 64, 0);
	assert_int_equal(dr_rdv_routes(&h, &local, 1, r), 1);
	assert_int_equal(((struct sockaddr_in6 *)&r[0].to.ss)->sin6_scope_id, if_nametoindex("lo"));
	assert_int_equal(dr_rdv_routes(&h, NULL, 0, r), 0);
}

static void routes_of_many_addresses(void **state)
{
	(void)state;
	struct dr_rdv_handle h = { .n = 0 };
	struct dr_rdv_route r[DR_RDV_ROUTES_MAX];
	struct dr_rdv_addr local[DR_RDV_ADDRS_MAX];
	for (unsigned i = 0; i < DR_RDV_ADDRS_MAX; i++)
		local[i] = address("10.0.0.9", 8);
	for (unsigned i = 0; i < DR_RDV_HANDLE_ADDRS_MAX; i++)
		add(&h, "10.0.0.1", 8, 0);
	assert_int_equal(dr_rdv_routes(&h, local, DR_RDV_ADDRS_MAX, r), DR_RDV_ROUTES_MAX);
	assert_ptr_equal(r[0].from, &local[0]);
	/* Another NIC at one of the ends is next. */
	assert_ptr_equal(r[1].from, &local[0]);
	assert_ptr_equal(r[2].from, &local[1]);
	assert_null(r[DR_RDV_ROUTES_MAX - 1].from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handles_hold_addresses),
		cmocka_unit_test(handles_that_lead_nowhere),
		cmocka_unit_test(routes_prefer_the_device),
		cmocka_unit_test(routes_compare_subnets),
		cmocka_unit_test(routes_over_link_local_addresses),
		cmocka_unit_test(routes_of_many_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
