/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DEMO_H
#define DR_ORCHESTRATOR_DEMO_H

#include "orchestrator/session.h"

/*
 * Both ends on this machine: as root in two network namespaces with --links links between them, so
 * that links can really be cut; otherwise over the loopback. Returns the client's exit status.
 * Nothing is left behind, however this process ends.
 */
int dr_demo_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out);

#endif
