/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_ACCEPTOR_H
#define DR_BOOTSTRAP_ACCEPTOR_H

#include "base/source.h"
#include "bootstrap/link.h"

/*
 * Listening TCP sockets of one owner, and the WARN lines about connections that it rejects.
 *  1. A connection is pending until it has shown that it belongs to a session; one that closes after a failure still is.
 *     There are at most DR_ACCEPTOR_PENDING_MAX of them, of one source address at most DR_ACCEPTOR_SOURCE_MAX.
 *     Above the latter, the address's oldest is closed; above the former, the oldest of the address
 *     with the most (IPv6: of the /64 with the most). So a source that floods closes its own.
 *  2. While few descriptors are free (dr_files_scarce), there are at most DR_ACCEPTOR_SCARCE_MAX.
 *  3. When descriptors or memory run out, a pending connection is closed, or accepting pauses: epoll would report the
 *     socket again at once.
 *  4. A connection whose first bytes are there already and are none of this protocol's is closed at once.
 *  5. After DR_ACCEPTOR_REJECTS rejected connections in a row, as many as DR_ACCEPTOR_REJECTS_PER_S are rejected in a second:
 *     accepting pauses. Until the flood is over the kernel's queue is one of DR_ACCEPTOR_FLOODED, and it drops requests that
 *     do not fit. A flood takes little of a processor; a connection in the queue waits for 50 ms.
 */
enum {
	DR_ACCEPTOR_PENDING_MAX = 128,
	DR_ACCEPTOR_SOURCE_MAX = 64,
	DR_ACCEPTOR_SCARCE_MAX = 4,
	DR_ACCEPTOR_REJECTS = 256,
	DR_ACCEPTOR_REJECTS_PER_S = 5000,
	DR_ACCEPTOR_FLOODED = 256,
};
struct dr_acceptor;
struct dr_acceptor_ops {
	/* Take over the socket, or close it. There is room for it. */
	void (*accepted)(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns);
	/* Of a link that is up or closes: is it pending? */
	bool (*pending)(const struct dr_link *l);
};

/* Token bucket of rejected connections; below 1: accepting pauses. */
struct dr_reject_limit {
	int64_t at_ns;
	double tokens;
	bool flooded; /* the kernel's queues are short */
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
	struct dr_link **links; /* the accepted ones, in order of age */
	const char *component;	/* of log lines */
	const struct dr_networks
		*allow; /* sources of connections; NULL: all. The owner may set it, borrowed */
	/* Many peers dial at the same moment. While so many connections are pending, the next ones
	 * wait in the kernel, until the oldest has had this time. In a flood, whose connections do
	 * not use it, it is a quarter: others wait behind them. 0: they do not wait. */
	unsigned places;
	int64_t place_ns;
	/* private */
	int64_t full_since_ns; /* all places are taken; 0: there are free ones */
	int64_t shed_ns;       /* the last time one was closed for another */
	struct dr_listener **listeners;
	unsigned n;
	int64_t paused_until_ns, warn_at_ns;
	struct dr_warn_limit warn;
	struct dr_reject_limit rejects;
	uint64_t refused; /* from elsewhere than `allow` */
};

/* All pointers are borrowed. */
void dr_acceptor_init(struct dr_acceptor *a, const struct dr_acceptor_ops *ops,
	struct dr_poller *poller, struct dr_link **links, const char *component);
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
