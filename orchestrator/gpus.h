/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_GPUS_H
#define DR_ORCHESTRATOR_GPUS_H

#include "base/opts.h"

/*
 * --gpus and --memory: which GPUs this end has, and where their memory is. The names are read with the
 * other options; what they mean is found out later, once, by the process that uses the GPUs (CUDA does
 * not outlive a fork).
 */
enum { DR_GPUS_MAX = 32 }; /* the bits of dr_phase.gpu_mask */
enum dr_memory_choice { DR_MEMORY_AUTO, DR_MEMORY_ON_HOST, DR_MEMORY_ON_GPU };

/* In the order given. */
struct dr_gpu_names {
	unsigned n;
	struct {
		char text[24]; /* "3", "0000:3b:00.0" */
		bool bus_id;
		unsigned index; /* not a bus id */
	} v[DR_GPUS_MAX];
};

/* Parser of --gpus (see dr_opt_parse_fn): "0-3,0000:3b:00.0"; dst is a struct dr_gpu_names. */
int dr_gpus_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e);
/* True when they are numbers alone, which are then in out; the default of a host when n is 0. */
bool dr_gpus_numbers(const struct dr_gpu_names *names, struct dr_opt_list *out);

/*
 * The numbers of the GPUs, CUDA's where their memory is CUDA's. AUTO: CUDA's where CUDA shows GPUs. No
 * names: all that CUDA shows, else 0 to 7 in host memory. Errors: those of dr_gpu_list where CUDA is
 * needed; -ENODEV for a GPU that is not there; -EINVAL for one named twice, a bus id with host memory.
 */
int dr_gpus_resolve(const struct dr_gpu_names *names, enum dr_memory_choice memory,
	struct dr_opt_list *out, bool *cuda, struct dr_err *e) DR_MUST_CHECK;

#endif
