/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "orchestrator/campaign.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

/* The client's phases: bandwidth of all GPUs together, latency of one GPU after the other, the
 * failover campaign; with each size. */

#define LAST_NS (300 * DR_NS_PER_MS)
enum { LAT_WARMUP_NS = 30 * 1000 * 1000, LAT_MIN_NS = 200 * 1000 * 1000, LAT_SAMPLES_MIN = 10 };

static const char *phase_name(enum dr_phase_kind k)
{
	static const char *const name[] = { "bandwidth", "latency", "failover" };

	return name[k];
}

json_t *dr_phase_to_json(const struct dr_phase *p)
{
	return json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:b, s:f, s:I, s:I}", "index",
		(int)p->index, "kind", (int)p->kind, "message_bytes", (json_int_t)p->message_bytes,
		"chunk_bytes", (json_int_t)p->chunk_bytes, "iters", (json_int_t)p->iters, "warmup",
		(json_int_t)p->warmup, "verify", p->verify, "rate_bits", p->rate_bits, "gpu_mask",
		(json_int_t)p->gpu_mask, "rail_mask", (json_int_t)p->rail_mask);
}

/* As the options --size and --iters allow. */
static const json_int_t BYTES_MAX = 1ll << 40, COUNT_MAX = 1000000000000000;

int dr_phase_from_json(const json_t *j, struct dr_phase *out)
{
	json_int_t bytes, chunk, iters, warmup, gpus, rails = 0;
	int index, kind, verify;

	memset(out, 0, sizeof(*out));
	if (json_unpack((json_t *)j, "{s:i, s:i, s:I, s:I, s:I, s:I, s:b, s:F, s:I, s?I}", "index",
		    &index, "kind", &kind, "message_bytes", &bytes, "chunk_bytes", &chunk, "iters",
		    &iters, "warmup", &warmup, "verify", &verify, "rate_bits", &out->rate_bits,
		    "gpu_mask", &gpus, "rail_mask", &rails) ||
		index < 0 || kind < DR_PHASE_BW || kind > DR_PHASE_FAILOVER || bytes < 1 ||
		bytes > BYTES_MAX || chunk < 1 || chunk > bytes || chunk > DR_PLAN_CHUNK_MAX ||
		iters < 0 || iters > COUNT_MAX || warmup < 0 || warmup > COUNT_MAX ||
		!(out->rate_bits >= 0 && out->rate_bits <= DBL_MAX) || gpus < 0 ||
		gpus > UINT32_MAX || rails < 0 || rails > UINT32_MAX)
		return -EPROTO;
	out->index = (unsigned)index;
	out->kind = (enum dr_phase_kind)kind;
	out->message_bytes = (uint64_t)bytes;
	out->chunk_bytes = (uint32_t)chunk;
	out->iters = (uint64_t)iters;
	out->warmup = (uint64_t)warmup;
	out->verify = verify;
	out->gpu_mask = (uint32_t)gpus;
	out->rail_mask = (uint32_t)rails;
	return 0;
}

static bool server_began(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->phase_ok == c->n_phases;
}

static bool all_over(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return dr_node_phase_over(c->node) && c->phase_done == c->n_phases;
}

static bool all_sent(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return dr_node_all_sent(c->node);
}

static bool have_snapshot(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->node->snapshots_open == 0;
}

int dr_client_snapshot(struct dr_client *c)
{
	dr_node_snapshot(c->node);
	return dr_client_wait(c, have_snapshot, NULL, dr_now_ns() + c->opt->timeout_ns, false);
}

/* A wait for the peer or for data that took too long: say what each channel waits for, give up. */
static int overdue(struct dr_client *c, int rc, const char *what)
{
	if (rc == -ETIMEDOUT) {
		char t[32];

		if (dr_client_snapshot(c) == 0)
			dr_node_stall_report(c->node, what);
		dr_format_duration(c->opt->timeout_ns, t, sizeof(t));
		dr_client_end(c, DR_EXIT_TIMEOUT, "%s: nothing for %s (--timeout)", what, t);
	}
	return rc;
}

/* Chunks that the ping-pong under way sent, ever. */
static uint64_t pings(const struct dr_client *c)
{
	struct dr_live l;
	unsigned k = 0;

	while (k + 1 < c->plan.n_gpus && !dr_phase_has_gpu(&c->node->phase, k))
		k++;
	dr_node_live(c->node, k, dr_plan_n_bulk(&c->plan), &l);
	return l.chunks_tx;
}

int dr_client_phase_begin(struct dr_client *c, const struct dr_phase *phase)
{
	struct dr_phase p = *phase;
	char size[32], what[32];
	int rc;

	p.index = c->n_phases++;
	dr_format_size(p.message_bytes, size, sizeof(size));
	snprintf(what, sizeof(what), "%s", phase_name(p.kind));
	if (p.rail_mask)
		dr_client_cell_name(c, &p, what, sizeof(what));
	snprintf(c->progress_what, sizeof(c->progress_what), "%s %s", what, size);
	dr_client_send(c, json_pack("{s:s, s:o}", "t", "phase", "phase", dr_phase_to_json(&p)));
	rc = dr_client_wait(c, server_began, NULL, dr_now_ns() + c->opt->timeout_ns, true);
	if (rc)
		return overdue(c, rc, "the server's answer to a new phase");
	dr_record_eventf(c->rec, "phase", "%u: %s, messages of %s", p.index, what, size);
	dr_node_phase(c->node, &p);
	if (p.kind == DR_PHASE_LAT)
		c->pings_before = pings(c);
	return 0;
}

void dr_client_mark(struct dr_client *c, int which)
{
	dr_node_mark(c->node, which);
	dr_client_send(c, json_pack("{s:s, s:i}", "t", "mark", "which", which));
}

/* Iterations stop by themselves; anything else has to be told. */
static void stop(struct dr_client *c)
{
	dr_node_stop(c->node);
	dr_client_send(c, json_pack("{s:s}", "t", "stop"));
}

int dr_client_phase_end(struct dr_client *c)
{
	int rc;

	if (!c->node->phase.iters)
		stop(c);
	c->progress_what[0] = 0;
	rc = dr_client_wait(c, all_over, NULL, dr_now_ns() + c->opt->timeout_ns, true);
	if (rc)
		return overdue(c, rc, "the end of a phase");
	rc = dr_client_snapshot(c);
	if (rc)
		return rc;
	dr_node_results(c->node);
	dr_output_result(c->out, c->rec);
	return 0;
}

/* Iterations have no time of their own: the deadline moves as long as data flow. */
static int wait_iters(struct dr_client *c)
{
	struct dr_node_flow f;
	uint64_t before = UINT64_MAX;
	int rc = -ETIMEDOUT;

	for (int64_t quiet = 0; rc == -ETIMEDOUT && quiet < c->opt->timeout_ns;) {
		dr_node_flow(c->node, &f);
		quiet = f.tx_chunks + f.rx_chunks == before ? quiet + DR_NS_PER_S : 0;
		before = f.tx_chunks + f.rx_chunks;
		rc = dr_client_wait(c, all_over, NULL, dr_now_ns() + DR_NS_PER_S, true);
	}
	return rc == -ETIMEDOUT ? overdue(c, rc, "the iterations") : rc;
}

static bool enough_pings(const struct dr_client *c, const void *arg)
{
	return pings(c) >= *(const uint64_t *)arg;
}

/* On a slow machine the time may be over before there is anything to tell. */
static int wait_rounds(struct dr_client *c)
{
	const struct dr_phase *p = &c->node->phase;
	uint64_t chunks = (p->message_bytes + p->chunk_bytes - 1) / p->chunk_bytes;
	uint64_t want = c->pings_before + (p->warmup + LAT_SAMPLES_MIN) * chunks;
	int64_t deadline = dr_now_ns() + c->opt->timeout_ns;
	int rc = -ETIMEDOUT;

	/* Counters wake nobody. */
	while (rc == -ETIMEDOUT && dr_now_ns() < deadline)
		rc = dr_client_wait(c, enough_pings, &want,
			DR_MIN(deadline, dr_now_ns() + 10 * DR_NS_PER_MS), false);
	return rc == -ETIMEDOUT ? overdue(c, rc, "round trips") : rc;
}

int dr_client_measure(
	struct dr_client *c, const struct dr_phase *phase, int64_t warmup_ns, int64_t ns)
{
	int rc = dr_client_phase_begin(c, phase);

	if (rc == 0 && phase->iters)
		rc = wait_iters(c);
	else if (rc == 0) {
		rc = dr_client_sleep(c, warmup_ns);
		if (rc == 0)
			dr_client_mark(c, 0);
		if (rc == 0)
			rc = dr_client_sleep(c, ns);
		if (rc == 0 && phase->kind == DR_PHASE_LAT)
			rc = wait_rounds(c);
		if (rc == 0)
			dr_client_mark(c, 1);
	}
	return rc ? rc : dr_client_phase_end(c);
}

static int latency(struct dr_client *c, const struct dr_phase *phase)
{
	int64_t ns = DR_MAX(c->opt->duration_ns / c->plan.n_gpus, LAT_MIN_NS);
	int rc = 0;

	for (unsigned k = 0; rc == 0 && k < c->plan.n_gpus; k++) {
		struct dr_phase p = *phase;

		p.gpu_mask = 1u << k;
		rc = dr_client_measure(c, &p, LAT_WARMUP_NS, ns);
	}
	return rc;
}

void dr_client_phases(struct dr_client *c)
{
	struct dr_phase phases[DR_OPTIONS_PHASES_MAX];
	unsigned n = dr_options_phases(c->opt, phases, DR_OPTIONS_PHASES_MAX);
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++) {
		if (c->opt->matrix)
			phases[i].rate_bits /= c->plan.n_rails; /* so many times the channels */
		if (phases[i].kind == DR_PHASE_LAT)
			rc = latency(c, &phases[i]);
		else if (phases[i].kind == DR_PHASE_FAILOVER)
			rc = dr_campaign_run(c, &phases[i]);
		else if (c->opt->matrix)
			rc = dr_client_matrix(c, &phases[i]);
		else
			rc = dr_client_measure(
				c, &phases[i], c->opt->warmup_ns, c->opt->duration_ns);
	}
	if (rc == -ENOTCONN)
		dr_client_end(c, DR_EXIT_PEER,
			"the control connection was lost and did not come back (%s)",
			dr_boot_cause_text(c->lost_cause));
	else if (rc && !c->status)
		dr_client_end(c, DR_EXIT_TIMEOUT, "ended early: %s", strerror(-rc));
}

void dr_client_last_snapshot(struct dr_client *c)
{
	dr_node_snapshot(c->node);
	if (dr_client_wait(c, have_snapshot, NULL, dr_now_ns() + LAST_NS, false))
		dr_debug("client", "no last statistics from the workers");
}

void dr_client_salvage(struct dr_client *c)
{
	struct dr_command fail = { .kind = DR_CMD_FAIL,
		.position = DR_ALL,
		.channel = DR_ALL,
		.err = -ECONNRESET,
		.text = "the peer's process is gone" };
	int rc;

	if (!c->node || !c->node->phase_open)
		return;
	if (c->node->mark_ns[0] && !c->node->mark_ns[1])
		dr_node_mark(c->node, 1);
	/* A dead peer acknowledges nothing: do not wait for that. */
	if (c->dead)
		dr_node_post(c->node, DR_ALL, &fail);
	dr_node_stop(c->node);
	rc = dr_client_wait(c, all_sent, NULL, dr_now_ns() + DR_NS_PER_S, false);
	if (rc)
		dr_debug("client", "the workers did not come to rest in time");
	dr_client_last_snapshot(c);
	dr_node_results(c->node);
}
