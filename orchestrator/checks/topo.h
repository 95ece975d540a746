/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_TOPO_H
#define DR_ORCHESTRATOR_CHECKS_TOPO_H

#include "orchestrator/options/options.h"
#include "orchestrator/plan/plan.h"

/*
 * `dualrail topo`: prints the GPUs and NICs of this machine or of --topology, their distances, and
 * the rails that each GPU would use, from the same plan as a run. Returns the exit status: 0, 1
 * (invalid --map, --spread or --gpus) or 2 (no topology, no rail). The tables go to standard
 * output, or to standard error if --json writes there.
 */
int dr_topo_main(const struct dr_options *o);

/* What a transport kind can use of the rails, by their numbers. */
struct dr_topo_transport {
	bool usable[DR_RAILS_MAX];
	struct dr_err err; /* of the first rail that it cannot use */
};

/* What is shown; topo_view.c. */
struct dr_topo_view {
	const struct dr_options *opt;
	struct dr_topo *topo;
	struct dr_netdev *devs; /* of the machine or the file */
	struct dr_netdev_choice from;
	struct dr_plan plan; /* rails and GPUs of the client's side; n_rails 0: no map */
	struct dr_topo_transport transport[DR_KINDS_MAX]; /* in the registry's order; live only */
	int status;
	struct dr_err err; /* if status is not 0 */
};
/* The document; its schema is made from this table. */
extern const struct dr_fields dr_topo_fields;
/* A new reference; NULL: no memory. */
json_t *dr_topo_view_json(const struct dr_topo_view *v);
/* The same as tables; nothing but the summary without a document. */
void dr_topo_view_print(const struct dr_topo_view *v, const json_t *doc, FILE *f);

#endif
