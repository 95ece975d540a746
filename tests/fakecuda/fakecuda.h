/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKECUDA_FAKECUDA_H
#define DR_TESTS_FAKECUDA_FAKECUDA_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * libcuda and emulated GPUs, inside one process: DR_LIBCUDA=.../cuda_plugin.so makes dualrail's
 * loader take it. This table, the data symbol dr_fakecuda_ctl of that library, is how a test makes
 * faults and sees what happened. Everything is thread-safe.
 *
 * The GPUs come from DR_FAKE_CUDA, "key=value,...":
 *   devices=2        how many (0: cuInit finds none)
 *   memory_mib=1024  of each
 *   version=13000    of the driver, as cuDriverGetVersion counts
 *   dmabuf=1         memory can be exported (as a memfd)
 *   ordered=0        remote writes need no flush
 *   flags=1          what a stream writes (cuStreamWriteValue32) becomes visible
 *   delay_us=50      what each piece of work on a stream takes
 *   counts=1         how often each call was made is told at the end
 *   init=0           cuInit fails with this result
 *   fail=CALL:K      the K-th call of that name fails
 *   hold=CALL:FILE   calls of that name wait as long as FILE exists; the first one that does tells
 * CUDA_VISIBLE_DEVICES hides and reorders them, by number.
 *
 * What it holds to, in the places where it matters (stricter or later one taken):
 *  - device addresses are mapped for nobody: who follows one crashes
 *  - memory starts at multiples of 512 that are none of 4096
 *  - work on a stream is done by a thread of the stream, late: at its end, after the delay. A copy's
 *    destination is junk from the call until then, its source is read then
 *  - copies from and to host memory that is not pinned wait
 *  - calls without a current context fail (201), those with another stream's or event's fail (400)
 *  - a process that is forked after cuInit cannot use CUDA; memory is not freed while another process has it mapped
 *  - after work failed on a GPU every call on its context fails with that
 *  - kernels are known by name and run as C; what the code in PTX declares as parameters is passed
 *
 * At the end of the process, and when a context is released for the last time, what is left behind counts
 * as misuse; a process with misuse ends with status 99 after saying so.
 *
 * Calls are named as in libcuda: "cuMemAlloc_v2".
 */
struct dr_fakecuda_alive {
	unsigned contexts, memories, pinned, streams, events, modules;
};

struct dr_fakecuda_ctl {
	/* Everything that is alive is freed, every fault and count forgotten, DR_FAKE_CUDA read again. No
	 * other thread may be in a call. */
	void (*reset)(void);

	/* The k-th call (1: the next) fails once with result (0: one that fits). call "*": of all. k 0:
	 * none. Calls that free do so and then fail, as the driver does it. */
	void (*fail_call)(const char *call, unsigned k, unsigned result);
	/* The call that the order of fail_call() failed, NULL: not reached yet. */
	const char *(*failed)(void);
	/* Every such call fails until result is 0. */
	void (*fail_always)(const char *call, unsigned result);
	unsigned (*count)(const char *call);
	void (*alive)(struct dr_fakecuda_alive *out);
	unsigned (*alive_total)(void);
	/* Misuse seen; first: words for the first one. */
	unsigned (*violations)(const char **first);

	/* Streams stand still until released. */
	void (*hold)(bool on);
	void (*delay)(int64_t ns);
	/* The next piece of work on any stream fails with this, and with it its context. */
	void (*fail_work)(unsigned result);
	/* Where the bytes of device memory really are; NULL: nowhere. */
	void *(*bytes)(unsigned long long dev);
	/* Copies so far from or to host memory that was not pinned. */
	unsigned (*pageable)(void);
};

/* Sets DR_LIBCUDA to the library beside this test's folder (build/.../tests/X/Y_test), or at up ("../tests"
 * for a test in build/.../gpu), and returns its table; NULL when it is not built. */
static inline const struct dr_fakecuda_ctl *dr_fakecuda_attach(const char *up)
{
	char exe[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	void *lib;

	if (n <= 0)
		return NULL;
	exe[n] = '\0';
	(void)snprintf(
		path, sizeof(path), "%s/%s/fakecuda/cuda_plugin.so", dirname(exe), up ? up : "..");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return NULL;
	(void)setenv("DR_LIBCUDA", path, 1);
	return dlsym(lib, "dr_fakecuda_ctl");
}

#endif
