/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/plugin.h"

#include "base/log.h"
#include "orchestrator/checks/plugin_priv.h"
#include "orchestrator/output/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* The command: one case to load the plugin, then each case for each device. */

static void print_memory(int support, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s%s", support & NCCL_PTR_HOST ? "host" : "no host",
		support & NCCL_PTR_CUDA ? ",cuda" : "",
		support & NCCL_PTR_DMABUF ? ",dma-buf" : "");
}

static void print_plugin(const struct plugin_shared *sh, const char *file)
{
	printf("%s: plugin %.63s, interface v%u of", file, sh->name, sh->version);
	for (unsigned v = DR_NCCL_OLDEST; v <= DR_NCCL_NEWEST; v++)
		if (sh->exported & 1u << v)
			printf(" v%u", v);
	printf("\n\n%-3s %-16s %10s %-18s %8s %8s %6s  %s\n", "dev", "name", "Mb/s", "memory",
		"maxComms", "maxRecvs", "type", "PCI");
	for (int i = 0; i < sh->n_devices; i++) {
		const struct plugin_device *d = &sh->device[i];
		char memory[32];

		print_memory(d->p.ptr_support, memory, sizeof(memory));
		printf("%-3d %-16.47s %10d %-18s %8d %8d %6s  %.95s\n", i, d->name, d->p.speed_mbps,
			memory, d->p.max_comms, d->p.max_recvs,
			d->p.device_type == NCCL_NET_DEVICE_HOST     ? "host"
			: d->p.device_type == NCCL_NET_DEVICE_UNPACK ? "unpack"
								     : "other",
			d->pci[0] ? d->pci : "-");
	}
	printf("\n");
}

/* Returns the number of violations. Notes are printed once. */
static unsigned print_findings(
	const struct plugin_shared *sh, int dev, const char *name, unsigned *noted)
{
	unsigned n = atomic_load(&sh->n), violations = 0;
	char where[16];

	snprintf(where, sizeof(where), dev < 0 ? "-" : "%d", dev);
	for (unsigned i = 0; i < n; i++) {
		enum plugin_rule r = sh->finding[i].rule;
		bool note = r >= RULE_NOTES && r < RULE_N;

		violations += !note;
		if (note && *noted & 1u << r)
			continue;
		*noted |= note ? 1u << r : 0;
		printf("%-10s dev %-3s %-10s %-11s %.199s\n", note ? "NOTE" : "VIOLATION", where,
			name, plugin_rule_name(r), sh->finding[i].text);
	}
	return violations;
}

/* -1: the case could not be run. What the plugin started may still write into sh: out is a copy. */
static int run_case(const struct dr_options *o, const struct plugin_case *c, int dev,
	struct plugin_shared *sh, struct plugin_shared *out)
{
	int rc;

	fflush(NULL);
	memset(sh, 0, sizeof(*sh));
	rc = plugin_run(c, o, dev, sh);
	memcpy(out, sh, sizeof(*out));
	out->n = DR_MIN(out->n, (unsigned)PLUGIN_FINDINGS);
	out->n_devices = DR_MIN(out->n_devices, (int)PLUGIN_DEVICES);
	if (rc)
		dr_complain("no process for the check: %s", dr_errno_name(rc));
	else if (out->err.code)
		dr_complain("%.255s", out->err.text);
	return rc || out->err.code ? -1 : 0;
}

/* Each of the other cases would wait as long for the same finding. */
static bool ends_device(const struct plugin_shared *sh)
{
	static const enum plugin_rule slow[] = { RULE_HANG, RULE_BLOCKS, RULE_CONNECT, RULE_LOST,
		RULE_LEAK };

	for (unsigned i = 0; i < atomic_load(&sh->n); i++)
		for (size_t k = 0; k < DR_ARRAY_LEN(slow); k++)
			if (sh->finding[i].rule == slow[k])
				return true;
	return false;
}

static bool is_checkable(const struct plugin_device *d)
{
	return d->p.device_type == NCCL_NET_DEVICE_HOST && (d->p.ptr_support & NCCL_PTR_HOST);
}

/* Returns the number of violations; -1: a case could not be run. */
static int check_device(const struct dr_options *o, int dev, struct plugin_shared *sh)
{
	struct plugin_shared got;
	unsigned violations = 0, noted = o->quiet ? ~0u : 0;

	for (size_t i = 0; i < plugin_n_cases; i++) {
		const struct plugin_case *c = &plugin_cases[i];
		unsigned n;

		if (run_case(o, c, dev, sh, &got))
			return -1;
		n = print_findings(&got, dev, c->name, &noted);
		violations += n;
		if (n == 0 && !o->quiet) {
			printf("ok         dev %-3d %-10s %s", dev, c->name, c->what);
			if (got.in_flight)
				printf(" (irecv took %u at once)", got.in_flight);
			printf("\n");
		}
		if (ends_device(&got)) {
			printf("SKIP       dev %-3d the other checks, after what did not end\n",
				dev);
			break;
		}
	}
	return (int)violations;
}

static int check(const struct dr_options *o, struct plugin_shared *sh)
{
	unsigned violations, broken, skipped = 0, noted = 0;
	struct plugin_shared loaded;

	if (run_case(o, &plugin_load_case, -1, sh, &loaded))
		return DR_EXIT_ENV;
	violations = broken = print_findings(&loaded, -1, plugin_load_case.name, &noted);
	if (!broken && !o->quiet)
		print_plugin(&loaded, o->file);
	for (int dev = 0; dev < loaded.n_devices && !broken; dev++) {
		int n;

		if (!is_checkable(&loaded.device[dev])) {
			printf("SKIP       dev %-3d moves no data in host memory without a GPU\n",
				dev);
			skipped++;
			continue;
		}
		n = check_device(o, dev, sh);
		if (n < 0)
			return DR_EXIT_ENV;
		violations += (unsigned)n;
	}
	if (violations)
		printf("%u violation%s\n", violations, violations == 1 ? "" : "s");
	else if (!o->quiet)
		printf("no violation%s\n", skipped ? ", but devices were not checked" : "");
	return violations ? DR_EXIT_TRANSPORT : DR_EXIT_PASS;
}

int dr_plugin_main(const struct dr_options *o)
{
	struct plugin_shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (sh == MAP_FAILED) {
		dr_complain("out of memory");
		return DR_EXIT_ENV;
	}
	int rc = check(o, sh);
	munmap(sh, sizeof(*sh));
	return rc;
}
