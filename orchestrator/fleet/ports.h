/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_PORTS_H
#define DR_ORCHESTRATOR_FLEET_PORTS_H

#include "base/err.h"

/*
 * Ports for the servers of a node's pairs. Several nodes may share a network namespace (mpirun -np 4 on one machine), so
 * a node claims its ports with a lock, an abstract socket, that ends with the process.
 */
struct dr_sweep_ports {
	int lock_fd;
	uint16_t first;
};

/* The first `span` consecutive free TCP ports from `from` on, in steps of span. -EADDRINUSE: none of the first 256. */
int dr_sweep_ports_claim(struct dr_sweep_ports *p, unsigned from, unsigned span, struct dr_err *e)
	DR_MUST_CHECK;
void dr_sweep_ports_release(struct dr_sweep_ports *p);

#endif
