/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CONV_H
#define DR_BOOTSTRAP_CONV_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/noise.h"

/*
 * One bootstrap connection as a conversation: bytes in, bytes and events out, time as an argument.
 * No system call, no clock, no randomness (nonce and ephemeral secret are given). conv.c has the
 * bytes.
 *
 *   state     client                                server
 *   HELLO     sent hello, waits for server's        waits for hello, answers with its own and PROOF
 *   PROOF     waits for PROOF, answers PROOF, DENY  waits for PROOF or DENY, answers a wrong one with DENY
 *   WELCOME   waits for WELCOME or REFUSE           owner decides: dr_conv_welcome or _refuse
 *   OPEN      frames both ways                      frames both ways
 *   ENDED     failed or refused: input is ignored, output that is left may still be sent
 *
 * hello and proof have one deadline of stage_ns; later a message that stops half-way has message_ns
 * without progress, and output that the peer does not take stage_ns.
 */
enum {
	DR_CONV_MAGIC_BYTES = 8,
	DR_CONV_NONCE_BYTES = 32,
	DR_CONV_SESSION_BYTES = 16,
	DR_CONV_TOKEN_BYTES = 16,
	DR_CONV_SECRET_BYTES = 32,
	DR_CONV_PROOF_BYTES = DR_NOISE_MESSAGE_BYTES,
	/* As many with its header as a sealed header has: an end that has keys already sees that it is no such one. */
	DR_CONV_DENY_BYTES = 16,
	DR_CONV_BUILD_MAX = 64, /* with the terminating 0 */
	DR_CONV_HEADER_BYTES = 16,
	DR_CONV_TAG_BYTES = DR_NOISE_TAG_BYTES,
	DR_CONV_SEALED_HEADER_BYTES = DR_CONV_HEADER_BYTES + DR_CONV_TAG_BYTES,
	DR_CONV_HELLO_MAX = 12 + 1 + 63 + 60,
	DR_CONV_OUTPUT_MAX = 24 << 20,	    /* unsent bytes; more: the peer does not read */
	DR_CONV_TEXT_MAX = 4096,	    /* of a text in JSON */
	DR_CONV_NAME_MAX = 64,		    /* of a name in JSON */
	DR_CONV_COMM_BYTES_MAX = 128 << 10, /* of a payload on a connection of a comm */
};

enum dr_conv_role { DR_CONV_CLIENT, DR_CONV_SERVER };
/* COMM: the rendezvous of one comm (plugin, library), see bootstrap/rdv.h; last seq is the comm's number. */
enum dr_conv_purpose { DR_CONV_NEW = 1, DR_CONV_GPU, DR_CONV_RESUME, DR_CONV_COMM };
enum dr_conv_state {
	DR_CONV_HELLO,
	DR_CONV_PROOF,
	DR_CONV_WELCOME,
	DR_CONV_OPEN,
	DR_CONV_ENDED,
};
enum dr_conv_frame {
	DR_CONV_FRAME_PROOF = 1, /* message of the handshake */
	DR_CONV_FRAME_DENY, /* u8 cause (DR_BOOT_KEY, DR_BOOT_GONE), zeros: no handshake with this peer */
	DR_CONV_FRAME_WELCOME, /* u64 last seq received */
	DR_CONV_FRAME_REFUSE,  /* JSON {cause, code, text} */
	DR_CONV_FRAME_OFFER,   /* JSON */
	DR_CONV_FRAME_ACCEPT,  /* JSON */
	DR_CONV_FRAME_HANDLES, /* handles.h */
	DR_CONV_FRAME_MESSAGE, /* numbered, JSON */
	DR_CONV_FRAME_READY,   /* numbered, empty; client -> server: all handles are here */
	DR_CONV_FRAME_GOODBYE, /* numbered, empty */
	DR_CONV_FRAME_ACK,     /* u64 last seq received */
	DR_CONV_FRAME_PING,    /* u64 t1 */
	DR_CONV_FRAME_PONG,    /* u64 t1, t2 (PING received), t3 (PONG made) */
	DR_CONV_FRAME_TYPES,
};

struct dr_conv_hello {
	uint16_t version;
	char build[DR_CONV_BUILD_MAX]; /* clean text (base/text.h) */
	uint8_t nonce[DR_CONV_NONCE_BYTES];
	uint8_t session[DR_CONV_SESSION_BYTES];
	uint8_t purpose;
	uint16_t k;
	uint64_t last_seq;
	bool has_key;
};

struct dr_conv_opts {
	enum dr_conv_role role;
	struct dr_conv_hello
		hello; /* own; version 0: DR_BOOT_PROTOCOL_VERSION; has_key is set here */
	const struct dr_boot_key *key; /* borrowed for the conversation's life; NULL: none */
	/* Random, never used twice; not all zero. */
	uint8_t ephemeral[DR_NOISE_KEY_BYTES];
	/* Client, GPU and RESUME: the session's (struct dr_conv_ids). */
	bool bound;
	uint8_t secret[DR_CONV_SECRET_BYTES];
	/* Server: copy the secret of the session that this GPU or RESUME names. False: there is no such session; the
	 * peer is told so. NULL: connections are not bound to a session. */
	bool (*secret_of)(
		void *arg, const struct dr_conv_hello *peer, uint8_t out[DR_CONV_SECRET_BYTES]);
	/* Server of COMM connections, which takes no others, instead of `key`: copy the key that this peer has to
	 * prove. False: there is none; the peer is denied like one with a wrong key. */
	bool (*key_of)(void *arg, const struct dr_conv_hello *peer, struct dr_boot_key *out);
	void *of_arg; /* of both */
	int64_t stage_ns;
	int64_t message_ns; /* 0: stage_ns */
};

enum dr_conv_event_kind {
	DR_CONV_NOTHING,
	DR_CONV_IDENTIFIED, /* server: hello and proof are right; see conv->peer */
	DR_CONV_OPENED,	    /* client: welcome; seq = server's last received */
	DR_CONV_REFUSED,    /* client: cause, code, conv->err.text; ENDED */
	DR_CONV_FRAME,	    /* OPEN: type, seq, json or data */
	DR_CONV_FAILED,	    /* cause, conv->err.text; ENDED */
};
struct dr_conv_event {
	enum dr_conv_event_kind kind;
	enum dr_conv_frame type;
	uint64_t seq;
	enum dr_boot_cause cause;
	int code;
	/* Valid until the next feed or fini. */
	const json_t *json;
	const uint8_t *data;
	size_t len;
};

struct dr_conv {
	struct dr_conv_opts o;
	enum dr_conv_state state;
	struct dr_conv_hello peer; /* from the peer's hello on */
	struct dr_err err;
	enum dr_boot_cause cause;
	/* private */
	struct dr_noise noise;
	bool sealed; /* everything is encrypted from here on, with: */
	struct dr_noise_keys keys;
	uint8_t own_hello[DR_CONV_HELLO_MAX], peer_hello[DR_CONV_HELLO_MAX];
	size_t own_hello_len, peer_hello_len;
	uint8_t *in, *out;
	size_t in_len, in_cap, in_need;
	size_t out_head, out_len, out_cap;
	json_t *json;
	int64_t stage_at_ns; /* HELLO, PROOF, WELCOME: began; OPEN: last input progress */
	int64_t out_since_ns;
};

/* The client's hello is in the output afterwards. -ENOMEM. */
int dr_conv_init(struct dr_conv *c, const struct dr_conv_opts *opts, int64_t now_ns) DR_MUST_CHECK;
void dr_conv_fini(struct dr_conv *c);
/* Nothing is fed any more: frees what came. Output that is left may still be sent. */
void dr_conv_drop_input(struct dr_conv *c);
/* Check the struct's own rules (assert); for tests and the fuzzer. */
void dr_conv_validate(const struct dr_conv *c);

/* Take bytes up to and including the next event; returns how many. Call again until all are taken
 * and ev->kind is DR_CONV_NOTHING. */
size_t dr_conv_feed(
	struct dr_conv *c, const void *data, size_t len, int64_t now_ns, struct dr_conv_event *ev);
void dr_conv_tick(struct dr_conv *c, int64_t now_ns, struct dr_conv_event *ev);
int64_t dr_conv_deadline(const struct dr_conv *c);
/* Unsent bytes; then tell how many of them went out (0 is a report too: it starts the timer). */
size_t dr_conv_output(const struct dr_conv *c, const uint8_t **data);
void dr_conv_sent(struct dr_conv *c, size_t n, int64_t now_ns);
/* The peer closed or the socket failed: the end, with this cause. No-op once ENDED. */
void dr_conv_fail(struct dr_conv *c, enum dr_boot_cause cause, const char *fmt, ...)
	DR_PRINTF(3, 4);

/* What the handshake of a session's first connection gives to both ends, and never travels; except for `session`, which
 * names the session in the hellos of its further connections. */
struct dr_conv_ids {
	uint8_t session[DR_CONV_SESSION_BYTES];
	uint8_t token[DR_CONV_TOKEN_BYTES];
	uint8_t secret[DR_CONV_SECRET_BYTES];
};
/* The handshake is complete: server from IDENTIFIED, client from OPENED on. */
void dr_conv_ids(const struct dr_conv *c, struct dr_conv_ids *out);

/* Server, in WELCOME. */
int dr_conv_welcome(struct dr_conv *c, uint64_t last_seq, int64_t now_ns);
/* Server, in WELCOME or OPEN; ENDED afterwards. */
int dr_conv_refuse(struct dr_conv *c, enum dr_boot_cause cause, int code, const char *text);
/* In OPEN. -EMSGSIZE, -ENOMEM, -ENOBUFS (the peer does not read); nothing is queued then. */
int dr_conv_send(
	struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const void *data, size_t len);
int dr_conv_send_json(struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const json_t *json);

const char *dr_frame_name(unsigned type);
/* Can a conversation begin with these first bytes? False: text says what they are. */
bool dr_conv_begins(const void *data, size_t n, char *text, size_t cap);
/* Parse a JSON object as dr_json_parse does. Texts are clean (base/text.h) and cut to
 * DR_CONV_TEXT_MAX bytes, names are clean. NULL and a text in e. */
json_t *dr_conv_json_parse(const void *data, size_t len, struct dr_err *e);

#endif
