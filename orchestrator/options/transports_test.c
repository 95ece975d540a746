/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options.h"

#include "orchestrator/fault/options.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dr_options opt;
static struct dr_fault_options fault_opt;
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
	memset(&fault_opt, 0, sizeof(fault_opt));
	dr_fault_options_attach(&fault_opt, &opt);
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
	expect(DR_CMDBIT_CLIENT, "h --transport rdma", -ENOTSUP, "built: tcp, verbs");
}

/* An option of the kind is one of the program's for these commands and no others. */
static void who_takes_them(void **state)
{
	(void)state;
	expect(DR_CMDBIT_SERVER, "--transport verbs --qps 2", -EINVAL, "not for \"server\"");
	expect(DR_CMDBIT_SERVER, "--transport verbs --register lazy", 0, "");
	expect(DR_CMDBIT_DEMO, "--transport verbs --qps 2", 0, "");
	expect(DR_CMDBIT_DOCTOR, "--transport verbs --gid 2", 0, "");
	expect(DR_CMDBIT_DOCTOR, "--transport verbs --register lazy", -EINVAL,
		"not for \"doctor\"");
	expect(DR_CMDBIT_TOPO, "--gid 2", -EINVAL, "not for \"topo\"");
}

static struct dr_verbs_params verbs_params(void)
{
	union dr_kind_params p;

	dr_options_params(&opt, dr_transport_kind("verbs"), &p);
	return *(struct dr_verbs_params *)&p;
}

static void values(void **state)
{
	static const char *const env[][2] = { { "NCCL_IB_GID_INDEX", "-1" },
		{ "NCCL_IB_TIMEOUT", "20" }, { "NCCL_IB_RETRY_CNT", "5" }, { "NCCL_IB_SL", "2" },
		{ "NCCL_IB_TC", "106" }, { "NCCL_IB_QPS_PER_CONNECTION", "4" } };
	struct dr_verbs_params p;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(env); i++)
		setenv(env[i][0], env[i][1], 1);
	assert_int_equal(parse(DR_CMDBIT_CLIENT, "h --transport verbs --mtu 4096 --ib-retry 6"), 0);
	p = verbs_params();
	assert_int_equal(p.gid_index, -1);
	assert_false(p.lazy_mr);
	assert_int_equal(p.timeout, 20);
	assert_int_equal(p.retry, 6);
	assert_int_equal(p.sl, 2);
	assert_int_equal(p.tc, 106);
	assert_int_equal(p.qps, 4);
	assert_int_equal(p.mtu, 4096);
	dr_options_fini(&opt);
	for (size_t i = 0; i < DR_ARRAY_LEN(env); i++)
		unsetenv(env[i][0]);
	assert_int_equal(
		parse(DR_CMDBIT_CLIENT, "h --transport verbs --gid 7 --mtu 256 --register lazy"),
		0);
	p = verbs_params();
	assert_int_equal(p.gid_index, 7);
	assert_true(p.lazy_mr);
	assert_int_equal(p.mtu, 256);
	assert_int_equal(p.timeout, 14);
	assert_int_equal(p.retry, 7);
	dr_options_fini(&opt);
	expect(DR_CMDBIT_CLIENT, "h --transport verbs --gid 70000", -EINVAL, "GID table");
	expect(DR_CMDBIT_CLIENT, "h --transport verbs --mtu 1500", -EINVAL, "1024|2048");
}

static void faults_of_a_kind(void **state)
{
	(void)state;
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault qp-error", -EINVAL, "close, link-down");
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault addr-del", 0, "");
	expect(DR_CMDBIT_CLIENT, "h --test failover --fault qp-error --transport verbs", 0, "");
}

/* Kinds, their options, names of NICs and faults come from the descriptors. */
static void help_names_every_kind(void **state)
{
	const struct dr_transport_kind *k;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	(void)state;
	memset(&opt, 0, sizeof(opt));
	dr_fault_options_attach(&fault_opt, &opt);
	assert_int_equal(dr_options_table(&opt, &opt.table), 0);
	assert_true(dr_opts_help(opt.table, "client", true, f));
	dr_options_fini(&opt);
	fclose(f);
	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++) {
		assert_non_null(strstr(text, k->name));
		for (size_t r = 0; r < k->options.n; r++)
			assert_non_null(strstr(text, k->options.rows[r].name));
		for (const struct dr_kind_fault *x = k->faults; x && x->name; x++)
			assert_non_null(strstr(text, x->name));
	}
	assert_non_null(strstr(text, "Transport verbs:\n"));
	assert_non_null(strstr(text, "libibverbs1"));
	free(text); /* lint-ok: of open_memstream */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_another_kind),
		cmocka_unit_test(who_takes_them),
		cmocka_unit_test(values),
		cmocka_unit_test(faults_of_a_kind),
		cmocka_unit_test(help_names_every_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
