/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"

#include "base/limits.h"
#include "base/units.h"
#include "orchestrator/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bit numbers, as in linux/capability.h. */
enum { CAP_NET_ADMIN_BIT = 12, CAP_IPC_LOCK_BIT = 14 };

/* ---- /proc/self ---- */

/* The number behind `row` in a file of /proc/self, or the second one; UINT64_MAX: unlimited. */
static bool number_at(const struct dr_doctor *d, const char *file, const char *row, int radix,
	bool second, uint64_t *out)
{
	char text[8192];
	const char *at = NULL;

	if (dr_sysfile_text(text, sizeof(text), d->root, "/proc/self/%s", file) > 0)
		at = strstr(text, row);
	if (!at)
		return false;
	at += strlen(row);
	at += strspn(at, " \t");
	if (second)
		at += strcspn(at, " ") + strspn(at + strcspn(at, " "), " ");
	*out = strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, radix);
	return true;
}

/* The soft or the hard limit; without it a note. */
static bool limit_of(
	struct dr_doctor *d, const char *check, const char *row, bool hard, uint64_t *out)
{
	bool known = number_at(d, "limits", row, 10, hard, out);

	if (!known)
		dr_findings_unreadable(&d->f, check, "/proc/self/limits");
	return known;
}

/* 1: this process has the capability; 0: not; -1: unknown. */
static int may(const struct dr_doctor *d, int bit)
{
	uint64_t caps;

	return number_at(d, "status", "\nCapEff:", 16, false, &caps) ? (int)(caps >> bit & 1) : -1;
}

/* In units of bytes exact, never rounded: users compare the value with `ulimit -l`. */
static void limit_text(uint64_t limit, bool bytes, char *buf, size_t len)
{
	if (limit == UINT64_MAX)
		snprintf(buf, len, "unlimited");
	else if (bytes)
		dr_format_size(limit, buf, len);
	else
		snprintf(buf, len, "%" PRIu64, limit);
}

/* ---- checks ---- */

void dr_check_memlock(struct dr_doctor *d)
{
	const struct dr_doctor_run *run = &d->run;
	uint64_t buffers = (uint64_t)run->gpus * run->channels * run->window * run->chunk_bytes;
	/* The kernel counts pinned pages once per registration; every buffer is registered on two rails. */
	uint64_t need = 2 * buffers, limit;
	bool bypass = run->kind->bypass;
	char have[32], want[32];

	if (!limit_of(d, "memlock", "Max locked memory", false, &limit))
		return;
	limit_text(limit, true, have, sizeof(have));
	limit_text(need, true, want, sizeof(want));
	if (limit >= need || may(d, CAP_IPC_LOCK_BIT) > 0) {
		dr_find_ok(d, "memlock", NULL, "locked memory: %s%s", have,
			limit >= need ? "" : ", not enforced: IPC_LOCK");
		return;
	}
	dr_findings_add(&d->f, bypass ? DR_SEVERITY_FAIL : DR_SEVERITY_NOTE, "memlock", NULL,
		"locked memory is limited and this process lacks IPC_LOCK; %s registers %u GPUs x "
		"%u channels x %u chunks on two rails\n"
		"%s\n"
		"%s\n"
		"ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; container: --cap-add IPC_LOCK",
		bypass ? run->kind->name : "a transport that bypasses the kernel", run->gpus,
		run->channels, run->window, have, want);
}

/* A run raises the soft limit itself. */
void dr_check_open_files(struct dr_doctor *d)
{
	uint64_t need = dr_plan_files(d->run.gpus, d->run.channels, DR_MAX(d->n, 2u)), limit;
	char have[32];

	if (!limit_of(d, "open-files", "Max open files", true, &limit))
		return;
	limit_text(limit, false, have, sizeof(have));
	if (limit >= need)
		dr_find_ok(d, "open-files", NULL, "open files: %s; a run needs about %" PRIu64,
			have, need);
	else
		dr_find_fail(d, "open-files", NULL,
			"the hard limit of open files is too low for %u GPUs x %u channels x 2 paths\n"
			"%s\n"
			"%" PRIu64 "\n"
			"ulimit -n %" PRIu64 " as root; systemd: LimitNOFILE=%" PRIu64,
			d->run.gpus, d->run.channels, have, need, need, need);
}

/* Periods in which processes waited for their next one, since the group exists. */
void dr_check_cpu_quota(struct dr_doctor *d)
{
	struct dr_limit_cpu c;

	dr_limit_cpu(d->root, &c);
	if (!(c.cpus > 0))
		dr_find_ok(d, "cpu-quota", NULL, "no quota of processor time (cgroup cpu.max)");
	else if (!c.throttled)
		dr_find_ok(d, "cpu-quota", NULL, "cpu.max: %.3g CPUs, never throttled", c.cpus);
	else
		dr_find_warn(d, "cpu-quota", NULL,
			"the cgroup's quota of processor time has stopped its processes %lld times, for "
			"%.3g s: figures are low and failures are detected late\n"
			"cpu.max: %.3g CPUs\n"
			"no quota, or a CPU per GPU and two more\n"
			"set cpu.max of the cgroup to max; Kubernetes: no CPU limit",
			(long long)c.throttled, (double)c.throttled_ns / 1e9, c.cpus);
}

void dr_check_capabilities(struct dr_doctor *d)
{
	int admin = may(d, CAP_NET_ADMIN_BIT);

	if (admin < 0)
		dr_findings_unreadable(&d->f, "capabilities", "/proc/self/status");
	else if (admin)
		dr_find_ok(d, "capabilities", NULL,
			"NET_ADMIN is present: faults can be injected at this end");
	else
		dr_find_note(d, "capabilities", NULL,
			"NET_ADMIN is missing: link-down, blackhole, loss and addr-del cannot be injected at "
			"this end\n\n\n"
			"run as root, or use --fault close or manual");
}
