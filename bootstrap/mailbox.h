/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_MAILBOX_H
#define DR_BOOTSTRAP_MAILBOX_H

#include "base/defs.h"

#include <stdbool.h>
#include <sys/queue.h>

/*
 * Numbered messages of one session that outlive its connections: kept until the peer acknowledged
 * them, sent again from where the peer stopped hearing when it comes back. Sans-IO.
 * Numbers begin at 1. Both ends tell each other their `received` when a connection resumes, so a
 * connection carries exactly received+1, received+2, ...; anything else is the peer's fault.
 */
enum { DR_MAILBOX_MESSAGES_MAX = 4096, DR_MAILBOX_BYTES_MAX = 16 << 20 };

struct dr_mail {
	STAILQ_ENTRY(dr_mail) next;
	uint64_t seq;
	uint8_t type;
	size_t len;
	uint8_t data[];
};
struct dr_mailbox {
	STAILQ_HEAD(, dr_mail) mails; /* unacknowledged, ascending */
	struct dr_mail *unsent;	      /* first one that this connection has not seen; NULL: none */
	uint64_t last;		      /* number of the newest message */
	uint64_t acked;		      /* peer has everything up to here */
	uint64_t received;	      /* this end has everything up to here */
	uint64_t told; /* last `received` that the peer was told on this connection */
	unsigned count;
	size_t bytes;
};

void dr_mailbox_init(struct dr_mailbox *m);
void dr_mailbox_fini(struct dr_mailbox *m);
/* Copies data. -ENOBUFS when full, -ENOMEM. force: no limit, for the session's own messages. */
int dr_mailbox_post(struct dr_mailbox *m, uint8_t type, const void *data, size_t len, bool force);
/* The next message to send on this connection, or NULL; then say that it was queued there. */
const struct dr_mail *dr_mailbox_unsent(const struct dr_mailbox *m);
void dr_mailbox_sent(struct dr_mailbox *m);
/* The peer has everything up to seq. -EPROTO when that was never sent or goes backwards. */
int dr_mailbox_ack(struct dr_mailbox *m, uint64_t seq);
/* A message came: 0 take it; -EPROTO not the next one. */
int dr_mailbox_receive(struct dr_mailbox *m, uint64_t seq);
/* A new connection; the peer says that it has everything up to seq. -EPROTO: it cannot. */
int dr_mailbox_resume(struct dr_mailbox *m, uint64_t seq);
void dr_mailbox_validate(const struct dr_mailbox *m);

#endif
