/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_HUB_H
#define DR_ORCHESTRATOR_FLEET_HUB_H

#include "base/poller.h"
#include "bootstrap/acceptor.h"
#include "orchestrator/fleet/coord.h"

/*
 * The coordinator at rank 0: one connection per node, as the bootstrap's (handshake, key, encryption), one event loop. Drives
 * a dr_coord.
 *
 *   node                                     coordinator
 *   HELLO NEW, handshake            ------>
 *   OFFER {sweep, rank, nodes, host, where, port, nics}
 *                                   <------  ACCEPT {sweep}, or REFUSE with the reason
 *                                   <------  MESSAGE {op: run, id, attempt, client, host, port, time_ms, way}
 *   MESSAGE {op: done, id, attempt, client, figures of results.h, nics}
 *                                   ------>
 *                                   <------  MESSAGE {op: stop, id, client}
 *                                   <------  MESSAGE {op: end, exit_code, text}
 *   closes
 *   PING and PONG both ways; a node whose process says nothing for DR_SWEEP_SILENT_NS is lost, as is one whose connection
 *   ends.
 */
enum { DR_SWEEP_VERSION = 1 };
#define DR_SWEEP_PING_NS (2 * DR_NS_PER_S)
#define DR_SWEEP_SILENT_NS (20 * DR_NS_PER_S)

struct dr_hub_node {
	struct dr_link *link; /* NULL: rank 0, or not present */
	uint16_t port;	      /* of its servers */
	char where[96];	      /* boot and network namespace of its host; "": not known */
	int64_t heard_ns;
	uint64_t seq; /* of messages to it */
};

struct dr_hub_opts {
	struct dr_poller *poller;
	struct dr_coord_opts coord;
	uint16_t port;			 /* 0: the kernel's choice, see dr_hub_port */
	const char *control;		 /* where to listen; NULL: everywhere */
	const struct dr_boot_key *key;	 /* NULL: none; borrowed */
	const struct dr_networks *allow; /* of nodes; NULL: all; borrowed */
	/* An order for rank 0; borrowed. */
	void (*local)(void *arg, const json_t *msg);
	/* REVIEW: mark what is to be measured again. */
	void (*look)(void *arg);
	void *arg;
};

struct dr_hub {
	struct dr_hub_opts o;
	struct dr_acceptor acceptor;
	struct dr_link *links;
	struct dr_coord coord;
	struct dr_sweep_node *node; /* of each rank */
	struct dr_hub_node *end;
	bool over; /* the sweep has ended; results are complete */
	bool pumping;
	int64_t ping_ns;
	uint16_t port;
	uint64_t bytes_sent, bytes_received; /* of messages, without framing */
};

int dr_hub_create(struct dr_hub **out, const struct dr_hub_opts *o, struct dr_err *e) DR_MUST_CHECK;
void dr_hub_destroy(struct dr_hub *h);
/* The offer or a report of rank 0's own agent. */
void dr_hub_local(struct dr_hub *h, const json_t *msg, int64_t now_ns);
void dr_hub_stop(struct dr_hub *h, int64_t now_ns);
/* Tell all nodes how it ended; they close. */
void dr_hub_say_end(struct dr_hub *h, int exit_code, const char *text);
/* Have all nodes closed? */
bool dr_hub_is_idle(const struct dr_hub *h);
void dr_hub_tick(struct dr_hub *h, int64_t now_ns);
int64_t dr_hub_deadline(const struct dr_hub *h);

#endif
