/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

static const struct dr_doctor_run run_here = { .gpus = 8, .channels = 8 };

static int set_up(void **state)
{
	doctor.run = run_here;
	return tree_make(state);
}

/* 400 Gb/s for 1 ms are 50 MB; a GPU's 8 channels: 6.25 MB each. */
static void buffers(void **state)
{
	struct dr_doctor_nic n = nic("eth1", 3, "10.1.0.1", 24, 9000);

	(void)state;
	n.rail.speed_mbps = 400000;
	put("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6249999\n");
	put("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t6250000\n");
	dr_check_buffers(with(&n, 1));
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), 1);
	assert_int_equal(doctor.f.v[0].severity, DR_SEVERITY_WARN);
	assert_non_null(strstr(doctor.f.v[0].remedy, "net.ipv4.tcp_rmem='4096 131072 6250000'"));
	forget();
	n.rail.speed_mbps = 100000;
	dr_check_buffers(with(&n, 1));
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), 2);
	forget();
	n.rail.speed_mbps = -1;
	dr_check_buffers(with(&n, 1));
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), 2);
	forget();
}

static void sockbuf(void **state)
{
	(void)state;
	put("/proc/sys/net/core/rmem_max", "212992\n");
	put("/proc/sys/net/core/wmem_max", "4194304\n");
	doctor.run.sockbuf = 4 << 20;
	dr_check_buffers(with(NULL, 0));
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "buffers", NULL, "net.core.rmem_max=4194304");
	doctor.run.sockbuf = 212992;
	dr_check_buffers(with(NULL, 0));
	expect_none("buffers");
	doctor.run.sockbuf = 0;
}

#define CLOCK "/sys/devices/system/clocksource/clocksource0/"

static void the_clock(void **state)
{
	static const char *const fast[] = { "tsc\n", "kvm-clock\n", "arch_sys_counter\n" };
	static const char *const slow[] = { "hpet\n", "acpi_pm\n", "refined-jiffies\n" };

	(void)state;
	dr_check_clock(&doctor);
	expect(DR_SEVERITY_NOTE, "clock", NULL, "cannot read");
	put(CLOCK "available_clocksource", "tsc hpet acpi_pm \n");
	for (size_t i = 0; i < DR_ARRAY_LEN(fast); i++) {
		put(CLOCK "current_clocksource", fast[i]);
		dr_check_clock(&doctor);
		expect(DR_SEVERITY_OK, "clock", NULL, "clock source");
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(slow); i++) {
		put(CLOCK "current_clocksource", slow[i]);
		dr_check_clock(&doctor);
		expect(DR_SEVERITY_WARN, "clock", NULL, "tsc hpet acpi_pm");
	}
}

static void governor(void **state)
{
	(void)state;
	dr_check_governor(&doctor);
	expect_none("governor");
	put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
	dr_check_governor(&doctor);
	expect(DR_SEVERITY_OK, "governor", NULL, "no CPU");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
	dr_check_governor(&doctor);
	expect(DR_SEVERITY_NOTE, "governor", NULL, "1 of 2 CPUs");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffers),
		cmocka_unit_test(sockbuf),
		cmocka_unit_test(the_clock),
		cmocka_unit_test(governor),
	};

	return cmocka_run_group_tests_name("doctor kernel, ports", tests, set_up, tree_remove);
}
