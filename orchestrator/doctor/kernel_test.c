/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/doctor_testkit.h"

static struct dr_doctor_run run = { .gpus = 8, .channels = 8, .port = 20000, .gpu_top = 7 };

/* 400 Gb/s for 1 ms are 50 MB; a GPU's 8 channels: 6.25 MB each. */
static void buffers(void **state)
{
	struct dr_doctor_nic n = nic("eth1", 3, "10.1.0.1", 24, 9000);

	(void)state;
	n.rail.speed_mbps = 400000;
	put("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6249999\n");
	put("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t6250000\n");
	dr_check_buffers(root, &run, &n, 1, &found);
	assert_int_equal(dr_findings_count(&found, DR_SEVERITY_OK), 1);
	assert_int_equal(found.v[0].severity, DR_SEVERITY_WARN);
	assert_non_null(strstr(found.v[0].remedy, "net.ipv4.tcp_rmem='4096 131072 6250000'"));
	forget();
	n.rail.speed_mbps = 100000;
	dr_check_buffers(root, &run, &n, 1, &found);
	assert_int_equal(dr_findings_count(&found, DR_SEVERITY_OK), 2);
	forget();
	n.rail.speed_mbps = -1;
	dr_check_buffers(root, &run, &n, 1, &found);
	assert_int_equal(dr_findings_count(&found, DR_SEVERITY_OK), 2);
	forget();
}

static void sockbuf(void **state)
{
	(void)state;
	put("/proc/sys/net/core/rmem_max", "212992\n");
	put("/proc/sys/net/core/wmem_max", "4194304\n");
	run.sockbuf = 4 << 20;
	dr_check_buffers(root, &run, NULL, 0, &found);
	assert_int_equal(found.n, 1);
	expect(DR_SEVERITY_WARN, "buffers", NULL, "net.core.rmem_max=4194304");
	run.sockbuf = 212992;
	dr_check_buffers(root, &run, NULL, 0, &found);
	expect_none("buffers");
	run.sockbuf = 0;
}

#define CLOCK "/sys/devices/system/clocksource/clocksource0/"

static void the_clock(void **state)
{
	static const char *const fast[] = { "tsc\n", "kvm-clock\n", "arch_sys_counter\n" };
	static const char *const slow[] = { "hpet\n", "acpi_pm\n", "refined-jiffies\n" };

	(void)state;
	dr_check_clock(root, &found);
	expect(DR_SEVERITY_NOTE, "clock", NULL, "cannot be read");
	put(CLOCK "available_clocksource", "tsc hpet acpi_pm \n");
	for (size_t i = 0; i < DR_ARRAY_LEN(fast); i++) {
		put(CLOCK "current_clocksource", fast[i]);
		dr_check_clock(root, &found);
		expect(DR_SEVERITY_OK, "clock", NULL, "clock source");
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(slow); i++) {
		put(CLOCK "current_clocksource", slow[i]);
		dr_check_clock(root, &found);
		expect(DR_SEVERITY_WARN, "clock", NULL, "tsc hpet acpi_pm");
	}
}

static void governor(void **state)
{
	(void)state;
	dr_check_governor(root, &found);
	expect_none("governor");
	put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
	dr_check_governor(root, &found);
	expect(DR_SEVERITY_OK, "governor", NULL, "no CPU");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
	dr_check_governor(root, &found);
	expect(DR_SEVERITY_NOTE, "governor", NULL, "1 of 2 CPUs");
}

#define HEAD                                                                                       \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "      \
	"timeout inode\n"
#define REST "00000000:00000000 00:00000000 00000000     0        0"

static void ports(void **state)
{
	(void)state;
	dr_check_ports(root, &run, &found);
	expect_none("ports"); /* this end is no server */
	run.server = true;
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_NOTE, "ports", NULL, "cannot be read");
	/* 20008 is behind the last, 20001 is connected and not listened on. */
	put("/proc/net/tcp", HEAD "   0: 00000000:4E28 00000000:0000 0A " REST " 11 1 0\n"
				  "   1: 0100007F:4E21 0100007F:C350 01 " REST " 12 1 0\n");
	put("/proc/net/tcp6", HEAD);
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_OK, "ports", NULL, "20000 to 20007");
	put("/proc/net/tcp6", HEAD "   0: 00000000000000000000000000000000:4E27 "
				   "00000000000000000000000000000000:0000 0A " REST " 4711 1 0\n");
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "may not see");
	point("/proc/77/fd/5", "socket:[4711]");
	point("/proc/77/fd/6", "/dev/null");
	put("/proc/77/comm", "nginx\n");
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "nginx (77)");
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "sport = :20007");
	put("/proc/77/comm", "dualrail\n");
	dr_check_ports(root, &run, &found);
	expect(DR_SEVERITY_NOTE, "ports", NULL, "this node has its server");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffers),
		cmocka_unit_test(sockbuf),
		cmocka_unit_test(the_clock),
		cmocka_unit_test(governor),
		cmocka_unit_test(ports),
	};

	return cmocka_run_group_tests_name("doctor kernel, ports", tests, tree_make, tree_remove);
}
