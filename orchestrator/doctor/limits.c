/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

/* Bits of linux/capability.h, which has no names for people. */
enum { CAP_NET_ADMIN_BIT = 12, CAP_NET_RAW_BIT = 13, CAP_IPC_LOCK_BIT = 14 };
/* Beside the data sockets: epolls and eventfds of the workers, control, log, the guard. A server of 8 GPUs x 8
 * channels with 8 workers had 218 files open, 50 of them such; a path that is rebuilt has two for a moment. */
enum { OTHER_FILES = 64, OTHER_PROCESSES = 16 };

/* ---- /proc/self ---- */

/* Soft limit of a row of /proc/self/limits; UINT64_MAX: unlimited. */
static bool soft_limit(const char *root, const char *row, uint64_t *out)
{
	char text[4096];
	const char *at;

	if (dr_machine_text(text, sizeof(text), root, "/proc/self/limits") <= 0)
		return false;
	at = strstr(text, row);
	if (!at)
		return false;
	at += strlen(row);
	at += strspn(at, " ");
	if (strncmp(at, "unlimited", 9) == 0)
		*out = UINT64_MAX;
	else
		*out = strtoull(at, NULL, 10);
	return true;
}

static bool capabilities(const char *root, uint64_t *out)
{
	char text[8192], hex[32];

	if (dr_machine_text(text, sizeof(text), root, "/proc/self/status") <= 0 ||
		!dr_machine_line(text, "CapEff", hex, sizeof(hex)))
		return false;
	*out = strtoull(hex, NULL, 16);
	return true;
}

static bool may(uint64_t caps, int bit)
{
	return caps >> bit & 1;
}

static void unreadable(struct dr_findings *f, const char *check, const char *path)
{
	struct dr_finding *x = dr_findings_add(
		f, DR_SEVERITY_NOTE, check, NULL, "not looked at: %s cannot be read here", path);

	dr_finding_remedy(x, "mount -t proc proc /proc");
}

static void limit_text(uint64_t limit, char *buf, size_t len)
{
	if (limit == UINT64_MAX)
		snprintf(buf, len, "unlimited");
	else
		snprintf(buf, len, "%llu", (unsigned long long)limit);
}

/* "1.5 GiB" would be a lie of rounding; people compare these with what `ulimit -l` says in KiB. */
static void bytes_text(uint64_t bytes, char *buf, size_t len)
{
	if (bytes == UINT64_MAX)
		limit_text(bytes, buf, len);
	else
		dr_format_size(bytes, buf, len);
}

/* ---- checks ---- */

void dr_check_memlock(const char *root, const struct dr_doctor_run *run, struct dr_findings *f)
{
	uint64_t buffers = (uint64_t)run->gpus * run->channels * run->window * run->chunk_bytes;
	/* Pinned pages are counted once per registration, and every buffer has one on each rail. */
	uint64_t need = 2 * buffers, limit, caps = 0;
	char have[32], want[32];
	struct dr_finding *x;

	if (!soft_limit(root, "Max locked memory", &limit)) {
		unreadable(f, "memlock", "/proc/self/limits");
		return;
	}
	bytes_text(limit, have, sizeof(have));
	bytes_text(need, want, sizeof(want));
	if (limit >= need || (capabilities(root, &caps) && may(caps, CAP_IPC_LOCK_BIT))) {
		dr_findings_add(f, DR_SEVERITY_OK, "memlock", NULL, "locked memory: %s%s", have,
			limit >= need ? "" : ", lifted by IPC_LOCK");
		return;
	}
	x = dr_findings_add(f, run->verbs ? DR_SEVERITY_FAIL : DR_SEVERITY_NOTE, "memlock", NULL,
		"locked memory is limited, and this process lacks IPC_LOCK; verbs registers %u GPUs x "
		"%u channels x %u chunks with two rails%s",
		run->gpus, run->channels, run->window, run->verbs ? "" : " (tcp needs none)");
	dr_finding_found(x, "%s", have);
	dr_finding_needed(x, "%s", want);
	dr_finding_remedy(x, "ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; container: "
			     "--cap-add IPC_LOCK");
}

void dr_check_open_files(
	const char *root, const struct dr_doctor_run *run, unsigned rails, struct dr_findings *f)
{
	/* A socket per path; per GPU a listener and a datagram socket on each rail, a bootstrap one. */
	uint64_t need = (uint64_t)run->gpus * (run->channels * 2 + 2ull * DR_MAX(rails, 2u) + 1) +
			OTHER_FILES;
	struct dr_finding *x;
	uint64_t limit;

	if (!soft_limit(root, "Max open files", &limit)) {
		unreadable(f, "open-files", "/proc/self/limits");
		return;
	}
	if (limit >= need) {
		char have[32];

		limit_text(limit, have, sizeof(have));
		dr_findings_add(f, DR_SEVERITY_OK, "open-files", NULL,
			"open files: %s; about %llu are needed", have, (unsigned long long)need);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "open-files", NULL,
		"too few open files for %u GPUs x %u channels x 2 paths", run->gpus, run->channels);
	dr_finding_found(x, "%llu", (unsigned long long)limit);
	dr_finding_needed(x, "%llu", (unsigned long long)need);
	dr_finding_remedy(x, "ulimit -n %llu; systemd: LimitNOFILE=%llu", (unsigned long long)need,
		(unsigned long long)need);
}

void dr_check_processes(const char *root, const struct dr_doctor_run *run, struct dr_findings *f)
{
	uint64_t need = run->gpus + OTHER_PROCESSES, limit;
	struct dr_finding *x;

	if (!soft_limit(root, "Max processes", &limit)) {
		unreadable(f, "processes", "/proc/self/limits");
		return;
	}
	if (limit >= need) {
		dr_findings_add(f, DR_SEVERITY_OK, "processes", NULL,
			"threads and processes of this user: %s",
			limit == UINT64_MAX ? "unlimited" : "enough");
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "processes", NULL,
		"a worker thread per GPU is more than this user may have");
	dr_finding_found(x, "%llu", (unsigned long long)limit);
	dr_finding_needed(x, "%llu beside what runs already", (unsigned long long)need);
	dr_finding_remedy(x, "ulimit -u %llu", (unsigned long long)need + 1024);
}

/* Linux 5.7 lets everybody bind a socket that is not bound yet. */
static bool old_kernel(const char *root)
{
	char release[64];
	unsigned major = 0, minor = 0;

	if (dr_machine_text(release, sizeof(release), root, "/proc/sys/kernel/osrelease") <= 0 ||
		sscanf(release, "%u.%u", &major, &minor) != 2)
		return false;
	return major < 5 || (major == 5 && minor < 7);
}

void dr_check_capabilities(const char *root, struct dr_findings *f)
{
	struct dr_finding *x;
	uint64_t caps;

	if (!capabilities(root, &caps)) {
		unreadable(f, "capabilities", "/proc/self/status");
		return;
	}
	if (!may(caps, CAP_NET_RAW_BIT) && old_kernel(root)) {
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "capabilities", NULL,
			"NET_RAW is missing: a kernel before 5.7 binds no socket to a rail's device "
			"without it");
		dr_finding_remedy(
			x, "run as root, or: setcap cap_net_raw+ep $(command -v dualrail)");
	}
	if (may(caps, CAP_NET_ADMIN_BIT)) {
		dr_findings_add(f, DR_SEVERITY_OK, "capabilities", NULL,
			"NET_ADMIN is there: faults may be injected at this end");
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_NOTE, "capabilities", NULL,
		"NET_ADMIN is missing: link-down, blackhole, loss and addr-del cannot be injected at "
		"this end");
	dr_finding_remedy(x, "run as root, or use --fault close or manual");
}
