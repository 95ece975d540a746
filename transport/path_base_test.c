/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_base.h"

#include <errno.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

static const struct dr_transport_ops ops = { .name = "test" };
static struct dr_rail rail = { .ops = &ops, .index = 5 };
static struct dr_path_params par = { .channel = 3, .index = 1, .gen = 7, .sender = true };
static struct dr_path_base b;
static struct dr_event seen;

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	(void)sink;
	seen = *ev;
}

static int set_up(void **state)
{
	(void)state;
	memset(&b, 0, sizeof(b));
	par.connector = false;
	dr_path_init(&b, &rail, &par, NULL, NULL);
	return 0;
}

static void events_carry_the_path(void **state)
{
	struct dr_sink sink = { on_event };
	struct dr_event ev = { .kind = DR_EV_READY };

	(void)state;
	dr_path_begin(&b, 42, &sink);
	dr_path_emit(&b, &ev);
	dr_path_emit(&b, &ev);
	assert_int_equal(dr_path_end(&b), 2);
	assert_int_equal(b.now_ns, 42);
	assert_ptr_equal(seen.path, &b.path);
	assert_ptr_equal(seen.rail, &rail);
	assert_null(b.sink);
	dr_path_begin(&b, 43, &sink);
	assert_int_equal(dr_path_end(&b), 0);
}

static void keep(enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	dr_path_keep_failure(&b, scope, err, fmt, ap);
	va_end(ap);
}

static void a_failure_names_channel_path_and_rail(void **state)
{
	struct dr_sink sink = { on_event };

	(void)state;
	keep(DR_SCOPE_RAIL, -ENODEV, "device %s is gone", "x");
	dr_path_begin(&b, 1, &sink);
	dr_path_emit_failure(&b);
	(void)dr_path_end(&b);
	assert_int_equal(seen.kind, DR_EV_FAILED);
	assert_int_equal(seen.scope, DR_SCOPE_RAIL);
	assert_int_equal(seen.err, -ENODEV);
	assert_string_equal(seen.text, "channel 3 path 1 (rail 5): device x is gone");
}

static int check(bool is_new, bool has_peer, const void *handle, size_t len, struct dr_err *e)
{
	return dr_path_check_connect(&b, is_new, has_peer, handle, len, e);
}

static void connect_once_and_to_a_peer(void **state)
{
	struct dr_err e;

	(void)state;
	assert_int_equal(check(true, false, NULL, 0, &e), 0); /* it does not dial */
	assert_int_equal(check(false, true, NULL, 0, &e), -EINVAL);
	b.par.connector = true;
	assert_int_equal(check(true, true, NULL, 0, &e), 0);
	assert_int_equal(check(true, false, NULL, 0, &e), -ENOTCONN);
	assert_non_null(strstr(e.text, "rail 5"));
}

/* Byte 7 has the flags: the test's path sends and does not dial. */
static void only_the_other_end_of_this_path_fits(void **state)
{
	static const uint8_t good[] = "DRTP\0\3\1\2\0\0\0\3\0\0\0\7";
	uint8_t buf[DR_HANDLE_MAX];
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_path_handle(&b.path, buf, 15), -EMSGSIZE);
	assert_int_equal(dr_path_handle(&b.path, buf, sizeof(buf)), 16);
	assert_int_equal(check(true, true, buf, 16, &e), -EPROTO);
	assert_non_null(strstr(e.text, "the same end"));
	buf[7] = 2;
	assert_memory_equal(buf, good, 16);
	assert_int_equal(check(true, true, good, 16, &e), 0);
	for (unsigned len = 1; len <= 17; len += len == 15 ? 2 : 1)
		assert_int_equal(check(true, true, good, len, &e), -EPROTO);
	assert_non_null(strstr(e.text, "no path handle of this release"));
	for (unsigned bit = 0; bit < 8 * 16; bit++) {
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(check(true, true, buf, 16, &e), -EPROTO);
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(events_carry_the_path, set_up),
		cmocka_unit_test_setup(a_failure_names_channel_path_and_rail, set_up),
		cmocka_unit_test_setup(connect_once_and_to_a_peer, set_up),
		cmocka_unit_test_setup(only_the_other_end_of_this_path_fits, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
