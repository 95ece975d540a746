/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_RDV_H
#define DR_BOOTSTRAP_RDV_H

#include "base/poller.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/net.h"

#include <net/if.h>

/*
 * Rendezvous of comms: the listening process writes a handle of 128 bytes, its user carries it to
 * the connecting process, and that one dials. One short TCP connection for each comm exchanges a
 * JSON object and the handles of both ends (rdv_xchg.c has the conversation, rdv_dial.c the order
 * of addresses). A connection that breaks is dialled again and the exchange is repeated: each owner
 * has one on_offer or on_accept, and one on_done or on_failed.
 *
 * Trust: the handle's key is never sent. Both ends prove it in a Noise handshake, and all that
 * follows is encrypted (bootstrap/conv.h). It is as secret as the way on which the user carries
 * handles.
 *
 * Threads: all runs on the thread that owns the poller, sockets from inside dr_poller_wait, timers
 * from dr_rdv_tick, which is due at dr_rdv_deadline. Callbacks run inside these two only, and may
 * call all functions here but dr_rdv_destroy and dr_rdv_tick. Nothing blocks. Times are
 * dr_now_ns().
 */
enum {
	DR_RDV_HANDLE_BYTES = 128,
	DR_RDV_HANDLE_KEY_BYTES = 16,
	DR_RDV_HANDLE_ADDRS_MAX = 6,
	DR_RDV_ADDRS_MAX = 128, /* of this host */
	DR_RDV_SECRET_BYTES = 16,
	DR_RDV_UNPROVEN_MAX = 64,
};

/* An address of a NIC. */
struct dr_rdv_addr {
	struct dr_addr addr;	  /* its port is ignored */
	uint8_t prefix;		  /* bits of the subnet */
	uint8_t nic, rank;	  /* the owner's: index of the NIC, and what it may be used for */
	char device[IF_NAMESIZE]; /* the interface's name; "": connections are not bound to it */
};

/* ---- handle ------------------------------------------------------------------------------- */

/*
 * Layout, big endian: "HARV", u8 version 1, u8 flags, u16 port, key 16, u64 process, u64 listen, u8 n, n addresses,
 * zeros. Address: u8 4 or 6, u8 prefix, u8 nic, 4 or 16 bytes. Six IPv4 addresses fit, or four IPv6 ones.
 */
struct dr_rdv_handle {
	uint8_t flags; /* the owner's */
	uint16_t port;
	uint8_t key[DR_RDV_HANDLE_KEY_BYTES];
	uint64_t process, listen;
	unsigned n;
	struct dr_rdv_addr addrs[DR_RDV_HANDLE_ADDRS_MAX]; /* without device names */
};

/* Addresses are taken in order while they fit. Returns their number, or -EINVAL: no port or no usable address. */
int dr_rdv_handle_encode(const struct dr_rdv_handle *h, uint8_t out[DR_RDV_HANDLE_BYTES])
	DR_MUST_CHECK;
/* -EPROTO: malformed, or of another version. */
int dr_rdv_handle_decode(const uint8_t in[DR_RDV_HANDLE_BYTES], struct dr_rdv_handle *out,
	struct dr_err *e) DR_MUST_CHECK;

/* ---- rendezvous of a process -------------------------------------------------------------- */

struct dr_rdv;
struct dr_rdv_listen; /* one listen comm */
struct dr_rdv_comm;   /* one exchange, at either end */

/* The peer has everything of this end, and this end everything of the peer. Valid until on_done returns. */
struct dr_rdv_done {
	const struct dr_handle *handles; /* the peer's, in its order */
	unsigned n;
	const char *peer; /* "192.0.2.7:51234" */
};

/* A struct dr_rdv_comm belongs to the rendezvous. The owner may use the pointer until on_done or on_failed returns, or
 * until it calls dr_rdv_refuse or dr_rdv_cancel; there are no callbacks after these. All are needed. */
struct dr_rdv_ops {
	/* Acceptor: a dialler with the right key offers. Answer with dr_rdv_accept or dr_rdv_refuse, here or later.
	 * offer is valid until return. */
	void (*on_offer)(void *listen_arg, struct dr_rdv_comm *c, const json_t *offer);
	/* Dialler: answer with dr_rdv_give, here or later. reply is valid until return. */
	void (*on_accept)(void *arg, struct dr_rdv_comm *c, const json_t *reply);
	void (*on_done)(void *arg, struct dr_rdv_comm *c, const struct dr_rdv_done *done);
	/* -ETIMEDOUT: time is over, the text has the last cause; -EKEYREJECTED: all addresses denied the key;
	 * -ECANCELED: the dialler gave up (at the acceptor); else the code of the acceptor's refusal. */
	void (*on_failed)(void *arg, struct dr_rdv_comm *c, const struct dr_err *e);
};

/* 0 in a field means its default. */
struct dr_rdv_timing {
	int64_t dial_ns;  /* for one connection request: 1 s */
	int64_t stage_ns; /* hello, proof, OFFER, or a message that stops half-way: 5 s */
	/* Without a free place, a connection may be without proof for: 50 ms. */
	int64_t place_ns;
	int64_t silent_ns; /* a connection whose peer's kernel acknowledges nothing breaks after: 2 s */
	int64_t retry_min_ns; /* delay after a round of all addresses, doubled up to retry_max: 20 ms .. 500 ms */
	int64_t retry_max_ns;
};

struct dr_rdv_opts {
	uint64_t process;	     /* random, of this process; the same in all its handles */
	uint16_t port_min, port_max; /* of the listening sockets; 0: the kernel's choice */
	const char *version;	     /* build version string, <= 63 bytes */
	struct dr_rdv_timing timing;
};

/* ops and poller are borrowed. -EINVAL: a range of ports that is empty; -ENOMEM, -EIO (libsodium). */
int dr_rdv_create(struct dr_rdv **out, const struct dr_rdv_opts *opts, const struct dr_rdv_ops *ops,
	struct dr_poller *poller, struct dr_err *e) DR_MUST_CHECK;
/* Closes everything at once, without callbacks. Peers that dial again are refused by the kernel. */
void dr_rdv_destroy(struct dr_rdv *r);
void dr_rdv_tick(struct dr_rdv *r, int64_t now_ns);
int64_t dr_rdv_deadline(const struct dr_rdv *r);

/* ---- listening end ------------------------------------------------------------------------ */

struct dr_rdv_listen_opts {
	const struct dr_rdv_addr *addrs; /* best first; copied */
	unsigned n;
	uint8_t flags; /* to the handle */
	void *arg;     /* of on_offer */
};
/*
 * All listens of a process share one port, and one socket per address. Addresses that cannot be listened on are left
 * out with a WARN line. -EADDRNOTAVAIL: none is left; -EADDRINUSE: no port of the range is free; -ENOMEM.
 */
int dr_rdv_listen(struct dr_rdv *r, const struct dr_rdv_listen_opts *o, struct dr_rdv_listen **out,
	uint8_t handle[DR_RDV_HANDLE_BYTES], struct dr_err *e) DR_MUST_CHECK;
/* Exchanges of this listen that are not done end as with dr_rdv_cancel; those that are done are repeated to diallers
 * that did not learn it. */
void dr_rdv_listen_close(struct dr_rdv_listen *l);

/* Argument of this comm's callbacks; NULL until then. */
void dr_rdv_set_arg(struct dr_rdv_comm *c, void *arg);
/* reply is an object; it is read, not kept. -EINVAL: accepted before, or no object; -EMSGSIZE:
 * above 128 KiB; -ENOMEM. */
int dr_rdv_accept(struct dr_rdv_comm *c, const json_t *reply) DR_MUST_CHECK;
/* Before on_done: code (an errno, 1 to 127) and text reach the dialler's on_failed. No callback follows here. */
void dr_rdv_refuse(struct dr_rdv_comm *c, int code, const char *text);

/* ---- connecting end ----------------------------------------------------------------------- */

struct dr_rdv_connect_opts {
	const uint8_t *handle;		 /* DR_RDV_HANDLE_BYTES; copied */
	const struct dr_rdv_addr *local; /* best first; copied */
	unsigned n_local;		 /* 0: the kernel's choice */
	const json_t *offer;		 /* an object; read, not kept */
	int64_t timeout_ns; /* from now until on_done or on_failed, at most 1 h; 0: 30 s */
	void *arg;
};
/* Starts in the next dr_rdv_tick. -EPROTO: handle; -EINVAL, -EMSGSIZE (offer above 128 KiB),
 * -ENOMEM. */
int dr_rdv_connect(struct dr_rdv *r, const struct dr_rdv_connect_opts *o, int64_t now_ns,
	struct dr_rdv_comm **out, struct dr_err *e) DR_MUST_CHECK;

/* ---- both ends ---------------------------------------------------------------------------- */

/* This end's handles for the peer, once, after on_accept or dr_rdv_accept; copied. n may be 0. -EINVAL: not in this
 * state, given before, n above DR_BOOT_HANDLES_MAX, a handle too long; -ENOMEM. */
int dr_rdv_give(struct dr_rdv_comm *c, const struct dr_handle *handles, unsigned n) DR_MUST_CHECK;
/* DR_RDV_SECRET_BYTES that only the two ends know, for data connections: keyed BLAKE2b over the comm number and a
 * nonce of each end. Valid from on_offer or on_accept on. */
const uint8_t *dr_rdv_secret(const struct dr_rdv_comm *c);
/* Give up; the peer is told if it is connected. */
void dr_rdv_cancel(struct dr_rdv_comm *c);

#endif
