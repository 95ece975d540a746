/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_GPU_SELECT_H
#define DR_GPU_SELECT_H

#include "base/opts.h"

/*
 * --gpus and --memory: the GPUs of this end and the location of their memory. The names are parsed with the
 * other options. The process that uses the GPUs resolves them later, once, because CUDA does not survive a
 * fork.
 */
enum { DR_GPUS_MAX = 32, DR_GPU_SELECT_NAME_MAX = 24 };
enum dr_memory_choice { DR_MEMORY_AUTO, DR_MEMORY_ON_HOST, DR_MEMORY_ON_GPU };

/* In the order given: numbers "3" and PCI bus ids "0000:3b:00.0". */
struct dr_gpu_names {
	unsigned n;
	char v[DR_GPUS_MAX][DR_GPU_SELECT_NAME_MAX];
};

/* Parser of --gpus (see dr_opt_parse_fn): "0-3,0000:3b:00.0"; dst is a struct dr_gpu_names. */
int dr_gpu_names_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e);
/* The number that the name is; false: it is a bus id. */
bool dr_gpu_name_number(const char *name, unsigned *out);
/* True if all names are numbers; out then has them, or the default of host memory if n is 0. */
bool dr_gpu_names_numbers(const struct dr_gpu_names *names, struct dr_opt_list *out);

/* Is there an emulated GPU of that number? -ENODEV: no; the text says how many there are. why: when they are
 * emulated, "with --memory host". */
int dr_gpu_emulated(unsigned number, const char *why, struct dr_err *e) DR_MUST_CHECK;

/*
 * out: the numbers of the GPUs, CUDA ordinals if *cuda. AUTO uses CUDA if it reports a GPU. Without names:
 * all CUDA GPUs, else 0 to 7 with host memory. Errors: those of dr_gpu_list if CUDA is required; -ENODEV:
 * no such GPU, real or emulated; -EINVAL: a GPU is named twice, or a bus id is used with host memory.
 */
int dr_gpu_select(const struct dr_gpu_names *names, enum dr_memory_choice memory,
	struct dr_opt_list *out, bool *cuda, struct dr_err *e) DR_MUST_CHECK;

#endif
