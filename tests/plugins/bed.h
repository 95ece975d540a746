/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_BED_H
#define DR_TESTS_PLUGINS_BED_H

#include "tests/plugins/ends.h"

#include "gpu/cuda.h"
#include "tests/fakecuda/fakecuda.h"

/* Many messages between both ends of a comm, each with a content of its own, in host memory or in that of a GPU. */
enum {
	BED_ROOM = FN_PIECES_MAX,
	BED_DEPTH = 4,
	BED_GRANULE = 65536, /* of memory that can be exported */
	BED_PITCH = BED_ROOM + BED_GRANULE,
	BED_BYTES = BED_DEPTH * BED_PITCH,
};

/* A side's messages: those that are registered as the personality's type of memory, and others in host memory. */
struct side {
	uint8_t *dev, *host, *pinned;
	void *dev_mh, *host_mh;
	struct CUstream_st *stream;
	unsigned long long memory;
};

struct bed {
	struct ends e;
	struct side out, in;
	struct CUctx_st *ctx;
	bool big;			/* messages of BED_ROOM alone */
	unsigned messages, held;	/* of pieces: receives that are complete and not consumed */
	struct fn_unpack_handle handle; /* a copy of the one in GPU memory */
	int size;			/* of the message that was received last */
	bool scattered;			/* fragments were */
};

extern const struct dr_cuda *bed_cu;	       /* NULL: host memory */
extern const struct dr_fakecuda_ctl *bed_fake; /* NULL: no emulated GPU */
extern uint64_t bed_seed;		       /* of lengths and places */

static inline bool bed_pieces(void)
{
	return ends_way->fake == PIECES;
}

/* Memory; with gpus that of a GPU whose context is current then, emulated as DR_FAKE_CUDA says it. */
void bed_make(struct bed *b, const char *gpus);
void bed_drop(struct bed *b);
struct CUctx_st *bed_use_device(int dev);
void bed_register(struct bed *b, void *comm, struct side *s);
/* A comm; `first` has initialised the plugin if it is another one. */
void bed_connect(struct bed *b, const struct bed *first);
void bed_close(struct bed *b);
/* From and to GPU memory, done on return. */
void bed_read(const struct side *s, void *to, const void *from, size_t len);
void bed_write(const struct side *s, void *to, const void *from, size_t len);

void *bed_send(struct bed *b, unsigned message);
void *bed_receive(struct bed *b, unsigned message);
/* What a receive needs once it is complete: unpacks or flushes, and compares every byte. */
void bed_judge(struct bed *b, unsigned message);
void bed_consume(struct bed *b, unsigned message, void *request);
/* A message from post to end. */
void bed_carry_one(struct bed *b, unsigned message);
/* All messages of several beds, with threads that send, receive and register memory. */
void bed_carry(struct bed *b, unsigned n);

#endif
