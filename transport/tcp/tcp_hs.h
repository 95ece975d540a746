/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_HS_H
#define DR_TRANSPORT_TCP_HS_H

#include "base/err.h"
#include "transport/tcp/tcp_wire.h"

/*
 * The handshake of the TCP kind, sans-IO: bytes and times come in, what is to be done goes out. The TCP kind
 * runs it over sockets, the simulated kind over its streams (the only other folder that may include this).
 *
 *	connector	NEW -> DIALLING -> CHALLENGED (HELLO is due) -> GREETING (HELLO sent) -> UP (HELLO_OK came)
 *	acceptor	NEW -> WAITING -> ADMITTED (HELLO_OK is to be sent) -> UP
 *
 * Two objects: the handshake of a path (tcp_hs), and a rail's admission (tcp_admission), where connections
 * stay from accept to their adoption by an acceptor's handshake. A connection is known by its slot; the owner
 * keeps the socket of each slot. tcp_hs.c states the rules.
 */
enum {
	TCP_PENDING_MAX = 64, /* connections not admitted yet */
};
/* Deadline of an unidentified connection's HELLO, and of a parked HELLO. */
#define TCP_ADMIT_NS (5 * DR_NS_PER_S)

/* ---- a path ---------------------------------------------------------------------------------- */

enum tcp_hs_state {
	TCP_HS_NEW,
	TCP_HS_WAITING,	   /* acceptor: no HELLO for this path yet */
	TCP_HS_DIALLING,   /* connector: no challenge came */
	TCP_HS_CHALLENGED, /* connector: HELLO is due */
	TCP_HS_GREETING,   /* connector: HELLO sent, HELLO_OK not here */
	TCP_HS_ADMITTED, /* acceptor: has a connection; HELLO_OK is the first that goes out on it */
	TCP_HS_UP,
	TCP_HS_ENDED, /* the path failed or was fenced */
};

struct tcp_admission;
struct tcp_hs {
	struct tcp_hs *next; /* acceptors of the rail */
	struct tcp_admission *rail;
	struct dr_path_ident id;
	enum tcp_hs_state state;
	unsigned have; /* bytes of CHALLENGE or HELLO_OK that came */
	uint8_t in[TCP_HELLO_OK_LEN];
	uint8_t challenge[TCP_NONCE_LEN]; /* connector */
	uint8_t hello[TCP_HELLO_LEN];	  /* connector, from CHALLENGED on */
	uint8_t ok[TCP_HELLO_OK_LEN];	  /* acceptor, from ADMITTED on */
};

/* From init to fini the generation counts as known: an older HELLO, or the same again, is outdated. */
void dr_tcp_hs_init(struct tcp_hs *h, struct tcp_admission *rail, const struct dr_path_ident *id);
void dr_tcp_hs_fini(struct tcp_hs *h);
/* The path failed or was fenced: nothing is adopted any more. */
void dr_tcp_hs_end(struct tcp_hs *h);

/* Connector: dial now; or acceptor: wait, and claim (below) what is parked. */
void dr_tcp_hs_start(struct tcp_hs *h);
/*
 * Connector in DIALLING or GREETING: bytes of the peer, in any fragments; *used of them belong to the message that is
 * awaited. 1: it is whole, so that the state is CHALLENGED or UP; 0: more are needed; -EPROTO and the reason: this
 * peer cannot be talked to.
 */
int dr_tcp_hs_bytes(
	struct tcp_hs *h, const uint8_t *data, size_t len, size_t *used, struct dr_err *e);
/* Connector in CHALLENGED: the bytes to send; greeted: all of them are with the kernel. */
void dr_tcp_hs_hello(const struct tcp_hs *h, uint8_t out[TCP_HELLO_LEN]);
void dr_tcp_hs_greeted(struct tcp_hs *h);
/* Acceptor in ADMITTED: what goes out first, and then, when that is with the kernel, UP. */
void dr_tcp_hs_welcome(const struct tcp_hs *h, uint8_t out[TCP_HELLO_OK_LEN]);
void dr_tcp_hs_admitted(struct tcp_hs *h);

/* ---- a rail ---------------------------------------------------------------------------------- */

/* A connection on its way in. */
struct tcp_slot {
	bool used;
	bool parked;	     /* HELLO was right, but no path waits for it */
	bool of_peer;	     /* from the address of this rail's peer */
	unsigned have;	     /* bytes of HELLO that came */
	int64_t deadline_ns; /* for HELLO; when parked: for a path */
	uint64_t order;	     /* of arrival, to drop the oldest */
	struct tcp_hello hello;
	uint8_t buf[TCP_HELLO_LEN];
	uint8_t nonce[TCP_NONCE_LEN]; /* of its challenge */
};

/* A listener, by the bytes of its rail handle. */
struct tcp_place {
	uint8_t bytes[32];
	unsigned len;
};

struct tcp_admission {
	uint8_t hello_key[DR_KEY_LEN], ok_key[DR_KEY_LEN], nonce_key[DR_KEY_LEN];
	uint64_t nonces;	     /* made so far */
	struct tcp_place self, peer; /* the listeners of both ends of the rail */
	struct tcp_hs *acceptors;    /* from init to fini */
	struct tcp_slot slot[TCP_PENDING_MAX];
	unsigned n; /* used */
};

/* What to do with the connection in question. */
enum tcp_verdict_do {
	TCP_KEEP,
	TCP_PARKED, /* keep it; report INCOMING with the slot's HELLO */
	TCP_ADMIT,  /* it is `to`'s, which is in ADMITTED. Slot free */
	TCP_DROP,   /* close it: not an error. Slot free */
	TCP_REJECT, /* close it, and log why. Slot free */
};
struct tcp_verdict {
	enum tcp_verdict_do what;
	struct tcp_hs *to;    /* ADMIT */
	const char *why;      /* REJECT, and DROP of what is outdated; else NULL */
	int slot;	      /* of the connection in question; -1: none */
	int replaced;	      /* slot of another connection, to be closed and free now; -1: none */
	struct tcp_hello who; /* when its HELLO was understood */
};

/* secret: random, of this rail end alone; the nonces are made from it. */
void dr_tcp_admission_init(struct tcp_admission *a, const uint8_t token[DR_TOKEN_LEN],
	const uint8_t secret[DR_KEY_LEN]);
/* self: before the first connection comes; peer: before the first path dials. */
void dr_tcp_place_set(struct tcp_place *p, const struct tcp_rail_handle *h);
/* A connection came: its slot. *evicted: whoever had it is to be closed first, for want of slots. */
unsigned dr_tcp_admission_open(
	struct tcp_admission *a, bool of_peer, int64_t now_ns, bool *evicted);
/* The first bytes to send on it. */
void dr_tcp_admission_challenge(
	const struct tcp_admission *a, unsigned slot, uint8_t out[TCP_CHALLENGE_LEN]);
/* The slot is free: its connection went for a reason of the owner's. */
void dr_tcp_admission_free(struct tcp_admission *a, unsigned slot);
/* Read so many bytes of this connection at most: what is behind HELLO is the path's. */
unsigned dr_tcp_admission_want(const struct tcp_admission *a, unsigned slot);
/* They came; len 0: the peer closed it, or it broke. */
struct tcp_verdict dr_tcp_admission_bytes(
	struct tcp_admission *a, unsigned slot, const uint8_t *data, size_t len, int64_t now_ns);
/* KEEP before the slot's deadline. */
struct tcp_verdict dr_tcp_admission_expire(struct tcp_admission *a, unsigned slot, int64_t now_ns);
/* The acceptor h waits: is its connection parked already? */
struct tcp_verdict dr_tcp_admission_claim(struct tcp_admission *a, struct tcp_hs *h);

#endif
