/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a peer: what a hostile one sends is printable, bounded UTF-8 when the conversation hands it on. */
#include "bootstrap/conv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const int64_t STAGE = 5 * DR_NS_PER_S, T0 = 100 * DR_NS_PER_S;

/* Everything that `from` has to send; the last event at `to` that is one. What it points to is valid until the next call. */
static struct dr_conv_event deliver(struct dr_conv *from, struct dr_conv *to)
{
	const uint8_t *data;
	struct dr_conv_event ev = { 0 };
	size_t n = dr_conv_output(from, &data), used = 0;

	while (used < n && ev.kind == DR_CONV_NOTHING)
		used += dr_conv_feed(to, data + used, n - used, T0, &ev);
	assert_int_equal(used, n);
	dr_conv_sent(from, n, T0);
	return ev;
}

static struct dr_conv_event send_text(struct dr_conv *from, struct dr_conv *to,
	enum dr_conv_frame type, uint64_t seq, const char *text)
{
	assert_int_equal(dr_conv_send(from, type, seq, text, strlen(text)), 0);
	return deliver(from, to);
}

/* The server has the client's hello with this build. */
static void open_pair(struct dr_conv *c, struct dr_conv *s, const char *build, uint16_t version)
{
	struct dr_conv_opts o = { .role = DR_CONV_CLIENT, .stage_ns = STAGE };

	snprintf(o.hello.build, sizeof(o.hello.build), "%s", build);
	o.hello.version = version;
	o.hello.purpose = DR_CONV_NEW;
	o.ephemeral[0] = 1;
	assert_int_equal(dr_conv_init(c, &o, T0), 0);
	o = (struct dr_conv_opts){ .role = DR_CONV_SERVER, .stage_ns = STAGE, .ephemeral = { 2 } };
	assert_int_equal(dr_conv_init(s, &o, T0), 0);
	deliver(c, s);
}

/* The handshake: true, and the server has to decide. */
static bool identified(struct dr_conv *c, struct dr_conv *s)
{
	deliver(s, c);
	return deliver(c, s).kind == DR_CONV_IDENTIFIED;
}

static void welcome(struct dr_conv *c, struct dr_conv *s)
{
	assert_true(identified(c, s));
	assert_int_equal(dr_conv_welcome(s, 0, T0), 0);
	assert_int_equal(deliver(s, c).kind, DR_CONV_OPENED);
}

static void fini(struct dr_conv *c, struct dr_conv *s)
{
	dr_conv_fini(c);
	dr_conv_fini(s);
}

/* What a hostile peer puts into a text: as JSON, and what is left of it. */
static const struct {
	const char *json, *want;
} hostile[] = {
	{ "\\u001b[2J\\u001b]0;t\\u0007", "?[2J?]0;t?" },
	{ "ok\\n12:00:00 ERROR forged\\r", "ok?12:00:00 ERROR forged?" },
	{ "\\u009b31m \xc2\x9b"
	  "0m",
		"?31m ?0m" },
	{ "\\u202egpj.exe\xe2\x81\xa6", "?gpj.exe?" },
	{ "a\\u200bb\\ufeff\\u2028\\udb40\\udc41", "a?b???" },
	{ "Z\xc3\xbcrich \\u6771\\u4eac", "Z\xc3\xbcrich \xe6\x9d\xb1\xe4\xba\xac" },
};

static void texts_of_a_peer_are_clean(void **state)
{
	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(hostile); i++) {
		struct dr_conv c, s;
		struct dr_err e;
		char text[400];
		open_pair(&c, &s, "1.0", 0);
		welcome(&c, &s);
		snprintf(text, sizeof(text),
			"{\"a\":\"%s\",\"b\":{\"c\":[1,{\"d\":\"%s\"},\"%s\"]}}", hostile[i].json,
			hostile[i].json, hostile[i].json);
		struct dr_conv_event ev = send_text(&c, &s, DR_CONV_FRAME_MESSAGE, 1, text);
		assert_int_equal(ev.kind, DR_CONV_FRAME);
		const json_t *list = json_object_get(json_object_get(ev.json, "b"), "c");
		const json_t *got[] = { json_object_get(ev.json, "a"),
			json_object_get(json_array_get(list, 1), "d"), json_array_get(list, 2) };
		for (size_t k = 0; k < DR_ARRAY_LEN(got); k++)
			assert_string_equal(json_string_value(got[k]), hostile[i].want);
		fini(&c, &s);
		/* A name has no clean form that would still be the same one. */
		snprintf(text, sizeof(text), "{\"x\":{\"%s\":1}}", hostile[i].json);
		json_t *j = dr_conv_json_parse(text, strlen(text), &e);
		assert_int_equal(j != NULL, i + 1 == DR_ARRAY_LEN(hostile));
		if (!j)
			assert_string_equal(
				e.text, "JSON has a name that is too long or not printable");
		json_decref(j);
		/* The reason of a refusal. */
		open_pair(&c, &s, "1.0", 0);
		welcome(&c, &s);
		snprintf(text, sizeof(text), "{\"cause\":5,\"code\":3,\"text\":\"%s\"}",
			hostile[i].json);
		ev = send_text(&s, &c, DR_CONV_FRAME_REFUSE, 0, text);
		assert_int_equal(ev.kind, DR_CONV_REFUSED);
		assert_string_equal(c.err.text, hostile[i].want);
		fini(&c, &s);
	}
}

/* A text is cut between two characters, a name is refused; invalid UTF-8 is not JSON. */
static void texts_of_a_peer_are_bounded(void **state)
{
	(void)state;
	static const char bad[][12] = { "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\\u0000" };
	char text[4 * DR_CONV_TEXT_MAX] = "{\"a\":\"";
	size_t at = strlen(text);
	struct dr_err e;
	for (int i = 0; i < DR_CONV_TEXT_MAX; i++, at += 3)
		memcpy(text + at, "\xe2\x82\xac", 3);
	memcpy(text + at, "\"}", 3);
	json_t *j = dr_conv_json_parse(text, at + 2, &e);
	assert_int_equal(json_string_length(json_object_get(j, "a")),
		DR_CONV_TEXT_MAX - DR_CONV_TEXT_MAX % 3);
	json_decref(j);
	snprintf(text, sizeof(text), "{\"%0*d\":1}", DR_CONV_NAME_MAX + 1, 0);
	assert_null(dr_conv_json_parse(text, strlen(text), &e));
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), "{\"a\":\"%s\"}", bad[i]);
		assert_null(dr_conv_json_parse(text, strlen(text), &e));
	}
}

/* The version in a hello, which is read before any key was proved, and quoted in errors. */
static void the_build_of_a_peer_is_clean(void **state)
{
	(void)state;
	static const struct {
		const char *build, *want;
	} row[] = {
		{ "1\033[2J\n0:0:0 ERROR x", "1?[2J?0:0:0 ERROR x" },
		{ "\xe2\x80\xae\xc2\x9b\xff\xc0\xaf\xe2\x82", "????\?\?\?" },
		{ "1.0-\xc3\xbc", "1.0-\xc3\xbc" },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++)
		for (unsigned other = 0; other < 2; other++) {
			struct dr_conv c, s;
			open_pair(&c, &s, row[i].build, other ? DR_BOOT_PROTOCOL_VERSION + 1 : 0);
			assert_string_equal(s.peer.build, row[i].want);
			assert_int_equal(s.cause, other ? DR_BOOT_VERSION : DR_BOOT_OK);
			assert_true(!other || strstr(s.err.text, row[i].want));
			fini(&c, &s);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_of_a_peer_are_clean),
		cmocka_unit_test(texts_of_a_peer_are_bounded),
		cmocka_unit_test(the_build_of_a_peer_is_clean),
	};

	return cmocka_run_group_tests_name("texts of a peer", tests, NULL, NULL);
}
