/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CLIENT_PRIV_H
#define DR_ORCHESTRATOR_SESSION_CLIENT_PRIV_H

#include "orchestrator/session_client.h"

/*
 * The client's files among themselves. session_client.c owns the struct dr_client from the first line to
 * the last; the others fill in parts of it:
 *   session_client_boot.c  boot, control, node, ready, lost, gone, dead
 *   session_client_msgs.c  what the server answered, the rows it sent, the fault under way
 *   session_client_wait.c  status, failed_ns, the live line
 */

/* session_client_boot.c: start dialling. Errors of dr_dial. */
int dr_client_dial(struct dr_client *c, struct dr_err *e) DR_MUST_CHECK;

/* session_client_msgs.c: operations of the bootstrap and of the injector; arg: the client. */
void dr_client_on_message(void *arg, const json_t *msg);
void dr_client_on_fault(void *arg, const struct dr_fault_report *rep);

/* session_client_wait.c: does this cause say that the server's process is gone? */
bool dr_client_peer_dead(enum dr_boot_cause cause);

#endif
