/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

static const struct dr_doctor_run tcp = {
	.gpus = 8, .channels = 8, .window = 16, .chunk_bytes = 512 << 10, .port = 20000
};

static int set_up(void **state)
{
	doctor.run = tcp;
	doctor.n = 4;
	return tree_make(state);
}

static void limits(const char *memlock, const char *files)
{
	char text[512];

	snprintf(text, sizeof(text),
		"Limit                     Soft Limit           Hard Limit           Units     \n"
		"Max open files            128                  %-20s files     \n"
		"Max locked memory         %-20s unlimited            bytes     \n",
		files, memlock);
	put("/proc/self/limits", text);
}

static void caps(const char *hex)
{
	char text[128];

	snprintf(text, sizeof(text), "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t%s\n", hex);
	put("/proc/self/status", text);
}

/* 8 GPUs x 8 channels x 16 x 512 KiB with two rails: 1 GiB. */
static void memlock(void **state)
{
	(void)state;
	doctor.run.kind = dr_transport_kind("tcp");
	caps("0000000000000000");
	limits("8388608", "1048576");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_NOTE, "memlock", NULL, "8 MiB");
	doctor.run.kind = dr_transport_kind("verbs");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_FAIL, "memlock", NULL, "ulimit -l unlimited");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_FAIL, "memlock", NULL, "1 GiB");
	limits("1073741823", "1048576");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_FAIL, "memlock", NULL, "1073741823");
	limits("1073741824", "1048576");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_OK, "memlock", NULL, "1 GiB");
	limits("unlimited", "1048576");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_OK, "memlock", NULL, "unlimited");
	limits("65536", "1048576");
	caps("0000000000004000");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_OK, "memlock", NULL, "not enforced: IPC_LOCK");
	drop("/proc/self/limits");
	dr_check_memlock(&doctor);
	expect(DR_SEVERITY_NOTE, "memlock", NULL, "cannot read");
}

static void open_files(void **state)
{
	(void)state;
	/* The hard limit: 8 x (16 + 2 x 4 + 7) + 2 x 4 + 16 */
	limits("0", "271");
	dr_check_open_files(&doctor);
	expect(DR_SEVERITY_FAIL, "open-files", NULL, "ulimit -n 272");
	limits("0", "272");
	dr_check_open_files(&doctor);
	expect(DR_SEVERITY_OK, "open-files", NULL, "272");
	limits("0", "unlimited");
	dr_check_open_files(&doctor);
	expect(DR_SEVERITY_OK, "open-files", NULL, "unlimited");
}

static void cpu_quota(void **state)
{
	(void)state;
	dr_check_cpu_quota(&doctor);
	expect(DR_SEVERITY_OK, "cpu-quota", NULL, "no quota");
	put("/proc/self/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
	put("/sys/fs/cgroup/a/cpu.stat", "nr_throttled 0\nthrottled_usec 0\n");
	dr_check_cpu_quota(&doctor);
	expect(DR_SEVERITY_OK, "cpu-quota", NULL, "1.5 CPUs");
	put("/sys/fs/cgroup/a/cpu.stat", "nr_throttled 12\nthrottled_usec 340000\n");
	dr_check_cpu_quota(&doctor);
	expect(DR_SEVERITY_WARN, "cpu-quota", NULL, "stopped its processes 12 times, for 0.34 s");
}

static void capabilities(void **state)
{
	(void)state;
	caps("0000000000000000");
	dr_check_capabilities(&doctor);
	expect(DR_SEVERITY_NOTE, "capabilities", NULL, "NET_ADMIN is missing");
	caps("0000000000001000");
	dr_check_capabilities(&doctor);
	expect(DR_SEVERITY_OK, "capabilities", NULL, "NET_ADMIN");
	drop("/proc/self/status");
	dr_check_capabilities(&doctor);
	expect(DR_SEVERITY_NOTE, "capabilities", NULL, "cannot read");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memlock),
		cmocka_unit_test(open_files),
		cmocka_unit_test(cpu_quota),
		cmocka_unit_test(capabilities),
	};

	return cmocka_run_group_tests_name("doctor limits", tests, set_up, tree_remove);
}
