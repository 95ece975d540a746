/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/client_priv.h"

#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* The client's phases: bandwidth of all GPUs together, latency of one GPU after the other, the
 * failover campaign; with each size. */

#define LAST_NS (300 * DR_NS_PER_MS)
enum { LAT_WARMUP_NS = 30 * 1000 * 1000, LAT_MIN_NS = 200 * 1000 * 1000, LAT_SAMPLES_MIN = 10 };

/* Fresh statistics of the own workers. */
static int snapshot(struct dr_client *c, int64_t ns)
{
	dr_local_snapshot(c->s.local);
	return dr_client_wait(c, c->s.local->snapshots_open == 0, ns, false);
}

void dr_client_stalled(struct dr_client *c, const char *why)
{
	if (snapshot(c, c->s.opt->timeout_ns) == 0)
		dr_local_stall_report(c->s.local, why);
}

/* A wait for the peer or for data that took too long: say what each channel waits for, give up. */
static int overdue(struct dr_client *c, int rc, const char *what)
{
	char t[32];

	if (rc != -ETIMEDOUT)
		return rc;
	dr_client_stalled(c, what);
	dr_format_duration(c->s.opt->timeout_ns, t, sizeof(t));
	dr_client_end(c, DR_EXIT_TIMEOUT, "%s did not finish within %s (--timeout)", what, t);
	return rc;
}

/* Chunks that the running ping-pong has sent so far. */
static uint64_t pings(const struct dr_client *c)
{
	const struct dr_local *l = c->s.local;
	unsigned k = 0;

	while (k + 1 < c->s.plan.n_gpus && !dr_phase_has_gpu(&l->phase, k))
		k++;
	return dr_local_live(&l->channel[k * l->n_channels + dr_plan_n_bulk(l->plan)]).chunks_tx;
}

/* "latency"; a cell of --matrix: "GPU 3 over eth1". */
static void phase_name(const struct dr_client *c, const struct dr_phase *p, char *buf, size_t len)
{
	static const char *const name[] = { "bandwidth", "latency", "failover" };
	char gpu[24] = "all GPUs";

	if (!p->rail_mask) {
		snprintf(buf, len, "%s", name[p->kind]);
		return;
	}
	if (p->gpu_mask)
		snprintf(gpu, sizeof(gpu), "GPU %u",
			c->s.local->gpu[__builtin_ctz(p->gpu_mask)].number);
	snprintf(buf, len, "%s over %s", gpu,
		c->s.plan.rail[__builtin_ctz(p->rail_mask)][DR_PLAN_CLIENT].name);
}

int dr_client_phase_begin(struct dr_client *c, const struct dr_phase *phase)
{
	struct dr_phase p = *phase;
	char size[32], what[48];

	p.index = c->n_phases++;
	dr_format_size(p.message_bytes, size, sizeof(size));
	phase_name(c, &p, what, sizeof(what));
	snprintf(c->progress_what, sizeof(c->progress_what), "%.31s %s", what, size);
	dr_session_send(&c->s, &(struct dr_message){ .kind = DR_MSG_PHASE, .phase = p });
	int rc = dr_client_wait(c, c->phase_ok == c->n_phases, c->s.opt->timeout_ns, true);
	if (rc)
		return overdue(c, rc, "start of the phase");
	dr_record_eventf(c->s.rec, "phase", "%u: %s, messages of %s", p.index, what, size);
	dr_local_phase(c->s.local, &p);
	if (p.kind == DR_PHASE_LAT)
		c->pings_before = pings(c);
	return 0;
}

void dr_client_both(struct dr_client *c, enum dr_message_kind kind, unsigned which)
{
	struct dr_message m = { .kind = kind, .which = which };

	dr_local_take(c->s.local, &m, NULL);
	dr_session_send(&c->s, &m);
}

static bool all_over(const struct dr_client *c)
{
	return dr_local_phase_over(c->s.local) && c->phase_done == c->n_phases;
}

/* Until both ends are done. That has no time of its own: the deadline moves as long as data flow. */
static int wait_over(struct dr_client *c, const char *what)
{
	uint64_t before = UINT64_MAX;
	int rc = -ETIMEDOUT;

	for (int64_t quiet = 0; rc == -ETIMEDOUT && quiet < c->s.opt->timeout_ns;) {
		struct dr_local_flow flow = dr_local_flow(c->s.local);

		quiet = flow.tx_chunks + flow.rx_chunks == before ? quiet + DR_NS_PER_S : 0;
		before = flow.tx_chunks + flow.rx_chunks;
		rc = dr_client_wait(c, all_over(c), DR_NS_PER_S, true);
	}
	if (rc != -ETIMEDOUT)
		return rc;
	char t[32];
	dr_client_stalled(c, what);
	dr_format_duration(c->s.opt->timeout_ns, t, sizeof(t));
	dr_client_end(c, DR_EXIT_TIMEOUT, "%s: no chunk arrived for %s (--timeout)", what, t);
	return rc;
}

int dr_client_phase_end(struct dr_client *c)
{
	/* A phase with iterations stops by itself. */
	if (!c->s.local->phase.iters)
		dr_client_both(c, DR_MSG_STOP, 0);
	c->progress_what[0] = 0;
	c->progress_until_ns = 0;
	int rc = wait_over(c, "end of the phase");
	if (rc == 0)
		rc = snapshot(c, c->s.opt->timeout_ns);
	if (rc)
		return rc;
	dr_local_results(c->s.local);
	dr_output_result(c->s.out, c->s.rec);
	return 0;
}

/* On a slow machine the time may be over before there are enough samples. */
static int wait_rounds(struct dr_client *c)
{
	const struct dr_phase *p = &c->s.local->phase;
	uint64_t chunks = (p->message_bytes + p->chunk_bytes - 1) / p->chunk_bytes;
	uint64_t want = c->pings_before + (p->warmup + LAT_SAMPLES_MIN) * chunks;

	int64_t until = dr_now_ns() + c->s.opt->timeout_ns;
	int rc = -ETIMEDOUT;

	/* Counters wake nobody. */
	while (rc == -ETIMEDOUT && dr_now_ns() < until)
		rc = dr_client_wait(c, pings(c) >= want, 10 * DR_NS_PER_MS, false);
	return overdue(c, rc, "round trips");
}

/* The whole of one phase: warm-up and ns when it has no iterations. */
static int measure(struct dr_client *c, const struct dr_phase *phase, int64_t warmup_ns, int64_t ns)
{
	int rc = dr_client_phase_begin(c, phase);

	if (rc == 0 && phase->iters)
		rc = wait_over(c, "iterations");
	else if (rc == 0) {
		c->progress_until_ns = dr_now_ns() + warmup_ns + ns;
		rc = dr_client_sleep(c, warmup_ns);
		if (rc == 0)
			dr_client_both(c, DR_MSG_MARK, 0);
		if (rc == 0)
			rc = dr_client_sleep(c, ns);
		if (rc == 0 && phase->kind == DR_PHASE_LAT)
			rc = wait_rounds(c);
		if (rc == 0)
			dr_client_both(c, DR_MSG_MARK, 1);
	}
	return rc ? rc : dr_client_phase_end(c);
}

/* ---- --matrix ---- */

/*
 * --matrix: one bandwidth phase after the other, all from this process and on the receiver's clock.
 * For each rail: each GPU alone, then all GPUs (a NIC may carry more than one GPU can send); last, all
 * GPUs over all rails. A phase says by its masks whose channels send; the others stay open and idle,
 * so nothing is connected anew between two cells.
 */

void dr_client_matrix_announce(const struct dr_client *c)
{
	const struct dr_options *o = c->s.opt;
	unsigned rails = c->s.plan.n_rails, gpus = c->s.plan.n_gpus;
	unsigned phases = rails * (gpus + (gpus > 1)) + 1;
	int64_t each_ns = o->warmup_ns + o->duration_ns;
	char each[32], all[32], line[200] = "";

	dr_append(line, sizeof(line),
		"matrix: %u GPUs x %u NICs = %u cells%s, then all GPUs over all NICs: ", gpus,
		rails, gpus * rails, gpus > 1 ? ", each NIC with all GPUs" : "");
	dr_format_duration(each_ns, each, sizeof(each));
	dr_format_duration(each_ns * phases, all, sizeof(all));
	if (o->iters)
		dr_append(line, sizeof(line), "%u measurements of %llu messages a channel", phases,
			(unsigned long long)o->iters);
	else
		dr_append(line, sizeof(line), "%u x %s = about %s", phases, each, all);
	dr_output_text(c->s.out, line);
}

/* One GPU after the other. */
static int each_gpu(struct dr_client *c, struct dr_phase p, int64_t warmup_ns, int64_t ns)
{
	int rc = 0;

	for (unsigned k = 0; rc == 0 && k < c->s.plan.n_gpus; k++) {
		p.gpu_mask = 1u << k;
		rc = measure(c, &p, warmup_ns, ns);
	}
	return rc;
}

static int matrix(struct dr_client *c, const struct dr_phase *phase)
{
	const struct dr_options *o = c->s.opt;
	struct dr_phase p = *phase;
	int rc = 0;

	dr_client_matrix_announce(c);
	/* --rate is a GPU's; phase->rate_bits is a channel's when those of all its rails send. */
	p.rate_bits *= c->s.plan.n_rails;
	for (unsigned r = 0; rc == 0 && r < c->s.plan.n_rails; r++) {
		p.rail_mask = 1u << r;
		rc = each_gpu(c, p, o->warmup_ns, o->duration_ns);
		if (rc == 0 && c->s.plan.n_gpus > 1)
			rc = measure(c, &p, o->warmup_ns, o->duration_ns);
	}
	return rc ? rc : measure(c, phase, o->warmup_ns, o->duration_ns);
}

/* ---- all phases ---- */

static int one_phase(struct dr_client *c, struct dr_phase *p)
{
	const struct dr_options *o = c->s.opt;

	if (o->matrix)
		p->rate_bits /= c->s.plan.n_rails; /* n_rails times as many channels */
	if (p->kind == DR_PHASE_LAT)
		return each_gpu(c, *p, LAT_WARMUP_NS,
			DR_MAX(o->duration_ns / c->s.plan.n_gpus, LAT_MIN_NS));
	if (p->kind == DR_PHASE_FAILOVER)
		return dr_campaign_run(c, p);
	return o->matrix ? matrix(c, p) : measure(c, p, o->warmup_ns, o->duration_ns);
}

void dr_client_phases(struct dr_client *c)
{
	struct dr_phase phases[DR_OPTIONS_PHASES_MAX];
	unsigned n = dr_options_phases(c->s.opt, phases, DR_OPTIONS_PHASES_MAX);
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = one_phase(c, &phases[i]);
	if (rc == -ENOTCONN)
		dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_LOST,
			"the control connection was lost and did not come back (%s)",
			dr_boot_cause_text(c->s.lost_cause));
	else if (rc)
		dr_client_end(c, DR_EXIT_TIMEOUT, "ended early: %s", strerror(-rc));
}

/* ---- the end ---- */

static void stop_phase(struct dr_client *c)
{
	struct dr_command fail = { .kind = DR_CMD_FAIL,
		.position = DR_ALL,
		.channel = DR_ALL,
		.err = -ECONNRESET,
		.text = "the peer's process is gone" };
	struct dr_local *l = c->s.local;

	if (l->mark_ns[0] && !l->mark_ns[1])
		dr_local_take(l, &(struct dr_message){ .kind = DR_MSG_MARK, .which = 1 }, NULL);
	/* A dead peer acknowledges nothing: do not wait for that. */
	if (c->dead)
		dr_local_post(l, DR_ALL, &fail);
	dr_local_take(l, &(struct dr_message){ .kind = DR_MSG_STOP }, NULL);
	if (dr_client_wait(c, dr_local_all_sent(l), DR_NS_PER_S, false))
		dr_debug("client", "the workers did not stop in time");
}

void dr_client_salvage(struct dr_client *c)
{
	if (c->s.local->phase_open)
		stop_phase(c);
	if (snapshot(c, LAST_NS))
		dr_debug("client", "no last statistics from the workers");
	dr_local_results(c->s.local);
	dr_local_finish(c->s.local);
}
