/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/mem.h"

/* One struct with a member of each kind, and rows of two sorts inside it. */
struct part {
	char name[8];
	uint8_t hops;
	int level;
};
struct whole {
	int64_t n, us, ms, ns, larger;
	double num;
	int state, yes, err;
	char text[8], word[8];
	unsigned small;
	bool flag;
	struct part one, maybe, many[3];
	unsigned n_many, list[4], n_list;
	struct pair {
		int a;
		uint16_t b;
	} pairs[2];
	unsigned n_pairs;
};

static const char *const states[] = { "up", "down", NULL };
static const struct dr_field part_fields[] = {
	DR_FIELD("name", DR_F_STR, struct part, name, .flags = DR_F_KEY | DR_F_WORD),
	DR_FIELD("hops", DR_F_UINT, struct part, hops),
	DR_FIELD("level", DR_F_SINT, struct part, level, .min = -2, .max = 5),
};
static DR_FIELDS(part_table, "part", part_fields, struct part);
static const struct dr_field value_fields[] = { { .name = "", .kind = DR_F_UINT, .len = 4 } };
static DR_FIELDS(value_table, "value", value_fields, unsigned);
static const struct dr_field pair_fields[] = {
	DR_FIELD("a", DR_F_SINT, struct pair, a, .flags = DR_F_REQUIRED, .min = -1, .max = 9),
	DR_FIELD("b", DR_F_UINT, struct pair, b, .flags = DR_F_REQUIRED),
};
static DR_FIELDS(pair_table, "pair", pair_fields, struct pair, .tuple = true);
static const struct dr_field whole_fields[] = {
	DR_FIELD_CONST("schema", "test/1"),
	DR_FIELD("n", DR_F_INT, struct whole, n, .flags = DR_F_KEY),
	DR_FIELD("t.us", DR_F_US, struct whole, us),
	DR_FIELD("t.ms", DR_F_MS, struct whole, ms),
	DR_FIELD("t.ns", DR_F_NS, struct whole, ns),
	DR_FIELD("larger", DR_F_INT, struct whole, larger, .flags = DR_F_LARGER),
	DR_FIELD("num", DR_F_NUM, struct whole, num),
	DR_FIELD_ENUM("state", struct whole, state, states),
	DR_FIELD_ENUM("yes", struct whole, yes, dr_bool_names),
	DR_FIELD("err", DR_F_ERRNO, struct whole, err),
	DR_FIELD("text", DR_F_STR, struct whole, text, .flags = DR_F_REQUIRED),
	DR_FIELD("word", DR_F_STR, struct whole, word, .flags = DR_F_WORD),
	DR_FIELD("small", DR_F_UINT, struct whole, small, .flags = DR_F_OMIT),
	DR_FIELD("flag", DR_F_BOOL, struct whole, flag),
	DR_FIELD_ROW("one", struct whole, one, part_table),
	DR_FIELD_ROW("maybe", struct whole, maybe, part_table, .flags = DR_F_NULLABLE),
	DR_FIELD_ROWS("many", struct whole, many, n_many, part_table),
	DR_FIELD_ROWS("list", struct whole, list, n_list, value_table, .min = 0, .max = 2),
	DR_FIELD_ROWS("pairs", struct whole, pairs, n_pairs, pair_table),
};
static DR_FIELDS(whole_table, "whole", whole_fields, struct whole);

static char *text_of(const struct whole *w)
{
	json_t *j = dr_fields_to_json(&whole_table, w);
	char *s = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(j);
	assert_non_null(s);
	return s;
}

static int read_text(struct whole *w, const char *text, struct dr_err *e)
{
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	int rc;

	assert_non_null(j);
	rc = dr_fields_from_json(&whole_table, w, j, e);
	json_decref(j);
	return rc;
}

static void unknown_is_null(void **state)
{
	struct whole w;
	char *s;

	(void)state;
	dr_fields_init(&whole_table, &w);
	assert_int_equal(w.one.hops, 0);
	s = text_of(&w);
	assert_string_equal(s,
		"{\"schema\":\"test/1\",\"n\":null,\"t\":{\"us\":null,\"ms\":null,\"ns\":null},"
		"\"larger\":null,\"num\":null,\"state\":null,\"yes\":null,\"err\":null,\"text\":\"\","
		"\"word\":null,\"flag\":false,\"one\":{\"name\":null,\"hops\":0,\"level\":0},"
		"\"maybe\":null,\"many\":[],\"list\":[],\"pairs\":[]}");
	free(s);
}

static void what_is_written_is_read(void **state)
{
	struct whole w, r;
	struct dr_err e;
	char *s, *t;

	(void)state;
	dr_fields_init(&whole_table, &w);
	w.n = (int64_t)1 << 53;
	w.us = -1500;
	w.ms = 45 * DR_NS_PER_MS;
	w.ns = (int64_t)1 << 62;
	w.num = 0.5;
	w.state = w.yes = 1;
	w.err = -ETIMEDOUT;
	snprintf(w.text, sizeof(w.text), "a b");
	w.small = UINT32_MAX;
	w.maybe = (struct part){ "x", 255, -2 };
	w.many[0] = (struct part){ "y", 1, 5 };
	w.many[1] = (struct part){ "z", 2, 0 };
	w.n_many = 2;
	w.list[0] = 7;
	w.n_list = 1;
	w.pairs[0] = (struct pair){ -1, 65535 };
	w.n_pairs = 1;
	s = text_of(&w);
	assert_non_null(strstr(s, "\"t\":{\"us\":-1.5,\"ms\":45.0,"));
	assert_non_null(strstr(s, "\"maybe\":{\"name\":\"x\",\"hops\":255,\"level\":-2}"));
	assert_non_null(strstr(s, "\"list\":[7],\"pairs\":[[-1,65535]]"));
	assert_int_equal(read_text(&r, s, &e), 0);
	t = text_of(&r);
	assert_string_equal(s, t);
	free(s);
	free(t);
}

static void bad_values_are_refused(void **state)
{
	/* each in the place of X; and what the error names */
	static const struct {
		const char *field, *named;
	} bad[] = { { "\"n\":-1", "whole.n: -1 is not an integer from 0 to 9007199254740992" },
		{ "\"n\":1.0", "whole.n: 1.0 is not an integer" },
		{ "\"n\":\"01234567890123456789012345678901234567890123456789\"",
			"whole.n: \"0123456789012345678901234567890123456789012345 is not an integer" },
		{ "\"t\":{\"us\":1e300}", "e300 is not a number below 4e+15" },
		{ "\"num\":-0.5", "whole.num: -0.5 is not a number from 0 to 1e18" },
		{ "\"num\":1.1e18", "whole.num" }, { "\"num\":\"1\"", "whole.num" },
		{ "\"state\":\"no\"", "whole.state: \"no\" is not one of up down" },
		{ "\"flag\":1", "whole.flag: 1 is not one of false true" },
		{ "\"text\":7", "whole.text: 7 is not a text" },
		{ "\"word\":\"a b\"", "whole.word: \"a b\" is not a word of 1 to 7 bytes" },
		{ "\"word\":\"12345678\"", "whole.word" },
		{ "\"small\":4294967296",
			"whole.small: 4294967296 is not an integer from 0 to 4294967295" },
		{ "\"one\":7", "whole.part: not an object" },
		{ "\"one\":{\"hops\":256}",
			"whole.part.hops: 256 is not an integer from 0 to 255" },
		{ "\"one\":{\"level\":-3}", "whole.part.level: -3 is not an integer from -2 to 5" },
		{ "\"many\":{}", "whole.many: {} is not a list of 0 to 3" },
		{ "\"many\":[{},{},{},{}]", "whole.many: [{},{},{},{}] is not a list of 0 to 3" },
		{ "\"many\":[{},{\"level\":6}]", "whole.part.level" },
		{ "\"list\":[1,2,3]", "whole.list: [1,2,3] is not a list of 0 to 2" },
		{ "\"list\":[-1]", "whole.value: -1 is not an integer" },
		{ "\"pairs\":[[1]]", "whole.pair: not a list of 2" },
		{ "\"pairs\":[{\"a\":1,\"b\":1}]", "whole.pair: not a list of 2" },
		{ "\"pairs\":[[-2,0]]", "whole.pair.a: -2 is not an integer from -1 to 9" },
		{ "\"pairs\":[[1,null]]", "whole.pair.b: missing" } };
	struct whole w;
	struct dr_err e;
	char text[200];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), "{\"schema\":\"test/1\",\"text\":\"\",%s}",
			bad[i].field);
		assert_int_equal(read_text(&w, text, &e), -EPROTO);
		if (!strstr(e.text, bad[i].named))
			fail_msg("%s: %s", bad[i].field, e.text);
	}
	assert_int_equal(read_text(&w, "{\"text\":\"\"}", &e), -EPROTO);
	assert_string_equal(e.text, "whole.schema: missing");
	assert_int_equal(read_text(&w, "{\"schema\":\"test/1\"}", &e), -EPROTO);
	assert_string_equal(e.text, "whole.text: missing");
	assert_int_equal(read_text(&w, "{\"schema\":\"test/2\",\"text\":\"\"}", &e), -EPROTO);
	assert_int_equal(read_text(&w, "[]", &e), -EPROTO);
	assert_int_equal(read_text(&w, "{\"schema\":\"test/1\",\"text\":\"\",\"more\":1}", &e), 0);
}

static void rows_of_one_key_are_joined(void **state)
{
	struct part a = { "x", 1, 1 }, b = { "x", 2, 2 }, c = { "y", 1, 1 };
	struct whole into, from;

	(void)state;
	assert_true(dr_fields_same_key(&part_table, &a, &b));
	assert_false(dr_fields_same_key(&part_table, &a, &c));
	assert_false(dr_fields_same_key(&value_table, &a, &a));
	dr_fields_init(&whole_table, &into);
	dr_fields_init(&whole_table, &from);
	into.n = 1;
	into.larger = 5;
	from.n = 2;
	from.num = 3;
	from.larger = 4;
	dr_fields_fill(&whole_table, &into, &from);
	assert_int_equal(into.n, 1);
	assert_float_equal(into.num, 3, 0);
	assert_int_equal(into.larger, 5);
	from.larger = 6;
	dr_fields_fill(&whole_table, &into, &from);
	assert_int_equal(into.larger, 6);
}

/* With an index that follows the list, and without memory for one. */
static void rows_are_found(void **state)
{
	enum { N = 5000 };
	static struct part list[N];
	struct dr_row_index x = { 0 };
	struct part key = { "none", 0, 0 };

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		snprintf(list[i].name, sizeof(list[i].name), "%u", i);
		assert_null(dr_rows_find(&x, &part_table, list, i, &list[i]));
	}
	for (unsigned i = 0; i < N; i++)
		assert_ptr_equal(dr_rows_find(&x, &part_table, list, N, &list[i]), &list[i]);
	assert_null(dr_rows_find(&x, &part_table, list, N, &key));
	assert_null(dr_rows_find(&x, &part_table, list, 7, &list[7]));
	assert_ptr_equal(dr_rows_find(&x, &part_table, list, N, &list[7]), &list[7]);
	assert_null(dr_rows_find(&x, &part_table, list, 0, &list[0]));
	dr_free(x.slot);
	x = (struct dr_row_index){ 0 };
	dr_mem_fail_after(1);
	assert_ptr_equal(dr_rows_find(&x, &part_table, list, N, &list[N - 1]), &list[N - 1]);
	dr_mem_fail_after(-1);
	dr_free(x.slot);
}

/* n times `item` in a list in an object. */
static json_t *parsed(const char *item, size_t n, struct dr_err *e)
{
	size_t len = strlen(item), size = n * (len + 1) + 16, at;
	char *text = dr_calloc(1, size);

	assert_non_null(text);
	at = (size_t)snprintf(text, size, "{\"a\":[");
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%s", i ? "," : "", item);
	snprintf(text + at, size - at, "]}");
	json_t *j = dr_json_parse(text, strlen(text), e);
	dr_free(text);
	return j;
}

static void values_are_bounded_by_the_size(void **state)
{
	/* A bin of a histogram; a name; an offer's distances. */
	static const struct {
		const char *item;
		size_t n;
		bool fits;
	} cases[] = { { "{\"from_us\":0,\"to_us\":1,\"count\":1}", 20000, true },
		{ "\"eth10\"", 20000, true }, { "0", 4000, true }, { "{}", 20000, false },
		{ "[]", 20000, false }, { "0", 20000, false } };
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		json_t *j = parsed(cases[i].item, cases[i].n, &e);

		assert_int_equal(j != NULL, cases[i].fits);
		assert_true(j || strstr(e.text, "has more than"));
		json_decref(j);
	}
	assert_null(dr_json_parse("{\"a\":\n\033[31m", 12, &e));
	assert_non_null(strstr(e.text, "not JSON: line 2 column"));
	assert_null(strchr(e.text, '\033'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_is_null),
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(bad_values_are_refused),
		cmocka_unit_test(rows_of_one_key_are_joined),
		cmocka_unit_test(rows_are_found),
		cmocka_unit_test(values_are_bounded_by_the_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
