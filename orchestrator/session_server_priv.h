/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_SERVER_PRIV_H
#define DR_ORCHESTRATOR_SESSION_SERVER_PRIV_H

#include "orchestrator/session_client.h"

/*
 * The server's files among themselves. session_server.c owns the struct dr_server, listens, and ends
 * each session; session_server_offer.c begins one; session_server_msgs.c is what is said during it.
 */
enum dr_after_snapshot { DR_AFTER_NOTHING, DR_AFTER_DONE, DR_AFTER_FINISH };

struct dr_server {
	const struct dr_options *opt;
	struct dr_record *rec;
	struct dr_output *out;
	struct dr_loop loop;
	struct dr_injector inj;
	bool have_key;
	struct dr_boot_server *boot;
	struct dr_control *control;
	struct dr_topo *topo; /* this machine; NULL: unknown */

	/* This session. */
	bool open;
	char client[80];
	struct dr_plan plan;
	struct dr_route route;
	struct dr_node *node;
	struct dr_record_mark mark;
	enum dr_after_snapshot then;
	bool finished, aborted, refused, lost, told_failed;
	bool looked; /* doctor's: no run, no record */
	enum dr_boot_cause lost_cause;
	int64_t failed_ns;
	uint32_t fault_client, fault_own; /* id of the client, of the injector */

	unsigned served;
	int last_status;
	bool quit;
};

/* session_server_offer.c: operations of the bootstrap; arg: the server. */
void dr_server_on_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n_gpus);
void dr_server_on_handles(void *arg, unsigned k, const struct dr_boot_handle *handles, unsigned n);
/* A fault at this end needs this end's leave, and a client that proved who it is. -EACCES. */
int dr_server_check_faults(struct dr_server *s, struct dr_err *e) DR_MUST_CHECK;

/* session_server_msgs.c: operations of the bootstrap, the node and the injector; arg: the server. */
void dr_server_on_message(void *arg, const json_t *msg);
extern const struct dr_node_ops dr_server_node_ops;
void dr_server_on_fault(void *arg, const struct dr_fault_report *rep);
/* Takes the reference; what cannot be sent is logged. */
void dr_server_send(struct dr_server *s, json_t *msg);
/* The rows that are new, as message t with what more says (takes the reference). */
void dr_server_send_part(struct dr_server *s, const char *t, json_t *more);

#endif
