/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/kinds.h"

#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* No library of that name: what needs one says so, everything else works without. */
static int set_up(void **state)
{
	(void)state;
	return setenv("DR_IBVERBS", "libnone-of-this-name.so.1", 1);
}

static struct dr_options opt;
static struct dr_err err;

static int parse(unsigned command, const char *line)
{
	static char copy[512];
	char *argv[32] = { copy }, *save = NULL;
	int argc = 0;

	snprintf(copy, sizeof(copy), "x %s", line);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	memset(&opt, 0, sizeof(opt));
	memset(&err, 0, sizeof(err));
	return dr_options_parse(&opt, command, argc, argv, &err);
}

static void expect(unsigned command, const char *line, int rc, const char *says)
{
	int got = parse(command, line);

	if (got != rc || !strstr(err.text, says))
		fail_msg("%s: %d (%s), not %d (%s)", line, got, err.text, rc, says);
	dr_options_fini(&opt);
}

static void options_of_another_kind(void **state)
{
	static const char *const own[] = { "--qps 2", "--gid 1", "--mtu 1024", "--sl 1", "--tc 4",
		"--ib-timeout 10", "--ib-retry 3", "--register lazy" };
	char line[128];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(own); i++) {
		snprintf(line, sizeof(line), "h %s", own[i]);
		expect(DR_CMDBIT_CLIENT, line, -EINVAL, "--transport verbs");
		snprintf(line, sizeof(line), "h --transport tcp %s", own[i]);
		expect(DR_CMDBIT_CLIENT, line, -EINVAL, "means nothing with --transport tcp");
		snprintf(line, sizeof(line), "h --transport verbs %s", own[i]);
		expect(DR_CMDBIT_CLIENT, line, 0, "");
	}
	/* A server that follows its client may need it; one that was told tcp does not. */
	expect(DR_CMDBIT_SERVER, "--gid 1", 0, "");
	expect(DR_CMDBIT_SERVER, "--gid 1 --transport tcp", -EINVAL, "--gid");
	/* Variables are set for other programs too. */
	setenv("NCCL_IB_GID_INDEX", "3", 1);
	expect(DR_CMDBIT_CLIENT, "h", 0, "");
	unsetenv("NCCL_IB_GID_INDEX");
	expect(DR_CMDBIT_CLIENT, "h --transport verbs --detect conservative --ib-timeout 0",
		-EINVAL, "never gives up");
}

static void values(void **state)
{
	struct dr_plan p = { .n_gpus = 0 };

	(void)state;
	setenv("NCCL_IB_GID_INDEX", "-1", 1);
	setenv("NCCL_IB_TIMEOUT", "20", 1);
	setenv("NCCL_IB_RETRY_CNT", "5", 1);
	setenv("NCCL_IB_SL", "2", 1);
	setenv("NCCL_IB_TC", "106", 1);
	setenv("NCCL_IB_QPS_PER_CONNECTION", "4", 1);
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --transport verbs --mtu 4096 --ib-retry 6"), 0);
	assert_int_equal(opt.gid, -1);
	dr_kind_plan(&opt, &p);
	assert_string_equal(p.transport, "verbs");
	assert_int_equal(p.ib.timeout, 20);
	assert_int_equal(p.ib.retry, 6);
	assert_int_equal(p.ib.sl, 2);
	assert_int_equal(p.ib.tc, 106);
	assert_int_equal(p.ib.qps, 4);
	assert_int_equal(p.ib.mtu, 4096);
	dr_options_fini(&opt);
	unsetenv("NCCL_IB_GID_INDEX");
	unsetenv("NCCL_IB_TIMEOUT");
	unsetenv("NCCL_IB_RETRY_CNT");
	unsetenv("NCCL_IB_SL");
	unsetenv("NCCL_IB_TC");
	unsetenv("NCCL_IB_QPS_PER_CONNECTION");
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --transport verbs --gid 7 --mtu 256"), 0);
	assert_int_equal(opt.gid, 7);
	dr_kind_plan(&opt, &p);
	assert_int_equal(p.ib.mtu, 256);
	assert_int_equal(p.ib.timeout, 14);
	assert_int_equal(p.ib.retry, 7);
	dr_options_fini(&opt);
	expect(DR_CMDBIT_CLIENT, "h --transport verbs --gid 70000", -EINVAL, "GID table");
	expect(DR_CMDBIT_CLIENT, "h --transport verbs --mtu 1500", -EINVAL, "1024|2048");
}

static void faults_of_verbs(void **state)
{
	(void)state;
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault qp-error", -EINVAL, "close, link-down");
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault addr-del", 0, "");
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault qp-error --transport verbs", 0, "");
}

static void the_server_follows(void **state)
{
	struct dr_plan p = { .transport = "verbs" };

	(void)state;
	assert_int_equal(parse(DR_CMDBIT_SERVER, ""), 0);
	assert_int_equal(dr_kind_follow(&opt, &p, &err), 0);
	snprintf(p.transport, sizeof(p.transport), "rdma");
	assert_int_equal(dr_kind_follow(&opt, &p, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "built: tcp, verbs"));
	dr_options_fini(&opt);
	assert_int_equal(parse(DR_CMDBIT_SERVER, "--transport verbs"), 0);
	snprintf(p.transport, sizeof(p.transport), "tcp");
	assert_int_equal(dr_kind_follow(&opt, &p, &err), -EPROTO);
	assert_non_null(strstr(err.text, "client tcp, server verbs"));
	dr_options_fini(&opt);
}

static int warnings;

static void count_warnings(
	enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)component, (void)arg;
	warnings += level == DR_LOG_WARN && strstr(text, "rxe");
}

static void the_manager_gets_the_nics_window(void **state)
{
	struct dr_manager_params m = { .n_rails = 0 };
	struct dr_plan p = { .transport = "verbs", .detect = DR_DETECT_CONSERVATIVE };
	struct dr_kind *k;

	(void)state;
	warnings = 0;
	dr_log_set_sink(count_warnings, NULL);
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --transport verbs"), 0);
	dr_kind_plan(&opt, &p);
	assert_int_equal(dr_kind_create(&opt, &p, &k, &err), 0);
	dr_kind_manager(k, &m);
	assert_string_equal(m.transport->name, "verbs");
	assert_non_null(m.kind_params);
	assert_int_equal(m.hw_window_ns, 8 * (4096ll << 14));
	assert_int_equal(m.hw_retry_ns, 4096ll << 14);
	assert_int_equal(warnings, 1);
	dr_kind_destroy(k);
	p.ib.retry = 6;
	snprintf(p.transport, sizeof(p.transport), "tcp");
	memset(&m, 0, sizeof(m));
	assert_int_equal(dr_kind_create(&opt, &p, &k, &err), 0);
	dr_kind_manager(k, &m);
	assert_string_equal(m.transport->name, "tcp");
	assert_int_equal(m.hw_window_ns, 0);
	assert_null(m.kind_params);
	assert_int_equal(warnings, 1);
	dr_kind_destroy(k);
	dr_options_fini(&opt);
	dr_log_set_sink(NULL, NULL);
}

static void rails_without_the_library(void **state)
{
	struct dr_netdev_rail r[DR_RAILS_MAX];
	struct dr_plan p = { .transport = "verbs" };
	struct dr_route route = { .local = { .ss_family = AF_INET } };
	char text[64];

	(void)state;
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --transport verbs --rails lo@127.0.0.1"), 0);
	assert_int_equal(dr_kind_rails(&opt, &p, &route, r, DR_RAILS_MAX, &err), -ENOENT);
	assert_non_null(strstr(err.text, "apt-get install libibverbs1"));
	dr_options_fini(&opt);
	/* With tcp nobody asks for it; a name that is none is told as before. */
	snprintf(p.transport, sizeof(p.transport), "tcp");
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --rails lo@127.0.0.1,127.0.0.2"), 0);
	assert_int_equal(dr_kind_rails(&opt, &p, &route, r, DR_RAILS_MAX, &err), 2);
	assert_string_equal(r[1].ifname, "lo");
	dr_options_fini(&opt);
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --rails nosuch0"), 0);
	assert_int_equal(dr_kind_rails(&opt, &p, &route, r, DR_RAILS_MAX, &err), -ENODEV);
	assert_non_null(strstr(err.text, "'nosuch0' is no device"));
	dr_options_fini(&opt);
	assert_true(dr_kind_rename(&p, "0=rxe0,1;1=lo", text, sizeof(text)));
	assert_string_equal(text, "0=rxe0,1;1=lo");
	snprintf(p.transport, sizeof(p.transport), "verbs");
	assert_true(dr_kind_rename(&p, "0=rxe0,1;1=lo", text, sizeof(text)));
	assert_string_equal(text, "0=rxe0,1;1=lo");
	assert_false(dr_kind_rename(&p, "0=rxe0,1;1=lo", text, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_another_kind),
		cmocka_unit_test(values),
		cmocka_unit_test(faults_of_verbs),
		cmocka_unit_test(the_server_follows),
		cmocka_unit_test(the_manager_gets_the_nics_window),
		cmocka_unit_test(rails_without_the_library),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
