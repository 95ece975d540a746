/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include "base/units.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* ---- socket buffers ---- */

/* A round trip across a data centre with queues in it; a buffer must hold the line rate of that long. */
#define ROUND_TRIP_NS DR_NS_PER_MS

/* The third number of net.ipv4.tcp_rmem or _wmem: how far a socket's buffer grows by itself. */
static bool tcp_max(const char *root, const char *name, uint64_t *out)
{
	char text[96];
	unsigned long long a, b, c;

	if (dr_machine_text(text, sizeof(text), root, "/proc/sys/net/ipv4/%s", name) <= 0 ||
		sscanf(text, "%llu %llu %llu", &a, &b, &c) != 3)
		return false;
	*out = c;
	return true;
}

static void check_tcp(const char *root, const char *name, uint64_t need, int64_t mbps,
	const struct dr_doctor_run *run, struct dr_findings *f)
{
	struct dr_finding *x;
	uint64_t max;

	if (!tcp_max(root, name, &max))
		return;
	if (max >= need) {
		dr_findings_add(f, DR_SEVERITY_OK, "buffers", NULL,
			"net.ipv4.%s: a connection's buffer grows to %llu bytes", name,
			(unsigned long long)max);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_WARN, "buffers", NULL,
		"net.ipv4.%s: the %u channels of one GPU cannot fill a rail of %lld Gb/s when a round "
		"trip takes 1 ms",
		name, run->channels, (long long)mbps / 1000);
	dr_finding_found(x, "%llu", (unsigned long long)max);
	dr_finding_needed(x, "%llu", (unsigned long long)need);
	dr_finding_remedy(x, "sysctl -w net.ipv4.%s='4096 131072 %llu'; or more --channels", name,
		(unsigned long long)need);
}

static void check_core(
	const char *root, const char *name, const struct dr_doctor_run *run, struct dr_findings *f)
{
	struct dr_finding *x;
	int64_t max;

	if (!run->sockbuf || !dr_machine_number(&max, root, "/proc/sys/net/core/%s", name) ||
		(uint64_t)max >= run->sockbuf)
		return;
	x = dr_findings_add(f, DR_SEVERITY_WARN, "buffers", NULL,
		"net.core.%s: the kernel gives --sockbuf that much and says nothing", name);
	dr_finding_found(x, "%lld", (long long)max);
	dr_finding_needed(x, "%llu", (unsigned long long)run->sockbuf);
	dr_finding_remedy(x, "sysctl -w net.core.%s=%llu; or leave --sockbuf out", name,
		(unsigned long long)run->sockbuf);
}

void dr_check_buffers(const char *root, const struct dr_doctor_run *run,
	const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f)
{
	int64_t mbps = 0;
	uint64_t need;

	for (unsigned i = 0; i < n; i++)
		mbps = DR_MAX(mbps, nic[i].rail.speed_mbps);
	/* Mb/s x ns = 1000 x bits. */
	need = (uint64_t)mbps * ROUND_TRIP_NS / 1000 / 8 / DR_MAX(run->channels, 1u);
	check_core(root, "rmem_max", run, f);
	check_core(root, "wmem_max", run, f);
	/* An explicit size switches the kernel's own sizing off. */
	if (run->sockbuf)
		return;
	check_tcp(root, "tcp_rmem", need, mbps, run, f);
	check_tcp(root, "tcp_wmem", need, mbps, run, f);
}

/* ---- clock ---- */

void dr_check_clock(const char *root, struct dr_findings *f)
{
	/* Those that are read by a system call and from a device: a microsecond a reading. The others
	 * are read in user space or with one instruction. */
	static const char *const slow[] = { "hpet", "acpi_pm", "pit", "jiffies",
		"refined-jiffies" };
	static const char dir[] = "/sys/devices/system/clocksource/clocksource0";
	char now[64], can[160];
	struct dr_finding *x;

	if (dr_machine_text(now, sizeof(now), root, "%s/current_clocksource", dir) <= 0) {
		dr_findings_add(f, DR_SEVERITY_NOTE, "clock", NULL,
			"not looked at: %s cannot be read here", dir);
		return;
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(slow); i++) {
		if (strcmp(now, slow[i]) != 0)
			continue;
		(void)dr_machine_text(can, sizeof(can), root, "%s/available_clocksource", dir);
		x = dr_findings_add(f, DR_SEVERITY_WARN, "clock", NULL,
			"reading this clock takes about a microsecond: latencies and CPU figures are "
			"too high");
		dr_finding_found(x, "%s", now);
		dr_finding_needed(x, "tsc, or the hypervisor's own (available: %.40s)", can);
		dr_finding_remedy(x,
			"why was tsc left? dmesg | grep -i -e tsc -e clocksource; then "
			"kernel command line: tsc=reliable");
		return;
	}
	dr_findings_add(f, DR_SEVERITY_OK, "clock", NULL, "clock source %s", now);
}

void dr_check_governor(const char *root, struct dr_findings *f)
{
	static const char dir[] = "/sys/devices/system/cpu";
	unsigned cpus = 0, saving = 0;
	struct dr_finding *x;

	for (unsigned cpu = 0; cpu < 4096 && dr_machine_has(root, "%s/cpu%u", dir, cpu); cpu++) {
		char text[32];

		if (dr_machine_text(text, sizeof(text), root, "%s/cpu%u/cpufreq/scaling_governor",
			    dir, cpu) <= 0)
			continue;
		cpus++;
		saving += strcmp(text, "powersave") == 0;
	}
	if (!cpus)
		return;
	if (!saving) {
		dr_findings_add(f, DR_SEVERITY_OK, "governor", NULL, "no CPU saves power");
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_NOTE, "governor", NULL,
		"%u of %u CPUs save power: the first milliseconds after idling are slower", saving,
		cpus);
	dr_finding_found(x, "powersave");
	dr_finding_needed(x, "performance");
	dr_finding_remedy(x, "cpupower frequency-set -g performance");
}
