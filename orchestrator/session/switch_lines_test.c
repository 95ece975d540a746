/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A client with two GPUs of 32 channels that send: GPU 0 on rail 0 with the shadow on rail 1, GPU 1 the other way. Times
 * are in milliseconds since the session began. */
enum { GPUS = 2, EACH = 32, CHANNELS = GPUS * EACH };
#define MS DR_NS_PER_MS
#define BEGIN (7000 * MS)

static struct world {
	struct dr_local l;
	struct dr_plan plan;
	struct dr_local_channel channel[CHANNELS];
	char *text;
	size_t len;
	FILE *f;
} w;

static bool tables = true;

static int set_up(void **state)
{
	struct dr_output_options o = { .tables = *state != NULL };
	memset(&w, 0, sizeof(w));
	w.f = o.out = open_memstream(&w.text, &w.len);
	w.l = (struct dr_local){ .plan = &w.plan,
		.side = DR_PLAN_CLIENT,
		.n_channels = EACH,
		.channel = w.channel,
		.end = w.channel + CHANNELS,
		.gpu_end = w.l.gpu + GPUS,
		.begin_ns = BEGIN };
	w.plan.n_rails = 3;
	for (unsigned r = 0; r < 3; r++)
		snprintf(w.plan.rail[r][DR_PLAN_CLIENT].name, sizeof(w.plan.rail[r][0].name),
			"rail%u", r);
	for (unsigned k = 0; k < GPUS; k++)
		w.l.gpu[k] = (struct dr_local_gpu){ .position = k, .number = k };
	for (unsigned i = 0; i < CHANNELS; i++)
		w.channel[i] = (struct dr_local_channel){ .gpu = &w.l.gpu[i / EACH],
			.number = i % EACH,
			.sends = true,
			.bulk = true,
			.rails = { .primary = i / EACH, .shadow = !(i / EACH) } };
	return dr_record_create(&w.l.rec) || dr_output_open(&o, &w.l.out, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	dr_output_close(w.l.out);
	dr_record_destroy(w.l.rec);
	fclose(w.f);
	free(w.text); /* lint-ok: of open_memstream */
	return 0;
}

struct move {
	unsigned gpu, channel;
	uint32_t epoch;
	unsigned from;
	bool planned;
	int64_t at_ms, gap_us;
};

/* The row of one end; the gap is the server's. */
static struct dr_switch_row *row(const struct move *m, int side)
{
	struct dr_switch_row r;

	dr_fields_init(&dr_switch_fields, &r);
	r.side = side;
	r.gpu = m->gpu;
	r.channel = m->channel;
	r.receiver = side == DR_END_SERVER;
	r.unexpected = !m->planned;
	r.rec.epoch = m->epoch;
	r.rec.from = (uint8_t)m->from;
	r.rec.to = !m->from;
	r.rec.planned = m->planned;
	r.rec.self_detected = side == DR_END_CLIENT;
	r.rec.detect_ns = BEGIN + m->at_ms * MS + (side == DR_END_SERVER ? 1000000 * MS : 0);
	snprintf(r.rec.cause, sizeof(r.rec.cause), "%s",
		side == DR_END_CLIENT ? "link down" : "asked by the peer");
	if (side == DR_END_SERVER)
		r.gap_ns = m->gap_us * 1000;
	struct dr_switch_row *added = dr_record_add(w.l.rec, switches, &r);
	assert_non_null(added);
	return added;
}

static void both(const struct move *m)
{
	row(m, DR_END_CLIENT);
	row(m, DR_END_SERVER);
}

static bool tick(int64_t at_ms)
{
	return dr_switch_lines_tick(&w.l, BEGIN + at_ms * MS);
}

static void says(const char *want)
{
	fflush(w.f);
	assert_string_equal(w.text, want);
}

static void together(void **state)
{
	(void)state;
	assert_false(tick(3000));
	for (unsigned c = 0; c < EACH; c++)
		both(&(struct move){ 0, c, 1, 0, false, 3210 + c, 8100 - c });
	/* One of another GPU, whose shadow is on that rail. */
	w.channel[EACH].rails = (struct dr_plan_map){ .primary = 0, .shadow = 2 };
	both(&(struct move){ 1, 0, 1, 0, false, 3215, 400 });
	assert_false(tick(3260));
	says("");
	assert_true(w.l.switch_lines.due_ns > 0);
	assert_true(tick(3361));
	says("switch at 3.21 s: 2 GPUs, rail0 -> rail1, rail2, gap 8.10 ms, 33 channels (link down)\n");
	for (unsigned c = 0; c < EACH; c++)
		both(&(struct move){ 0, c, 2, 1, true, 5020, 110250 });
	assert_false(tick(5030));
	assert_true(tick(5131));
	assert_false(tick(9000));
	dr_switch_lines_end(&w.l);
	says("switch at 3.21 s: 2 GPUs, rail0 -> rail1, rail2, gap 8.10 ms, 33 channels (link down)\n"
	     "failback at 5.02 s: GPU 0, rail1 -> rail0, gap 110.2 ms, 32 channels\n");
}

/* The gap is the peer's to tell: it is waited for, but not without end. */
static void gap_unknown(void **state)
{
	struct move m = { 1, 3, 1, 0, false, 1000, 900 };
	(void)state;
	row(&m, DR_END_CLIENT);
	assert_false(tick(1000));
	assert_false(tick(1101));
	assert_false(tick(2990));
	says("");
	row(&m, DR_END_SERVER);
	assert_true(tick(3000) || tick(3101));
	says("switch at 1.00 s: GPU 1, rail1 -> rail0, gap 0.900 ms, 1 channel (link down)\n");
	m.epoch = 2;
	m.at_ms = 4000;
	row(&m, DR_END_CLIENT);
	assert_false(tick(4000));
	assert_false(tick(4101));
	assert_true(tick(6101));
	assert_non_null(strstr(
		w.text, "\nswitch at 4.00 s: GPU 1, rail1 -> rail0, 1 channel (link down)\n"));
}

/* Both NICs have one name (loopback). */
static void one_name(void **state)
{
	(void)state;
	for (unsigned r = 0; r < 2; r++) {
		struct dr_plan_rail *p = &w.plan.rail[r][DR_PLAN_CLIENT];

		snprintf(p->name, sizeof(p->name), "lo");
		snprintf(p->address, sizeof(p->address), "127.0.0.%u", r + 1);
	}
	both(&(struct move){ 0, 0, 1, 0, false, 100, 1000 });
	dr_switch_lines_end(&w.l);
	says("switch at 0.10 s: GPU 0, lo 127.0.0.1 -> lo 127.0.0.2, gap 1.00 ms, 1 channel (link down)\n");
}

/* Switches that a trial claims are in its own line; others, and its failback, are not. */
/* With tables a failback has its own line, else the trial tells it. */
static void in_a_trial(bool own_line)
{
	static const char failback[] =
		"failback at 0.90 s: GPU 0, rail1 -> rail0, gap 3.00 ms, 1 channel\n";
	struct move m = { 0, 0, 1, 0, false, 100, 1000 };
	char text[300];

	dr_switch_lines_trial(&w.l, true);
	for (int side = DR_END_CLIENT; side <= DR_END_SERVER; side++)
		row(&m, side)->unexpected = 0;
	m = (struct move){ 1, 7, 1, 0, false, 110, 2000 };
	for (int side = DR_END_CLIENT; side <= DR_END_SERVER; side++)
		row(&m, side)->unexpected = 0;
	both(&(struct move){ 0, 0, 2, 1, true, 900, 3000 });
	assert_false(tick(910));
	assert_true(tick(1011));
	says(own_line ? failback : "");
	for (unsigned i = 0; i < 6; i++)
		if (w.l.rec->switches.v[i].gpu == 0)
			w.l.rec->switches.v[i].trial = 4;
	dr_switch_lines_trial(&w.l, false);
	assert_false(tick(1200));
	assert_true(tick(1301));
	snprintf(text, sizeof(text), "%s%s", own_line ? failback : "",
		"switch at 0.11 s: GPU 1, rail1 -> rail0, gap 2.00 ms, 1 channel (link down)\n");
	says(text);
}

static void trial(void **state)
{
	(void)state;
	in_a_trial(false);
}

static void trial_with_tables(void **state)
{
	(void)state;
	in_a_trial(true);
}

/* A server leaves trials to its client, and waits for nobody. */
static void server(void **state)
{
	struct move m = { 0, 0, 1, 0, false, 100, 1000 };
	(void)state;
	w.l.side = DR_PLAN_SERVER;
	memcpy(&w.plan.rail[0][DR_PLAN_SERVER], &w.plan.rail[0][DR_PLAN_CLIENT],
		sizeof(w.plan.rail[0][0]));
	memcpy(&w.plan.rail[1][DR_PLAN_SERVER], &w.plan.rail[1][DR_PLAN_CLIENT],
		sizeof(w.plan.rail[1][0]));
	row(&m, DR_END_SERVER)->unexpected = 0;
	m.epoch = 2;
	m.planned = true;
	m.from = 1;
	row(&m, DR_END_SERVER)->rec.detect_ns = BEGIN + 900 * MS;
	assert_false(tick(1000));
	assert_true(tick(1101));
	says("failback at 0.90 s: GPU 0, rail1 -> rail0, gap 1.00 ms, 1 channel\n");
}

/* Rails that flap: after 20 lines there is one in a second at most. */
static void flapping(void **state)
{
	unsigned lines = 0;
	(void)state;
	for (int64_t ms = 0; ms < 60000; ms += 50) {
		if (ms % 200 == 0)
			both(&(struct move){ 0, 0, 1 + (uint32_t)ms, 0, false, ms, 1000 });
		tick(ms);
	}
	fflush(w.f);
	for (const char *p = w.text; (p = strchr(p, '\n')); p++)
		lines++;
	assert_in_range(lines, 20, 80);
	assert_non_null(strstr(w.text, "1 channel, 6 switches (link down)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(together, set_up, tear_down),
		cmocka_unit_test_setup_teardown(gap_unknown, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(trial, set_up, tear_down),
		{ "trial_with_tables", trial_with_tables, set_up, tear_down, &tables },
		cmocka_unit_test_setup_teardown(server, set_up, tear_down),
		cmocka_unit_test_setup_teardown(flapping, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
