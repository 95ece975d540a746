/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device.h"

#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/netdev_testkit.h"

/*
 * The list of a real network namespace, which the test makes: lo, and three veth devices that are up, ta
 * (10.9.0.1/24, fd09::1/64), tb (10.9.1.1/24) and tc (10.9.2.1/24); their peers have no address. Skipped without root,
 * but for the first test.
 */
static int why_not;
static char lines[8192];

static void keep(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	size_t at = strlen(lines);

	(void)level;
	(void)component;
	(void)arg;
	snprintf(lines + at, sizeof(lines) - at, "%s\n", text);
}

static struct sockaddr_storage addr(const char *s)
{
	struct sockaddr_storage ss;

	assert_int_equal(dr_netdev_addr_parse(s, &ss), 0);
	return ss;
}

static void give(const char *name, const char *address, unsigned prefix)
{
	struct sockaddr_storage ss = addr(address);

	assert_int_equal(
		dr_netdev_add_addr(index_of(name), (struct sockaddr *)&ss, prefix, NULL), 0);
}

static int set_up(void **state)
{
	(void)state;
	if (unshare(CLONE_NEWNET) < 0) {
		why_not = errno;
		return 0;
	}
	assert_int_equal(dr_netdev_set_up(index_of("lo"), true, NULL), 0);
	make_far_veth("ta", "ua");
	make_far_veth("tb", "ub");
	make_far_veth("tc", "uc");
	give("ta", "10.9.0.1", 24);
	give("ta", "fd09::1", 64);
	give("tb", "10.9.1.1", 24);
	give("tc", "10.9.2.1", 24);
	return 0;
}

static void need_root(void)
{
	if (!why_not)
		return;
	print_message("SKIP: needs a network namespace of its own (root): %s\n", strerror(why_not));
	skip();
}

static int configure(struct ha_config *c, const char *var)
{
	const struct ha_host host = { .cpus = 2, .name = "n" };
	char text[128];
	char *env[] = { text, NULL };

	snprintf(text, sizeof(text), "%s", var);
	return ha_config_parse(c, env, &host, NULL);
}

/* var: one variable, or "". Returns what ha_devices_create returns. */
static int create(const char *var, struct ha_devices **out, struct dr_err *e)
{
	struct ha_config c;

	int rc = configure(&c, var);
	lines[0] = '\0';
	dr_log_set_level(DR_LOG_INFO);
	dr_log_set_sink(keep, NULL);
	if (rc == 0)
		rc = ha_devices_create(&c, out, e);
	dr_log_set_sink(NULL, NULL);
	return rc;
}

static struct ha_devices *devices(const char *var)
{
	struct ha_devices *d = NULL;
	struct dr_err e = { 0 };

	if (create(var, &d, &e) < 0)
		fail_msg("%s", e.text);
	return d;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* Whatever it has: a list, or an error that names the devices. */
static void this_host_without_root(void **state)
{
	struct ha_devices *d = NULL;
	struct dr_err e = { 0 };
	struct nccl_net_properties_v12 p;

	(void)state;
	int rc = create("", &d, &e);
	if (rc < 0) {
		assert_int_equal(rc, -ENODEV);
		assert_has(e.text, "this host has ");
		return;
	}
	for (unsigned i = 0; i < d->n; i++) {
		ha_device_properties(d, i, &p);
		assert_string_equal(d->dev[i].name, p.name);
		assert_true(p.speed > 0 && p.maxComms > 0 && p.guid != 0 && p.port > 0);
		if (p.pciPath)
			assert_int_equal(access(p.pciPath, F_OK), 0);
	}
	ha_devices_free(d);
}

static void the_namespace_s_devices(void **state)
{
	(void)state;
	need_root();
	struct ha_devices *d = devices("");
	assert_int_equal(d->n, 3);
	assert_string_equal(d->dev[0].name, "ta");
	assert_string_equal(d->dev[2].name, "tc");
	assert_int_equal(d->dev[0].n_addrs, 2);
	assert_int_equal(d->dev[0].ifindex, index_of("ta"));
	assert_int_equal(d->dev[0].speed_mbps, HA_SPEED_UNKNOWN_MBPS);
	assert_true(d->dev[0].guid != d->dev[1].guid);
	assert_string_equal(d->dev[0].pci_path, "");
	assert_int_equal(d->dev[0].shadow, 1);
	assert_int_equal(d->dev[1].shadow, 0);
	assert_has(lines,
		"device 0: ta, 10.9.0.1/24, fd09::1/64, 10000 Mb/s (assumed: the link has "
		"no speed), PCI none, port 1 of card ");
	assert_has(lines, ", shadow tb\n");
	assert_has(lines, "comms for each device, with two connections each: ");
	ha_devices_free(d);
}

static void names_select_in_the_namespace(void **state)
{
	struct ha_devices *d;
	struct dr_err e;

	(void)state;
	need_root();
	d = devices("NCCL_SOCKET_IFNAME==tb");
	assert_int_equal(d->n, 1);
	assert_has(lines, "tb has no shadow: ");
	ha_devices_free(d);
	d = devices("NCCL_SOCKET_IFNAME=^tb");
	assert_int_equal(d->n, 2);
	ha_devices_free(d);
	d = devices("HA_NCCL_DEVICES=lo");
	assert_string_equal(d->dev[0].name, "lo");
	ha_devices_free(d);
	assert_int_equal(create("HA_NCCL_DEVICES=ib", &d, &e), -ENODEV);
	assert_has(e.text, "HA_NCCL_DEVICES=ib: no such device");
	assert_has(e.text, "ta");
}

/* Without memory for the PCI tree the list is made without it; otherwise the error says so. Nothing leaks. */
static void out_of_memory(void **state)
{
	struct ha_devices *d = NULL;
	unsigned failed = 0;
	struct dr_err e;
	int rc = -ENOMEM;

	(void)state;
	need_root();
	for (long k = 1; k < 100 && (rc < 0 || strstr(lines, "out of memory")); k++) {
		dr_mem_fail_after(k);
		rc = create("", &d, &e);
		dr_mem_fail_after(-1);
		failed += rc < 0;
		if (rc < 0) {
			assert_int_equal(rc, -ENOMEM);
			continue;
		}
		assert_int_equal(d->n, 3);
		ha_devices_free(d);
	}
	assert_int_equal(rc, 0);
	assert_true(failed >= 2);
}

static void default_route(const char *name)
{
	char buf[512];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct rtmsg), &body);

	*(struct rtmsg *)body = (struct rtmsg){ .rtm_family = AF_INET,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_LINK,
		.rtm_type = RTN_UNICAST };
	mnl_attr_put_u32(nlh, RTA_OIF, (uint32_t)index_of(name));
	assert_int_equal(dr_nl_once(nlh, NULL, NULL), 0);
}

static void the_default_route_s_device_is_left_out(void **state)
{
	(void)state;
	need_root();
	default_route("ta");
	struct ha_devices *d = devices("");
	assert_int_equal(d->n, 2);
	assert_string_equal(d->dev[0].name, "tb");
	assert_has(lines, "ta is not used: management NIC: it has the default route");
	ha_devices_free(d);
}

/* The list is that of the thread that makes it. */
static void *in_another_namespace(void *arg)
{
	struct ha_devices *d = NULL;
	struct ha_config c;

	if (configure(&c, "") < 0 || unshare(CLONE_NEWNET) < 0)
		return NULL;
	*(int *)arg = ha_devices_create(&c, &d, NULL);
	ha_devices_free(d);
	return NULL;
}

static void a_thread_s_own_namespace(void **state)
{
	pthread_t t;
	int rc = 0;

	(void)state;
	need_root();
	assert_int_equal(pthread_create(&t, NULL, in_another_namespace, &rc), 0);
	pthread_join(t, NULL);
	assert_int_equal(rc, -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_namespace_s_devices),
		cmocka_unit_test(out_of_memory),
		cmocka_unit_test(names_select_in_the_namespace),
		cmocka_unit_test(the_default_route_s_device_is_left_out),
		cmocka_unit_test(a_thread_s_own_namespace),
	};
	const struct CMUnitTest host[] = { cmocka_unit_test(this_host_without_root) };
	int failed = cmocka_run_group_tests(host, NULL, NULL);

	return failed + cmocka_run_group_tests(tests, set_up, NULL);
}
