/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_MEMBER_H
#define DR_ORCHESTRATOR_FLEET_MEMBER_H

#include "bootstrap/link.h"

/* The connection of a node to the coordinator, see hub.h. Dials until it is accepted or time is over. */
struct dr_member_opts {
	struct dr_poller *poller;
	const char *host; /* of rank 0 */
	uint16_t port;
	const char *control;	       /* local address or interface; NULL: the kernel's choice */
	const struct dr_boot_key *key; /* NULL: none; borrowed */
	const json_t *offer;	       /* borrowed */
	int64_t until_ns;	       /* to be accepted */
	/* A message of the coordinator; borrowed. */
	void (*message)(void *arg, const json_t *msg, int64_t now_ns);
	void *arg;
};

struct dr_member {
	struct dr_member_opts o;
	struct dr_link *links, *link;
	struct dr_addr local[DR_ADDRS_MAX];
	unsigned n_local, next_addr;
	uint64_t seq;
	bool joined, own; /* own: the address dialled last is one of this node */
	bool failed;	  /* err says why; nothing more happens */
	struct dr_err err;
	int64_t dial_ns, heard_ns, backoff_ns;
	char why[160]; /* of the last attempt */
};

/* -ENODEV, -EADDRNOTAVAIL: o->control. */
int dr_member_init(struct dr_member *m, const struct dr_member_opts *o, struct dr_err *e)
	DR_MUST_CHECK;
void dr_member_fini(struct dr_member *m);
void dr_member_send(struct dr_member *m, const json_t *msg);
/* Close orderly. */
void dr_member_close(struct dr_member *m, int64_t now_ns);
bool dr_member_is_closed(const struct dr_member *m);
void dr_member_tick(struct dr_member *m, int64_t now_ns);
int64_t dr_member_deadline(const struct dr_member *m);

#endif
