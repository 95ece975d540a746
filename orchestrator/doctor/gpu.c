/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include <string.h>

/* NVIDIA's requirements for GPUDirect RDMA through dma-buf (GPU Operator documentation, "GPUDirect
 * RDMA"): Linux 5.12, the open kernel modules, CUDA 11.7, which came with driver 515. */
enum { DMABUF_MAJOR = 5, DMABUF_MINOR = 12, DMABUF_DRIVER = 515 };

struct driver {
	char version[32]; /* "535.129.03" */
	unsigned major;
	bool open; /* the open kernel modules */
};

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build ...": the first
 * word that begins with a digit and has a dot. */
static bool read_driver(const char *root, struct driver *d)
{
	char text[512], *save = NULL;

	memset(d, 0, sizeof(*d));
	if (dr_machine_text(text, sizeof(text), root, "/proc/driver/nvidia/version") <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	d->open = strstr(text, "Open Kernel Module") != NULL;
	for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (*w < '0' || *w > '9' || sscanf(w, "%u.", &d->major) != 1 || !strchr(w, '.'))
			continue;
		snprintf(d->version, sizeof(d->version), "%s", w);
		return true;
	}
	return false;
}

void dr_check_gpu_driver(const char *root, unsigned gpus, struct dr_findings *f)
{
	struct dr_finding *x;
	struct driver d;

	if (read_driver(root, &d)) {
		dr_findings_add(f, DR_SEVERITY_OK, "gpu-driver", NULL,
			"NVIDIA driver %s%s, %u GPU%s on the PCI bus", d.version,
			d.open ? " (open kernel modules)" : "", gpus, gpus == 1 ? "" : "s");
	} else if (gpus) {
		x = dr_findings_add(f, DR_SEVERITY_WARN, "gpu-driver", NULL,
			"%u NVIDIA GPU%s on the PCI bus, but no driver: host memory only", gpus,
			gpus == 1 ? "" : "s");
		dr_finding_found(x, "no /proc/driver/nvidia/version");
		dr_finding_needed(x, "the nvidia kernel module");
		dr_finding_remedy(x, "modprobe nvidia; in a container: --gpus all");
	} else {
		dr_findings_add(f, DR_SEVERITY_NOTE, "gpu-driver", NULL,
			"no NVIDIA GPU and no driver here: host memory only");
	}
}

/* ---- GPU memory for an RDMA NIC ---- */

static bool kernel_is_new(const char *root, char *release, size_t len)
{
	unsigned major = 0, minor = 0;

	if (dr_machine_text(release, len, root, "/proc/sys/kernel/osrelease") <= 0 ||
		sscanf(release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > DMABUF_MAJOR || (major == DMABUF_MAJOR && minor >= DMABUF_MINOR);
}

/* Does the kernel's configuration say no? One that cannot be read says nothing. */
static bool configured_out(const char *root, const char *release)
{
	/* Ubuntu's and Debian's are about 280 KB. */
	static const char option[] = "\nCONFIG_DMA_SHARED_BUFFER=y";
	char path[DR_MACHINE_PATH_MAX], line[256];
	bool found = false, read = false;
	FILE *f;

	if (!dr_machine_path(path, sizeof(path), root, "/boot/config-%s", release))
		return false;
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		read = true;
		found = strncmp(line, option + 1, sizeof(option) - 2) == 0;
	}
	if (f)
		fclose(f);
	return read && !found;
}

/* Why dma-buf does not work here; NULL: it should. */
static const char *no_dmabuf(const char *root, const struct driver *d)
{
	char release[64];

	if (!kernel_is_new(root, release, sizeof(release)))
		return "the kernel is older than 5.12";
	if (configured_out(root, release))
		return "the kernel was built without CONFIG_DMA_SHARED_BUFFER";
	if (!d->open)
		return "the driver is not the one with open kernel modules";
	if (d->major < DMABUF_DRIVER)
		return "the driver is older than 515";
	return NULL;
}

void dr_check_gpu_rdma(
	const char *root, const struct dr_doctor_run *run, bool rdma, struct dr_findings *f)
{
	bool peermem = dr_machine_has(root, "/sys/module/nvidia_peermem");
	struct dr_finding *x;
	const char *why;
	struct driver d;

	if (!read_driver(root, &d))
		return;
	why = no_dmabuf(root, &d);
	if (!why || peermem) {
		dr_findings_add(f, DR_SEVERITY_OK, "gpu-rdma", NULL,
			"RDMA NICs reach GPU memory through %s",
			!why ? "dma-buf" : "nvidia_peermem");
		return;
	}
	x = dr_findings_add(f, rdma || run->verbs ? DR_SEVERITY_WARN : DR_SEVERITY_NOTE, "gpu-rdma",
		NULL, "no way for RDMA NICs into GPU memory: data goes through host memory");
	dr_finding_found(x, "%s; nvidia_peermem is not loaded", why);
	dr_finding_needed(x, "dma-buf or nvidia_peermem");
	dr_finding_remedy(x, "modprobe nvidia-peermem; or the driver's open kernel modules");
}
