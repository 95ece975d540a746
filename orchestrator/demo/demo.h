/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DEMO_H
#define DR_ORCHESTRATOR_DEMO_H

#include "orchestrator/session/session.h"

/*
 * Folder demo/: `dualrail demo` and the two namespaces that it runs in (lab.h).
 *
 * Runs both ends on this machine: as root in two network namespaces connected by --links links, which can be
 * taken down; otherwise over loopback. Returns the client's exit status. Nothing is left behind, however this
 * process ends.
 */
int dr_demo_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out);

#endif
