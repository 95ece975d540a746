/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_COMM_PRIV_H
#define DR_PLUGIN_COMM_PRIV_H

#include "plugin/comm.h"

/* Shared by comm.c, comm_tx.c and comm_rx.c. */

/* NULL: all are in use. */
struct ha_request *ha_request_get(struct ha_comm *c);
void ha_request_put(struct ha_request *r);
/* As ha_comm_test. */
int ha_comm_test_send(struct ha_request *r, bool *done, int *sizes);
int ha_comm_test_recv(struct ha_request *r, bool *done, int *sizes);
/* See comm.c. */
int ha_comm_over(struct ha_comm *c);
/* Sender, on an I/O thread: a chunk of that message was acknowledged. */
void ha_comm_sent(struct ha_comm *c, uint64_t ordinal);
/* Receiver, with lock held: posts the slot for the next frame. */
int ha_comm_post_slot(struct ha_comm *c, unsigned slot, int64_t now_ns);

#endif
