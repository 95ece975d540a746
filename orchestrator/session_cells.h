/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CELLS_H
#define DR_ORCHESTRATOR_SESSION_CELLS_H

#include "channel/manager.h"
#include "topology/netdev.h"

/*
 * The bandwidth phases of a matrix as one end sees them: what its NICs' own counters rose by while the
 * phase was measured, and which channels were not on their rail all that time. Knows the node; main
 * thread. A cell is a phase with a rail_mask of one bit; the phase of all together has none.
 */
struct dr_node;

struct dr_cells {
	/* [0] when the measured part began, [1] when it ended */
	struct dr_netdev_counters counter[2][DR_RAILS_MAX];
	bool counted[2][DR_RAILS_MAX];
	int64_t ns[2];
};

/* Is the running phase one of a matrix? One of its cells? */
bool dr_cells_matrix(const struct dr_node *node);
bool dr_cells_cell(const struct dr_node *node);
/* The measured part begins (0: at the mark, with iterations at the beginning of the phase) or ends. */
void dr_cells_mark(struct dr_node *node, int which);
/* The rows of the phase that is over; needs a snapshot after it. */
void dr_cells_results(struct dr_node *node);

#endif
