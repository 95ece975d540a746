/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_BOOTSTRAP_H
#define DR_BOOTSTRAP_BOOTSTRAP_H

#include "base/defs.h"
#include "base/err.h"
#include "base/poller.h"
#include "base/source.h"
#include "base/wire.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * How a server process and a client process find each other: TCP exchange of parameters and handles
 * (server.c has the order), then a control conversation that stays open for the whole run.
 *
 * Ports: a server listens on port_base + id for each of its GPU ids. A client dials port_base + the
 * id of its own first GPU, and port_base when that was refused for two seconds. ACCEPT names the
 * ports of its further connections; the server takes connection k on any of its ports.
 *
 * Threads: all runs on the thread that owns the poller, sockets from inside dr_poller_wait, timers
 * from ..._tick(now), which is due at ..._deadline(). Nothing blocks but name resolution in
 * dr_boot_client_tick, while it connects. Callbacks run inside these two only, and may call all
 * functions here but destroy and tick. Times are dr_now_ns(). JSON values handed to a callback are
 * borrowed until it returns; JSON values handed in are read, not kept.
 */
enum {
	DR_BOOT_PORT_BASE = 20000,
	DR_BOOT_GPUS_MAX = 64,
	DR_BOOT_HANDLES_MAX = 4096, /* per GPU and direction */
	DR_BOOT_MESSAGE_BYTES_MAX = 1 << 20,
	DR_BOOT_KEY_BYTES = 32,
	DR_BOOT_TOKEN_BYTES = 16,
	/* Raised with every change that an earlier release cannot read: what is in ACCEPT, HANDLES
	 * and messages, and how many handles there are. Since 5 the offer lists all addresses of
	 * each NIC. */
	DR_BOOT_PROTOCOL_VERSION = 5,
};

/* Why something ended or was lost. The first four are evidence about the peer's process: EOF, RESET
 * and REFUSED mean that its kernel answers and nobody is there; SILENT means nothing answers. */
enum dr_boot_cause {
	DR_BOOT_OK,
	DR_BOOT_EOF,	     /* peer closed without goodbye */
	DR_BOOT_RESET,	     /* RST */
	DR_BOOT_SILENT,	     /* nothing acknowledged, or READY and nothing heard, for silent_ns */
	DR_BOOT_REFUSED,     /* connection refused on every address tried */
	DR_BOOT_UNREACHABLE, /* no route, no answer to SYN, or name does not resolve */
	DR_BOOT_TIMEOUT,     /* connected, but a stage missed its deadline */
	DR_BOOT_PROTOCOL,    /* not dualrail, or bytes that break the protocol */
	DR_BOOT_VERSION,     /* another protocol version; both are in the text */
	DR_BOOT_KEY,	     /* keys differ, or only one end has one */
	DR_BOOT_BUSY,	     /* the server serves another client; its address is in the text */
	DR_BOOT_DECLINED, /* the server's application refused the parameters, or GPU counts differ */
	DR_BOOT_GONE,	  /* RESUME answered: the server knows no such session (restarted?) */
	DR_BOOT_GOODBYE,  /* peer said goodbye */
	DR_BOOT_LOCAL,	  /* ended by this end, or a local failure such as memory */
	DR_BOOT_EVICTED,  /* server: silent before the run began, and another client waits */
};
/* "connection refused", "no answer", ...: words for a sentence. Never NULL. */
const char *dr_boot_cause_text(enum dr_boot_cause cause);

enum dr_boot_state {
	DR_BOOT_IDLE,	    /* server: no session; client: not connected yet */
	DR_BOOT_CONNECTING, /* client only: dialling, or hello and handshake under way */
	DR_BOOT_OFFERED,    /* parameters sent / received, not answered */
	DR_BOOT_EXCHANGING, /* accepted, handles under way */
	DR_BOOT_READY,	    /* all handles exchanged; control conversation open */
	DR_BOOT_LOST, /* control connection broke; messages are kept, RESUME is awaited or tried */
	DR_BOOT_CLOSED, /* client only: over, with or without success */
};

struct dr_boot_key {
	uint8_t bytes[DR_BOOT_KEY_BYTES];
};
/*
 * Read a shared key; trailing white space is removed. Hex digits or base64 (with digits, upper and lower case letters)
 * of 32 bytes or more stand for these bytes, which are hashed with BLAKE2b. Anything else of 16 bytes or more is a
 * passphrase, stretched with Argon2id (64 MiB, 3 passes, about 0.1 s). -EPERM: another user can read the file, or could
 * have written it; -ENOENT, -EACCES, -EINVAL (too short, > 4 KiB), -ENOMEM. The process leaves no
 * core file from then on. The caller wipes its copy.
 */
int dr_boot_key_read(const char *path, struct dr_boot_key *out, struct dr_err *e) DR_MUST_CHECK;

/* 0 in a field means its default. */
struct dr_boot_timing {
	int64_t stage_ns;     /* a peer in mid-hello or mid-message without progress: 5 s */
	int64_t ping_ns;      /* PING every: 250 ms */
	int64_t silent_ns;    /* nothing acknowledged by the peer's kernel; READY: nothing heard of
				 its process; for: 2 s */
	int64_t resume_ns;    /* READY; after a loss the session is kept for: 30 s */
	int64_t last_ns;      /* the same after dr_boot_server_last: 5 s, at most resume_ns */
	int64_t retry_min_ns; /* client's back-off: 50 ms .. 500 ms */
	int64_t retry_max_ns;
	int64_t fallback_ns; /* first port refused for this long -> port_base too: 2 s */
	int64_t exchange_ns; /* from OFFER until ACCEPT, and until all handles are exchanged: 60 s */
};

/* ---- control conversation, the same for both roles ---------------------------------------- */

struct dr_control;
/*
 * Queue a JSON object for the peer's on_message. In order, exactly once, across losses. Never
 * blocks. Allowed from ACCEPT on. -ENOTCONN: no session; -EMSGSIZE: over 1 MiB as text; -ENOBUFS:
 * 16 MiB or 4096 messages are waiting for acknowledgement; -EINVAL: not an object; -ENOMEM.
 */
int dr_control_send(struct dr_control *c, const json_t *msg) DR_MUST_CHECK;
/* Queue goodbye behind what was queued. The session is over when it is acknowledged, or after
 * stage_ns; then on_closed(DR_BOOT_LOCAL). The peer sees on_closed(DR_BOOT_GOODBYE). */
void dr_control_goodbye(struct dr_control *c);
/* Messages sent and not acknowledged yet: 0 means that the peer has everything. */
unsigned dr_control_unacked(const struct dr_control *c);
/*
 * Clock of the peer: peer's CLOCK_MONOTONIC = own + offset_ns, off by at most error_ns (= min RTT/2
 * of the recent PINGs, plus 100 ppm drift since). false before the first PONG.
 */
bool dr_control_clock(
	const struct dr_control *c, int64_t now_ns, int64_t *offset_ns, int64_t *error_ns);
/* "192.0.2.7:51234", the peer's address on the control connection (the last one when lost). */
const char *dr_control_peer(const struct dr_control *c);
/* The peer's build version string from its HELLO; "" before. */
const char *dr_control_peer_version(const struct dr_control *c);
/* DR_BOOT_TOKEN_BYTES: for data connections and heartbeats; valid from ACCEPT on, the same on both
 * ends, NULL before. Derived from the handshake at each end, never sent. */
const uint8_t *dr_control_token(const struct dr_control *c);

/* ---- options and callbacks of both roles -------------------------------------------------- */

struct dr_boot_opts {
	const unsigned *gpus; /* ids, in pairing order; copied */
	unsigned n_gpus;      /* 1 .. DR_BOOT_GPUS_MAX */
	/* Server: 0 is the kernel's choice for each (tests). Client: 0 is DR_BOOT_PORT_BASE. */
	uint16_t port_base;
	bool pair; /* client: if the server has fewer GPUs, use the first ones; false: it refuses */
	const char
		*bind; /* --control: numeric address or interface; NULL: server all, IPv4 and IPv6;
			     client the kernel's choice */
	const struct dr_boot_key *key; /* NULL: none; copied */
	const char *version;	       /* build version string, <= 63 bytes */
	struct dr_boot_timing timing;
	/* server */
	const struct dr_networks
		*allow; /* --allow-from: other sources are refused; NULL: all are allowed. Copied */
	bool listen_base; /* also on port_base when GPU 0 is not in the list; taken is no error */
	/* client */
	const char *host;     /* name or numeric address, IPv4 or IPv6; every address is tried */
	uint16_t port;	      /* not 0: dial exactly this port first (tests, forwarded ports) */
	const json_t *params; /* the offer, an object; read during create */
	int64_t connect_timeout_ns; /* until the server's hello: 30 s when 0 */
	bool wait_busy; /* a server that serves another client is dialled again until then */
};

/* One session: on_offer or on_accept, then on_handles × n, on_ready, messages, on_closed once. NULL: ignored; the
 * server needs on_offer and on_closed, the client on_accept, on_failed and on_closed. */
struct dr_boot_ops {
	/* Server: a client with proven key and right version offers. Answer with dr_boot_server_accept
	 * or _refuse, here or later. n_gpus: the client's ids. Next callback: on_closed or on_handles. */
	void (*on_offer)(void *arg, const json_t *params, const unsigned *gpus, unsigned n_gpus);
	/* Client: the server accepted. Answer with dr_boot_client_handles(c, k, ...) for every
	 * k < pairs, here or later. gpus: the server's ids. handles_out: how many to give for each k. */
	void (*on_accept)(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
		unsigned handles_out, unsigned handles_in);
	/* The peer's handles of pair k, in the order it gave them. The server answers with
	 * dr_boot_server_handles(s, k, ...), here, earlier or later; those given before leave when this
	 * returns, so what it refuses the client learns before it is READY. May take its time: the
	 * client waits exchange_ns, as long as this end's kernel answers. */
	void (*on_handles)(void *arg, unsigned k, const struct dr_handle *handles, unsigned n);
	/* All pairs exchanged in both directions and confirmed by the client. */
	void (*on_ready)(void *arg);
	void (*on_message)(void *arg, const json_t *msg);
	/* Control connection broke. For timing.resume_ns the client reconnects by itself. At the server
	 * it may come between the last on_handles and on_ready; then the session is kept for silent_ns
	 * only. on_resumed or the end follows. */
	void (*on_lost)(void *arg, enum dr_boot_cause cause, const char *text);
	void (*on_resumed)(void *arg);
	/* Client: never got READY, or the server, not READY yet, declined. code: the exit status it
	 * asked for with DECLINED, else 3. err says what was tried, how often, the last cause and
	 * what to check. Final. */
	void (*on_failed)(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err);
	/* The session is over; server: every one that had on_offer, and it is free for the next; client:
	 * a READY one, final. GOODBYE and LOCAL are orderly. After on_lost: server, the cause of that
	 * loss; client, REFUSED (three times in a row where control was: its process is gone), GONE, or
	 * the cause of the last attempt. */
	void (*on_closed)(void *arg, enum dr_boot_cause cause, const char *text);
};

/* ---- server ------------------------------------------------------------------------------- */

struct dr_boot_server;

/*
 * Listen. -EADDRINUSE names the port and what to do; -EINVAL, -ENODEV (no such interface or
 * address), -ENOMEM. The poller is borrowed.
 * Strangers of every kind (scanner, browser, wrong version or key) are answered where that makes
 * sense, logged with one WARN line each (rate-limited) and never disturb a session; at most 64
 * connections wait unidentified, the oldest gives way. A second client is answered BUSY. While it asks again (wait_busy),
 * a session whose client is silent ends with DR_BOOT_EVICTED before silent_ns are over; not after READY and the first message.
 */
int dr_boot_server_create(struct dr_boot_server **out, const struct dr_boot_opts *opts,
	const struct dr_boot_ops *ops, void *arg, struct dr_poller *poller, struct dr_err *e)
	DR_MUST_CHECK;
/* Closes everything at once, no callbacks; say goodbye before for an orderly end. */
void dr_boot_server_destroy(struct dr_boot_server *s);
/* The port of the k-th GPU's listener. */
uint16_t dr_boot_server_port(const struct dr_boot_server *s, unsigned k);
/* Listen for RESUME on this numeric address too (a rail's), at the first GPU's port; no-op when
 * already covered by the wildcard. For --control ADDR, where the rails are not bound. */
int dr_boot_server_listen_also(struct dr_boot_server *s, const char *address, struct dr_err *e);
void dr_boot_server_tick(struct dr_boot_server *s, int64_t now_ns);
int64_t dr_boot_server_deadline(const struct dr_boot_server *s);

/*
 * Accept the offer: reply goes to the client's on_accept; the client must then send, for each pair,
 * handles_in handles, and gets handles_out for each. -EINVAL when no offer is open or a count is 0
 * or above DR_BOOT_HANDLES_MAX; -EMSGSIZE; -ENOMEM.
 */
int dr_boot_server_accept(struct dr_boot_server *s, const json_t *reply, unsigned handles_in,
	unsigned handles_out) DR_MUST_CHECK;
/* Refuse the offer or end a session that is not READY yet: code (an exit status) and text reach the
 * client's on_failed as DR_BOOT_DECLINED; on_closed(DR_BOOT_LOCAL) follows here. */
void dr_boot_server_refuse(struct dr_boot_server *s, int code, const char *text);
/* This end's handles of pair k; copied. -EINVAL: not in this state, wrong n, or a len too big. */
int dr_boot_server_handles(struct dr_boot_server *s, unsigned k, const struct dr_handle *handles,
	unsigned n) DR_MUST_CHECK;
/* End the session at once, without waiting for anything; on_closed(DR_BOOT_LOCAL) at the next
 * tick. For a peer that is known to be dead. */
void dr_boot_server_drop(struct dr_boot_server *s);
/* The run is over, and this end has queued its last message: what is missing is the client's confirmation. A session that
 * has lost its connection, or loses it from now on, is kept for last_ns only. */
void dr_boot_server_last(struct dr_boot_server *s);
/* The same object for the whole life of s; functions return "nothing yet" while no session is. */
struct dr_control *dr_boot_server_control(struct dr_boot_server *s);

/* ---- client ------------------------------------------------------------------------------- */

struct dr_boot_client;

/*
 * Prepare to connect to opts->host; the first tick resolves the name and
 * dials. A name that does not resolve is tried again until connect_timeout_ns, then
 * on_failed(DR_BOOT_UNREACHABLE). -ENODEV (no such interface or address in bind), -EINVAL,
 * -EMSGSIZE, -ENOMEM. The poller is borrowed.
 */
int dr_boot_client_create(struct dr_boot_client **out, const struct dr_boot_opts *opts,
	const struct dr_boot_ops *ops, void *arg, struct dr_poller *poller, struct dr_err *e)
	DR_MUST_CHECK;
void dr_boot_client_destroy(struct dr_boot_client *c);
void dr_boot_client_tick(struct dr_boot_client *c, int64_t now_ns);
int64_t dr_boot_client_deadline(const struct dr_boot_client *c);
/* For an owner that cannot tick, since it opens GPUs or registers memory in a callback: keeps a server that others wait for
 * from taking this end for silent. Sends PING if it is due. On any thread; the owner uses neither the client nor its
 * poller until this has returned. */
void dr_boot_client_pulse(struct dr_boot_client *c, int64_t now_ns);
/* With wait_busy: what a server that serves another client said last, while this end waits for it; else NULL. */
const char *dr_boot_client_busy(const struct dr_boot_client *c);
int dr_boot_client_handles(struct dr_boot_client *c, unsigned k, const struct dr_handle *handles,
	unsigned n) DR_MUST_CHECK;
/* Further addresses of the server for RESUME (its rails), numeric, at most 16; copied, replaces
 * earlier ones. -EINVAL names the one that is no address. */
int dr_boot_client_alternatives(
	struct dr_boot_client *c, const char *const *addresses, unsigned n, struct dr_err *e);
/* End at once; on_failed or on_closed with DR_BOOT_LOCAL at the next tick. */
void dr_boot_client_drop(struct dr_boot_client *c);
struct dr_control *dr_boot_client_control(struct dr_boot_client *c);

#endif
