/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fields.h"
#include "base/wire.h"
#include "bootstrap/conv_testkit.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static void hello_and_welcome(void **state)
{
	(void)state;
	const size_t chunks[] = { SIZE_MAX, 1, 7 };
	for (unsigned i = 0; i < 6; i++) {
		struct end c, s;
		const struct dr_boot_key *key = i < 3 ? NULL : &key_a;
		end_init(&c, DR_CONV_CLIENT, key, DR_CONV_RESUME, 11);
		end_init(&s, DR_CONV_SERVER, key, 0, 22);
		settle(&c, &s, chunks[i % 3]);
		assert_int_equal(s.identified, 1);
		assert_int_equal(c.opened, 1);
		assert_int_equal(c.last.seq, 7);
		assert_string_equal(s.conv.peer.build, "1.0-client");
		assert_string_equal(c.conv.peer.build, "1.0-server");
		assert_int_equal(s.conv.peer.purpose, DR_CONV_RESUME);
		send_text(&c, DR_CONV_FRAME_MESSAGE, 1, "{\"a\":1}");
		send_text(&s, DR_CONV_FRAME_MESSAGE, 1, "{\"b\":2}");
		settle(&c, &s, chunks[i % 3]);
		assert_int_equal(s.frames, 1);
		assert_int_equal(c.frames, 1);
		assert_int_equal(c.last.seq, 1);
		fini(&c, &s);
	}
}

static void nothing_before_the_proof(void **state)
{
	(void)state;
	struct end c, s;
	end_init(&c, DR_CONV_CLIENT, &key_a, DR_CONV_NEW, 11);
	end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
	const uint8_t *data;
	size_t hello = dr_conv_output(&c.conv, &data);
	move(&c, &s, hello, SIZE_MAX);
	/* The server: its hello and its proof, nothing else. */
	assert_int_equal(dr_conv_output(&s.conv, &data),
		s.conv.own_hello_len + DR_CONV_HEADER_BYTES + DR_CONV_PROOF_BYTES);
	assert_int_equal(s.identified, 0);
	move(&s, &c, SIZE_MAX, SIZE_MAX);
	/* The client: its proof, nothing else. */
	assert_int_equal(
		dr_conv_output(&c.conv, &data), DR_CONV_HEADER_BYTES + DR_CONV_PROOF_BYTES);
	assert_int_equal(c.opened, 0);
	fini(&c, &s);
	/* A client that cannot verify the server's proof sends none, but says so. */
	end_init(&c, DR_CONV_CLIENT, &key_a, DR_CONV_NEW, 11);
	end_init(&s, DR_CONV_SERVER, &key_b, 0, 22);
	move(&c, &s, SIZE_MAX, SIZE_MAX);
	move(&s, &c, SIZE_MAX, SIZE_MAX);
	assert_int_equal(dr_conv_output(&c.conv, &data), DR_CONV_HEADER_BYTES + DR_CONV_DENY_BYTES);
	assert_int_equal(data[4], DR_CONV_FRAME_DENY);
	fini(&c, &s);
}

/* The peer's own text and cause, both ends. */
static void check_refused(struct end *c, struct end *s, enum dr_boot_cause cause,
	const char *client, const char *server)
{
	settle(c, s, SIZE_MAX);
	assert_int_equal(s->failed, 1);
	assert_int_equal(c->failed, 1);
	assert_int_equal(s->identified, 0);
	assert_int_equal(c->opened, 0);
	assert_int_equal(s->conv.cause, cause);
	assert_int_equal(c->conv.cause, cause);
	assert_non_null(strstr(c->conv.err.text, client));
	assert_non_null(strstr(s->conv.err.text, server));
	fini(c, s);
}

static void wrong_keys(void **state)
{
	(void)state;
	static const struct {
		const struct dr_boot_key *client, *server;
		const char *client_text, *server_text;
	} row[] = {
		{ &key_a, &key_b, "key files differ", "key files differ" },
		{ &key_a, NULL, "the peer has none", "this end has none" },
		{ NULL, &key_a, "this end has none", "the peer has none" },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		struct end c, s;
		end_init(&c, DR_CONV_CLIENT, row[i].client, DR_CONV_NEW, 11);
		end_init(&s, DR_CONV_SERVER, row[i].server, 0, 22);
		check_refused(&c, &s, DR_BOOT_KEY, row[i].client_text, row[i].server_text);
	}
}

/* Each peer of such a server proves the key that its hello names; the server takes no other connections. */
static void keys_by_hello(void **state)
{
	(void)state;
	static const struct {
		const struct dr_boot_key *key;
		uint64_t number;
		bool opens;
	} row[] = { { &key_a, 4, true }, { &key_b, 4, false }, { &key_a, 5, false } };
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		struct end c, s;
		unsigned asked = 0;
		comm_client_init(&c, row[i].key, row[i].number);
		comm_server_init(&s, &asked);
		settle(&c, &s, 7);
		assert_int_equal(asked, 1);
		assert_int_equal(s.identified, row[i].opens);
		assert_int_equal(c.opened, row[i].opens);
		if (!row[i].opens) {
			assert_int_equal(c.conv.cause, DR_BOOT_KEY);
			assert_int_equal(s.conv.cause, DR_BOOT_KEY);
			assert_non_null(strstr(c.conv.err.text, "handle is of another process"));
			assert_non_null(strstr(s.conv.err.text, "handle is of another process"));
		}
		fini(&c, &s);
	}
	for (unsigned purpose = DR_CONV_NEW; purpose <= DR_CONV_RESUME; purpose++) {
		struct end c, s;
		unsigned asked = 0;
		end_init(&c, DR_CONV_CLIENT, &key_a, purpose, 11);
		comm_server_init(&s, &asked);
		settle(&c, &s, SIZE_MAX);
		assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
		assert_int_equal(asked, 0);
		fini(&c, &s);
	}
	struct end c, s;
	comm_client_init(&c, &key_a, 1);
	end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
	settle(&c, &s, SIZE_MAX);
	assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
	fini(&c, &s);
}

/* Before keys and handles, which may differ too. */
static void wrong_version(void **state)
{
	(void)state;
	enum { OWN = DR_BOOT_PROTOCOL_VERSION };
	static const uint16_t version[] = { OWN - 1, OWN + 1 };
	struct end c, s;

	for (size_t i = 0; i < DR_ARRAY_LEN(version); i++) {
		struct dr_conv_opts o = {
			.role = DR_CONV_CLIENT, .stage_ns = STAGE, .ephemeral = { 1 }
		};
		char client_text[128], server_text[128];

		memset(&c, 0, sizeof(c));
		snprintf(o.hello.build, sizeof(o.hello.build), "9.9");
		o.hello.version = version[i];
		o.hello.purpose = DR_CONV_NEW;
		assert_int_equal(dr_conv_init(&c.conv, &o, T0), 0);
		end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
		snprintf(client_text, sizeof(client_text),
			"this end %u (dualrail 9.9), peer %u (dualrail 1.0-server)", version[i],
			OWN);
		snprintf(server_text, sizeof(server_text),
			"this end %u (dualrail 1.0-server), peer %u (dualrail 9.9)", OWN,
			version[i]);
		check_refused(&c, &s, DR_BOOT_VERSION, client_text, server_text);
	}
	/* A later version may say whatever it wants after its build string. */
	uint8_t later[12 + 200] = "DUALRAIL";
	later[9] = 77;
	later[11] = 200;
	later[12] = 3;
	memcpy(later + 13, "9\nb", 3);
	end_init(&s, DR_CONV_SERVER, NULL, 0, 22);
	feed(&s, later, sizeof(later));
	assert_int_equal(s.conv.cause, DR_BOOT_VERSION);
	assert_non_null(strstr(s.conv.err.text, "peer 77 (dualrail 9?b)"));
	fini(&s, NULL);
}

static void other_protocols(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t len;
		const char *text;
	} row[] = {
		{ "GET / HTTP/1.1\r\n", 16, "HTTP" },
		{ "SSH-2.0-OpenSSH", 15, "SSH" },
		{ "\x16\x03\x01\x02\x00\x01", 6, "TLS" },
		{ "\x00\x01\x02", 3, "first bytes: 00 01 02" },
		{ "DUALRAIM", 8, "another protocol" },
		{ "G", 1, "another protocol" },
		{ "DUALRAIL\x00\x01\xff\xff", 12, "hello of protocol version 1 has 65535 bytes" },
		{ "DUALRAIL\x00\x03\xff\xff", 12, "hello of protocol version 3 has 65535 bytes" },
		{ "DUALRAIL\x00\x04\xff\xff", 12, "hello of protocol version 4 has 65535 bytes" },
		{ "DUALRAIL\x00\x01\x00\x00", 12, "hello of protocol version 1 has 0 bytes" },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		struct end s, c;
		const uint8_t *out;
		end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
		end_init(&c, DR_CONV_CLIENT, &key_a, DR_CONV_GPU, 22);
		feed(&s, (const uint8_t *)row[i].bytes, row[i].len);
		feed(&c, (const uint8_t *)row[i].bytes, row[i].len);
		assert_int_equal(s.failed, 1);
		assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
		assert_int_equal(c.conv.cause, DR_BOOT_PROTOCOL);
		assert_non_null(strstr(s.conv.err.text, row[i].text));
		assert_int_equal(dr_conv_output(&s.conv, &out), 0);
		fini(&s, &c);
	}
	/* Client to client. */
	struct end a, b;
	end_init(&a, DR_CONV_CLIENT, NULL, DR_CONV_NEW, 11);
	end_init(&b, DR_CONV_CLIENT, NULL, DR_CONV_NEW, 22);
	move(&a, &b, SIZE_MAX, SIZE_MAX);
	assert_non_null(strstr(b.conv.err.text, "is a client"));
	fini(&a, &b);
}

static void every_truncation_point(void **state)
{
	(void)state;
	struct tape t;
	const struct dr_boot_key *keys[] = { NULL, &key_a };
	for (unsigned i = 0; i < 4; i++) {
		const struct dr_boot_key *key = keys[i % 2];
		bool server = i < 2;
		record(&t, key);
		const uint8_t *bytes = server ? t.client : t.server;
		size_t len = server ? t.client_len : t.server_len;
		for (size_t cut = 0; cut <= len; cut++) {
			struct end e;
			struct dr_conv_event ev;
			end_init(&e, server ? DR_CONV_SERVER : DR_CONV_CLIENT, key,
				server ? 0 : DR_CONV_NEW, server ? 22 : 11);
			feed(&e, bytes, cut);
			const uint8_t *out;
			dr_conv_sent(&e.conv, dr_conv_output(&e.conv, &out), T0);
			assert_int_equal(e.failed, 0);
			dr_conv_tick(&e.conv, T0 + STAGE - 1, &ev);
			assert_int_equal(ev.kind, DR_CONV_NOTHING);
			dr_conv_tick(&e.conv, T0 + STAGE, &ev);
			bool idle = e.conv.state == DR_CONV_OPEN && is_boundary(bytes, server, cut);
			if (idle) {
				assert_int_equal(ev.kind, DR_CONV_NOTHING);
				assert_true(dr_conv_deadline(&e.conv) == DR_NEVER);
			} else {
				assert_int_equal(ev.kind, DR_CONV_FAILED);
				assert_int_equal(ev.cause, DR_BOOT_TIMEOUT);
			}
			fini(&e, NULL);
		}
	}
}

/* Byte by byte the same events come out as in one piece. */
static void byte_by_byte(void **state)
{
	(void)state;
	struct tape t;
	record(&t, &key_a);
	struct end e;
	end_init(&e, DR_CONV_SERVER, &key_a, 0, 22);
	for (size_t i = 0; i < t.client_len; i++)
		feed(&e, t.client + i, 1);
	assert_int_equal(e.frames, 4);
	assert_int_equal(e.failed, 0);
	fini(&e, NULL);
}

static size_t make_frame(uint8_t *buf, uint32_t len, uint8_t type, uint64_t seq, size_t payload)
{
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, DR_CONV_HEADER_BYTES);
	dr_wbuf_u32(&w, len);
	dr_wbuf_u32(&w, (uint32_t)type << 24);
	dr_wbuf_u64(&w, seq);
	memset(buf + DR_CONV_HEADER_BYTES, 'x', payload);
	if (payload >= 2)
		memcpy(buf + DR_CONV_HEADER_BYTES, "{}", 2);
	for (size_t i = 2; i < payload; i++)
		buf[DR_CONV_HEADER_BYTES + i] = ' ';
	return DR_CONV_HEADER_BYTES + payload;
}

struct rule {
	uint8_t type;
	const char *client, *server; /* who may send it on N(ew) G(pu) R(esume) C(omm) once open */
	bool numbered;
	uint32_t min, max;
};
static const struct rule rules[] = {
	{ DR_CONV_FRAME_PROOF, "", "", false, 48, 48 },
	{ DR_CONV_FRAME_DENY, "", "", false, 16, 16 },
	{ DR_CONV_FRAME_WELCOME, "", "", false, 8, 8 },
	{ DR_CONV_FRAME_REFUSE, "", "NGRC", false, 2, 4096 },
	{ DR_CONV_FRAME_OFFER, "NC", "", false, 2, 1 << 20 },
	{ DR_CONV_FRAME_ACCEPT, "", "NC", false, 2, 1 << 20 },
	{ DR_CONV_FRAME_HANDLES, "NGC", "NGC", false, 4, 1 << 20 },
	{ DR_CONV_FRAME_MESSAGE, "NR", "NR", true, 2, 1 << 20 },
	{ DR_CONV_FRAME_READY, "NRC", "", true, 0, 0 },
	{ DR_CONV_FRAME_GOODBYE, "NRC", "NRC", true, 0, 0 },
	{ DR_CONV_FRAME_ACK, "NRC", "NRC", false, 8, 8 },
	{ DR_CONV_FRAME_PING, "NR", "NR", false, 8, 8 },
	{ DR_CONV_FRAME_PONG, "NR", "NR", false, 24, 24 },
	{ 14, "", "", false, 0, 0 },
	{ 255, "", "", false, 0, 0 },
	{ 0, "", "", false, 0, 0 },
};

/* Every type, to both roles, on every purpose, in OPEN. */
static void message_orders_open(void **state)
{
	(void)state;
	uint8_t frame[80];
	for (size_t i = 0; i < DR_ARRAY_LEN(rules); i++)
		for (unsigned purpose = DR_CONV_NEW; purpose <= DR_CONV_COMM; purpose++)
			for (unsigned to = 0; to < 2; to++) {
				struct end c, s;
				open_pair(&c, &s, NULL, purpose);
				struct end *e = to == 0 ? &s : &c;
				const char *who = to == 0 ? rules[i].client : rules[i].server;
				bool may = strchr(who, "?NGRC"[purpose]) != NULL;
				size_t n = make_frame(frame, rules[i].min, rules[i].type,
					rules[i].numbered, rules[i].min);
				unsigned before = e->frames + e->refused;
				say_raw(to == 0 ? &c : &s, e, frame, n);
				assert_int_equal(e->frames + e->refused - before, may);
				assert_int_equal(e->failed, !may);
				if (!may)
					assert_int_equal(e->conv.cause, DR_BOOT_PROTOCOL);
				fini(&c, &s);
			}
}

/* Before the proof of the peer: only what the state waits for. */
static void message_orders_early(void **state)
{
	(void)state;
	struct tape t;
	uint8_t frame[80];
	const struct dr_boot_key *keys[] = { NULL, &key_a };
	for (size_t i = 0; i < DR_ARRAY_LEN(rules); i++)
		for (unsigned k = 0; k < 2; k++)
			for (unsigned to = 0; to < 2; to++) {
				struct end e;
				record(&t, keys[k]);
				const uint8_t *tape = to == 0 ? t.client : t.server;
				end_init(&e, to == 0 ? DR_CONV_SERVER : DR_CONV_CLIENT, keys[k],
					to == 0 ? 0 : DR_CONV_NEW, to == 0 ? 22 : 11);
				e.welcomes = false;
				feed(&e, tape, hello_bytes(tape));
				size_t n = make_frame(frame, rules[i].min, rules[i].type,
					rules[i].numbered, rules[i].min);
				feed(&e, frame, n);
				bool about_key = rules[i].type == DR_CONV_FRAME_PROOF ||
						 rules[i].type == DR_CONV_FRAME_DENY;
				assert_int_equal(e.failed, 1);
				assert_int_equal(e.identified + e.opened, 0);
				assert_int_equal(
					e.conv.cause, about_key ? DR_BOOT_KEY : DR_BOOT_PROTOCOL);
				fini(&e, NULL);
			}
}

/* Between the proofs and WELCOME, sealed; and as plain text from then on. */
static void message_orders_sealed(void **state)
{
	(void)state;
	uint8_t frame[80];
	for (size_t i = 0; i < DR_ARRAY_LEN(rules); i++)
		for (unsigned to = 0; to < 4; to++) {
			struct end c, s;
			bool plain = to >= 2, client = to % 2;
			end_init(&c, DR_CONV_CLIENT, &key_a, DR_CONV_NEW, 11);
			end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
			s.welcomes = false;
			settle(&c, &s, SIZE_MAX);
			assert_int_equal(c.conv.state, DR_CONV_WELCOME);
			struct end *e = client ? &c : &s;
			/* As long as a sealed header at least; what is shorter runs into its deadline. */
			size_t n = make_frame(frame, rules[i].min, rules[i].type, rules[i].numbered,
				plain ? 48 : rules[i].min);
			if (plain)
				feed(e, frame, n);
			else
				say_raw(client ? &s : &c, e, frame, n);
			bool may = !plain && client;
			assert_int_equal(c.opened, may && rules[i].type == DR_CONV_FRAME_WELCOME);
			assert_int_equal(c.refused, may && rules[i].type == DR_CONV_FRAME_REFUSE);
			if (!c.opened && !c.refused)
				assert_int_equal(e->conv.cause, DR_BOOT_PROTOCOL);
			fini(&c, &s);
		}
}

static void lengths_and_numbers(void **state)
{
	(void)state;
	uint8_t frame[64];
	for (size_t i = 0; i < DR_ARRAY_LEN(rules); i++) {
		const struct rule *r = &rules[i];
		if (!strchr(r->client, 'N') || !*r->client)
			continue;
		const struct {
			uint32_t len;
			uint64_t seq;
		} bad[] = { { r->max + 1, r->numbered }, { UINT32_MAX, r->numbered },
			{ r->min - 1, r->numbered }, { r->min, !r->numbered } };
		for (size_t b = 0; b < DR_ARRAY_LEN(bad); b++) {
			struct end c, s;
			open_pair(&c, &s, &key_a, DR_CONV_NEW);
			make_frame(frame, bad[b].len, r->type, bad[b].seq, 0);
			say_raw(&c, &s, frame, DR_CONV_HEADER_BYTES);
			/* Refused at the header: nothing of it is waited for or kept. */
			assert_int_equal(s.failed, 1);
			assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
			fini(&c, &s);
		}
	}
}

static void bad_json(void **state)
{
	(void)state;
	static const char *const text[] = { "{\"a\":1", "[1]", "{\"a\":1,\"a\":2}", "{}x",
		"{\"a\":\"\xff\"}", "{\"a\":1e999}" };
	for (size_t i = 0; i < DR_ARRAY_LEN(text); i++) {
		struct end c, s;
		open_pair(&c, &s, NULL, DR_CONV_NEW);
		send_text(&c, DR_CONV_FRAME_MESSAGE, 1, text[i]);
		settle(&c, &s, SIZE_MAX);
		assert_int_equal(s.failed, 1);
		assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
		fini(&c, &s);
	}
	char deep[200] = "{\"a\":";
	for (int depth = DR_JSON_DEPTH_MAX - 1; depth <= DR_JSON_DEPTH_MAX; depth++) {
		char *p = deep + 5;
		memset(p, '[', (size_t)depth);
		memset(p + depth, ']', (size_t)depth);
		memcpy(p + 2 * depth, "}", 2);
		struct dr_err e;
		json_t *j = dr_conv_json_parse(deep, strlen(deep), &e);
		assert_int_equal(j != NULL, depth < DR_JSON_DEPTH_MAX);
		json_decref(j);
	}
	/* Brackets in strings are no levels, whatever is escaped there. */
	static const char *const quoted[] = { "\\\"", "\\\\\\\"", "\\n\\\"" };
	for (size_t i = 0; i < DR_ARRAY_LEN(quoted); i++) {
		char flat[200], many[DR_JSON_DEPTH_MAX + 9] = { 0 };
		struct dr_err e;
		memset(many, '[', sizeof(many) - 1);
		snprintf(flat, sizeof(flat), "{\"a\":\"%s%s\"}", quoted[i], many);
		json_t *j = dr_conv_json_parse(flat, strlen(flat), &e);
		assert_non_null(j);
		json_decref(j);
	}
}

static void refusals(void **state)
{
	(void)state;
	struct end c, s;
	end_init(&c, DR_CONV_CLIENT, NULL, DR_CONV_NEW, 11);
	end_init(&s, DR_CONV_SERVER, NULL, 0, 22);
	s.welcomes = false;
	settle(&c, &s, SIZE_MAX);
	assert_int_equal(dr_conv_refuse(&s.conv, DR_BOOT_BUSY, 3, "serves\n192.0.2.1"), 0);
	settle(&c, &s, SIZE_MAX);
	assert_int_equal(c.refused, 1);
	assert_int_equal(c.conv.cause, DR_BOOT_BUSY);
	assert_int_equal(c.last.code, 3);
	assert_string_equal(c.conv.err.text, "serves?192.0.2.1");
	fini(&c, &s);
	/* Causes and codes that make no sense become DECLINED and 3. */
	static const char *const odd[] = { "{\"cause\":99,\"code\":999,\"text\":5}", "{}",
		"{\"cause\":-1,\"code\":0}", "{\"cause\":\"x\"}" };
	for (size_t i = 0; i < DR_ARRAY_LEN(odd); i++) {
		open_pair(&c, &s, NULL, DR_CONV_NEW);
		send_text(&s, DR_CONV_FRAME_REFUSE, 0, odd[i]);
		settle(&c, &s, SIZE_MAX);
		assert_int_equal(c.conv.cause, DR_BOOT_DECLINED);
		assert_int_equal(c.last.code, 3);
		assert_string_equal(c.conv.err.text, "");
		fini(&c, &s);
	}
}

static void peer_that_does_not_read(void **state)
{
	(void)state;
	struct end c, s;
	struct dr_conv_event ev;
	open_pair(&c, &s, NULL, DR_CONV_NEW);
	size_t len = DR_BOOT_MESSAGE_BYTES_MAX;
	char *big = malloc(len);
	memset(big, ' ', len);
	memcpy(big, "{}", 2);
	assert_int_equal(dr_conv_send(&c.conv, DR_CONV_FRAME_MESSAGE, 1, big, len + 1), -EMSGSIZE);
	uint64_t seq = 1;
	int rc;
	while ((rc = dr_conv_send(&c.conv, DR_CONV_FRAME_MESSAGE, seq, big, len)) == 0)
		seq++;
	assert_int_equal(rc, -ENOBUFS);
	assert_int_equal(seq - 1, DR_CONV_OUTPUT_MAX / sealed_bytes(len));
	dr_conv_sent(&c.conv, 0, T0); /* the socket took nothing */
	dr_conv_sent(&c.conv, 10, T0 + 9);
	dr_conv_sent(&c.conv, 0, T0 + 99); /* and nothing again, however often it is tried */
	dr_conv_tick(&c.conv, T0 + STAGE, &ev);
	assert_int_equal(ev.kind, DR_CONV_NOTHING);
	dr_conv_tick(&c.conv, T0 + STAGE + 9, &ev);
	assert_int_equal(ev.kind, DR_CONV_FAILED);
	assert_int_equal(ev.cause, DR_BOOT_TIMEOUT);
	fini(&c, &s);
	/* And a big one arrives whole. */
	open_pair(&c, &s, NULL, DR_CONV_NEW);
	assert_int_equal(dr_conv_send(&c.conv, DR_CONV_FRAME_MESSAGE, 1, big, len), 0);
	settle(&c, &s, 1000);
	assert_int_equal(s.frames, 1);
	fini(&c, &s);
	free(big);
}

static void pipelined_before_welcome(void **state)
{
	(void)state;
	struct end s;
	struct tape t;
	record(&t, NULL);
	end_init(&s, DR_CONV_SERVER, NULL, 0, 22);
	s.welcomes = false;
	feed(&s, t.client, t.client_len);
	assert_int_equal(s.identified, 1);
	assert_int_equal(s.frames, 0);
	assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
	fini(&s, NULL);
	struct end c; /* not even a byte */
	end_init(&c, DR_CONV_CLIENT, NULL, DR_CONV_NEW, 11);
	end_init(&s, DR_CONV_SERVER, NULL, 0, 22);
	s.welcomes = false;
	settle(&c, &s, SIZE_MAX);
	assert_int_equal(s.failed, 0);
	feed(&s, (const uint8_t *)"", 1);
	assert_int_equal(s.failed, 1);
	assert_int_equal(s.conv.cause, DR_BOOT_PROTOCOL);
	fini(&c, &s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_and_welcome),
		cmocka_unit_test(nothing_before_the_proof),
		cmocka_unit_test(wrong_keys),
		cmocka_unit_test(keys_by_hello),
		cmocka_unit_test(wrong_version),
		cmocka_unit_test(other_protocols),
		cmocka_unit_test(every_truncation_point),
		cmocka_unit_test(byte_by_byte),
		cmocka_unit_test(message_orders_open),
		cmocka_unit_test(message_orders_early),
		cmocka_unit_test(message_orders_sealed),
		cmocka_unit_test(lengths_and_numbers),
		cmocka_unit_test(bad_json),
		cmocka_unit_test(refusals),
		cmocka_unit_test(peer_that_does_not_read),
		cmocka_unit_test(pipelined_before_welcome),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
