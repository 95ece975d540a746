/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_PORTS_H
#define DR_BOOTSTRAP_PORTS_H

#include "base/err.h"

/*
 * Free ports in a row, for servers of a sweep's pairs or of the demo. Several processes of a
 * network namespace may look for some (mpirun -np 4 on one machine), so each claims its ports with
 * a lock, an abstract socket, that ends with the process.
 */
struct dr_ports {
	int lock_fd;
	uint16_t first;
};

/* The first `span` consecutive free TCP ports from `from` on, in steps of span. -EADDRINUSE: none
 * of the first 256. */
int dr_ports_claim(struct dr_ports *p, unsigned from, unsigned span, struct dr_err *e)
	DR_MUST_CHECK;
void dr_ports_release(struct dr_ports *p);

#endif
