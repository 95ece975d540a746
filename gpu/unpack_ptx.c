/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

/*
 * The unpacking kernel in PTX (see pattern_ptx.c). dr_unpack(dst, src, list, n), one-dimensional. Block b takes the
 * pieces b, b + grid, ... of the list. Its threads copy a piece together: 16 bytes each where both addresses are
 * multiples of 16, as pages are, and single bytes where not. The bytes behind the last 16 are taken one by one.
 *
 *   item: the piece's entry {src_off | len << 32, dst_off}   from, to, len: the piece
 *   i: offset of this thread's next bytes   stride: of one round of the block   whole: len rounded down to 16
 *
 * The list is read in words of 8 bytes, its alignment in C. Ordinary loads see what the host wrote before the launch,
 * even where an earlier launch read another list at the same address: host writes before a launch are visible to it,
 * and it starts with an invalid L1 cache, the only one that is not coherent. So .volatile and .cv are not needed.
 */
/* clang-format off */
const char dr_gpu_unpack_ptx[] =
	".version 6.4\n"
	".target sm_60\n"
	".address_size 64\n"
	"\n"
	".visible .entry dr_unpack(\n"
	"\t.param .u64 p_dst,\n"
	"\t.param .u64 p_src,\n"
	"\t.param .u64 p_list,\n"
	"\t.param .u64 p_n)\n"
	"{\n"
	"\t.reg .pred %p;\n"
	"\t.reg .u32 %a, %b;\n"
	"\t.reg .u64 %dst, %src, %list, %n, %k, %grid, %me, %block;\n"
	"\t.reg .u64 %item, %from, %to, %len, %whole, %i, %stride, %t, %x, %y;\n"
	"\tld.param.u64 %dst, [p_dst];\n"
	"\tld.param.u64 %src, [p_src];\n"
	"\tld.param.u64 %list, [p_list];\n"
	"\tld.param.u64 %n, [p_n];\n"
	"\tcvta.to.global.u64 %dst, %dst;\n"
	"\tcvta.to.global.u64 %src, %src;\n"
	"\tcvta.to.global.u64 %list, %list;\n"
	"\tmov.u32 %a, %ctaid.x;\n"
	"\tcvt.u64.u32 %k, %a;\n"
	"\tmov.u32 %a, %nctaid.x;\n"
	"\tcvt.u64.u32 %grid, %a;\n"
	"\tmov.u32 %a, %tid.x;\n"
	"\tcvt.u64.u32 %me, %a;\n"
	"\tmov.u32 %a, %ntid.x;\n"
	"\tcvt.u64.u32 %block, %a;\n"
	"piece:\n"
	"\tsetp.ge.u64 %p, %k, %n;\n"
	"\t@%p bra done;\n"
	"\tshl.b64 %item, %k, 4;\n"
	"\tadd.u64 %item, %item, %list;\n"
	"\tld.global.u64 %x, [%item];\n"
	"\tadd.u64 %item, %item, 8;\n"
	"\tld.global.u64 %y, [%item];\n"
	"\tshr.u64 %len, %x, 32;\n"
	"\tand.b64 %x, %x, 4294967295;\n"
	"\tadd.u64 %from, %src, %x;\n"
	"\tadd.u64 %to, %dst, %y;\n"
	"\tadd.u64 %k, %k, %grid;\n"
	/* 16 bytes at a time? */
	"\tmov.u64 %whole, 0;\n"
	"\tor.b64 %t, %from, %to;\n"
	"\tand.b64 %t, %t, 15;\n"
	"\tsetp.ne.u64 %p, %t, 0;\n"
	"\t@%p bra bytes;\n"
	"\tshr.u64 %whole, %len, 4;\n"
	"\tshl.b64 %whole, %whole, 4;\n"
	"\tshl.b64 %i, %me, 4;\n"
	"\tshl.b64 %stride, %block, 4;\n"
	"vectors:\n"
	"\tsetp.ge.u64 %p, %i, %whole;\n"
	"\t@%p bra bytes;\n"
	"\tadd.u64 %t, %from, %i;\n"
	"\tld.global.v2.u64 {%x, %y}, [%t];\n"
	"\tadd.u64 %t, %to, %i;\n"
	"\tst.global.v2.u64 [%t], {%x, %y};\n"
	"\tadd.u64 %i, %i, %stride;\n"
	"\tbra vectors;\n"
	"bytes:\n"
	"\tadd.u64 %i, %whole, %me;\n"
	"byte:\n"
	"\tsetp.ge.u64 %p, %i, %len;\n"
	"\t@%p bra piece;\n"
	"\tadd.u64 %t, %from, %i;\n"
	"\tld.global.u8 %x, [%t];\n"
	"\tadd.u64 %t, %to, %i;\n"
	"\tst.global.u8 [%t], %x;\n"
	"\tadd.u64 %i, %i, %block;\n"
	"\tbra byte;\n"
	"done:\n"
	"\tret;\n"
	"}\n";
/* clang-format on */
