/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/config.h"

#include "base/units.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The lines that the last call wrote, "level text\n". */
static char lines[4096];

static void keep(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	size_t at = strlen(lines);

	(void)arg;
	assert_string_equal(component, "config");
	snprintf(lines + at, sizeof(lines) - at, "%s %s\n", names[level], text);
}

static bool host_has_rdma;

/* Up to 8 variables. */
static int parse(struct ha_config *c, struct dr_err *e, const char *const *vars)
{
	const struct ha_host host = {
		.cpus = 32, .rdma = host_has_rdma, .pid = 4711, .name = "node7"
	};
	char copy[8][256];
	char *env[9] = { NULL };

	for (unsigned i = 0; vars[i]; i++) {
		assert_true(i < 8);
		snprintf(copy[i], sizeof(copy[i]), "%s", vars[i]);
		env[i] = copy[i];
	}
	lines[0] = '\0';
	dr_log_set_level(DR_LOG_INFO);
	dr_log_set_sink(keep, NULL);
	int rc = ha_config_parse(c, env, &host, e);
	dr_log_set_sink(NULL, NULL);
	return rc;
}
#define VARS(...)                                                                                  \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__ __VA_OPT__(, ) NULL                                                    \
	}

static struct ha_config config(const char *const *vars)
{
	struct ha_config c;
	struct dr_err e;

	if (parse(&c, &e, vars) < 0)
		fail_msg("%s", e.text);
	return c;
}

/* The text of the error that the one variable causes. */
static const char *refused(const char *var)
{
	static struct dr_err e;
	struct ha_config c = { .lanes = 99 };
	int rc = parse(&c, &e, VARS(var));

	if (rc >= 0)
		fail_msg("%s is accepted", var);
	assert_int_equal(rc, e.code);
	assert_int_equal(c.lanes, 99);
	return e.text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" is in \"%s\"", part, text);
}

/* ---- values ---- */

static void defaults(void **state)
{
	struct ha_config c = config(VARS("PATH=/bin", "HA_NCCL_LANES=", "NCCL_IB_HCA="));

	(void)state;
	assert_string_equal(lines, "");
	assert_true(c.backup && c.failback && c.progress_thread && !c.debug);
	assert_int_equal(c.detect, DR_DETECT_FAST);
	assert_int_equal(c.heartbeat_ns, 10 * DR_NS_PER_MS);
	assert_int_equal(c.hold_down_ns, DR_NS_PER_S);
	assert_int_equal(c.connect_timeout_ns, 30 * DR_NS_PER_S);
	assert_int_equal(c.threads, 12);
	assert_int_equal(c.lanes, 1);
	assert_int_equal(c.chunk, 256 << 10);
	assert_int_equal(c.eager, 8 << 10);
	assert_int_equal(c.spin_us, 200);
	assert_int_equal(c.devices.n, 0);
	assert_null(c.devices_variable);
	assert_string_equal(c.kind->name, "tcp");
	assert_int_equal(c.log_level, DR_LOG_WARN);
}

static void defaults_follow_the_cpus(void **state)
{
	static const struct {
		unsigned cpus, threads, spin_us, eager;
	} rows[] = { { 0, 1, 20, 147456 }, { 1, 1, 20, 147456 }, { 2, 1, 20, 147456 },
		{ 5, 1, 20, 147456 }, { 7, 2, 20, 147456 }, { 8, 3, 200, 8192 },
		{ 16, 6, 200, 8192 }, { 32, 12, 200, 8192 }, { 192, 12, 200, 8192 } };
	char *none[] = { NULL };
	struct ha_config c;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(rows); i++) {
		struct ha_host host = { .cpus = rows[i].cpus, .name = "" };

		assert_int_equal(ha_config_parse(&c, none, &host, NULL), 0);
		assert_int_equal(c.threads, rows[i].threads);
		assert_int_equal(c.spin_us, rows[i].spin_us);
		assert_int_equal(c.eager, rows[i].eager);
	}
}

static void values_are_read(void **state)
{
	struct ha_config c = config(VARS("HA_NCCL_HEARTBEAT_MS=25", "HA_NCCL_CHUNK=1M",
		"HA_NCCL_EAGER=0", "HA_NCCL_NTHREADS=7", "NCCL_SOCKET_FAMILY=AF_INET6",
		"HA_NCCL_METRICS_FILE=/run/%h-%p.%x%%prom", "HA_NCCL_ENABLE_FAILBACK=0"));

	(void)state;
	assert_string_equal(lines, "");
	assert_int_equal(c.heartbeat_ns, 25 * DR_NS_PER_MS);
	assert_int_equal(c.chunk, 1 << 20);
	assert_int_equal(c.eager, 0);
	assert_int_equal(c.threads, 7);
	assert_int_equal(c.family, HA_FAMILY_INET6);
	assert_string_equal(c.metrics_file, "/run/node7-4711.%x%prom");
	assert_false(c.failback);
}

/* NCCL's names are taken, this plugin's own have precedence, in any order of the environment. */
static void own_names_have_precedence(void **state)
{
	struct ha_config c = config(VARS(
		"NCCL_SOCKET_IFNAME=^docker", "NCCL_MESH_TIMEOUT_MS=5000", "NCCL_MESH_DEBUG=1"));

	(void)state;
	assert_true(c.devices.exclude);
	assert_string_equal(c.devices_variable, "NCCL_SOCKET_IFNAME");
	assert_int_equal(c.connect_timeout_ns, 5 * DR_NS_PER_S);
	assert_true(c.debug);
	c = config(VARS("HA_NCCL_DEVICES==eth1", "NCCL_SOCKET_IFNAME=^docker", "HA_NCCL_DEBUG=0",
		"NCCL_MESH_DEBUG=1", "HA_NCCL_CONNECT_TIMEOUT_MS=700",
		"NCCL_MESH_TIMEOUT_MS=5000"));
	assert_true(c.devices.exact && !c.devices.exclude);
	assert_string_equal(c.devices.v[0].text, "eth1");
	assert_string_equal(c.devices_variable, "HA_NCCL_DEVICES");
	assert_false(c.debug);
	assert_int_equal(c.connect_timeout_ns, 700 * DR_NS_PER_MS);
	assert_has(
		lines, "info NCCL_MESH_TIMEOUT_MS has no effect: the plugin's own variable is set");
	assert_has(lines, "info NCCL_MESH_DEBUG has no effect");
	assert_null(strstr(c.changed, "MESH"));
}

static void log_level_follows_nccl(void **state)
{
	(void)state;
	assert_int_equal(config(VARS("NCCL_DEBUG=VERSION")).log_level, DR_LOG_WARN);
	assert_int_equal(config(VARS("NCCL_DEBUG=WARN")).log_level, DR_LOG_WARN);
	assert_int_equal(config(VARS("NCCL_DEBUG=info")).log_level, DR_LOG_INFO);
	assert_int_equal(config(VARS("NCCL_DEBUG=TRACE")).log_level, DR_LOG_DEBUG);
	assert_int_equal(config(VARS("NCCL_DEBUG=nonsense")).log_level, DR_LOG_WARN);
	assert_int_equal(config(VARS("HA_NCCL_DEBUG=1")).log_level, DR_LOG_DEBUG);
}

/* ---- errors ---- */

static void an_error_names_variable_value_and_range(void **state)
{
	(void)state;
	assert_string_equal(refused("HA_NCCL_HEARTBEAT_MS=0"),
		"HA_NCCL_HEARTBEAT_MS: 0 is out of range; use 1 to 10000");
	assert_string_equal(refused("HA_NCCL_NTHREADS=many"),
		"HA_NCCL_NTHREADS: \"many\" is not a whole number; use e.g. 8");
	assert_string_equal(refused("HA_NCCL_ENABLE_BACKUP=yes"),
		"HA_NCCL_ENABLE_BACKUP: \"yes\" is not one of 0|1");
	assert_string_equal(refused("HA_NCCL_DETECT=quick"),
		"HA_NCCL_DETECT: \"quick\" is not one of fast|conservative");
	assert_string_equal(refused("HA_NCCL_CHUNK=1K"),
		"HA_NCCL_CHUNK: 1K is out of range; use 16 KiB to 64 MiB");
	assert_has(refused("HA_NCCL_TRANSPORT=ib"), "\"ib\" is not one of auto|tcp|verbs");
	assert_has(refused("NCCL_SOCKET_FAMILY=AF_UNIX"), "not one of AF_UNSPEC|AF_INET|AF_INET6");
	assert_has(refused("HA_NCCL_EAGER=257K"), "use 0 B to 256 KiB");
	assert_has(refused("HA_NCCL_DEVICES=^"), "HA_NCCL_DEVICES: ");
	assert_has(refused("HA_NCCL_RTO_MS=-5"), "HA_NCCL_RTO_MS: \"-5\" is not");
	assert_has(refused("HA_NCCL_SPEED=1"), "use 10 to 3200000");
	assert_has(refused("HA_NCCL_PORTS=30000"),
		"HA_NCCL_PORTS: \"30000\": use FIRST-LAST, e.g. 30000-30100");
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
	char path[HA_PATH_BYTES + 32] = "HA_NCCL_METRICS_FILE=";
	const struct ha_host host = { .cpus = 1, .name = "node7" };
	char *env[] = { path, NULL };
	struct ha_config c;
	struct dr_err e;

	(void)state;
	memset(path + strlen(path), 'a', HA_PATH_BYTES - 1);
	assert_int_equal(ha_config_parse(&c, env, &host, &e), 0);
	assert_int_equal(strlen(c.metrics_file), HA_PATH_BYTES - 1);
	path[strlen(path)] = 'a';
	assert_int_equal(ha_config_parse(&c, env, &host, &e), -EINVAL);
	path[strlen("HA_NCCL_METRICS_FILE=")] = '%';
	path[strlen("HA_NCCL_METRICS_FILE=") + 1] = 'h';
	assert_int_equal(ha_config_parse(&c, env, &host, &e), -EINVAL);
}

static int without_rdma(void **state)
{
	(void)state;
	host_has_rdma = false;
	return 0;
}

static void auto_means_verbs_where_rdma_devices_are(void **state)
{
	(void)state;
	for (unsigned rdma = 0; rdma < 2; rdma++) {
		const char *found = rdma ? "verbs" : "tcp";

		host_has_rdma = rdma;
		assert_string_equal(config(VARS("PATH=/bin")).kind->name, found);
		assert_string_equal(config(VARS("HA_NCCL_TRANSPORT=auto")).kind->name, found);
		assert_string_equal(config(VARS("HA_NCCL_TRANSPORT=tcp")).kind->name, "tcp");
		assert_string_equal(config(VARS("HA_NCCL_TRANSPORT=verbs")).kind->name, "verbs");
	}
}

static void variables_of_rdma_reach_the_rails(void **state)
{
	struct dr_manager_params p = { .n_rails = 2 };
	const struct dr_verbs_params *v;
	char line[1000];
	struct ha_config c;

	(void)state;
	host_has_rdma = true;
	c = config(VARS("NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=5", "NCCL_IB_TC=104",
		"NCCL_IB_SL=3", "NCCL_MESH_GID_INDEX=2", "NCCL_IB_HCA=^=mlx5_3:1"));
	assert_string_equal(lines, "");
	ha_config_manager(&c, &p);
	v = p.kind_params;
	assert_string_equal(p.transport->name, "verbs");
	assert_int_equal(v->timeout, 20);
	assert_int_equal(v->retry, 5);
	assert_int_equal(v->tc, 104);
	assert_int_equal(v->sl, 3);
	assert_int_equal(v->gid_index, 2);
	assert_int_equal(v->qps, 1);
	assert_int_equal(p.hw_window_ns, INT64_C(4096) * (1 << 20) * 6);
	assert_int_equal(p.hw_retry_ns, INT64_C(4096) * (1 << 20));
	ha_config_describe(&c, &(struct ha_about){ "1", "a", "mlx5_0" }, line, sizeof(line));
	assert_has(line, "transport verbs, devices mlx5_0, ");
	assert_has(line, "NCCL_IB_TC=104");
	/* The own variable has precedence, and so has NCCL's name of the GID index. */
	c = config(VARS("HA_NCCL_FORCE_IB_TIMEOUT=9", "NCCL_IB_TIMEOUT=20", "NCCL_IB_GID_INDEX=4",
		"NCCL_MESH_GID_INDEX=2"));
	ha_config_manager(&c, &p);
	v = p.kind_params;
	assert_int_equal(v->timeout, 9);
	assert_int_equal(v->gid_index, 4);
	assert_has(refused("NCCL_IB_TC=256"), "use 0 to 255");
	assert_has(refused("HA_NCCL_FORCE_IB_TIMEOUT=32"), "use 1 to 31");
}

/* The bound of conservative detection follows the NIC, which must have one. */
static void conservative_detection_waits_for_the_nic(void **state)
{
	struct dr_manager_params p = { .n_rails = 0 };
	struct ha_config c;
	struct dr_err e;

	(void)state;
	host_has_rdma = true;
	c = config(VARS("HA_NCCL_DETECT=conservative", "HA_NCCL_RTO_MS=1", "NCCL_IB_TIMEOUT=14"));
	assert_has(lines, "1073741824ns is used"); /* 2 x 8 x 67.1 ms */
	c = config(VARS("HA_NCCL_DETECT=conservative", "HA_NCCL_RTO_MS=3000"));
	assert_string_equal(lines, "");
	ha_config_manager(&c, &p);
	assert_int_equal(p.hw_window_ns, 1500 * DR_NS_PER_MS);
	assert_int_equal(
		parse(&c, &e, VARS("HA_NCCL_DETECT=conservative", "NCCL_IB_TIMEOUT=0")), -EINVAL);
	assert_has(e.text, "NCCL_IB_TIMEOUT=0 never gives up");
	host_has_rdma = false;
	config(VARS("HA_NCCL_DETECT=conservative", "NCCL_IB_TIMEOUT=0"));
}

/* ---- what has no effect ---- */

static void variables_of_rdma_are_reported(void **state)
{
	(void)state;
	config(VARS("HA_NCCL_FORCE_IB_TIMEOUT=16", "NCCL_IB_HCA=mlx5", "NCCL_IB_TC=nonsense"));
	assert_has(lines, "warn HA_NCCL_FORCE_IB_TIMEOUT has no effect: it is not used with the "
			  "tcp transport\n");
	assert_has(lines, "info NCCL_IB_HCA has no effect");
	assert_has(lines, "info NCCL_IB_TC has no effect");
}

static void options_of_what_is_off_are_reported(void **state)
{
	(void)state;
	config(VARS("HA_NCCL_ENABLE_BACKUP=0", "HA_NCCL_HOLD_DOWN_MS=5"));
	assert_string_equal(
		lines, "warn HA_NCCL_HOLD_DOWN_MS has no effect: HA_NCCL_ENABLE_BACKUP is 0\n");
	config(VARS("HA_NCCL_ENABLE_FAILBACK=0", "HA_NCCL_HOLD_DOWN_MS=5"));
	assert_string_equal(
		lines, "warn HA_NCCL_HOLD_DOWN_MS has no effect: HA_NCCL_ENABLE_FAILBACK is 0\n");
	config(VARS("HA_NCCL_RTO_MS=5000"));
	assert_has(lines, "only with HA_NCCL_DETECT=conservative");
	config(VARS("HA_NCCL_HOLD_DOWN_MS=5"));
	assert_string_equal(lines, "");
}

static void misspelled_variables_are_reported(void **state)
{
	(void)state;
	config(VARS(
		"HA_NCCL_HEARTBEATS_MS=5", "HA_NCCL_WHATEVER=1", "HA_NCCLX=1", "NCCL_WHATEVER=1"));
	assert_string_equal(lines,
		"warn HA_NCCL_HEARTBEATS_MS has no effect: no variable has this name; did you mean "
		"HA_NCCL_HEARTBEAT_MS?\n"
		"warn HA_NCCL_WHATEVER has no effect: no variable has this name\n");
}

/* ---- detection ---- */

static void bound_of_detection(void **state)
{
	struct ha_config c = config(VARS("HA_NCCL_HEARTBEAT_MS=20"));
	struct dr_manager_params p = { .window = 7 };

	(void)state;
	assert_int_equal(ha_config_detect_bound(&c), 5 * 20 * DR_NS_PER_MS);
	c = config(VARS("HA_NCCL_DETECT=conservative"));
	int64_t least = ha_config_detect_bound(&c);
	assert_true(least > DR_NS_PER_S && least < 5 * DR_NS_PER_S);

	c = config(VARS("HA_NCCL_DETECT=conservative", "HA_NCCL_RTO_MS=9000"));
	assert_string_equal(lines, "");
	assert_int_equal(ha_config_detect_bound(&c), 9 * DR_NS_PER_S);
	ha_config_manager(&c, &p);
	assert_int_equal(p.hw_window_ns, 4500 * DR_NS_PER_MS);
	assert_int_equal(p.detect, DR_DETECT_CONSERVATIVE);
	assert_true(p.failback);
	assert_int_equal(p.lost_after_ns, 4 * DR_NS_PER_S);
	assert_int_equal(p.window, 7);

	c = config(VARS("HA_NCCL_DETECT=conservative", "HA_NCCL_RTO_MS=1000"));
	assert_has(lines, "warn HA_NCCL_RTO_MS: 1s is less than twice the time");
	assert_int_equal(ha_config_detect_bound(&c), least);
}

/* ---- texts ---- */

static const struct ha_about about = { .version = "1.2", .build = "abc", .devices = "eth1, eth2" };

static void the_line_states_what_is_in_force(void **state)
{
	struct ha_config c = config(VARS("HA_NCCL_NTHREADS=1"));
	char line[1000];

	(void)state;
	ha_config_describe(&c, &about, line, sizeof(line));
	assert_string_equal(line,
		"version 1.2 (build abc), transport tcp, devices eth1, eth2, heartbeat 10.0 ms, "
		"detection fast within 50.0 ms, failback on, 1 thread with 1 lane each, chunk 256 "
		"KiB, eager 8 KiB");
	c = config(VARS("HA_NCCL_ENABLE_BACKUP=0", "HA_NCCL_SOCKBUF=4M", "HA_NCCL_TEST_MAX_POLL=32",
		"HA_NCCL_SPEED=25000", "HA_NCCL_FORCE_IB_TIMEOUT=12", "HA_NCCL_SPIN_US=200",
		"NCCL_SOCKET_FAMILY=AF_INET"));
	ha_config_describe(&c, &about, line, sizeof(line));
	assert_has(line, "no backup paths, 12 threads with 1 lane each");
	assert_has(line, "eager 8 KiB; NCCL_SOCKET_FAMILY=AF_INET HA_NCCL_SPEED=25000 "
			 "HA_NCCL_ENABLE_BACKUP=0 HA_NCCL_SOCKBUF=4M");
	assert_lacks(line, "TEST_MAX_POLL");
	assert_lacks(line, "SPIN_US");
	assert_lacks(line, "IB_TIMEOUT");
}

/* "| `NAME` | default | values | meaning |" */
static void document_row(const struct dr_opt *v, char *row, size_t len)
{
	char min[32], max[32];
	bool size = v->kind == DR_OPT_SIZE;

	snprintf(min, sizeof(min), "%.15g", v->min);
	snprintf(max, sizeof(max), "%.15g%s%s", v->max, v->unit ? " " : "", v->unit ? v->unit : "");
	if (size) {
		dr_format_size((uint64_t)v->min, min, sizeof(min));
		dr_format_size((uint64_t)v->max, max, sizeof(max));
	}
	snprintf(row, len, "| `%s` | %s | ", v->name, v->def ? v->def : "-");
	for (const char *p = v->choices; p && *p; p++)
		dr_append(row, len, "%c%s", *p == '|' ? ',' : *p, *p == '|' ? " " : "");
	if (v->max > 0)
		dr_append(row, len, "%s to %s", min, max);
	else if (!v->choices)
		dr_append(row, len, "%s", v->arg);
	dr_append(row, len, " | %s |", v->help);
}

/* docs/NCCL_PLUGIN.md has the table as it is. DR_WRITE_DOCS=1: print it instead. */
static void the_document_has_the_table(void **state)
{
	static char doc[64 << 10];
	char row[1024];
	FILE *f = fopen("docs/NCCL_PLUGIN.md", "r");

	(void)state;
	assert_non_null(f);
	doc[fread(doc, 1, sizeof(doc) - 1, f)] = '\0';
	fclose(f);
	for (size_t i = 0; i < ha_variables.n; i++) {
		document_row(&ha_variables.rows[i], row, sizeof(row));
		assert_true(strlen(row) < sizeof(row) - 1);
		if (getenv("DR_WRITE_DOCS"))
			printf("%s\n", row);
		else
			assert_has(doc, row);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(defaults_follow_the_cpus),
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(own_names_have_precedence),
		cmocka_unit_test(log_level_follows_nccl),
		cmocka_unit_test(an_error_names_variable_value_and_range),
		cmocka_unit_test(a_path_that_does_not_fit_is_refused),
		cmocka_unit_test_teardown(auto_means_verbs_where_rdma_devices_are, without_rdma),
		cmocka_unit_test_teardown(variables_of_rdma_reach_the_rails, without_rdma),
		cmocka_unit_test_teardown(conservative_detection_waits_for_the_nic, without_rdma),
		cmocka_unit_test(variables_of_rdma_are_reported),
		cmocka_unit_test(options_of_what_is_off_are_reported),
		cmocka_unit_test(misspelled_variables_are_reported),
		cmocka_unit_test(bound_of_detection),
		cmocka_unit_test(the_line_states_what_is_in_force),
		cmocka_unit_test(the_document_has_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
