/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_CONFIRM_H
#define DR_ORCHESTRATOR_FLEET_CONFIRM_H

#include "orchestrator/fleet/results.h"

/*
 * Marks the pairs to be measured again before they are judged (`again`): those that failed and those with a low figure, see
 * verdict.h. Not those that --resume keeps.
 *
 * Every bad pair is measured again once. After that, a pair is left out if one of its nodes has more than
 * DR_SWEEP_CONFIRM_PAIRS bad pairs: they confirm each other. So a further repetition costs at most
 * 2 * DR_SWEEP_CONFIRM_PAIRS - 1 rounds, however many nodes there are. Pure. -ENOMEM: nothing is marked.
 */
enum { DR_SWEEP_CONFIRM_PAIRS = 4 };
int dr_sweep_confirm(struct dr_sweep_result *result, size_t n, uint32_t nodes, double least)
	DR_MUST_CHECK;

/*
 * Marks pairs to be measured in each direction alone: those with NICs that are low both ways. Acknowledgements of one
 * direction wait behind the data of the other, so one slow direction makes both low. At most DR_SWEEP_ALONE_PAIRS of a
 * node, first those with a partner that has few low pairs: it takes 2 * DR_SWEEP_ALONE_PAIRS - 1 rounds or less. The same
 * pairs for both directions. Pure. -ENOMEM: nothing is marked.
 */
enum { DR_SWEEP_ALONE_PAIRS = 3 };
int dr_sweep_mark_alone(struct dr_sweep_result *result, size_t n, uint32_t nodes, double least)
	DR_MUST_CHECK;

#endif
