/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/*
 * The record as spans, in the JSON encoding of an OTLP ExportTraceServiceRequest (OpenTelemetry protocol 1.x, "JSON
 * Protobuf Encoding": ids in hex, 64-bit integers as strings, enums as numbers).
 *
 * Invariants
 *  1. Ids are hashes of the run_id and of what the span stands for. Both ends have the run_id, so their files are
 *     one trace, and a span has the same id in either file.
 *  2. A parent stands before its children in `span`, and its time includes theirs. Only the server's run has a parent in
 *     another file, that of the client.
 *  3. Times of the peer are shifted to this end's clock. Where the offset is unknown the peer has no spans.
 *  4. Attributes of a span are the fields of its row, by their tables; unknown ones and times are left out.
 */
enum span_kind { SPAN_RUN, SPAN_PHASE, SPAN_CHANNEL, SPAN_FAULT, SPAN_SWITCH, SPAN_GAP };
enum status_code { STATUS_OK = 1, STATUS_ERROR = 2 };
enum { ID_BYTES = 8, TRACE_ID_BYTES = 16, NO_PARENT = -1, KIND_INTERNAL = 1 };
/* SpanFlags of the protocol: it is known whether the parent is remote; it is. */
enum { FLAGS_PARENT_REMOTE = 0x100 | 0x200 };
/* Of two clocks; sums with times do not overflow. */
static const int64_t OFFSET_MAX_NS = INT64_MAX / 4;

/* What a span stands for; the numbers that the kind does not have are 0. */
struct span_key {
	int side;
	enum span_kind kind;
	int64_t a, b, c;
};
struct span {
	struct span_key key;
	ptrdiff_t parent;
	int64_t start_ns, end_ns; /* since 1970, this end's clock */
	json_t *json;
};
struct trace {
	const struct dr_record *rec;
	struct span *span;
	size_t n, cap;
	int64_t shift_ns[2]; /* of either end: its monotonic clock to time since 1970 */
	bool has[2];	     /* the spans of that end */
	size_t n_before; /* spans before those of the switches and gaps, which nothing refers to */
	int bad;	 /* failures for lack of memory */
};

/* -------------------------------- JSON -------------------------------- */

/* The value as one of the protocol's kinds; takes v over. */
static json_t *any_value(json_t *v)
{
	char number[32];

	if (json_is_integer(v)) {
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		json_decref(v);
		return json_pack("{s:s}", "intValue", number);
	}
	return json_pack("{s:o}",
		json_is_real(v)	     ? "doubleValue"
		: json_is_boolean(v) ? "boolValue"
				     : "stringValue",
		v);
}

/* Takes v over; null is left out. */
static void attribute(
	struct trace *t, json_t *list, const char *prefix, const char *name, json_t *v)
{
	char key[96];

	if (json_is_null(v)) {
		json_decref(v);
		return;
	}
	snprintf(key, sizeof(key), "%s%s", prefix, name);
	t->bad += !v || json_array_append_new(
				list, json_pack("{s:s, s:o}", "key", key, "value", any_value(v)));
}

static bool is_attribute(const struct dr_field *f, const void *row)
{
	switch (f->kind) {
	case DR_F_NS: /* times are those of the span and its events */
	case DR_F_STAMP:
	case DR_F_WALL:
	case DR_F_JSON:
	case DR_F_ROW:
	case DR_F_ROWS:
	case DR_F_LIST:
		return false;
	default:
		return !(f->flags & DR_F_HIDDEN) && !dr_field_unknown(f, row);
	}
}

static json_t *attributes(struct trace *t, const struct dr_fields *table, const void *row)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < table->n; i++)
		if (is_attribute(&table->f[i], row))
			attribute(t, list, "dualrail.", table->f[i].name,
				dr_field_value(&table->f[i], row));
	t->bad += !list;
	return list;
}

static void put(struct trace *t, json_t *object, const char *key, json_t *v)
{
	t->bad += !v || json_object_set_new(object, key, v);
}

static json_t *time_json(int64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRId64, ns);
	return json_string(text);
}

/* Appends to the object's list, which is made when it is needed. */
static void put_in(struct trace *t, json_t *object, const char *list, json_t *v)
{
	if (!json_object_get(object, list))
		put(t, object, list, json_array());
	t->bad += !v || json_array_append_new(json_object_get(object, list), v);
}

static void put_event(struct trace *t, json_t *span, int64_t ns, const char *name, json_t *attrs)
{
	json_t *e =
		json_pack("{s:o, s:o}", "timeUnixNano", time_json(ns), "name", dr_json_text(name));

	if (e && attrs)
		put(t, e, "attributes", attrs);
	else
		json_decref(attrs);
	put_in(t, span, "events", e);
}

static void put_status(struct trace *t, json_t *span, bool ok, const char *text)
{
	json_t *s = json_pack("{s:i}", "code", ok ? STATUS_OK : STATUS_ERROR);

	if (s && !ok && *text)
		put(t, s, "message", dr_json_text(text));
	put(t, span, "status", s);
}

/* -------------------------------- ids -------------------------------- */

static json_t *hash_json(const char *of, size_t bytes)
{
	unsigned char hash[TRACE_ID_BYTES];
	char hex[2 * TRACE_ID_BYTES + 1];

	crypto_generichash(hash, sizeof(hash), (const unsigned char *)of, strlen(of), NULL, 0);
	return json_string(sodium_bin2hex(hex, 2 * bytes + 1, hash, bytes));
}

static json_t *trace_id(const struct trace *t)
{
	return hash_json(t->rec->run_id, TRACE_ID_BYTES);
}

static json_t *span_id(const struct trace *t, const struct span_key *k)
{
	char text[160];

	snprintf(text, sizeof(text), "%s %d %d %" PRId64 " %" PRId64 " %" PRId64, t->rec->run_id,
		k->side, (int)k->kind, k->a, k->b, k->c);
	return hash_json(text, ID_BYTES);
}

static bool same_key(const struct span_key *x, const struct span_key *y)
{
	return x->side == y->side && x->kind == y->kind && x->a == y->a && x->b == y->b &&
	       x->c == y->c;
}

/* -------------------------------- spans -------------------------------- */

/* Of either end's monotonic clock. The peer's numbers may be anything: what is no time is the begin of the run. */
static int64_t wall(const struct trace *t, int side, int64_t ns)
{
	int64_t at;

	if (ns == DR_UNSET || __builtin_add_overflow(ns, t->shift_ns[side], &at) || at < 0)
		return t->rec->start_wall_ns;
	return at;
}

static ptrdiff_t find(const struct trace *t, const struct span_key *k)
{
	for (size_t i = 0; i < t->n_before; i++)
		if (same_key(&t->span[i].key, k))
			return (ptrdiff_t)i;
	return NO_PARENT;
}

/* Of the side's monotonic clock. */
struct extent {
	int64_t begin_ns, end_ns;
};

/* attrs: taken over. The span's object; NULL: no memory. */
static json_t *add(struct trace *t, struct span_key key, ptrdiff_t parent, struct extent x,
	const char *name, json_t *attrs)
{
	struct span s = { .key = key, .parent = parent, .json = json_object() };
	struct span *v = dr_grow(t->span, &t->cap, t->n + 1, sizeof(*v));

	t->span = v ? v : t->span;
	if (!v || !s.json || !attrs) {
		t->bad++;
		json_decref(attrs);
		json_decref(s.json);
		return NULL;
	}
	s.start_ns = wall(t, key.side, x.begin_ns);
	s.end_ns = DR_MAX(wall(t, key.side, x.end_ns), s.start_ns);
	put(t, s.json, "traceId", trace_id(t));
	put(t, s.json, "spanId", span_id(t, &key));
	put(t, s.json, "name", dr_json_text(name));
	put(t, s.json, "kind", json_integer(KIND_INTERNAL));
	put(t, s.json, "attributes", attrs);
	t->span[t->n++] = s;
	if (key.kind < SPAN_SWITCH)
		t->n_before = t->n;
	return s.json;
}

static int64_t end_of_run(const struct trace *t)
{
	return t->rec->end_ns == DR_UNSET ? t->rec->start_ns : t->rec->end_ns;
}

/* The peer's run, of which this end knows the session only. */
static void add_run(struct trace *t, int side)
{
	const struct dr_record *rec = t->rec;
	bool own = side == DR_MAX(rec->side, 0);
	struct span_key key = { .side = side, .kind = SPAN_RUN };
	int64_t shift = own ? 0 : t->shift_ns[!side] - t->shift_ns[side];
	char name[48];

	snprintf(name, sizeof(name), "dualrail %s",
		own && rec->command[0] ? rec->command : dr_end_names[side]);
	struct extent x = { (own ? rec->start_ns : DR_MAX(rec->session_ns, rec->start_ns)) + shift,
		end_of_run(t) + shift };
	json_t *span = add(t, key, own ? NO_PARENT : 0, x, name,
		own ? attributes(t, &dr_record_fields, rec) : json_array());
	if (!span || !own)
		return;
	put_status(t, span, rec->exit_code == DR_EXIT_PASS,
		rec->errors.n ? rec->errors.v[0].text : "");
	if (rec->side == DR_END_SERVER && rec->run_of_peer) {
		struct span_key client = { .side = DR_END_CLIENT, .kind = SPAN_RUN };

		put(t, span, "parentSpanId", span_id(t, &client));
		put(t, span, "flags", json_integer(FLAGS_PARENT_REMOTE));
	}
}

static void add_phases(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->phases.n; i++) {
		const struct dr_phase_row *r = &rec->phases.v[i];
		struct span_key key = { side, SPAN_PHASE, r->phase, 0, 0 };
		char name[48];

		if (r->side != side)
			continue;
		snprintf(name, sizeof(name), "phase %s", dr_enum_name(dr_phase_names, r->test));
		json_t *span = add(t, key, run,
			(struct extent){
				r->begin_ns, r->end_ns == DR_UNSET ? r->begin_ns : r->end_ns },
			name, attributes(t, &dr_phase_fields, r));
		if (span && r->end_ns == DR_UNSET) { /* with the run */
			t->span[t->n - 1].end_ns =
				DR_MAX(t->span[t->n - 1].start_ns, t->span[run].end_ns);
			put_status(t, span, false, "the run ended before");
		}
	}
}

static void add_channels(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->channels.n; i++) {
		const struct dr_channel_row *r = &rec->channels.v[i];
		struct span_key key = { side, SPAN_CHANNEL, r->gpu, r->channel, 0 };

		if (r->side != side)
			continue;
		json_t *span = add(t, key, run, (struct extent){ r->begin_ns, r->connected_ns },
			"channel", attributes(t, &dr_channel_fields, r));
		if (!span)
			continue;
		t->span[t->n - 1].end_ns = DR_MAX(t->span[t->n - 1].end_ns, t->span[run].end_ns);
		put_event(t, span, wall(t, side, r->connected_ns), "connected", NULL);
	}
}

/* The phase of that end in which the time is; none: its run. */
static ptrdiff_t phase_at(const struct trace *t, int side, int64_t wall_ns, ptrdiff_t run)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct span *s = &t->span[i];

		if (s->key.side == side && s->key.kind == SPAN_PHASE && s->start_ns <= wall_ns &&
			wall_ns <= s->end_ns)
			return (ptrdiff_t)i;
	}
	return run;
}

static void add_faults(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *r = &rec->faults.v[i];
		struct span_key key = { side, SPAN_FAULT, r->trial, 0, 0 };
		char name[48];

		if (r->side != side || r->at_ns == DR_UNSET)
			continue;
		snprintf(name, sizeof(name), "fault %s", r->kind);
		json_t *span = add(t, key, phase_at(t, side, wall(t, side, r->at_ns), run),
			(struct extent){ r->at_ns, DR_MAX(r->undone_ns, r->at_ns) }, name,
			attributes(t, &dr_fault_fields, r));
		if (span && r->verdict >= 0)
			put_status(t, span, r->verdict == DR_VERDICT_PASS,
				dr_enum_name(dr_verdict_names, r->verdict));
	}
}

static void link_fault(struct trace *t, json_t *span, int64_t trial)
{
	const struct dr_record *rec = t->rec;
	const struct dr_fault_row *r = NULL;

	/* The k-th row is that of trial k. */
	if (trial >= 0 && (size_t)trial < rec->faults.n)
		r = &rec->faults.v[trial];
	if (!r || r->trial != trial || r->at_ns == DR_UNSET || !t->has[r->side])
		return;
	struct span_key key = { r->side, SPAN_FAULT, trial, 0, 0 };
	put_in(t, span, "links",
		json_pack("{s:o, s:o}", "traceId", trace_id(t), "spanId", span_id(t, &key)));
}

/* Its steps are events. Of an idle channel the last delivery may be long ago: then it begins with its detection. */
static void add_switch(struct trace *t, const struct dr_switch_row *r, ptrdiff_t channel)
{
	const struct dr_switch_record *rec = &r->rec;
	const struct {
		const char *name;
		int64_t ns;
	} steps[] = { { "detected", rec->detect_ns }, { "fenced", rec->fenced_ns },
		{ "answer", rec->answer_ns }, { "first frame", rec->first_frame_ns },
		{ r->receiver == 1 ? "first delivery" : "first acknowledgement",
			rec->first_delivery_ns } };
	int64_t begin = r->gap_ns == DR_UNSET ? 0 : rec->last_delivery_ns, end = 0;
	struct span_key key = { r->side, SPAN_SWITCH, r->gpu, r->channel, rec->epoch };

	for (size_t i = 0; i < DR_ARRAY_LEN(steps); i++) {
		begin = begin ? begin : steps[i].ns;
		end = DR_MAX(end, steps[i].ns);
	}
	json_t *span = add(t, key, channel, (struct extent){ begin, end },
		!rec->planned  ? "failover"
		: rec->to == 0 ? "failback"
			       : "leave",
		attributes(t, &dr_switch_fields, r));
	for (size_t i = 0; span && i < DR_ARRAY_LEN(steps); i++)
		if (steps[i].ns)
			put_event(t, span, wall(t, r->side, steps[i].ns), steps[i].name, NULL);
	if (span)
		link_fault(t, span, r->trial);
}

static ptrdiff_t channel_or(
	const struct trace *t, int side, int64_t gpu, int64_t channel, ptrdiff_t run)
{
	struct span_key key = { side, SPAN_CHANNEL, gpu, channel, 0 };
	ptrdiff_t i = channel == DR_UNSET ? NO_PARENT : find(t, &key);

	return i < 0 ? run : i;
}

static void add_switches(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->switches.n; i++) {
		const struct dr_switch_row *r = &rec->switches.v[i];

		if (r->side == side)
			add_switch(t, r, channel_or(t, side, r->gpu, r->channel, run));
	}
}

/* Where channels do not switch. */
static void add_gaps(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->delivery_gaps.n; i++) {
		const struct dr_delivery_gap_row *r = &rec->delivery_gaps.v[i];
		struct span_key key = { side, SPAN_GAP, r->gpu, r->channel, r->trial };

		if (r->side != side || r->last_delivery_ns == DR_UNSET)
			continue;
		json_t *span = add(t, key, channel_or(t, side, r->gpu, r->channel, run),
			(struct extent){ r->last_delivery_ns, r->first_delivery_ns },
			"delivery gap", attributes(t, &dr_delivery_gap_fields, r));
		if (span)
			link_fault(t, span, r->trial);
	}
}

/* What happened, at the channel or at the run of that end. */
static void add_events(struct trace *t, int side, ptrdiff_t run)
{
	const struct dr_record *rec = t->rec;

	for (size_t i = 0; i < rec->events.n; i++) {
		const struct dr_event_row *r = &rec->events.v[i];

		if (r->side == side || (r->side < 0 && run == 0))
			put_event(t, t->span[channel_or(t, side, r->gpu, r->channel, run)].json,
				wall(t, side, r->monotonic_ns), r->kind,
				attributes(t, &dr_event_fields, r));
	}
}

static void add_end(struct trace *t, int side)
{
	ptrdiff_t run = (ptrdiff_t)t->n;

	t->has[side] = true;
	add_run(t, side);
	if (t->bad)
		return;
	add_phases(t, side, run);
	add_channels(t, side, run);
	add_faults(t, side, run);
	add_events(t, side, run);
}

/* -------------------------------- the document -------------------------------- */

static json_t *resource_of(struct trace *t, int side)
{
	const struct dr_record *rec = t->rec;
	bool own = side == DR_MAX(rec->side, 0);
	const char *host = own ? rec->host.name : rec->peer_host.name;
	json_t *list = json_array(), *o = NULL;

	if (list) {
		attribute(t, list, "", "service.name", json_string("dualrail"));
		attribute(t, list, "", "service.version",
			dr_json_text(own ? rec->version : rec->peer_version));
		attribute(t, list, "", "host.name", *host ? dr_json_text(host) : json_null());
		attribute(t, list, "", "dualrail.run_id", dr_json_text(rec->run_id));
		attribute(t, list, "", "dualrail.side", json_string(dr_end_names[side]));
		o = json_pack("{s:o}", "attributes", list);
	}
	t->bad += !o;
	return o;
}

/* Takes the spans' objects over. */
static json_t *spans_of(struct trace *t, int side)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < t->n; i++) {
		struct span *s = &t->span[i];

		if (s->key.side != side)
			continue;
		if (s->parent >= 0)
			put(t, s->json, "parentSpanId", span_id(t, &t->span[s->parent].key));
		put(t, s->json, "startTimeUnixNano", time_json(s->start_ns));
		put(t, s->json, "endTimeUnixNano", time_json(s->end_ns));
		t->bad += json_array_append_new(list, s->json);
		s->json = NULL;
	}
	t->bad += !list;
	return list;
}

static json_t *resource_spans(struct trace *t, int side)
{
	return json_pack("{s:o, s:[{s:{s:s, s:s}, s:o}]}", "resource", resource_of(t, side),
		"scopeSpans", "scope", "name", "dualrail", "version", t->rec->version, "spans",
		spans_of(t, side));
}

/* A parent's time includes that of its children. */
static void widen(struct trace *t)
{
	for (size_t i = t->n; i-- > 0;) {
		const struct span *s = &t->span[i];
		struct span *p = s->parent < 0 ? NULL : &t->span[s->parent];

		if (!p)
			continue;
		p->start_ns = DR_MIN(p->start_ns, s->start_ns);
		p->end_ns = DR_MAX(p->end_ns, s->end_ns);
	}
}

int dr_trace_write(struct dr_record *rec, FILE *f)
{
	struct trace t = { .rec = rec };
	int own = DR_MAX(rec->side, 0); /* wrong options have no side: a client's */
	json_t *ends = json_array();

	dr_record_settle(rec);
	t.shift_ns[own] = t.shift_ns[!own] = rec->start_wall_ns - rec->start_ns;
	add_end(&t, own);
	bool peer = !t.bad && own == DR_END_CLIENT && rec->clock_offset_ns > -OFFSET_MAX_NS &&
		    rec->clock_offset_ns < OFFSET_MAX_NS; /* DR_UNSET: unknown */
	const struct {
		int side;
		ptrdiff_t run;
	} end[] = { { own, 0 }, { !own, (ptrdiff_t)t.n } };
	unsigned n_ends = peer ? 2 : 1;

	if (peer) {
		t.shift_ns[!own] -= rec->clock_offset_ns;
		add_end(&t, !own);
	}
	/* After the faults of both ends, which they link to. */
	for (unsigned i = 0; i < n_ends && !t.bad; i++) {
		add_switches(&t, end[i].side, end[i].run);
		add_gaps(&t, end[i].side, end[i].run);
	}
	if (!t.bad)
		widen(&t);
	t.bad += !ends;
	for (unsigned i = 0; i < n_ends && !t.bad; i++)
		t.bad += json_array_append_new(ends, resource_spans(&t, end[i].side));
	for (size_t i = 0; i < t.n; i++)
		json_decref(t.span[i].json);
	dr_free(t.span);
	json_t *doc = t.bad ? NULL : json_pack("{s:O}", "resourceSpans", ends);
	int rc = doc ? dr_json_write(doc, f, 0) : -ENOMEM;
	json_decref(ends);
	json_decref(doc);
	return rc;
}
