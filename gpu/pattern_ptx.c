/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

/*
 * The pattern's kernels in PTX, the assembly language that every NVIDIA driver compiles for the GPU at
 * hand; so building takes no CUDA compiler. PTX ISA 6.4 is CUDA 10.1's, sm_60 the oldest GPU (Pascal).
 *
 * dr_pattern_fill(dev, len, base) and dr_pattern_check(dev, len, base, worst, flag), one-dimensional.
 * An item is 16 bytes, two words of the pattern. Thread `me` of `grid` takes items me, me + grid, ...
 * The up to 15 bytes behind the last whole item are taken by the first threads, one each.
 *
 *   me = blockIdx * blockDim + threadIdx       grid = gridDim * blockDim
 *   i, at, word: the item, its address, its first word; second: its second word
 *   off: where a byte is, counted from dev
 */
/* clang-format off */
#define REGISTERS \
	"\t.reg .pred %p;\n" \
	"\t.reg .u32 %a, %b;\n" \
	"\t.reg .u64 %dev, %len, %base, %step, %me, %grid, %items, %i, %t;\n" \
	"\t.reg .u64 %at, %at_step, %word, %word_step, %second, %off, %x, %y;\n"

/* Where this thread begins. */
#define PROLOGUE \
	"\tld.param.u64 %dev, [p_dev];\n" \
	"\tld.param.u64 %len, [p_len];\n" \
	"\tld.param.u64 %base, [p_base];\n" \
	"\tcvta.to.global.u64 %dev, %dev;\n" \
	"\tmov.u64 %step, 0x9e3779b97f4a7c15;\n" \
	"\tmov.u32 %a, %ctaid.x;\n" \
	"\tmov.u32 %b, %ntid.x;\n" \
	"\tmul.wide.u32 %me, %a, %b;\n" \
	"\tmov.u32 %a, %tid.x;\n" \
	"\tcvt.u64.u32 %t, %a;\n" \
	"\tadd.u64 %me, %me, %t;\n" \
	"\tmov.u32 %a, %nctaid.x;\n" \
	"\tmul.wide.u32 %grid, %a, %b;\n" \
	"\tshr.u64 %items, %len, 4;\n" \
	"\tmov.u64 %i, %me;\n" \
	"\tshl.b64 %t, %me, 4;\n" \
	"\tadd.u64 %at, %dev, %t;\n" \
	"\tshl.b64 %at_step, %grid, 4;\n" \
	"\tshl.b64 %t, %me, 1;\n" \
	"\tmul.lo.u64 %t, %t, %step;\n" \
	"\tadd.u64 %word, %base, %t;\n" \
	"\tshl.b64 %t, %grid, 1;\n" \
	"\tmul.lo.u64 %word_step, %t, %step;\n"

/* Head of the loop over whole items. */
#define NEXT_ITEM \
	"next:\n" \
	"\tsetp.ge.u64 %p, %i, %items;\n" \
	"\t@%p bra tail;\n" \
	"\tadd.u64 %second, %word, %step;\n"

/* Its end. */
#define ADVANCE \
	"\tadd.u64 %i, %i, %grid;\n" \
	"\tadd.u64 %at, %at, %at_step;\n" \
	"\tadd.u64 %word, %word, %word_step;\n" \
	"\tbra next;\n"

/* The byte of the tail that is this thread's, if any: its address at `at`, its value in the low bits of `word`. */
#define TAIL_BYTE \
	"tail:\n" \
	"\tand.b64 %t, %len, 15;\n" \
	"\tsetp.ge.u64 %p, %me, %t;\n" \
	"\t@%p bra done;\n" \
	"\tsub.u64 %off, %len, %t;\n" \
	"\tadd.u64 %off, %off, %me;\n" \
	"\tshr.u64 %word, %off, 3;\n" \
	"\tmul.lo.u64 %word, %word, %step;\n" \
	"\tadd.u64 %word, %word, %base;\n" \
	"\tcvt.u32.u64 %a, %off;\n" \
	"\tand.b32 %a, %a, 7;\n" \
	"\tshl.b32 %a, %a, 3;\n" \
	"\tshr.u64 %word, %word, %a;\n" \
	"\tadd.u64 %at, %dev, %off;\n"

const char dr_gpu_pattern_ptx[] =
	".version 6.4\n"
	".target sm_60\n"
	".address_size 64\n"
	"\n"
	".visible .entry dr_pattern_fill(\n"
	"\t.param .u64 p_dev,\n"
	"\t.param .u64 p_len,\n"
	"\t.param .u64 p_base)\n"
	"{\n"
	REGISTERS
	PROLOGUE
	NEXT_ITEM
	"\tst.global.v2.u64 [%at], {%word, %second};\n"
	ADVANCE
	TAIL_BYTE
	"\tst.global.u8 [%at], %word;\n"
	"done:\n"
	"\tret;\n"
	"}\n"
	"\n"
	".visible .entry dr_pattern_check(\n"
	"\t.param .u64 p_dev,\n"
	"\t.param .u64 p_len,\n"
	"\t.param .u64 p_base,\n"
	"\t.param .u64 p_worst,\n"
	"\t.param .u64 p_flag)\n"
	"{\n"
	REGISTERS
	PROLOGUE
	NEXT_ITEM
	"\tld.global.v2.u64 {%x, %y}, [%at];\n"
	"\txor.b64 %x, %x, %word;\n"
	"\txor.b64 %y, %y, %second;\n"
	"\tor.b64 %t, %x, %y;\n"
	"\tsetp.ne.u64 %p, %t, 0;\n"
	"\t@%p bra wrong;\n"
	ADVANCE
	/* The lowest bit that differs, in the first word that does, is in the first wrong byte. */
	"wrong:\n"
	"\tshl.b64 %off, %i, 4;\n"
	"\tsetp.ne.u64 %p, %x, 0;\n"
	"\t@%p bra found;\n"
	"\tmov.u64 %x, %y;\n"
	"\tadd.u64 %off, %off, 8;\n"
	"found:\n"
	"\tbrev.b64 %x, %x;\n"
	"\tclz.b64 %a, %x;\n"
	"\tshr.u32 %a, %a, 3;\n"
	"\tcvt.u64.u32 %t, %a;\n"
	"\tadd.u64 %off, %off, %t;\n"
	"\tbra report;\n"
	TAIL_BYTE
	"\tand.b64 %word, %word, 255;\n"
	"\tld.global.u8 %x, [%at];\n"
	"\tsetp.eq.u64 %p, %x, %word;\n"
	"\t@%p bra done;\n"
	"report:\n"
	"\tld.param.u64 %at, [p_worst];\n"
	"\tcvta.to.global.u64 %at, %at;\n"
	"\tred.global.min.u64 [%at], %off;\n"
	"\tld.param.u64 %at, [p_flag];\n"
	"\tcvta.to.global.u64 %at, %at;\n"
	"\tmov.u32 %a, 1;\n"
	"\tst.volatile.global.u32 [%at], %a;\n"
	"done:\n"
	"\tret;\n"
	"}\n";
/* clang-format on */
