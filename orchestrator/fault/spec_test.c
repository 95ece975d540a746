/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Accepted input and its canonical form. */
static const struct {
	const char *in, *out;
} good[] = {
	{ "link-down", "link-down:path=0,side=client,at=2s,for=1s" },
	{ "link-down:path=1,nic=rail1", "link-down:path=1,nic=rail1,side=client,at=2s,for=1s" },
	{ "blackhole:path=0,dir=in", "blackhole:path=0,side=client,at=2s,for=1s,dir=in" },
	{ "blackhole:dir=both", "blackhole:path=0,side=client,at=2s,for=1s" },
	{ "blackhole:dir=out,side=server", "blackhole:path=0,side=server,at=2s,for=1s,dir=out" },
	{ "loss=2.5:at=1500ms", "loss=2.5:path=0,side=client,at=1500ms,for=1s" },
	{ "loss=30%:for=250us", "loss=30:path=0,side=client,at=2s,for=250us" },
	{ "loss=0.0001", "loss=0.0001:path=0,side=client,at=2s,for=1s" },
	{ "close:gpu=3,channel=7", "close:path=0,side=client,at=2s,for=1s,gpu=3,channel=7" },
	{ "manual:path=1,at=0", "manual:path=1,side=client,at=0s,for=1s" },
	{ "exec=pull.cable", "exec=pull.cable:path=0,side=client,at=2s,for=1s" },
	{ "link-down:repeat=3", "link-down:path=0,side=client,at=2s,for=1s,repeat=3,every=4s" },
	{ "link-down:repeat=3,every=5s,for=2s",
		"link-down:path=0,side=client,at=2s,for=2s,repeat=3,every=5s" },
	{ "qp-error:path=1", "qp-error:path=1,side=client,at=2s,for=1s" },
	{ "addr-del", "addr-del:path=0,side=client,at=2s,for=1s" },
	{ "blackhole:for=0", "blackhole:path=0,side=client,at=2s,for=0s" },
};

/* Refused input and a word that the text has to hold. */
static const struct {
	const char *in, *says;
} bad[] = {
	{ "", "link-down" },
	{ "linkdown", "link-down, blackhole" },
	{ "qp-error:dir=in", "blackhole, loss=PERCENT" },
	{ "addr-del=10.0.0.1", "takes no value" },
	{ "link-down=3", "takes no value" },
	{ "loss", "loss=PERCENT" },
	{ "loss=", "loss" },
	{ "loss=0", "0.0001" },
	{ "loss=101", "100" },
	{ "loss=nan", "loss" },
	{ "exec", "exec=NAME" },
	{ "exec=a b", "--fault-exec" },
	{ "exec=a123456789a123456789a123456789ab", "too long" },
	{ "link-down:", "KEY=VALUE" },
	{ "link-down:path", "KEY=VALUE" },
	{ "link-down:path=2", "path=2" },
	{ "link-down:path=0,", "KEY=VALUE" },
	{ "link-down:pth=0", "path=0|1" },
	{ "link-down:path=0,path=1", "twice" },
	{ "link-down:side=left", "client|server" },
	{ "link-down:dir=in", "dir= is for blackhole, loss=PERCENT" },
	{ "blackhole:dir=up", "both|in|out" },
	{ "link-down:at=soon", "at=soon" },
	{ "link-down:at=-1s", "at=-1s" },
	{ "link-down:at=500", "at=500: \"500\" has no unit; use 500ms or 500s" },
	{ "link-down:for=1.5", "1.5ms" },
	{ "link-down:repeat=2,every=5", "every=5: \"5\" has no unit" },
	{ "linkdown:path=0", "no kind 'linkdown'; kinds are link-down, blackhole, loss=PERCENT, " },
	{ "link-down,path=0", "write link-down:path=0" },
	{ "loss=5,path=0", "write loss=5:path=0" },
	{ "link-down:for=", "for=" },
	{ "link-down:repeat=0", "repeat=0" },
	{ "link-down:every=5s", "repeat" },
	{ "link-down:repeat=2,for=0", "for=0" },
	{ "link-down:repeat=2,for=3s,every=3s", "overlap" },
	{ "link-down:nic=", "nic=" },
	{ "link-down:nic=../x", "nic=" },
	{ "close:gpu=x", "gpu=x" },
	{ "close:channel=65536", "channel" },
};

static void accepts(void **state)
{
	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(good); i++) {
		char text[DR_FAULT_SPEC_MAX], again[DR_FAULT_SPEC_MAX];
		struct dr_fault_spec s, t;
		struct dr_err e = { 0 };

		if (dr_fault_spec_parse(good[i].in, &s, &e) != 0)
			fail_msg("%s: %s", good[i].in, e.text);
		dr_fault_spec_format(&s, text, sizeof(text));
		assert_string_equal(text, good[i].out);
		assert_int_equal(dr_fault_spec_parse(text, &t, &e), 0);
		dr_fault_spec_format(&t, again, sizeof(again));
		assert_string_equal(again, text);
	}
}

static void refuses(void **state)
{
	char text[DR_FAULT_SPEC_MAX + 10];
	struct dr_fault_spec s;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		memset(&e, 0, sizeof(e));
		if (dr_fault_spec_parse(bad[i].in, &s, &e) != -EINVAL ||
			!strstr(e.text, bad[i].says))
			fail_msg("'%s': no '%s' in '%s'", bad[i].in, bad[i].says, e.text);
	}
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(dr_fault_spec_parse(text, &s, &e), -EINVAL);
	/* Where errors are not wanted. */
	assert_int_equal(dr_fault_spec_parse("nonsense", &s, NULL), -EINVAL);
}

/* The longest spec there is fits DR_FAULT_SPEC_MAX, and a short buffer is cut, not overrun. */
static void formats_within_bounds(void **state)
{
	struct dr_fault_spec s;
	char text[DR_FAULT_SPEC_MAX], small[16];

	(void)state;
	assert_int_equal(
		dr_fault_spec_parse("exec=e:side=server,gpu=1023,channel=65535", &s, NULL), 0);
	s.at_ns = s.for_ns = s.every_ns = INT64_MAX;
	s.repeat = 1000000;
	s.dir = DR_FAULT_OUT;
	memset(s.nic, 'n', sizeof(s.nic) - 1);
	memset(s.value, 'e', sizeof(s.value) - 1);
	dr_fault_spec_format(&s, text, sizeof(text));
	assert_non_null(strstr(text, "channel=65535"));
	dr_fault_spec_format(&s, small, sizeof(small));
	assert_int_equal(strlen(small), sizeof(small) - 1);
}

static void exec_table(void **state)
{
	static const char *const wrong[] = { "", "a", "a=", "a=x", "a=x,", "a=,y", "=x,y",
		"a b=x,y", "a=x,y,z" };
	struct dr_fault_execs t = { 0 };
	const struct dr_fault_exec *x;
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_fault_execs_add(&t, "cut=ip link set a down,ip link set a up", &e), 0);
	assert_int_equal(dr_fault_execs_add(&t, "two=f 1\\,2,g '3\\,4'", &e), 0);
	x = dr_fault_execs_find(&t, "cut");
	assert_non_null(x);
	assert_string_equal(x->cmd, "ip link set a down");
	assert_string_equal(x->undo, "ip link set a up");
	x = dr_fault_execs_find(&t, "two");
	assert_string_equal(x->cmd, "f 1,2");
	assert_string_equal(x->undo, "g '3,4'");
	assert_null(dr_fault_execs_find(&t, "three"));
	assert_null(dr_fault_execs_find(NULL, "cut"));
	assert_int_equal(dr_fault_execs_add(&t, "cut=x,y", &e), -EEXIST);
	for (size_t i = 0; i < DR_ARRAY_LEN(wrong); i++) {
		if (dr_fault_execs_add(&t, wrong[i], &e) != -EINVAL)
			fail_msg("'%s' is accepted", wrong[i]);
	}
	assert_int_equal(t.n, 2);
	dr_fault_execs_fini(&t);
}

/* Rules that need no device. */
static void rules(void **state)
{
	struct dr_fault_execs t = { 0 };
	struct dr_guard_options opt = { .execs = &t };
	struct dr_fault_spec s;
	char text[256];
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_fault_execs_add(&t, "cut=true,false", &e), 0);
	assert_int_equal(dr_fault_spec_parse("exec=cut", &s, &e), 0);
	assert_int_equal(dr_fault_check(&s, NULL, NULL, &opt, false, &e), -EACCES);
	assert_non_null(strstr(e.text, "--allow-faults"));
	assert_int_equal(dr_fault_check(&s, NULL, NULL, &opt, true, &e), 0);
	assert_int_equal(dr_fault_check(&s, NULL, NULL, NULL, true, &e), -ENOENT);
	dr_fault_describe(&s, NULL, &t, text, sizeof(text));
	assert_non_null(strstr(text, "then 'false'"));
	assert_int_equal(dr_fault_spec_parse("close", &s, &e), 0);
	assert_int_equal(dr_fault_check(&s, NULL, NULL, NULL, true, &e), 0);
	assert_int_equal(dr_fault_spec_parse("link-down", &s, &e), 0);
	assert_int_equal(dr_fault_check(&s, "lo", NULL, NULL, true, &e), -EPERM);
	assert_int_equal(dr_fault_check(&s, "nosuch0", NULL, NULL, true, &e), -ENODEV);
	assert_int_equal(dr_fault_check(&s, NULL, NULL, NULL, true, &e), -EINVAL);
	assert_int_equal(dr_fault_spec_parse("manual:path=1,side=server", &s, &e), 0);
	dr_fault_describe(&s, "rail1", NULL, text, sizeof(text));
	assert_non_null(strstr(text, "path 1, NIC rail1 on the server"));
	dr_fault_execs_fini(&t);
}

/* What every descriptor has to provide; the help names them all. */
static void descriptors(void **state)
{
	char names[256], help[1024], *rest = names, *name;
	const struct dr_kind_fault *on_path;
	unsigned n = 0;

	(void)state;
	dr_fault_kinds_names(false, names, sizeof(names));
	dr_fault_kinds_help(help, sizeof(help));
	assert_true(strlen(names) < sizeof(names) - 1 && strlen(help) < sizeof(help) - 1);
	while ((name = strsep(&rest, ",")) != NULL) {
		const struct dr_fault_kind *k;

		name += strspn(name, " ");
		assert_non_null(strstr(help, name));
		name[strcspn(name, "=")] = '\0';
		k = dr_fault_kind_find(name, &on_path);
		assert_non_null(k);
		assert_true(strlen(name) < DR_FAULT_NAME_MAX && k->help && k->describe);
		assert_true(!k->value || k->parse);
		assert_int_equal(k->by == DR_FAULT_BY_GUARD, k->inject && k->undo);
		n++;
	}
	assert_true(n >= 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts),
		cmocka_unit_test(refuses),
		cmocka_unit_test(formats_within_bounds),
		cmocka_unit_test(exec_table),
		cmocka_unit_test(rules),
		cmocka_unit_test(descriptors),
	};

	return cmocka_run_group_tests_name("fault spec", tests, NULL, NULL);
}
