/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DUALRAIL_H
#define DUALRAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * libdualrail: blocks of memory from process to process over two or more NICs. A transfer survives the loss of a NIC, a
 * link or a connection: what was on the way is sent again over another NIC, and each block arrives once.
 *
 * An endpoint has the NICs of this process, a thread that drives them, registered memory and connections to peers. A
 * put writes a list of blocks of this process into memory of the peer, which the peer registered under a key. The peer's
 * program does not take part: the library there checks key and range, posts a receive for each block, and answers with
 * a credit; the data follows. A note of a few bytes may follow the blocks, and is delivered after them.
 *
 * How two processes connect: one calls dualrail_listen and gives its handle to the other one by its own means (a
 * file, a key-value store, a message). That one calls dualrail_connect. All that both have to know goes over a short TCP
 * connection, encrypted and authenticated with the key in the handle. So the handle is a secret. Data
 * connections are authenticated when they are made; the data is not encrypted.
 *
 * Errors: a function returns 0 (or a count) or a negative errno. A last argument `struct dualrail_error *` gets a text that
 * says what failed, with which value, and what to do; it may be NULL.
 *
 * Threads: any thread may call any function, several at a time. An object must not be used while or after another thread
 * closes or frees it. What dualrail_next returns belongs to the thread that reads the events. No function may be called
 * after fork in the child. There are no callbacks; nothing is written to standard error but warnings.
 *
 * Buffers: memory of a put belongs to the library until its result is known (dualrail_test, or its event). Memory that
 * peers may write may change at any time. When a put or a connection has failed, a NIC may still read or write the
 * memory, until dualrail_disconnect, dualrail_deregister or dualrail_close has returned 0. If one of them returns an
 * error, until the process ends: such memory must not be freed or used again.
 *
 * Versions: symbols have the version DUALRAIL_0. Structures that a caller passes begin with their size, and may grow;
 * structures that the library returns are read through a pointer, and may grow at their end.
 */

struct dualrail;	/* an endpoint */
struct dualrail_peer;	/* its connection to an endpoint of another process */
struct dualrail_memory; /* a registered range */
struct dualrail_put;	/* a transfer */

struct dualrail_error {
	int code; /* negative errno */
	char text[256];
};

enum { DUALRAIL_HANDLE_BYTES = 128, DUALRAIL_NOTE_MAX = 4000, DUALRAIL_LANES_MAX = 8 };

/* Flags of struct dualrail_options. */
enum {
	DUALRAIL_NO_FAILBACK = 1,  /* stay on the other NIC after a switch */
	DUALRAIL_CONSERVATIVE = 2, /* only errors of kernel or NIC are a failure, no heartbeats */
};

/* 0 or NULL in a member means its default. Set size to sizeof(struct dualrail_options). */
struct dualrail_options {
	size_t size;
	/* Names or addresses: "eth1,eth2". Default: the choice of `dualrail client`. */
	const char *nics;
	/* "tcp" (default) or "verbs"; the same at both ends. */
	const char *transport;
	/* Data connections in each direction to a peer, spread over the NICs, 1..DUALRAIL_LANES_MAX. Default: one for
	 * each pair of NICs. The smaller number of both ends is used. */
	uint32_t lanes;
	uint32_t heartbeat_us; /* interval of heartbeats. Default: 10,000. The same at both ends */
	/* Time for which a NIC must work before it is used again. Default: 1,000. */
	uint32_t hold_down_ms;
	uint32_t connect_timeout_ms; /* Default: 30,000 */
	uint32_t flags;
};

/* Returns the version of the library, such as "0.7.0". */
const char *dualrail_version(void);

/* Opens an endpoint and starts its thread. NULL: all defaults. -EINVAL: an option; -ENODEV, -EADDRNOTAVAIL: a NIC; -ENOTSUP: the
 * transport is not in this build; -ENOMEM, -EAGAIN: no thread. */
int dualrail_open(
	const struct dualrail_options *o, struct dualrail **out, struct dualrail_error *e);
/* Disconnects all peers, deregisters all memory, frees all. Takes up to 2 s to tell the peers. NULL is allowed. An error: see
 * "Buffers"; the endpoint is gone all the same. */
int dualrail_close(struct dualrail *d, struct dualrail_error *e);

/*
 * Registers [base, base + len) at the endpoint, for all peers that are and will be. key: peers may write to this range
 * by this number; 0: they may not. -EEXIST: the key is in use; -EINVAL: no bytes; -ENOMEM, and errors of the NICs.
 */
int dualrail_register(struct dualrail *d, void *base, size_t len, uint64_t key,
	struct dualrail_memory **out, struct dualrail_error *e);
/* Ends the registration of memory. Puts that read it are waited for, and so are blocks that peers are writing to it, for 1 s at most. Then
 * the connections that still use it end. Frees it unless an error is returned, see "Buffers". */
int dualrail_deregister(struct dualrail_memory *m, struct dualrail_error *e);

/* Starts to listen, once for an endpoint, and writes the handle, which serves any number of peers until dualrail_close. Each of them is
 * an event DUALRAIL_CONNECTED. A second call writes the same handle. -EADDRNOTAVAIL. */
int dualrail_listen(
	struct dualrail *d, uint8_t handle[DUALRAIL_HANDLE_BYTES], struct dualrail_error *e);
/* Connects to the endpoint that wrote the handle. Does not block: DUALRAIL_CONNECTED or DUALRAIL_CLOSED follows. -EPROTO: not a
 * handle; -ENOMEM. */
int dualrail_connect(struct dualrail *d, const uint8_t handle[DUALRAIL_HANDLE_BYTES],
	struct dualrail_peer **out, struct dualrail_error *e);
/* Ends the connection and frees it; to be called once for each peer, whoever opened it. Puts that are not done fail with
 * -ECANCELED. The other end gets DUALRAIL_CLOSED. Takes up to 1 s to tell it. An error: see "Buffers". */
int dualrail_disconnect(struct dualrail_peer *p, struct dualrail_error *e);

/* len bytes at offset of memory go to remote_offset of the range that the peer registered under key. */
struct dualrail_block {
	uint64_t key;
	uint64_t remote_offset;
	const struct dualrail_memory *memory;
	uint64_t offset;
	uint64_t len;
};
/*
 * Writes n blocks into the peer's memory, in any order, then delivers the note. note_len 0: no note; n 0: only the note. The list and the note are
 * copied. Does not block: transfers wait in the library. cookie comes back in the event DUALRAIL_PUT_DONE. -EINVAL: a range
 * that is not in its memory, or no block and no note; -EMSGSIZE: note_len above DUALRAIL_NOTE_MAX; -ENOTCONN: not connected yet;
 * -ENOMEM; the error with which the connection ended.
 */
int dualrail_put(struct dualrail_peer *p, const struct dualrail_block *blocks, size_t n,
	const void *note, size_t note_len, uint64_t cookie, struct dualrail_put **out);
/* Returns the state of a put. 1: all blocks and the note are in the peer's memory, or with its library. 0: not yet. -ENOENT: the peer has no such key;
 * -ERANGE: the range under the key is shorter. Then other blocks may have been written, and there was no note.
 * Another error: the connection ended. */
int dualrail_test(const struct dualrail_put *put);
/* Frees a put; one that is not done goes on. NULL is allowed. */
void dualrail_release(struct dualrail_put *put);

enum dualrail_event_kind {
	DUALRAIL_CONNECTED = 1, /* puts may be posted; code 1: the peer connected to this end */
	DUALRAIL_CLOSED, /* the connection ended: code, text. -ESHUTDOWN: the peer ended it. To be followed by
		dualrail_disconnect */
	DUALRAIL_NOTE, /* data, len: the note of a put of the peer, whose blocks are in place */
	DUALRAIL_PUT_DONE, /* cookie; code: 0, or what dualrail_test returns. A peer's answer to the note may come before */
	DUALRAIL_SWITCHED, /* a lane changed its NIC: text "eth1 -> eth2: cause". gap_ns: receiving
		end, time without data; -1 at the other end, and if the lane was idle.
		code: 1 planned, e.g. a failback; 0 a failure */
	DUALRAIL_UNPROTECTED, /* a lane has lost its second NIC: text has its name */
	DUALRAIL_HEALED,      /* it is back */
};
struct dualrail_event {
	int kind; /* enum dualrail_event_kind */
	int code;
	struct dualrail_peer *peer;
	uint64_t cookie;
	int64_t gap_ns;
	const void *data;
	size_t len;
	const char *text; /* "": none */
	uint32_t lane; /* 0 and 1: of requests and notes, one for each direction; others: of data */
};
/* Returns a descriptor that is readable while dualrail_next would return an event. To be polled, never read. */
int dualrail_fd(const struct dualrail *d);
/* Returns the oldest event; NULL: there is none. Valid until the next call, or until dualrail_close. While 1,024 notes of a peer are not read,
 * its next requests wait. */
const struct dualrail_event *dualrail_next(struct dualrail *d);

/* What both directions of a connection have carried, as this end sees it. */
struct dualrail_stats {
	size_t size;
	uint64_t sent_bytes, received_bytes;   /* of blocks, acknowledged or delivered */
	uint64_t sent_blocks, received_blocks; /* parts of at most 1 MiB */
	uint64_t replayed_bytes;	       /* sent again after a switch */
	uint64_t duplicates_dropped;
	uint32_t lanes, nics; /* of the connection */
	uint32_t switches, failbacks, heals;
	uint32_t unprotected; /* lanes that have one NIC only, now */
	uint32_t in_flight;   /* blocks of this end on the way, now */
};
/* Writes the counters of a connection. Set out->size to sizeof(struct dualrail_stats) before. */
int dualrail_get_stats(struct dualrail_peer *p, struct dualrail_stats *out);

/* Aborts this end's connections over pair `nic` of NICs (0, 1, ...), as a reset in the network would; for tests of what
 * uses the library. They are made again. -EINVAL: there is no such pair; -ENOTCONN. */
int dualrail_cut(struct dualrail_peer *p, uint32_t nic);

#ifdef __cplusplus
}
#endif

#endif
