/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_MEMORY_H
#define DR_ORCHESTRATOR_MEMORY_H

#include "channel/manager.h"
#include "orchestrator/integrity.h"

/*
 * The memory of one CUDA GPU of this run: its context, the buffers of its streams, the pattern in them,
 * and the copies that staged paths need. GPUs with host memory have none of this (a NULL bank): their
 * buffers are pages, their paths not wrapped.
 *
 * Opened and closed by the main thread, which joins the worker before it closes; in between the
 * worker's.
 */
struct dr_bank;
struct dr_bank_params {
	unsigned ordinal;  /* CUDA's number of the GPU */
	size_t ring_bytes; /* window times the largest chunk's stride: of a staging ring */
};

/* Errors of dr_gpu_open. */
int dr_bank_open(const struct dr_bank_params *p, struct dr_bank **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Its manager is gone. NULL is allowed. */
void dr_bank_close(struct dr_bank *b);
/* Put staging around the transport of a manager that is to be created; m->kind_params is kept. */
int dr_bank_wrap(struct dr_bank *b, struct dr_manager_params *m, struct dr_err *e) DR_MUST_CHECK;

/* A buffer of a stream on the GPU. base is a device pointer: nobody may follow it. */
struct dr_bank_buffer {
	uint8_t *base;
	size_t len;
	uint64_t raw;
};
int dr_bank_alloc(struct dr_bank *b, size_t len, struct dr_bank_buffer *out, struct dr_err *e)
	DR_MUST_CHECK;
void dr_bank_free(struct dr_bank *b, struct dr_bank_buffer *buf);
/* The same on the rails of both paths. One ring is made ready when any of them has to stage. */
int dr_bank_register(struct dr_bank *b, const struct dr_bank_buffer *buf, struct dr_channel *ch,
	struct dr_mem *out, struct dr_err *e) DR_MUST_CHECK;

/* The pattern of a chunk, made and checked on the GPU; at is a multiple of 16. */
int dr_bank_fill(struct dr_bank *b, uint8_t *at, size_t len, uint64_t base, struct dr_err *e)
	DR_MUST_CHECK;
/* As dr_integrity_check, of a chunk on the GPU: one that is wrong is read back to be explained. Besides
 * 0 and 1: an error of the GPU. */
int dr_bank_check(struct dr_bank *b, struct dr_integrity *v, const uint8_t *at, size_t len,
	size_t len_expected, char *text, size_t text_len, struct dr_err *e) DR_MUST_CHECK;

/* What was copied between this GPU and host memory, [0] out of it, [1] into it. busy_ns: the time in
 * which the GPU ran these copies, by its own clock; one engine can be busy with each way at a time. */
struct dr_bank_copies {
	uint64_t bytes[2];
	int64_t busy_ns[2];
	uint64_t copies[2],
		timed[2];  /* how many; of these busy_ns knows the time, and takes it for all */
	uint64_t calls[2]; /* of the driver, for all that */
};
/* *c without what `before` has. */
void dr_bank_copies_since(struct dr_bank_copies *c, const struct dr_bank_copies *before);
void dr_bank_copies_add(struct dr_bank_copies *c, const struct dr_bank_copies *more);
void dr_bank_copies(const struct dr_bank *b, struct dr_bank_copies *out);

/* The GPU failed for good; NULL: it did not. No path will do better. */
const struct dr_err *dr_bank_error(const struct dr_bank *b);

/* For people and the result document. */
struct dr_bank_info {
	char name[96], bus_id[16];
};
void dr_bank_info(const struct dr_bank *b, struct dr_bank_info *out);
/* Is the memory staged, and why not (or how) reached by the NICs? Not before the worker has registered the
 * buffers; constant then. */
struct dr_bank_way {
	bool staged;
	char why[256];
};
void dr_bank_way(const struct dr_bank *b, struct dr_bank_way *out);

#endif
