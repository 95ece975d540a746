/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/report_priv.h"

/* The assembler reads the files, by their path from the root of the tree, where make runs. */
#define ASSET(symbol, file)                                                                        \
	__asm__(".pushsection .rodata\n"                                                           \
		".global " #symbol "\n"                                                            \
		".type " #symbol ", %object\n" #symbol ":\n"                                       \
		".incbin \"orchestrator/checks/report/" file "\"\n"                                \
		".byte 0\n"                                                                        \
		".size " #symbol ", . - " #symbol "\n"                                             \
		".popsection\n")

ASSET(dr_report_uplot_js, "uPlot.iife.min.js");
ASSET(dr_report_js, "report.js");
ASSET(dr_report_uplot_css, "uPlot.min.css");
ASSET(dr_report_css, "report.css");
