/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_TOPO_H
#define DR_ORCHESTRATOR_TOPO_H

#include "orchestrator/options.h"
#include "orchestrator/plan.h"

/*
 * `dualrail topo`: the GPUs and NICs of this machine or of --topology, how far they are from each
 * other, and the rails that each GPU would use, by the same plan as a run's. Returns the exit status:
 * 0, 1 (--map, --spread, --gpus that do not fit) or 2 (nothing to look at, no rail). Prints on standard
 * output; with --json on standard output there, the tables go to standard error.
 */
int dr_topo_main(const struct dr_options *o);

/* What is shown; topo_view.c. */
struct dr_topo_view {
	const struct dr_options *opt;
	struct dr_topo *topo;
	struct dr_plan plan; /* rails and GPUs of the client's side; n_rails 0: no map */
	int status;
	struct dr_err err; /* when status is not 0 */
};
/* Rail number of a NIC; -1. */
int dr_topo_view_rail(const struct dr_topo_view *v, const struct dr_topo_nic *nic);
/* Why a NIC is no rail; "" when it is one. */
const char *dr_topo_view_why(const struct dr_topo_view *v, const struct dr_topo_nic *nic);
/* Number of channels of GPU `position` with the rails of channel c, 0 when an earlier one has them. */
unsigned dr_topo_view_alike(const struct dr_topo_view *v, unsigned position, unsigned c);
void dr_topo_view_print(const struct dr_topo_view *v, FILE *f);
/* A new reference; NULL: no memory. */
json_t *dr_topo_view_json(const struct dr_topo_view *v);

#endif
