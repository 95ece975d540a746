/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_ACCEPTOR_H
#define DR_BOOTSTRAP_ACCEPTOR_H

#include "bootstrap/link.h"

/*
 * Listening TCP sockets of one owner, and the WARN lines about connections that it rejects. When descriptors or memory
 * run out the owner closes a connection, or accepting pauses; epoll would report the socket again at once.
 */
struct dr_acceptor;
struct dr_acceptor_ops {
	/* Take over the socket, or close it. */
	void (*accepted)(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns);
	/* Descriptors or memory ran out: close a connection. False: there is none. */
	bool (*shed)(struct dr_acceptor *a, const char *why, int64_t now_ns);
	/* Is there room for another connection? 0: yes; else the time until which accepting pauses, and new
	 * connections wait in the kernel. NULL: always. */
	int64_t (*full_until)(struct dr_acceptor *a, int64_t now_ns);
};

/* Token bucket: 10 lines at once, then one per second; suppressed ones are counted. */
struct dr_warn_limit {
	int64_t at_ns;
	double tokens;
	unsigned left_out;
};

struct dr_acceptor {
	const struct dr_acceptor_ops *ops;
	struct dr_poller *poller;
	const char *component; /* of log lines */
	/* private */
	struct dr_listener **listeners;
	unsigned n;
	int64_t paused_until_ns, warn_at_ns;
	struct dr_warn_limit warn;
};

/* ops, poller and component are borrowed. */
void dr_acceptor_init(struct dr_acceptor *a, const struct dr_acceptor_ops *ops,
	struct dr_poller *poller, const char *component);
/* Closes the sockets; connections are the owner's. */
void dr_acceptor_fini(struct dr_acceptor *a);
/* As dr_net_listen. */
int dr_acceptor_listen(struct dr_acceptor *a, struct dr_addr *addr, struct dr_err *e) DR_MUST_CHECK;
/* Close the last n sockets. */
void dr_acceptor_close(struct dr_acceptor *a, unsigned n);
/* Is there a socket for this address and port? */
bool dr_acceptor_has(const struct dr_acceptor *a, const struct dr_addr *addr);
/* There is room again. */
void dr_acceptor_resume(struct dr_acceptor *a);
void dr_acceptor_tick(struct dr_acceptor *a, int64_t now_ns);
int64_t dr_acceptor_deadline(const struct dr_acceptor *a);
/* One WARN line about a rejected connection; rate-limited. */
void dr_acceptor_warn(
	struct dr_acceptor *a, const struct dr_link *l, const char *text, int64_t now_ns);

#endif
