/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_REPORT_PRIV_H
#define DR_ORCHESTRATOR_CHECKS_REPORT_PRIV_H

/* Files of report/, each with a 0 behind it; report_assets.c. */
extern const char dr_report_uplot_js[], dr_report_js[], dr_report_uplot_css[], dr_report_css[];

#endif
