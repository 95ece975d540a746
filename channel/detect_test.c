/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"
#include "channel/manager.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What the parameters make of the time that passes before a silent failure is acted on: the bound that
 * is printed, and what the channels get. */

static int64_t retry_ns;

static struct dr_manager_params params(enum dr_detect detect, int64_t hw_window_ns)
{
	struct dr_manager_params p = { .transport = dr_transport_find("tcp"),
		.n_rails = 1,
		.window = 4,
		.heartbeat_ns = 10 * DR_NS_PER_MS,
		.detect = detect,
		.hw_window_ns = hw_window_ns,
		.hw_retry_ns = retry_ns };
	struct sockaddr_in in = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	memcpy(&p.rail[0].local, &in, sizeof(in));
	return p;
}

static int64_t bound(enum dr_detect detect, int64_t window_ns)
{
	struct dr_manager_params p = params(detect, window_ns);

	return dr_manager_detect_bound(&p);
}

static int64_t stuck_after(enum dr_detect detect, int64_t window_ns)
{
	struct dr_manager_params p = params(detect, window_ns);
	struct dr_manager_channel spec = { .sender = true };
	struct dr_channel *ch;
	struct dr_manager *m;
	struct dr_err e;
	int64_t ns;

	if (dr_manager_create(&p, &m, &e) || dr_manager_open_channel(m, 0, &spec, &ch, &e))
		fail_msg("%s", e.text);
	ns = ch->fo.prm.stuck_after_ns;
	assert_int_equal(dr_manager_destroy(m), 0);
	return ns;
}

static void conservative_waits_twice_for_who_gives_up(void **state)
{
	static const struct {
		int64_t window_ns, want_ns;
	} row[] = {
		{ 0, 2400 * DR_NS_PER_MS }, /* the kernel: first retransmission and user timeout */
		{ 537 * DR_NS_PER_MS, 1074 * DR_NS_PER_MS },
		{ DR_NEVER, DR_NEVER },
		{ DR_NEVER / 2 + 1, DR_NEVER },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		assert_int_equal(bound(DR_DETECT_CONSERVATIVE, row[i].window_ns), row[i].want_ns);
		assert_int_equal(
			stuck_after(DR_DETECT_CONSERVATIVE, row[i].window_ns), row[i].want_ns);
	}
}

/* ... and --detect transport for nobody: only an error of the transport ends a path. */
static void transport_waits_for_its_errors(void **state)
{
	(void)state;
	assert_int_equal(bound(DR_DETECT_TRANSPORT, 0), DR_NEVER);
	assert_int_equal(bound(DR_DETECT_TRANSPORT, 537 * DR_NS_PER_MS), DR_NEVER);
	assert_int_equal(stuck_after(DR_DETECT_TRANSPORT, 0), DR_NEVER);
}

static void fast_asks_neither(void **state)
{
	(void)state;
	assert_int_equal(bound(DR_DETECT_FAST, 537 * DR_NS_PER_MS), bound(DR_DETECT_FAST, 0));
	assert_true(bound(DR_DETECT_FAST, 0) < 100 * DR_NS_PER_MS);
	assert_int_equal(
		stuck_after(DR_DETECT_FAST, 537 * DR_NS_PER_MS), stuck_after(DR_DETECT_FAST, 0));
}

/* ... but gives a NIC the time of its own retries while heartbeats pass. */
static void fast_lets_the_nic_retry(void **state)
{
	int64_t least = stuck_after(DR_DETECT_FAST, 0);

	(void)state;
	retry_ns = 67 * DR_NS_PER_MS;
	assert_int_equal(stuck_after(DR_DETECT_FAST, 0), least);
	retry_ns = INT64_C(4096) << 20;
	assert_int_equal(stuck_after(DR_DETECT_FAST, 0), 3 * retry_ns);
	retry_ns = DR_NEVER;
	assert_int_equal(stuck_after(DR_DETECT_FAST, 0), DR_NEVER);
	retry_ns = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conservative_waits_twice_for_who_gives_up),
		cmocka_unit_test(transport_waits_for_its_errors),
		cmocka_unit_test(fast_asks_neither),
		cmocka_unit_test(fast_lets_the_nic_retry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
