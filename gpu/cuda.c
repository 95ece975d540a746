/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Checked in this order: the library, its version, its symbols, then cuInit. A driver that is too old is
 * reported as such and not by the first symbol that it lacks.
 */
struct symbol {
	const char *name;
	size_t at;
	bool optional;
};

#define NEEDED(field, symbol, args) { #symbol, offsetof(struct dr_cuda, field), false },
#define OPTIONAL(field, symbol, args) { #symbol, offsetof(struct dr_cuda, field), true },
static const struct symbol symbols[] = { DR_CUDA_CALLS(NEEDED, OPTIONAL) };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dr_cuda table;
static bool loaded, initialised;

/* ---- results ---- */

#define STUB_REMEDY                                                                                \
	"this is the CUDA toolkit's stub library, not a driver: remove its stubs folder from LD_LIBRARY_PATH"

struct meaning {
	unsigned result;
	int err;
	const char *remedy; /* NULL: no general one */
};

static const struct meaning meanings[] = {
	{ DR_CUDA_INVALID_VALUE, -EINVAL, NULL },
	{ DR_CUDA_OUT_OF_MEMORY, -ENOMEM, NULL },
	{ DR_CUDA_STUB_LIBRARY, -ENOSYS, STUB_REMEDY },
	{ DR_CUDA_DEVICE_UNAVAILABLE, -EIO,
		"another process uses the GPU exclusively: check the compute mode (nvidia-smi -q -d COMPUTE)" },
	{ DR_CUDA_NO_DEVICE, -ENODEV,
		"check nvidia-smi and CUDA_VISIBLE_DEVICES (in a container: --gpus all), or use --memory host" },
	{ DR_CUDA_INVALID_DEVICE, -ENODEV, NULL },
	{ DR_CUDA_INVALID_CONTEXT, -EINVAL, NULL },
	{ DR_CUDA_OPERATING_SYSTEM, -EIO,
		"check that the kernel module is loaded and that this user may open /dev/nvidia* (nvidia-smi)" },
	{ DR_CUDA_INVALID_HANDLE, -EINVAL, NULL },
	{ DR_CUDA_NOT_PERMITTED, -EPERM, NULL },
	{ DR_CUDA_NOT_SUPPORTED, -ENOTSUP, NULL },
	{ DR_CUDA_SYSTEM_NOT_READY, -EIO,
		"a machine with NVSwitch needs the fabric manager: systemctl start nvidia-fabricmanager" },
	{ DR_CUDA_SYSTEM_DRIVER_MISMATCH, -ENOSYS,
		"the versions of libcuda and the kernel module differ: reboot, or install the same version of both" },
	{ DR_CUDA_COMPAT_NOT_SUPPORTED, -ENOSYS,
		"this GPU does not support CUDA's compatibility library: use the driver's own libcuda.so.1" },
	{ DR_CUDA_UNKNOWN, -EIO,
		"check that `nvidia-smi` works and /dev/nvidia-uvm exists (modprobe nvidia-uvm)" },
};

static const struct meaning *find_meaning(unsigned result)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(meanings); i++)
		if (meanings[i].result == result)
			return &meanings[i];
	return NULL;
}

int dr_cuda_fail(const struct dr_cuda *c, unsigned result, struct dr_err *e, const char *what, ...)
{
	const struct meaning *m = find_meaning(result);
	const char *name = NULL, *description = NULL;
	char text[128];
	va_list ap;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	if (c->get_error_name(result, &name) || !name)
		name = "unknown error";
	if (c->get_error_string(result, &description) || !description)
		description = "no description";
	return dr_err_set(e, m ? m->err : -EIO, "%s: %s (%u, %s)%s%s", text, name, result,
		description, m && m->remedy ? "; " : "", m && m->remedy ? m->remedy : "");
}

/* ---- the library ---- */

static int open_library(const char *name, void **lib, struct dr_err *e)
{
	*lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (*lib)
		return 0;
	const char *why = dlerror();
	return dr_err_set(e, -ENOENT,
		"%s; install the NVIDIA driver (in a container: --gpus all), or use --memory host",
		why ? why : name);
}

static int lacks(const char *name, const char *symbol, struct dr_err *e)
{
	return dr_err_set(e, -ENOSYS,
		"%s lacks %s: it is older than CUDA %d.%d or not the CUDA driver; install the NVIDIA driver",
		name, symbol, DR_CUDA_VERSION_MIN / 1000, DR_CUDA_VERSION_MIN % 1000 / 10);
}

/* POSIX returns functions as void *. The bytes are copied because C has no cast between the two. */
static int check_version(void *lib, const char *name, struct dr_err *e)
{
	unsigned (*get_version)(int *version);
	void *p = dlsym(lib, "cuDriverGetVersion");
	int version = 0;

	if (!p)
		return lacks(name, "cuDriverGetVersion", e);
	memcpy(&get_version, &p, sizeof(p));
	unsigned result = get_version(&version);
	if (result)
		return dr_err_set(e, -ENOSYS, "cannot read the version of %s (CUDA error %u); %s",
			name, result,
			result == DR_CUDA_STUB_LIBRARY ? STUB_REMEDY
						       : "reinstall the NVIDIA driver");
	if (version >= DR_CUDA_VERSION_MIN)
		return 0;
	return dr_err_set(e, -ENOSYS,
		"the NVIDIA driver is too old: it supports CUDA %d.%d, at least %d.%d is needed; upgrade it to 450.36 or newer, or use --memory host",
		version / 1000, version % 1000 / 10, DR_CUDA_VERSION_MIN / 1000,
		DR_CUDA_VERSION_MIN % 1000 / 10);
}

static int fill(void *lib, const char *name, struct dr_err *e)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(symbols); i++) {
		void *p = dlsym(lib, symbols[i].name);

		if (!p && !symbols[i].optional)
			return lacks(name, symbols[i].name, e);
		memcpy((char *)&table + symbols[i].at, &p, sizeof(p));
	}
	return 0;
}

static int load(struct dr_err *e)
{
	const char *name = secure_getenv("DR_LIBCUDA");
	void *lib;

	if (!name || !*name)
		name = "libcuda.so.1";
	int rc = open_library(name, &lib, e);
	if (rc)
		return rc;
	rc = check_version(lib, name, e);
	if (rc == 0)
		rc = fill(lib, name, e);
	if (rc)
		dlclose(lib);
	return rc;
}

static int initialise(struct dr_err *e)
{
	unsigned result = table.init(0);

	return result ? dr_cuda_fail(&table, result, e, "initialize CUDA") : 0;
}

/* The library is never closed: it keeps threads and atexit handlers. */
int dr_cuda_load(const struct dr_cuda **out, struct dr_err *e)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded)
		rc = load(e);
	if (rc == 0) {
		loaded = true;
		if (!initialised)
			rc = initialise(e);
	}
	if (rc == 0)
		initialised = true;
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	*out = &table;
	return 0;
}
