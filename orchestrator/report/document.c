/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "orchestrator/report/fields.h"
#include "orchestrator/report/matrix.h"

/* The result document, and the part of it that one end sends to the other. */

#define GAP_GROUPS_MAX 64

static json_t *rows_to_json(const struct dr_fields *t, const void *v, size_t from, size_t n)
{
	json_t *a = json_array();
	int failed = 0;
	size_t i;

	if (!a)
		return NULL;
	for (i = from; i < n; i++)
		failed += !!json_array_append_new(
			a, dr_fields_to_json(t, (const char *)v + i * t->size));
	if (failed) {
		json_decref(a);
		return NULL;
	}
	return a;
}
#define ROWS(fields, list) rows_to_json(&(fields), (list).v, 0, (list).n)

static json_t *us(int64_t ns)
{
	return ns == DR_UNSET ? json_null() : json_real((double)ns / 1e3);
}

/* The object, or NULL when anything in it failed. */
static json_t *checked(json_t *obj, int failed)
{
	if (failed) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}

static json_t *versions(const struct dr_record *rec)
{
	json_t *o = json_object();
	int bad = !o;

	dr_json_put(o, "local", dr_json_str(rec->version), &bad);
	dr_json_put(o, "peer", dr_json_str(rec->peer_version), &bad);
	return checked(o, bad);
}

static json_t *hosts(const struct dr_record *rec)
{
	json_t *o = dr_fields_to_json(&dr_host_fields, &rec->host);
	int bad = !o;

	dr_json_put(o, "peer",
		rec->peer_host.name[0] ? dr_fields_to_json(&dr_host_fields, &rec->peer_host)
				       : json_null(),
		&bad);
	return checked(o, bad);
}

static json_t *topology(const struct dr_record *rec)
{
	json_t *o = json_object();
	int bad = !o;

	dr_json_put(o, "rails", ROWS(dr_rail_fields, rec->rails), &bad);
	dr_json_put(o, "gpus", ROWS(dr_gpu_fields, rec->gpus), &bad);
	dr_json_put(o, "paths", ROWS(dr_path_fields, rec->paths), &bad);
	dr_json_put(o, "memory", ROWS(dr_memory_fields, rec->memory), &bad);
	dr_json_put(o, "numa_nodes", dr_json_int(rec->numa_nodes), &bad);
	dr_json_put(o, "numa_binding", dr_json_str(rec->numa_binding), &bad);
	return checked(o, bad);
}

static json_t *detection(const struct dr_record *rec)
{
	json_t *o = json_object();
	int bad = !o;
	int64_t b = rec->detection.bound_ns;

	dr_json_put(o, "mode", dr_json_str(rec->detection.mode), &bad);
	dr_json_put(o, "transport", dr_json_str(rec->detection.transport), &bad);
	dr_json_put(o, "bound_ms", b == DR_UNSET ? json_null() : json_real((double)b / 1e6), &bad);
	dr_json_put(o, "heartbeat_us", us(rec->detection.heartbeat_ns), &bad);
	dr_json_put(o, "lost_after_us", us(rec->detection.lost_after_ns), &bad);
	dr_json_put(o, "stuck_after_us", us(rec->detection.stuck_after_ns), &bad);
	dr_json_put(o, "hold_down_us", us(rec->detection.hold_down_ns), &bad);
	dr_json_put(o, "failback",
		rec->detection.failback < 0 ? json_null() : json_boolean(rec->detection.failback),
		&bad);
	dr_json_put(o, "fence", dr_json_str(rec->detection.fence), &bad);
	return checked(o, bad);
}

static json_t *bandwidth(const struct dr_record *rec)
{
	json_t *a = json_array();
	int bad = !a;
	size_t i;

	for (i = 0; i < rec->bandwidth.n && !bad; i++) {
		struct dr_bandwidth_row r = rec->bandwidth.v[i];

		r.line_rate_percent = dr_record_line_percent(rec, &r);
		bad = json_array_append_new(a, dr_fields_to_json(&dr_bandwidth_fields, &r));
	}
	return checked(a, bad);
}

static json_t *nics(const struct dr_record *rec)
{
	static const char *const words[] = { NULL, "ok", "differs" };
	json_t *a = ROWS(dr_nic_fields, rec->nics);
	int bad = !a;
	size_t i;

	for (i = 0; i < rec->nics.n && !bad; i++)
		dr_json_put(json_array_get(a, i), "counter_check",
			dr_json_str(words[dr_nic_row_check(&rec->nics.v[i])]), &bad);
	return checked(a, bad);
}

static json_t *total(const struct dr_record *rec)
{
	json_t *o = json_object();
	struct dr_total t;
	int bad = !o;

	dr_record_total(rec, &t);
	dr_json_put(o, "gbps", dr_json_num(t.gbps), &bad);
	dr_json_put(o, "to_server_gbps", dr_json_num(t.to_server_gbps), &bad);
	dr_json_put(o, "to_client_gbps", dr_json_num(t.to_client_gbps), &bad);
	dr_json_put(o, "phase", dr_json_int(t.phase), &bad);
	dr_json_put(o, "message_bytes", dr_json_int(t.message_bytes), &bad);
	dr_json_put(o, "line_gbps", dr_json_num(t.line_gbps), &bad);
	dr_json_put(o, "line_rate_percent", dr_json_num(t.line_rate_percent), &bad);
	dr_json_put(o, "cpu_percent_local", dr_json_num(rec->cpu_percent_local), &bad);
	dr_json_put(o, "cpu_percent_peer", dr_json_num(rec->cpu_percent_peer), &bad);
	return checked(o, bad);
}

static json_t *gap(const struct dr_gap_summary *s)
{
	json_t *o = json_object();
	int bad = !o;

	dr_json_put(o, "n", json_integer(s->gaps), &bad);
	dr_json_put(o, "p50", us(s->p50_ns), &bad);
	dr_json_put(o, "p90", us(s->p90_ns), &bad);
	dr_json_put(o, "p99", us(s->p99_ns), &bad);
	dr_json_put(o, "max", us(s->max_ns), &bad);
	return checked(o, bad);
}

static json_t *gap_group(const struct dr_gap_summary *s)
{
	json_t *o = json_object(), *v = json_object();
	int i, bad = !o || !v;

	dr_json_put(o, "kind", dr_json_str(s->kind), &bad);
	dr_json_put(
		o, "side", s->side < 0 ? json_null() : json_string(dr_end_names[s->side]), &bad);
	dr_json_put(o, "trials", json_integer(s->n), &bad);
	dr_json_put(o, "hit", json_integer(s->hit), &bad);
	dr_json_put(o, "gap_us", gap(s), &bad);
	dr_json_put(o, "detect_us_median", us(s->detect_ns), &bad);
	dr_json_put(o, "fence_us_median", us(s->fence_ns), &bad);
	dr_json_put(o, "handshake_us_median", us(s->handshake_ns), &bad);
	dr_json_put(o, "replay_us_median", us(s->replay_ns), &bad);
	dr_json_put(o, "first_delivery_us_median", us(s->first_delivery_ns), &bad);
	dr_json_put(o, "bandwidth_before_gbps", dr_json_num(s->before_gbps), &bad);
	dr_json_put(o, "bandwidth_during_gbps", dr_json_num(s->during_gbps), &bad);
	dr_json_put(o, "bandwidth_after_gbps", dr_json_num(s->after_gbps), &bad);
	dr_json_put(o, "failbacks", json_integer(s->failbacks), &bad);
	dr_json_put(o, "failback_gap_us_median", us(s->failback_gap_ns), &bad);
	for (i = 0; dr_verdict_names[i]; i++)
		dr_json_put(v, dr_verdict_names[i], json_integer(s->verdicts[i]), &bad);
	dr_json_put(o, "verdicts", v, &bad);
	return checked(o, bad);
}

static json_t *failover(const struct dr_record *rec)
{
	struct dr_gap_summary all, group[GAP_GROUPS_MAX];
	json_t *o = json_object(), *a = json_array();
	size_t i, n = DR_MIN(dr_record_gap_summary(rec, group, GAP_GROUPS_MAX), GAP_GROUPS_MAX);
	int bad = !o || !a;

	dr_record_gap_all(rec, &all);
	for (i = 0; i < n; i++)
		bad += !!json_array_append_new(a, gap_group(&group[i]));
	dr_json_put(o, "faults", ROWS(dr_fault_fields, rec->faults), &bad);
	dr_json_put(o, "summary", a, &bad);
	dr_json_put(o, "gap_us", gap(&all), &bad);
	dr_json_put(o, "false_failovers", dr_json_int(rec->false_failovers), &bad);
	dr_json_put(o, "bandwidth_before_gbps", dr_json_num(all.before_gbps), &bad);
	dr_json_put(o, "bandwidth_during_gbps", dr_json_num(all.during_gbps), &bad);
	dr_json_put(o, "bandwidth_after_gbps", dr_json_num(all.after_gbps), &bad);
	dr_json_put(o, "switches", ROWS(dr_switch_fields, rec->switches), &bad);
	return checked(o, bad);
}

static json_t *integrity(const struct dr_record *rec)
{
	struct dr_integrity_row i;

	dr_record_integrity_total(rec, &i);
	return dr_fields_to_json(&dr_integrity_fields, &i);
}

static json_t *errors(const struct dr_record *rec, size_t from)
{
	json_t *a = json_array();
	int bad = !a;
	size_t i;

	for (i = from; i < rec->errors.n && !bad; i++) {
		const struct dr_error_row *r = &rec->errors.v[i];
		json_t *o = json_object();

		dr_json_put(o, "exit_code", json_integer(r->exit_status), &bad);
		dr_json_put(o, "errno", r->code ? json_string(dr_errno_name(r->code)) : json_null(),
			&bad);
		dr_json_put(o, "time", dr_json_wall(r->wall_ns), &bad);
		dr_json_put(o, "text", dr_json_text(r->text), &bad);
		bad += !!json_array_append_new(a, o);
	}
	return checked(a, bad);
}

json_t *dr_record_to_json(const struct dr_record *rec)
{
	json_t *o = json_object();
	int bad = !o;

	dr_json_put(o, "schema", json_string("dualrail/1"), &bad);
	dr_json_put(o, "run_id", dr_json_str(rec->run_id), &bad);
	dr_json_put(o, "status", json_string(dr_status_names[rec->status]), &bad);
	dr_json_put(o, "exit_code", rec->exit_code < 0 ? json_null() : json_integer(rec->exit_code),
		&bad);
	dr_json_put(o, "command", dr_json_str(rec->command), &bad);
	dr_json_put(o, "side", rec->side < 0 ? json_null() : json_string(dr_end_names[rec->side]),
		&bad);
	dr_json_put(o, "start_time", dr_json_wall(rec->start_wall_ns), &bad);
	dr_json_put(o, "start_monotonic_ns", json_integer(rec->start_ns), &bad);
	dr_json_put(o, "argv", json_incref(rec->argv), &bad);
	dr_json_put(o, "options", json_incref(rec->options), &bad);
	dr_json_put(o, "versions", versions(rec), &bad);
	dr_json_put(o, "host", hosts(rec), &bad);
	dr_json_put(o, "topology", topology(rec), &bad);
	dr_json_put(o, "detection", detection(rec), &bad);
	dr_json_put(o, "bandwidth", bandwidth(rec), &bad);
	dr_json_put(o, "nics", nics(rec), &bad);
	dr_json_put(o, "total", total(rec), &bad);
	dr_json_put(o, "matrix", dr_matrix_to_json(rec), &bad);
	dr_json_put(o, "latency", ROWS(dr_latency_fields, rec->latency), &bad);
	dr_json_put(o, "failover", failover(rec), &bad);
	dr_json_put(o, "integrity", integrity(rec), &bad);
	dr_json_put(o, "intervals", ROWS(dr_interval_fields, rec->intervals), &bad);
	dr_json_put(o, "events", ROWS(dr_event_fields, rec->events), &bad);
	dr_json_put(o, "errors", errors(rec, 0), &bad);
	dr_json_put(o, "rows_lost", json_integer((json_int_t)rec->rows_lost), &bad);
	return checked(o, bad);
}

/* ------------------------------- the peer's part ------------------------------- */

static json_t *take(const struct dr_fields *t, const void *v, size_t n, size_t *from)
{
	json_t *a = rows_to_json(t, v, DR_MIN(*from, n), n);

	*from = n;
	return a;
}
#define TAKE(fields, list, from) take(&(fields), (list).v, (list).n, &(from))

json_t *dr_record_part(const struct dr_record *rec, struct dr_record_mark *since)
{
	struct dr_record_mark m = { 0 };
	json_t *o = json_object();
	int bad = !o;

	if (since)
		m = *since;
	/* Rows joined by key may have changed after they were handed over; there are few. */
	m.bandwidth = m.nics = m.latency = m.memory = 0;
	dr_json_put(o, "schema", json_string("dualrail-part/1"), &bad);
	dr_json_put(o, "version", dr_json_str(rec->version), &bad);
	dr_json_put(o, "host", dr_fields_to_json(&dr_host_fields, &rec->host), &bad);
	dr_json_put(o, "cpu_percent", dr_json_num(rec->cpu_percent_local), &bad);
	dr_json_put(o, "false_failovers", dr_json_int(rec->false_failovers), &bad);
	dr_json_put(o, "integrity", dr_fields_to_json(&dr_integrity_fields, &rec->integrity), &bad);
	dr_json_put(o, "bandwidth", TAKE(dr_bandwidth_fields, rec->bandwidth, m.bandwidth), &bad);
	dr_json_put(o, "cells", TAKE(dr_cell_fields, rec->cells, m.cells), &bad);
	dr_json_put(o, "together", TAKE(dr_together_fields, rec->together, m.together), &bad);
	dr_json_put(o, "nics", TAKE(dr_nic_fields, rec->nics, m.nics), &bad);
	dr_json_put(o, "latency", TAKE(dr_latency_fields, rec->latency, m.latency), &bad);
	dr_json_put(o, "memory", TAKE(dr_memory_fields, rec->memory, m.memory), &bad);
	dr_json_put(o, "switches", TAKE(dr_switch_fields, rec->switches, m.switches), &bad);
	dr_json_put(o, "intervals", TAKE(dr_interval_fields, rec->intervals, m.intervals), &bad);
	dr_json_put(o, "events", TAKE(dr_event_fields, rec->events, m.events), &bad);
	dr_json_put(o, "errors", errors(rec, DR_MIN(m.errors, rec->errors.n)), &bad);
	m.errors = rec->errors.n;
	if (!bad && since)
		*since = m;
	return checked(o, bad);
}

union any_row {
	struct dr_bandwidth_row bandwidth;
	struct dr_cell_row cell;
	struct dr_together_row together;
	struct dr_nic_row nic;
	struct dr_latency_row latency;
	struct dr_memory_row memory;
	struct dr_switch_row sw;
	struct dr_interval_row interval;
	struct dr_event_row event;
};

static void add_bandwidth(struct dr_record *rec, const union any_row *r)
{
	dr_record_bandwidth(rec, &r->bandwidth);
}

static void add_cell(struct dr_record *rec, const union any_row *r)
{
	dr_record_cell(rec, &r->cell);
}

static void add_together(struct dr_record *rec, const union any_row *r)
{
	dr_record_together(rec, &r->together);
}

static void add_nic(struct dr_record *rec, const union any_row *r)
{
	dr_record_nic(rec, &r->nic);
}

static void add_latency(struct dr_record *rec, const union any_row *r)
{
	dr_record_latency(rec, &r->latency);
}

static void add_memory(struct dr_record *rec, const union any_row *r)
{
	dr_record_memory(rec, &r->memory);
}

static void add_switch(struct dr_record *rec, const union any_row *r)
{
	dr_record_switch(rec, &r->sw);
}

static void add_interval(struct dr_record *rec, const union any_row *r)
{
	dr_record_interval(rec, &r->interval);
}

static void add_event(struct dr_record *rec, const union any_row *r)
{
	dr_record_event(rec, &r->event);
}

static int merge_rows(struct dr_record *rec, const json_t *part, const struct dr_fields *t,
	void (*add)(struct dr_record *, const union any_row *), struct dr_err *e)
{
	const json_t *a = json_object_get(part, t->what);
	union any_row row;
	size_t i;

	if (!a)
		return 0;
	if (!json_is_array(a))
		return dr_err_set(e, -EPROTO, "%s: no array", t->what);
	for (i = 0; i < json_array_size(a); i++) {
		int rc = dr_fields_from_json(t, &row, json_array_get(a, i), e);

		if (rc)
			return rc;
		add(rec, &row);
	}
	return 0;
}

/* The peer's troubles are told here as events; this end's own errors decide its exit status. */
static void merge_errors(struct dr_record *rec, const json_t *part)
{
	const json_t *a = json_object_get(part, "errors");
	struct dr_event_row row;
	size_t i;

	for (i = 0; i < json_array_size(a); i++) {
		const char *text = json_string_value(json_object_get(json_array_get(a, i), "text"));

		dr_event_row_init(&row);
		row.side = rec->side < 0 ? -1 : !rec->side;
		snprintf(row.kind, sizeof(row.kind), "peer-error");
		dr_text_copy(row.text, sizeof(row.text), text ? text : "unknown");
		dr_record_event(rec, &row);
	}
}

static int merge_scalars(struct dr_record *rec, const json_t *part, struct dr_err *e)
{
	const json_t *v = json_object_get(part, "version");
	int rc;

	if (json_is_string(v))
		dr_text_copy(rec->peer_version, sizeof(rec->peer_version), json_string_value(v));
	v = json_object_get(part, "cpu_percent");
	if (json_is_number(v))
		rec->cpu_percent_peer = json_number_value(v);
	v = json_object_get(part, "false_failovers");
	/* Both ends count the same switches. */
	if (json_is_integer(v) && json_integer_value(v) >= 0)
		rec->false_failovers = DR_MAX(rec->false_failovers, (int64_t)json_integer_value(v));
	rc = dr_fields_from_json(
		&dr_host_fields, &rec->peer_host, json_object_get(part, "host"), e);
	if (rc)
		return rc;
	return dr_fields_from_json(
		&dr_integrity_fields, &rec->peer_integrity, json_object_get(part, "integrity"), e);
}

int dr_record_merge(struct dr_record *rec, const json_t *part, struct dr_err *e)
{
	static const struct {
		const struct dr_fields *fields;
		void (*add)(struct dr_record *, const union any_row *);
	} lists[] = { { &dr_bandwidth_fields, add_bandwidth }, { &dr_cell_fields, add_cell },
		{ &dr_together_fields, add_together }, { &dr_nic_fields, add_nic },
		{ &dr_latency_fields, add_latency }, { &dr_memory_fields, add_memory },
		{ &dr_switch_fields, add_switch }, { &dr_interval_fields, add_interval },
		{ &dr_event_fields, add_event } };
	const char *schema = json_string_value(json_object_get(part, "schema"));
	size_t i;
	int rc = 0;

	if (!schema || strcmp(schema, "dualrail-part/1"))
		rc = dr_err_set(e, -EPROTO, "schema: not dualrail-part/1");
	if (!rc)
		rc = merge_scalars(rec, part, e);
	for (i = 0; !rc && i < DR_ARRAY_LEN(lists); i++)
		rc = merge_rows(rec, part, lists[i].fields, lists[i].add, e);
	if (rc) {
		dr_err_prefix(e, "peer's part of the results");
		return rc;
	}
	merge_errors(rec, part);
	return 0;
}
