/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options.h"
#include "orchestrator/plan/plan.h"

#include "topology/addr.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/verbs/hello.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct dr_options opt;
static struct dr_err err;

static void parse(unsigned command, const char *line)
{
	static char copy[128];
	char *argv[8], *save = NULL;
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	memset(&opt, 0, sizeof(opt));
	if (dr_options_parse(&opt, command, argc, argv, &err))
		fail_msg("%s", err.text);
}

static void the_server_follows(void **state)
{
	struct dr_plan p = { .transport = "verbs" };
	struct dr_verbs_params *v = (struct dr_verbs_params *)&p.kind_params;

	(void)state;
	/* What the client decides stays, what each end has for itself comes from the options. */
	*v = (struct dr_verbs_params){ .qps = 3, .mtu = 512, .timeout = 18, .retry = 2 };
	parse(DR_CMDBIT_SERVER, "x --gid 5 --register lazy");
	assert_int_equal(dr_plan_follow_transport(&p, &opt, &err), 0);
	assert_int_equal(v->qps, 3);
	assert_int_equal(v->mtu, 512);
	assert_int_equal(v->timeout, 18);
	assert_int_equal(v->retry, 2);
	assert_int_equal(v->gid_index, 5);
	assert_true(v->lazy_mr);
	dr_options_fini(&opt);
	parse(DR_CMDBIT_SERVER, "x");
	snprintf(p.transport, sizeof(p.transport), "rdma");
	assert_int_equal(dr_plan_follow_transport(&p, &opt, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "built: tcp, verbs"));
	dr_options_fini(&opt);
	parse(DR_CMDBIT_SERVER, "x --transport verbs");
	snprintf(p.transport, sizeof(p.transport), "tcp");
	assert_int_equal(dr_plan_follow_transport(&p, &opt, &err), -EPROTO);
	assert_non_null(strstr(err.text, "client tcp, server verbs"));
	dr_options_fini(&opt);
}

static void the_manager_gets_the_nics_window(void **state)
{
	struct dr_manager_params m = { .n_rails = 0 };
	struct dr_plan p = { .detect = DR_DETECT_CONSERVATIVE };
	const struct dr_transport_kind *k;

	(void)state;
	parse(DR_CMDBIT_CLIENT, "x h --transport verbs");
	dr_plan_set_transport(&p, &opt);
	k = dr_plan_kind(&p);
	dr_plan_manager(&p, DR_PLAN_CLIENT, &m);
	assert_string_equal(m.transport->name, "verbs");
	assert_ptr_equal(m.kind_params, &p.kind_params);
	assert_int_equal(m.hw_window_ns, 8 * (4096ll << 14));
	assert_int_equal(m.hw_retry_ns, 4096ll << 14);
	assert_non_null(strstr(k->warning(&p.kind_params, true), "rxe"));
	assert_null(k->warning(&p.kind_params, false));
	((struct dr_verbs_params *)&p.kind_params)->retry = 6;
	assert_null(k->warning(&p.kind_params, true));
	snprintf(p.transport, sizeof(p.transport), "tcp");
	dr_plan_manager(&p, DR_PLAN_CLIENT, &m);
	assert_string_equal(m.transport->name, "tcp");
	assert_int_equal(m.hw_window_ns, 0);
	assert_int_equal(m.hw_retry_ns, 0);
	assert_ptr_equal(m.kind_params, &p.kind_params);
	dr_options_fini(&opt);
}

static void handles_name_hosts_of_the_plan(void **state)
{
	struct dr_plan p = { .transport = "tcp", .n_rails = 2 };
	struct dr_handle h[2] = { 0 };
	static const char *const host[2] = { "10.0.0.1", "2001:db8::1" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct tcp_rail_handle w = { .tcp_port = 7, .udp_port = 8 };
		struct dr_plan_rail *r = &p.rail[i][DR_PLAN_CLIENT];

		snprintf(r->name, sizeof(r->name), "eth%u", i);
		snprintf(r->address, sizeof(r->address), "%s", host[i]);
		assert_int_equal(dr_netdev_addr_parse(host[i], &r->addr), 0);
		w.family = r->addr.ss_family;
		assert_int_equal(inet_pton(w.family, host[i], w.addr), 1);
		h[i].len = (uint8_t)dr_tcp_rail_handle_encode(&w, h[i].bytes, sizeof(h[i].bytes));
	}
	assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), 0);
	h[1].bytes[h[1].len - 1] ^= 2;
	assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), -EPROTO);
	assert_non_null(strstr(err.text,
		"rail 1: the peer's handle names 2001:db8::3, but its NIC eth1 has 2001:db8::1"));
	h[1].len--; /* no handle: its rail says so */
	assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), 0);
	snprintf(p.transport, sizeof(p.transport), "verbs");
	assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), 0);
}

/* A GID is the NIC's address only where nobody chose another one: with a key, and --gid at this end, it may be another. */
static void a_verbs_peer_is_held_to_its_nic(void **state)
{
	static const char *const host[2] = { "10.0.0.1", "2001:db8::1" };
	struct dr_plan p = { .transport = "verbs", .n_rails = 2 };
	struct dr_verbs_addr a[2] = { { .roce = true, .mtu = 1024, .ud_qpn = 7 },
		{ .roce = true, .mtu = 1024, .ud_qpn = 7 } };
	struct dr_handle h[2] = { 0 };

	(void)state;
	struct dr_verbs_params *own = (struct dr_verbs_params *)&p.kind_params;
	a[0].gid[10] = a[0].gid[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, host[0], a[0].gid + 12), 1);
	assert_int_equal(inet_pton(AF_INET6, host[1], a[1].gid), 1);
	for (unsigned i = 0; i < 2; i++) {
		struct dr_plan_rail *r = &p.rail[i][DR_PLAN_CLIENT];

		snprintf(r->name, sizeof(r->name), "eth%u", i);
		snprintf(r->address, sizeof(r->address), "%s", host[i]);
		assert_int_equal(dr_netdev_addr_parse(host[i], &r->addr), 0);
	}
	for (unsigned other = 0; other < 6; other++) {
		unsigned i = other % 2;

		own->gid_index = other < 2 || other >= 4 ? 3 : -1;
		own->distrusts = other >= 4;
		for (unsigned k = 0; k < 2; k++)
			h[k].len = (uint8_t)dr_verbs_addr_encode(
				&a[k], h[k].bytes, sizeof(h[k].bytes));
		assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), 0);
		a[i].gid[15] ^= 2;
		h[i].len = (uint8_t)dr_verbs_addr_encode(&a[i], h[i].bytes, sizeof(h[i].bytes));
		assert_int_equal(
			dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), other < 2 ? 0 : -EPROTO);
		a[i].gid[15] ^= 2;
	}
	own->distrusts = false;
	dr_plan_distrust(&p);
	assert_true(own->distrusts);
	assert_non_null(strstr(err.text,
		"rail 1: the peer's handle names 2001:db8::3, but its NIC eth1 has 2001:db8::1; leave "
		"--gid out, or give it and --key-file to both ends"));
	a[0] = (struct dr_verbs_addr){ .lid = 3, .mtu = 1024, .ud_qpn = 7 }; /* InfiniBand */
	h[0].len = (uint8_t)dr_verbs_addr_encode(&a[0], h[0].bytes, sizeof(h[0].bytes));
	h[1].len = (uint8_t)dr_verbs_addr_encode(&a[1], h[1].bytes, sizeof(h[1].bytes));
	assert_int_equal(dr_plan_check_hosts(&p, DR_PLAN_SERVER, h, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_server_follows),
		cmocka_unit_test(the_manager_gets_the_nics_window),
		cmocka_unit_test(handles_name_hosts_of_the_plan),
		cmocka_unit_test(a_verbs_peer_is_held_to_its_nic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
