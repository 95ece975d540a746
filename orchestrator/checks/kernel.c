/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"

#include "base/units.h"

#include <inttypes.h>
#include <string.h>

/* ---- socket buffers ---- */

/* Round trip across a data centre, including queues. A buffer must hold the data of this time at line rate. */
#define ROUND_TRIP_NS DR_NS_PER_MS

/* The third number of net.ipv4.tcp_rmem or _wmem: the limit of buffer auto-tuning. */
static bool tcp_max(const struct dr_doctor *d, const char *name, uint64_t *out)
{
	char text[96];

	return dr_sysfile_text(text, sizeof(text), d->root, "/proc/sys/net/ipv4/%s", name) > 0 &&
	       sscanf(text, "%*u %*u %" SCNu64, out) == 1;
}

static void check_tcp(struct dr_doctor *d, const char *name, uint64_t need, int64_t mbps)
{
	uint64_t max;

	if (!tcp_max(d, name, &max))
		return;
	if (max >= need)
		dr_find_ok(d, "buffers", NULL,
			"net.ipv4.%s: the buffer of a connection can grow to %" PRIu64 " bytes",
			name, max);
	else
		dr_find_warn(d, "buffers", NULL,
			"net.ipv4.%s: the buffers are too small for the %u channels of one GPU to fill a rail "
			"of %" PRId64 " Gb/s at a round trip of 1 ms\n"
			"%" PRIu64 "\n"
			"%" PRIu64 "\n"
			"sysctl -w net.ipv4.%s='4096 131072 %" PRIu64 "'; or use more --channels",
			name, d->run.channels, mbps / 1000, max, need, name, need);
}

static void check_core(struct dr_doctor *d, const char *name)
{
	uint64_t wanted = d->run.sockbuf;
	int64_t max;

	if (dr_sysfile_number(&max, d->root, "/proc/sys/net/core/%s", name) &&
		(uint64_t)max < wanted)
		dr_find_warn(d, "buffers", NULL,
			"net.core.%s is below --sockbuf: the kernel reduces the size without an error\n"
			"%" PRId64 "\n"
			"%" PRIu64 "\n"
			"sysctl -w net.core.%s=%" PRIu64 "; or omit --sockbuf",
			name, max, wanted, name, wanted);
}

void dr_check_buffers(struct dr_doctor *d)
{
	int64_t mbps = 0;

	/* An explicit size disables auto-tuning. */
	if (d->run.sockbuf) {
		check_core(d, "rmem_max");
		check_core(d, "wmem_max");
		return;
	}
	for (unsigned i = 0; i < d->n; i++)
		mbps = DR_MAX(mbps, d->nic[i].rail.speed_mbps);
	/* Mb/s x ns = 1000 x bits. */
	uint64_t need = (uint64_t)mbps * ROUND_TRIP_NS / 1000 / 8 / DR_MAX(d->run.channels, 1u);
	check_tcp(d, "tcp_rmem", need, mbps);
	check_tcp(d, "tcp_wmem", need, mbps);
}

/* ---- clock ---- */

void dr_check_clock(struct dr_doctor *d)
{
	/* These need a system call and a device access, about 1 us per reading. The others are read in
	 * user space. */
	static const char slow[] = " hpet acpi_pm pit jiffies refined-jiffies ";
	static const char dir[] = "/sys/devices/system/clocksource/clocksource0";
	char now[64], word[68], can[160];

	if (dr_sysfile_text(now, sizeof(now), d->root, "%s/current_clocksource", dir) <= 0) {
		dr_findings_unreadable(&d->f, "clock", dir);
		return;
	}
	snprintf(word, sizeof(word), " %s ", now);
	if (!strstr(slow, word)) {
		dr_find_ok(d, "clock", NULL, "clock source %s", now);
		return;
	}
	(void)dr_sysfile_text(can, sizeof(can), d->root, "%s/available_clocksource", dir);
	dr_find_warn(d, "clock", NULL,
		"reading this clock takes about 1 us: measured latency and CPU use are too high\n"
		"%s\n"
		"tsc, or the clock of the hypervisor (available: %.40s)\n"
		"find out why the kernel rejected tsc: dmesg | grep -i -e tsc -e clocksource; "
		"then add tsc=reliable to the kernel command line",
		now, can);
}

void dr_check_governor(struct dr_doctor *d)
{
	static const char dir[] = "/sys/devices/system/cpu";
	unsigned cpus = 0, saving = 0;
	char text[32];

	for (unsigned cpu = 0; cpu < 4096 && dr_sysfile_has(d->root, "%s/cpu%u", dir, cpu); cpu++) {
		if (dr_sysfile_text(text, sizeof(text), d->root,
			    "%s/cpu%u/cpufreq/scaling_governor", dir, cpu) <= 0)
			continue;
		cpus++;
		saving += strcmp(text, "powersave") == 0;
	}
	if (saving)
		dr_find_note(d, "governor", NULL,
			"%u of %u CPUs use the powersave governor: the first milliseconds after idling are slower\n"
			"powersave\n"
			"performance\n"
			"cpupower frequency-set -g performance",
			saving, cpus);
	else if (cpus)
		dr_find_ok(d, "governor", NULL, "no CPU uses the powersave governor");
}
