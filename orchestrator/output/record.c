/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "channel/manager.h"
#include "gpu/select.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/record.h"

/*
 * Invariants
 *  1. argv and options are never NULL, so the document needs no special cases.
 *  2. Every list is {v, n <= cap <= limit}; a row that does not get in is counted in rows_lost.
 *  3. Rows of a type with key fields are unique by key.
 */

static struct dr_list *list_at(const struct dr_record *rec, size_t off)
{
	return (struct dr_list *)((uintptr_t)rec + off);
}

size_t dr_row_type_max(const struct dr_row_type *t, const struct dr_record *rec)
{
	const struct dr_row_bounds *b = &rec->bounds;
	size_t most = DR_RECORD_LIST_MAX / t->fields->size, n = t->max ? t->max : most;

	n *= t->flags & DR_ROW_OF_GPU ? b->gpus : 1;
	n *= t->flags & DR_ROW_OF_RAIL ? b->rails : 1;
	n *= t->flags & DR_ROW_OF_CHANNEL ? b->channels : 1;
	return DR_MIN(n, most);
}

/* Room for one more row at the end, counted; NULL: none. */
static void *list_grow(struct dr_record *rec, const struct dr_row_type *t, struct dr_list *l)
{
	size_t limit = dr_row_type_max(t, rec), size = t->fields->size;
	size_t cap = l->n < l->cap ? l->cap : DR_MIN(DR_MAX(2 * l->cap, (size_t)16), limit);
	void *v = l->v;

	if (cap > l->cap)
		v = dr_realloc(l->v, cap * size);
	if (!v || l->n >= cap) {
		rec->rows_lost++;
		return NULL;
	}
	l->v = v;
	l->cap = cap;
	return (char *)v + l->n++ * size;
}

static void *add_row(struct dr_record *rec, const struct dr_row_type *t, const void *row)
{
	struct dr_list *l = list_at(rec, t->off);
	bool has_key = t->fields->f[0].flags & DR_F_KEY;
	void *r = has_key ? dr_rows_find(&l->index, t->fields, l->v, l->n, row) : NULL;

	if (r && !(t->flags & DR_ROW_REPLACE)) {
		dr_fields_fill(t->fields, r, row);
	} else {
		r = r ? r : list_grow(rec, t, l);
		if (!r)
			return NULL;
		memcpy(r, row, t->fields->size);
	}
	if (t->settle)
		t->settle(r);
	return r;
}

void *dr_record_add_row(struct dr_record *rec, size_t list_off, const void *row)
{
	return add_row(rec, dr_row_type_at(list_off), row);
}

static void free_lists(struct dr_record *rec, unsigned keep_flags)
{
	for (size_t i = 0; i < dr_n_row_types; i++) {
		const struct dr_row_type *t = &dr_row_types[i];
		struct dr_list *l = list_at(rec, t->off);

		if (t->flags & (keep_flags | DR_ROW_SINGLE))
			continue;
		dr_free(l->v);
		dr_free(l->index.slot);
		*l = (struct dr_list){ 0 };
	}
}

/* ------------------------------- lifetime ------------------------------- */

static void stamp(struct dr_record *rec)
{
	char when[24] = "";
	uint32_t r = 0;
	struct tm tm;

	rec->start_wall_ns = dr_wall_ns();
	rec->start_ns = dr_now_ns();
	time_t s = (time_t)(rec->start_wall_ns / DR_NS_PER_S);
	if (dr_random_bytes(&r, sizeof(r)))
		r = (uint32_t)rec->start_wall_ns;
	gmtime_r(&s, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	snprintf(rec->run_id, sizeof(rec->run_id), "%s-%08x", when, r);
}

static void host_read(struct dr_host *h)
{
	struct utsname u;
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	dr_fields_init(&dr_host_fields, h);
	if (uname(&u) == 0) {
		snprintf(h->name, sizeof(h->name), "%s", u.nodename);
		snprintf(h->kernel, sizeof(h->kernel), "%s", u.release);
	}
	h->cpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (pages > 0 && page > 0)
		h->memory_bytes = (int64_t)pages * page;
}

static void results_init(struct dr_record *rec)
{
	rec->status = -1;
	rec->exit_code = -1;
	rec->end_ns = DR_UNSET;
	rec->cpu_percent_local = rec->cpu_percent_peer = NAN;
	rec->false_failovers = DR_UNSET;
	rec->unexpected_switches = DR_UNSET;
	rec->numa_nodes = DR_UNSET;
	rec->clock_offset_ns = rec->clock_error_ns = DR_UNSET;
	rec->run_of_peer = false;
	dr_fields_init(&dr_integrity_fields, &rec->integrity);
	dr_fields_init(&dr_integrity_fields, &rec->peer_integrity);
	dr_fields_init(&dr_host_fields, &rec->peer_host);
	rec->peer_version[0] = '\0';
	rec->rows_lost = 0;
	stamp(rec);
}

int dr_record_create(struct dr_record **out)
{
	struct dr_record *rec = dr_calloc(1, sizeof(*rec));

	if (!rec)
		return -ENOMEM;
	rec->argv = json_array();
	rec->options = json_object();
	if (!rec->argv || !rec->options) {
		dr_record_destroy(rec);
		return -ENOMEM;
	}
	rec->side = -1;
	rec->bounds = (struct dr_row_bounds){ DR_GPUS_MAX, DR_RAILS_MAX, DR_RECORD_CHANNELS_MAX };
	snprintf(rec->version, sizeof(rec->version), "%s", DR_VERSION);
	host_read(&rec->host);
	dr_fields_init(&dr_detection_fields, &rec->detection);
	dr_fields_init(&dr_live_process_fields, &rec->live_process);
	results_init(rec);
	*out = rec;
	return 0;
}

void dr_record_destroy(struct dr_record *rec)
{
	if (!rec)
		return;
	free_lists(rec, 0);
	json_decref(rec->argv);
	json_decref(rec->options);
	dr_free(rec);
}

void dr_record_reset(struct dr_record *rec)
{
	free_lists(rec, DR_ROW_KEEP);
	results_init(rec);
}

void dr_record_set_argv(struct dr_record *rec, int argc, char *const argv[])
{
	json_array_clear(rec->argv);
	for (int i = 0; i < argc; i++)
		if (json_array_append_new(rec->argv, dr_json_text(argv[i])))
			rec->rows_lost++;
}

void dr_record_set_options(struct dr_record *rec, json_t *options)
{
	if (!options) {
		rec->rows_lost++;
		json_object_clear(rec->options);
		return;
	}
	json_decref(rec->options);
	rec->options = options;
}

/* --------------------------------- rows --------------------------------- */

void dr_record_latency_hist(struct dr_record *rec, int64_t gpu, const char *nic, int64_t bytes,
	const struct dr_hist *rtt, int64_t switched)
{
	struct dr_hist_bin bins[DR_HIST_BINS];
	struct dr_latency_row row;

	dr_fields_init(&dr_latency_fields, &row);
	row.gpu = gpu;
	snprintf(row.nic, sizeof(row.nic), "%s", nic);
	row.bytes = bytes;
	row.switched = switched;
	row.samples = (int64_t)dr_hist_count(rtt);
	if (row.samples > 0) {
		row.p50_ns = dr_hist_percentile(rtt, 50);
		row.p90_ns = dr_hist_percentile(rtt, 90);
		row.p99_ns = dr_hist_percentile(rtt, 99);
		row.p999_ns = dr_hist_percentile(rtt, 99.9);
		row.max_ns = dr_hist_percentile(rtt, 100);
		row.sum_ns = dr_hist_sum(rtt);
	}
	row.n_histogram = dr_hist_bins(rtt, bins);
	for (unsigned i = 0; i < row.n_histogram; i++)
		row.histogram[i] =
			(struct dr_bin_row){ bins[i].from, bins[i].to, (int64_t)bins[i].count };
	dr_record_add(rec, latency, &row);
}

static void add_event(struct dr_record *rec, int side, const char *kind, const char *text)
{
	struct dr_event_row row;

	dr_fields_init(&dr_event_fields, &row);
	row.monotonic_ns = dr_now_ns();
	row.wall_ns = dr_wall_ns();
	row.side = side;
	snprintf(row.kind, sizeof(row.kind), "%s", kind);
	snprintf(row.text, sizeof(row.text), "%s", text);
	dr_record_add(rec, events, &row);
}

void dr_record_eventf(struct dr_record *rec, const char *kind, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add_event(rec, rec->side, kind, text);
}

struct dr_error_row *dr_record_error(struct dr_record *rec, int exit_status, const struct dr_err *e)
{
	struct dr_error_row row = { .exit_status = exit_status,
		.wall_ns = dr_wall_ns(),
		.code = e ? e->code : 0,
		.reason = DR_REASON_NONE };

	snprintf(row.text, sizeof(row.text), "%s", e ? e->text : "");
	return dr_record_add(rec, errors, &row);
}

struct dr_error_row *dr_record_errorf(struct dr_record *rec, int exit_status, const char *fmt, ...)
{
	struct dr_err e = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	return dr_record_error(rec, exit_status, &e);
}

void dr_record_reason(struct dr_error_row *row, enum dr_reason reason)
{
	if (row)
		row->reason = reason;
}

void dr_integrity_add(struct dr_integrity_row *into, const struct dr_integrity_row *from)
{
	for (size_t i = 0; i < dr_integrity_fields.n; i++) {
		const struct dr_field *f = &dr_integrity_fields.f[i];
		int64_t *sum = (int64_t *)(void *)((char *)into + f->off);

		if (f->kind == DR_F_INT && !dr_field_unknown(f, from))
			*sum = DR_MAX(*sum, 0) +
			       *(const int64_t *)(const void *)((const char *)from + f->off);
	}
	if (from->verified >= 0)
		into->verified = into->verified < 0 ? from->verified
						    : DR_MIN(into->verified, from->verified);
}

/* ------------------------------- the peer's part ------------------------------- */

/* What a part has besides rows, as the record has it of the end that writes it. */
#define F(kind_, name_, member, ...)                                                               \
	DR_FIELD(name_, DR_F_##kind_, struct dr_record, member, __VA_ARGS__)
static DR_TABLE(part_fields, "part", struct dr_record, NULL,
	DR_FIELD_CONST("schema", "dualrail-part/1"), F(STR, "version", version),
	F(ROW, "host", host, .row = &dr_host_fields, .flags = DR_F_REQUIRED),
	F(NUM, "cpu_percent", cpu_percent_local), F(INT, "false_failovers", false_failovers),
	F(ROW, "integrity", integrity, .row = &dr_integrity_fields, .flags = DR_F_REQUIRED));

json_t *dr_record_part(const struct dr_record *rec, struct dr_record_mark *since)
{
	struct dr_record_mark m = since ? *since : (struct dr_record_mark){ 0 };
	json_t *o = dr_fields_to_json(&part_fields, rec);
	int bad = !o;

	dr_assert(dr_n_row_types <= DR_RECORD_LISTS_MAX);
	for (size_t i = 0; i < dr_n_row_types; i++) {
		const struct dr_row_type *t = &dr_row_types[i];
		size_t n, from = t->flags & DR_ROW_PART_ALL ? 0 : m.n[i];

		if (!(t->flags & (DR_ROW_PART_ALL | DR_ROW_PART_NEW)))
			continue;
		const char *v = dr_row_type_rows(t, rec, &n);
		from = DR_MIN(from, n);
		dr_json_put(o, t->fields->what,
			dr_rows_to_json(t->fields, v + from * t->fields->size, n - from), &bad);
		m.n[i] = n;
	}
	if (bad) {
		json_decref(o);
		return NULL;
	}
	if (since)
		*since = m;
	return o;
}

static int merge_rows(
	struct dr_record *rec, const json_t *from, const struct dr_row_type *t, struct dr_err *e)
{
	const json_t *a = json_object_get(from, t->fields->what);
	_Alignas(max_align_t) char row[DR_RECORD_ROW_MAX];
	int rc = 0;

	dr_assert(t->fields->size <= sizeof(row));
	if (!a)
		return 0;
	if (!json_is_array(a))
		return dr_err_set(e, -EPROTO, "%s: not an array", t->fields->what);
	for (size_t i = 0; !rc && i < json_array_size(a); i++) {
		rc = dr_fields_from_json(t->fields, row, json_array_get(a, i), e);
		/* The peer's errors become events; this end's own errors decide its exit status. */
		if (!rc && t->fields == &dr_error_fields)
			add_event(rec, rec->side < 0 ? -1 : !rec->side, "peer-error",
				((const struct dr_error_row *)(const void *)row)->text);
		else if (!rc && !add_row(rec, t, row)) {
			rec->rows_lost += json_array_size(a) - i - 1;
			break;
		}
	}
	return rc;
}

int dr_record_merge(struct dr_record *rec, const json_t *part, struct dr_err *e)
{
	struct dr_record peer;
	int rc = dr_fields_from_json(&part_fields, &peer, part, e);

	if (!rc) {
		if (peer.version[0])
			memcpy(rec->peer_version, peer.version, sizeof(rec->peer_version));
		if (isfinite(peer.cpu_percent_local))
			rec->cpu_percent_peer = peer.cpu_percent_local;
		/* Both ends count the same switches. */
		rec->false_failovers = DR_MAX(rec->false_failovers, peer.false_failovers);
		rec->peer_host = peer.host;
		rec->peer_integrity = peer.integrity;
	}
	for (size_t i = 0; !rc && i < dr_n_row_types; i++)
		if (dr_row_types[i].flags & (DR_ROW_PART_ALL | DR_ROW_PART_NEW))
			rc = merge_rows(rec, part, &dr_row_types[i], e);
	if (rc)
		dr_err_prefix(e, "peer's part of the results");
	return rc;
}
