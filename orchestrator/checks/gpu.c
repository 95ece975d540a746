/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"

#include <string.h>

/* NVIDIA's requirements for GPUDirect RDMA through dma-buf (GPU Operator documentation, "GPUDirect
 * RDMA"): Linux 5.12, the open kernel modules, CUDA 11.7, which came with driver 515. */
enum { DMABUF_DRIVER = 515 };

struct driver {
	char version[32]; /* "535.129.03" */
	unsigned major;
	bool open; /* the open kernel modules */
};

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build ...": the first
 * word that begins with a digit and has a dot. */
static bool read_driver(const struct dr_doctor *d, struct driver *out)
{
	char text[512], *save = NULL;

	memset(out, 0, sizeof(*out));
	if (dr_sysfile_text(text, sizeof(text), d->root, "/proc/driver/nvidia/version") <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	out->open = strstr(text, "Open Kernel Module") != NULL;
	for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (*w < '0' || *w > '9' || sscanf(w, "%u.", &out->major) != 1 || !strchr(w, '.'))
			continue;
		snprintf(out->version, sizeof(out->version), "%s", w);
		return true;
	}
	return false;
}

void dr_check_gpu_driver(struct dr_doctor *d)
{
	unsigned gpus = d->pci_gpus;
	struct driver v;

	if (read_driver(d, &v)) {
		dr_find_ok(d, "gpu-driver", NULL, "NVIDIA driver %s%s, %u GPU%s on the PCI bus",
			v.version, v.open ? " (open kernel modules)" : "", gpus,
			gpus == 1 ? "" : "s");
	} else if (gpus) {
		dr_find_warn(d, "gpu-driver", NULL,
			"%u NVIDIA GPU%s on the PCI bus, but no driver: only host memory can be used\n"
			"no /proc/driver/nvidia/version\n"
			"the nvidia kernel module\n"
			"modprobe nvidia; in a container: --gpus all",
			gpus, gpus == 1 ? "" : "s");
	} else {
		dr_find_note(d, "gpu-driver", NULL,
			"no NVIDIA GPU and no driver: only host memory can be used");
	}
}

/* ---- GPUDirect RDMA ---- */

/* True if the kernel's configuration can be read and lacks dma-buf. */
static bool configured_out(const struct dr_doctor *d)
{
	static const char option[] = "CONFIG_DMA_SHARED_BUFFER=y";
	char release[64], path[DR_SYSFILE_PATH_MAX], line[256];
	bool found = false, read = false;
	FILE *f;

	(void)dr_sysfile_text(release, sizeof(release), d->root, "/proc/sys/kernel/osrelease");
	if (!dr_sysfile_path(path, sizeof(path), d->root, "/boot/config-%s", release))
		return false;
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		read = true;
		found = strncmp(line, option, sizeof(option) - 1) == 0;
	}
	if (f)
		fclose(f);
	return read && !found;
}

static bool is_older(const struct dr_doctor *d, unsigned than_major, unsigned than_minor)
{
	unsigned major, minor;
	char release[64];

	return dr_sysfile_text(release, sizeof(release), d->root, "/proc/sys/kernel/osrelease") <=
		       0 ||
	       sscanf(release, "%u.%u", &major, &minor) != 2 || major < than_major ||
	       (major == than_major && minor < than_minor);
}

/* Why dma-buf does not work; NULL: it should work. */
static const char *no_dmabuf(const struct dr_doctor *d, const struct driver *v)
{
	if (is_older(d, 5, 12))
		return "the kernel is older than 5.12";
	if (configured_out(d))
		return "the kernel was built without CONFIG_DMA_SHARED_BUFFER";
	if (!v->open)
		return "the driver does not use the open kernel modules";
	if (v->major < DMABUF_DRIVER)
		return "the driver is older than 515";
	return NULL;
}

void dr_check_gpu_rdma(struct dr_doctor *d)
{
	bool peermem = dr_sysfile_has(d->root, "/sys/module/nvidia_peermem");
	enum dr_severity bad =
		d->bypass || d->run.kind->bypass ? DR_SEVERITY_WARN : DR_SEVERITY_NOTE;
	struct driver v;

	if (!read_driver(d, &v))
		return;
	const char *why = no_dmabuf(d, &v);
	if (!why || peermem)
		dr_find_ok(d, "gpu-rdma", NULL, "RDMA NICs access GPU memory through %s",
			!why ? "dma-buf" : "nvidia_peermem");
	else
		dr_findings_add(&d->f, bad, "gpu-rdma", NULL,
			"RDMA NICs cannot access GPU memory: data is copied through host memory\n"
			"%s; nvidia_peermem is not loaded\n"
			"dma-buf or nvidia_peermem\n"
			"modprobe nvidia-peermem; or install the driver's open kernel modules",
			why);
}
