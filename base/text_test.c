/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"

static void what_shows_stays(void **state)
{
	static const char *const text[] = {
		"",
		"rail0: \"a\\b\" 'c' <d>",
		"Zürich – Łódź",
		"東京",
		"שלום",
		"نود",
		"node\xf0\x9f\x96\xa5",
	};
	char out[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(text); i++) {
		assert_int_equal(dr_text_copy(out, sizeof(out), text[i]), strlen(text[i]));
		assert_string_equal(out, text[i]);
		assert_true(dr_text_is_clean(text[i], strlen(text[i])));
	}
}

static void what_acts_is_replaced(void **state)
{
	static const struct {
		const char *from, *want;
		size_t len; /* 0: strlen */
	} row[] = {
		{ "\033[2J\033]0;title\007", "?[2J?]0;title?", 0 },
		{ "ok\n12:00:00 ERROR forged", "ok?12:00:00 ERROR forged", 0 },
		{ "a\r\tb\x7f", "a??b?", 0 },
		{ "a\0b", "a?b", 3 },
		{ "csi \xc2\x9b"
		  "31m",
			"csi ?31m", 0 },
		{ "\xe2\x80\xaegpj.exe\xe2\x80\xac", "?gpj.exe?", 0 }, /* right-to-left override */
		{ "\xe2\x81\xa6x\xe2\x81\xa9", "?x?", 0 },	       /* isolates */
		{ "\xd8\x9cx\xe2\x80\x8f", "?x?", 0 },		       /* marks of direction */
		{ "a\xe2\x80\x8b\xef\xbb\xbf"
		  "b\xc2\xad",
			"a??b?", 0 },			   /* invisible */
		{ "a\xe2\x80\xa8\xe2\x80\xa9", "a??", 0 }, /* line, paragraph */
		{ "\xf3\xa0\x81\x81\xef\xbf\xbf\xef\xb7\x90", "???", 0 },
		/* Not UTF-8: overlong, surrogate, beyond the last, cut, alone. */
		{ "\xc0\xaf", "??", 0 },
		{ "\xe0\x80\x9b", "???", 0 },
		{ "\xf0\x82\x82\xac", "????", 0 },
		{ "\xed\xa0\x80", "???", 0 },
		{ "\xf4\x90\x80\x80", "????", 0 },
		{ "\xff\xfe", "??", 0 },
		{ "x\xe2\x82", "x??", 0 },
		{ "\x80", "?", 0 },
		{ "\xe2\x28\xa1", "?(?", 0 },
	};
	char out[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		size_t len = row[i].len ? row[i].len : strlen(row[i].from);

		assert_false(dr_text_is_clean(row[i].from, len));
		assert_int_equal(
			dr_text_clean(out, sizeof(out), row[i].from, len), strlen(row[i].want));
		assert_string_equal(out, row[i].want);
	}
}

static void it_is_cut_between_characters(void **state)
{
	static const char euros[] = "\xe2\x82\xac\xe2\x82\xac";
	char out[8];

	(void)state;
	assert_int_equal(dr_text_copy(out, 7, euros), 6);
	assert_int_equal(dr_text_copy(out, 6, euros), 3);
	assert_string_equal(out, "\xe2\x82\xac");
	assert_int_equal(dr_text_copy(out, 3, euros), 0);
	assert_int_equal(dr_text_copy(out, 1, "abc"), 0);
}

/* Any bytes: the result is clean, no longer than the text, and stays as it is; in place too. */
static void any_bytes(void **state)
{
	char from[40], out[48], again[48];
	struct dr_rng rng;

	(void)state;
	dr_rng_seed(&rng, 1);
	for (int i = 0; i < 200000; i++) {
		size_t len = (size_t)dr_rng_below(&rng, sizeof(from)), size;

		for (size_t k = 0; k < len; k++)
			from[k] = (char)dr_rng_below(&rng, 256);
		size = 1 + (size_t)dr_rng_below(&rng, sizeof(out));
		size_t n = dr_text_clean(out, size, from, len);
		assert_true(n < size && n <= len && strlen(out) == n);
		assert_true(dr_text_is_clean(out, n));
		assert_int_equal(dr_text_copy(again, sizeof(again), out), n);
		assert_string_equal(again, out);
		assert_int_equal(dr_text_copy(again, sizeof(again), again), n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_shows_stays),
		cmocka_unit_test(what_acts_is_replaced),
		cmocka_unit_test(it_is_cut_between_characters),
		cmocka_unit_test(any_bytes),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
