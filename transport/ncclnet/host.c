/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/host.h"

#include "transport/ncclnet/watch.h"
#include "transport/ncclnet/unpack.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * TCPX has 16 requests per comm with version 7 of the interface, where NCCL expects 32. The window of a channel is 16
 * by default, so that more would help little.
 */
enum { REQUESTS = 16, BYTES_MAX = 1 << 30 };

struct dr_nccl_host {
	struct dr_nccl_host *next;
	struct dr_nccl n;
	char *file;
	unsigned version; /* as asked for */
	unsigned users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dr_nccl_host *hosts;

/* ---- loading ---- */

static int load(const char *file, unsigned version, struct dr_nccl_host **out, struct dr_err *e)
{
	struct dr_nccl_host *h = dr_calloc(1, sizeof(*h));
	char *copy = dr_strdup(file);
	int rc = h && copy ? NN_CALL(file, "dlopen", dr_nccl_open(&h->n, file, version, e))
			   : dr_err_set(e, -ENOMEM, "out of memory");

	if (rc == 0 && h->n.missing) {
		rc = dr_err_set(e, -ENOSYS, "%.120s: ncclNetPlugin_v%u lacks %s", file,
			h->n.version, h->n.missing);
		dr_nccl_close(&h->n);
	}
	if (rc) {
		dr_free(copy);
		dr_free(h);
		return rc;
	}
	h->file = copy;
	h->version = version;
	h->next = hosts;
	hosts = h;
	*out = h;
	return 0;
}

/* Before version 11 init has no counterpart: it is called once. */
static int start(struct dr_nccl_host *h, struct dr_err *e)
{
	enum nccl_result rc;

	if (h->n.initialised)
		return 0;
	rc = (enum nccl_result)NN_CALL(h->n.name, "init", dr_nccl_init(&h->n));
	if (rc != NCCL_SUCCESS)
		return dr_err_set(e, -EIO,
			"init of plugin %.40s returned %d, %s; set NCCL_DEBUG=INFO to see the plugin's reason",
			h->n.name, (int)rc, dr_nccl_result_name(rc));
	dr_debug("nccl", "plugin %s of %s, interface v%u", h->n.name, h->file, h->n.version);
	return 0;
}

int dr_nccl_host_get(
	const char *file, unsigned version, struct dr_nccl_host **out, struct dr_err *e)
{
	struct dr_nccl_host *h;
	int rc = 0;

	if (!file || !*file)
		return dr_err_set(e, -EINVAL,
			"no file of a plugin was given; use --transport nccl:FILE at both ends");
	(void)pthread_mutex_lock(&lock);
	dr_nn_watch_start();
	for (h = hosts; h; h = h->next)
		if (h->version == version && strcmp(h->file, file) == 0)
			break;
	if (!h)
		rc = load(file, version, &h, e);
	if (rc == 0)
		rc = start(h, e);
	if (rc == 0) {
		h->users++;
		*out = h;
	} else {
		dr_nn_watch_stop();
	}
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

void dr_nccl_host_keep(struct dr_nccl_host *h)
{
	(void)pthread_mutex_lock(&lock);
	dr_nn_watch_start();
	h->users++;
	(void)pthread_mutex_unlock(&lock);
}

void dr_nccl_host_put(struct dr_nccl_host *h)
{
	enum nccl_result rc = NCCL_SUCCESS;

	(void)pthread_mutex_lock(&lock);
	dr_assert(h->users > 0);
	if (--h->users == 0)
		rc = (enum nccl_result)NN_CALL(h->n.name, "finalize", dr_nccl_finalize(&h->n));
	dr_nn_watch_stop();
	(void)pthread_mutex_unlock(&lock);
	if (rc != NCCL_SUCCESS)
		dr_warn("nccl", "finalize of plugin %s returned %d, %s", h->n.name, (int)rc,
			dr_nccl_result_name(rc));
}

const struct dr_nccl *dr_nccl_host_plugin(const struct dr_nccl_host *h)
{
	return &h->n;
}

/* ---- devices ---- */

static bool is_rdma_of(const char *device, const char *ifname)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/net/%s", device, ifname);
	return access(path, F_OK) == 0;
}

/* The PCI function of a net device; a device of virtio is below it. */
static bool same_pci(const char *pci_path, const char *ifname)
{
	char link[PATH_MAX], own[PATH_MAX], other[PATH_MAX];
	size_t n;

	snprintf(link, sizeof(link), "/sys/class/net/%s/device", ifname);
	if (!pci_path || !*pci_path || !realpath(link, own) || !realpath(pci_path, other))
		return false;
	n = strlen(other);
	return strncmp(own, other, n) == 0 && (own[n] == '\0' || own[n] == '/');
}

static bool is_on(const struct dr_nccl_properties *p, const char *ifname)
{
	if (p->name && strcmp(p->name, ifname) == 0)
		return true;
	if (p->name && !strchr(p->name, '/') && is_rdma_of(p->name, ifname))
		return true;
	return same_pci(p->pci_path, ifname);
}

/* GPUDirect-TCPX and its like. */
static int use_unpack(const struct dr_nccl *n, const struct dr_nccl_properties *p, int dev,
	struct dr_nccl_device *out, struct dr_err *e)
{
	if (p->device_version != NN_UNPACK_VERSION || !n->consumed)
		return dr_err_set(e, -ENOSYS,
			"device %d of plugin %.40s has unpack version %d%s; only version %d with irecvConsumed "
			"is supported",
			dev, n->name, p->device_version,
			n->consumed ? "" : ", without irecvConsumed", NN_UNPACK_VERSION);
	out->unpack = true;
	out->bytes_max = DR_MIN(out->bytes_max, (size_t)NN_UNPACK_BYTES_MAX);
	return dr_nn_unpack_check_env(n->name, e);
}

static int use(const struct dr_nccl *n, const struct dr_nccl_properties *p, int dev,
	struct dr_nccl_device *out, struct dr_err *e)
{
	if (p->device_type != NCCL_NET_DEVICE_HOST && p->device_type != NCCL_NET_DEVICE_UNPACK)
		return dr_err_set(e, -ENOSYS,
			"device %d of plugin %.40s is of type %d, which --transport nccl does not support",
			dev, n->name, p->device_type);
	if (!(p->ptr_support & NCCL_PTR_HOST))
		return dr_err_set(e, -ENOSYS,
			"device %d of plugin %.40s does not support host memory", dev, n->name);
	*out = (struct dr_nccl_device){ .dev = dev,
		.requests = n->version == 6 ? (unsigned)NCCL_NET_REQUESTS_MAX_V6 : REQUESTS,
		.bytes_max = DR_MIN(p->p2p_bytes, (size_t)BYTES_MAX),
		.cuda = p->ptr_support & NCCL_PTR_CUDA,
		.dmabuf = (p->ptr_support & NCCL_PTR_DMABUF) && n->reg_dmabuf,
		.can_flush = n->flush != NULL,
		.force_flush = p->force_flush };
	return p->device_type == NCCL_NET_DEVICE_UNPACK ? use_unpack(n, p, dev, out, e) : 0;
}

int dr_nccl_host_device(const struct dr_nccl_host *h, const char *ifname,
	struct dr_nccl_device *out, struct dr_err *e)
{
	const struct dr_nccl *n = &h->n;
	struct dr_nccl_properties p;
	char names[128] = "";
	int ndev = 0, dev;
	enum nccl_result rc = (enum nccl_result)NN_CALL(n->name, "devices", n->devices(&ndev));

	for (dev = 0; rc == NCCL_SUCCESS && dev < ndev; dev++) {
		rc = (enum nccl_result)NN_CALL(
			n->name, "getProperties", dr_nccl_properties(n, dev, &p));
		if (rc == NCCL_SUCCESS && is_on(&p, ifname))
			return use(n, &p, dev, out, e);
		dr_append(names, sizeof(names), "%s%s", dev ? ", " : "", p.name ? p.name : "?");
	}
	if (rc != NCCL_SUCCESS)
		return dr_err_set(e, -EIO,
			"plugin %.40s: %s failed: %s; set NCCL_DEBUG=INFO to see the plugin's reason",
			n->name, ndev ? "getProperties" : "devices", dr_nccl_result_name(rc));
	return dr_err_set(e, -ENODEV,
		"plugin %.40s has no device on %.40s; it has %s; name NICs of its devices with --rails",
		n->name, ifname, *names ? names : "none");
}
