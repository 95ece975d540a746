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
 * Order of what is looked at: the library, its version, its symbols, then cuInit. So a driver that is
 * too old is called that, rather than by the first symbol that it lacks.
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

/* ---- what results mean ---- */

#define STUB_REMEDY                                                                                \
	"it is the CUDA toolkit's stub, no driver: take its stubs folder out of LD_LIBRARY_PATH"

struct meaning {
	unsigned result;
	int err;
	const char *remedy; /* NULL: none that is always right */
};

static const struct meaning meanings[] = {
	{ DR_CUDA_INVALID_VALUE, -EINVAL, NULL },
	{ DR_CUDA_OUT_OF_MEMORY, -ENOMEM, NULL },
	{ DR_CUDA_STUB_LIBRARY, -ENOSYS, STUB_REMEDY },
	{ DR_CUDA_DEVICE_UNAVAILABLE, -EIO,
		"another process has the GPU for itself: look at nvidia-smi, compute mode" },
	{ DR_CUDA_NO_DEVICE, -ENODEV,
		"see nvidia-smi and CUDA_VISIBLE_DEVICES (in a container: --gpus all), or use --memory host" },
	{ DR_CUDA_INVALID_DEVICE, -ENODEV, NULL },
	{ DR_CUDA_INVALID_CONTEXT, -EINVAL, NULL },
	{ DR_CUDA_OPERATING_SYSTEM, -EIO,
		"check that the kernel module is loaded and /dev/nvidia* may be opened: nvidia-smi" },
	{ DR_CUDA_INVALID_HANDLE, -EINVAL, NULL },
	{ DR_CUDA_NOT_PERMITTED, -EPERM, NULL },
	{ DR_CUDA_NOT_SUPPORTED, -ENOTSUP, NULL },
	{ DR_CUDA_SYSTEM_NOT_READY, -EIO,
		"NVSwitch machines need their fabric manager: systemctl start nvidia-fabricmanager" },
	{ DR_CUDA_SYSTEM_DRIVER_MISMATCH, -ENOSYS,
		"libcuda and the kernel module are of different versions: reboot, or install the same" },
	{ DR_CUDA_COMPAT_NOT_SUPPORTED, -ENOSYS,
		"this GPU does not take CUDA's compatibility library: use the driver's own libcuda.so.1" },
	{ DR_CUDA_UNKNOWN, -EIO,
		"check that `nvidia-smi` works and /dev/nvidia-uvm is there (modprobe nvidia-uvm)" },
};

static const struct meaning *find_meaning(unsigned result)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(meanings); i++)
		if (meanings[i].result == result)
			return &meanings[i];
	return NULL;
}

int dr_cuda_errno(unsigned result)
{
	const struct meaning *m = find_meaning(result);

	return m ? m->err : -EIO;
}

int dr_cuda_fail(const struct dr_cuda *c, unsigned result, struct dr_err *e, const char *what, ...)
{
	const struct meaning *m = find_meaning(result);
	const char *name = NULL, *words = NULL;
	char text[128];
	va_list ap;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	if (c->get_error_name(result, &name) || !name)
		name = "an error without a name";
	if (c->get_error_string(result, &words) || !words)
		words = "no words for it";
	return dr_err_set(e, dr_cuda_errno(result), "%s: %s (%u, %s)%s%s", text, name, result,
		words, m && m->remedy ? "; " : "", m && m->remedy ? m->remedy : "");
}

/* ---- the library ---- */

static int open_library(const char *name, void **lib, struct dr_err *e)
{
	const char *why;

	*lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (*lib)
		return 0;
	why = dlerror();
	return dr_err_set(e, -ENOENT,
		"%s; install the NVIDIA driver (in a container: --gpus all), or use --memory host",
		why ? why : name);
}

static int lacks(const char *name, const char *symbol, struct dr_err *e)
{
	return dr_err_set(e, -ENOSYS,
		"%s has no %s: it is older than CUDA %d.%d or another library; install the NVIDIA driver",
		name, symbol, DR_CUDA_VERSION_MIN / 1000, DR_CUDA_VERSION_MIN % 1000 / 10);
}

/* POSIX gives functions as void *; the bytes are copied, since no cast between the two is C. */
static int check_version(void *lib, const char *name, struct dr_err *e)
{
	unsigned (*get_version)(int *version);
	void *p = dlsym(lib, "cuDriverGetVersion");
	int version = 0;
	unsigned result;

	if (!p)
		return lacks(name, "cuDriverGetVersion", e);
	memcpy(&get_version, &p, sizeof(p));
	result = get_version(&version);
	if (result)
		return dr_err_set(e, -ENOSYS, "%s does not tell its version (CUDA error %u); %s",
			name, result,
			result == DR_CUDA_STUB_LIBRARY ? STUB_REMEDY
						       : "install the NVIDIA driver again");
	if (version >= DR_CUDA_VERSION_MIN)
		return 0;
	return dr_err_set(e, -ENOSYS,
		"the NVIDIA driver is too old: it has CUDA %d.%d, %d.%d or newer is needed; upgrade it (450.36 was the first), or use --memory host",
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
	const char *name = getenv("DR_LIBCUDA");
	void *lib;
	int rc;

	if (!name || !*name)
		name = "libcuda.so.1";
	rc = open_library(name, &lib, e);
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

	return result ? dr_cuda_fail(&table, result, e, "CUDA does not start") : 0;
}

/* The library stays open for good: it keeps threads and atexit handlers. */
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
