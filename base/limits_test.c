/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/limits.h"

static char root[64];

static int tree_make(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/dr-limits-test-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int tree_remove(void **state)
{
	char command[80];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void put(const char *path, const char *text)
{
	char command[512];

	snprintf(command, sizeof(command), "mkdir -p $(dirname %s%s) && printf '%s' >%s%s", root,
		path, text, root, path);
	assert_int_equal(system(command), 0);
}

static void memory_is_the_smallest_of_host_and_groups(void **state)
{
	(void)state;
	assert_true(dr_limit_memory(root) == UINT64_MAX);
	put("/proc/meminfo", "MemTotal:  2000 kB\nMemAvailable:   1000 kB\n");
	assert_int_equal(dr_limit_memory(root), 1000 << 10);
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "5000\n");
	assert_int_equal(dr_limit_memory(root), 1000 << 10);
	/* The limit of a group above it counts; its page cache is free. */
	put("/sys/fs/cgroup/a/memory.max", "100000\n");
	put("/sys/fs/cgroup/a/memory.current", "90000\n");
	assert_int_equal(dr_limit_memory(root), 10000);
	put("/sys/fs/cgroup/a/memory.stat", "file 9\ninactive_file 4000\nactive_file 1000\n");
	assert_int_equal(dr_limit_memory(root), 15000);
	put("/sys/fs/cgroup/a/b/memory.max", "4000\n");
	assert_int_equal(dr_limit_memory(root), 0);
	/* Version 1. */
	put("/proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/x\n");
	put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "70000\n");
	put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "50000\n");
	put("/sys/fs/cgroup/memory/x/memory.stat", "inactive_file 9\ntotal_inactive_file 1000\n");
	assert_int_equal(dr_limit_memory(root), 21000);
	/* In a namespace of its own the group is the root. */
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "8000\n");
	put("/sys/fs/cgroup/memory.current", "1000\n");
	assert_int_equal(dr_limit_memory(root), 7000);
}

static void quotas_and_throttling_are_those_of_all_groups(void **state)
{
	struct dr_limit_cpu c;

	(void)state;
	put("/proc/self/cgroup", "1:name=systemd:/\n0::/a/b\n");
	dr_limit_cpu(root, &c);
	assert_true(isnan(c.cpus));
	assert_int_equal(c.throttled, 0);
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/a/b/cpu.stat",
		"usage_usec 5\nnr_periods 9\nnr_throttled 0\nthrottled_usec 0\n");
	dr_limit_cpu(root, &c);
	assert_true(isnan(c.cpus));
	put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
	put("/sys/fs/cgroup/a/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_usec 250\n");
	put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
	dr_limit_cpu(root, &c);
	assert_true(c.cpus == 1.5);
	assert_int_equal(c.throttled, 3);
	assert_int_equal(c.throttled_ns, 250000);
	/* The group at the root counts once. */
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/cpu.stat", "nr_throttled 5\nthrottled_usec 1\n");
	dr_limit_cpu(root, &c);
	assert_true(c.cpus == 4);
	assert_int_equal(c.throttled, 5);
}

static void the_soft_limit_of_files_is_raised(void **state)
{
	struct rlimit before, r;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	r = (struct rlimit){ 64, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
	assert_int_equal(dr_limit_files(0), 64);
	assert_int_equal(dr_limit_files(50), 64);
	assert_int_equal(dr_limit_files(100), 100);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	assert_int_equal(r.rlim_cur, 100);
	assert_true(dr_limit_files(UINT64_MAX) <= before.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void ports_are_counted(void **state)
{
	(void)state;
	assert_int_equal(dr_limit_ports(root), 28232);
	put("/proc/sys/net/ipv4/ip_local_port_range", "40000\t40009\n");
	assert_int_equal(dr_limit_ports(root), 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			memory_is_the_smallest_of_host_and_groups, tree_make, tree_remove),
		cmocka_unit_test_setup_teardown(
			quotas_and_throttling_are_those_of_all_groups, tree_make, tree_remove),
		cmocka_unit_test(the_soft_limit_of_files_is_raised),
		cmocka_unit_test_setup_teardown(ports_are_counted, tree_make, tree_remove),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
