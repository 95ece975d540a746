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
#include "orchestrator/record.h"
#include "orchestrator/report/fields.h"

/*
 * Invariants
 *  1. argv and options are never NULL, so the document needs no special cases.
 *  2. Every list is {v, n <= cap <= limit}; a row that does not get in is counted in rows_lost.
 *  3. Rows of bandwidth, cells, together, nics, latency, rails, gpus, paths, memory are unique by key.
 */

/* The list as bytes, so that one function grows them all. */
static void *list_add(struct dr_record *rec, void **v, size_t *n, size_t *cap, size_t size,
	size_t limit, const void *row)
{
	if (*n >= limit) {
		rec->rows_lost++;
		return NULL;
	}
	if (*n == *cap) {
		size_t c = DR_MIN(*cap ? *cap * 2 : (size_t)16, limit);
		void *p = dr_realloc(*v, c * size);

		if (!p) {
			rec->rows_lost++;
			return NULL;
		}
		*v = p;
		*cap = c;
	}
	return memcpy((char *)*v + (*n)++ * size, row, size);
}
#define ADD(rec, list, row)                                                                        \
	list_add((rec), (void **)&(rec)->list.v, &(rec)->list.n, &(rec)->list.cap,                 \
		sizeof(*(rec)->list.v), DR_RECORD_ROWS_MAX, (row))
#define FREE(list) (dr_free((list).v), (list).v = NULL, (list).n = (list).cap = 0)

/* ------------------------------- lifetime ------------------------------- */

static void stamp(struct dr_record *rec)
{
	char when[24] = "";
	uint32_t r = 0;
	struct tm tm;
	time_t s;

	rec->start_wall_ns = dr_wall_ns();
	rec->start_ns = dr_now_ns();
	s = (time_t)(rec->start_wall_ns / DR_NS_PER_S);
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
	rec->status = DR_STATUS_ERROR;
	rec->exit_code = -1;
	rec->cpu_percent_local = rec->cpu_percent_peer = NAN;
	rec->false_failovers = DR_UNSET;
	rec->numa_nodes = DR_UNSET;
	dr_integrity_row_init(&rec->integrity);
	dr_integrity_row_init(&rec->peer_integrity);
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
	snprintf(rec->version, sizeof(rec->version), "%s", DR_VERSION);
	host_read(&rec->host);
	rec->detection.bound_ns = rec->detection.heartbeat_ns = rec->detection.lost_after_ns =
		rec->detection.stuck_after_ns = rec->detection.hold_down_ns = DR_UNSET;
	rec->detection.failback = -1;
	results_init(rec);
	*out = rec;
	return 0;
}

static void results_free(struct dr_record *rec)
{
	FREE(rec->bandwidth);
	FREE(rec->cells);
	FREE(rec->together);
	FREE(rec->nics);
	FREE(rec->latency);
	FREE(rec->faults);
	FREE(rec->switches);
	FREE(rec->intervals);
	FREE(rec->events);
	FREE(rec->errors);
	FREE(rec->paths);
}

void dr_record_destroy(struct dr_record *rec)
{
	if (!rec)
		return;
	results_free(rec);
	FREE(rec->rails);
	FREE(rec->gpus);
	FREE(rec->memory);
	json_decref(rec->argv);
	json_decref(rec->options);
	dr_free(rec);
}

void dr_record_reset(struct dr_record *rec)
{
	results_free(rec);
	results_init(rec);
}

void dr_record_set_argv(struct dr_record *rec, int argc, char *const argv[])
{
	int i;

	json_array_clear(rec->argv);
	for (i = 0; i < argc; i++)
		if (json_array_append_new(rec->argv, dr_json_text(argv[i])))
			rec->rows_lost++;
}

void dr_record_set_options(struct dr_record *rec, json_t *options)
{
	if (!options)
		options = json_object();
	if (!options) {
		rec->rows_lost++;
		json_object_clear(rec->options);
		return;
	}
	json_decref(rec->options);
	rec->options = options;
}

/* --------------------------------- rows --------------------------------- */

void dr_bandwidth_row_init(struct dr_bandwidth_row *r)
{
	dr_fields_init(&dr_bandwidth_fields, r);
}

void dr_cell_row_init(struct dr_cell_row *r)
{
	dr_fields_init(&dr_cell_fields, r);
}

void dr_together_row_init(struct dr_together_row *r)
{
	dr_fields_init(&dr_together_fields, r);
}

void dr_nic_row_init(struct dr_nic_row *r)
{
	dr_fields_init(&dr_nic_fields, r);
}

void dr_latency_row_init(struct dr_latency_row *r)
{
	dr_fields_init(&dr_latency_fields, r);
}

void dr_fault_row_init(struct dr_fault_row *r)
{
	dr_fields_init(&dr_fault_fields, r);
}

void dr_switch_row_init(struct dr_switch_row *r)
{
	dr_fields_init(&dr_switch_fields, r);
}

void dr_interval_row_init(struct dr_interval_row *r)
{
	dr_fields_init(&dr_interval_fields, r);
}

void dr_event_row_init(struct dr_event_row *r)
{
	dr_fields_init(&dr_event_fields, r);
}

void dr_rail_row_init(struct dr_rail_row *r)
{
	dr_fields_init(&dr_rail_fields, r);
}

void dr_memory_row_init(struct dr_memory_row *r)
{
	dr_fields_init(&dr_memory_fields, r);
}

void dr_gpu_row_init(struct dr_gpu_row *r)
{
	dr_fields_init(&dr_gpu_fields, r);
}

void dr_integrity_row_init(struct dr_integrity_row *i)
{
	dr_fields_init(&dr_integrity_fields, i);
}

static double rate_gbps(int64_t bytes, double seconds)
{
	if (bytes == DR_UNSET || !(seconds > 0))
		return NAN;
	return (double)bytes * 8 / seconds / 1e9;
}

void dr_record_bandwidth(struct dr_record *rec, const struct dr_bandwidth_row *row)
{
	struct dr_bandwidth_row *r = NULL;
	size_t i;

	for (i = 0; i < rec->bandwidth.n && !r; i++) {
		r = &rec->bandwidth.v[i];
		if (r->phase != row->phase || r->gpu != row->gpu || r->direction != row->direction)
			r = NULL;
	}
	if (r)
		dr_fields_fill(&dr_bandwidth_fields, r, row);
	else
		r = ADD(rec, bandwidth, row);
	if (!r)
		return;
	if (isnan(r->gbps))
		r->gbps = rate_gbps(r->bytes, r->seconds);
	if (isnan(r->sender_gbps))
		r->sender_gbps = rate_gbps(r->sender_bytes, r->sender_seconds);
}

static struct dr_cell_row *find_cell(struct dr_record *rec, const struct dr_cell_row *row)
{
	/* From the end: the other end's half came just before. */
	for (size_t i = rec->cells.n; i-- > 0;) {
		struct dr_cell_row *r = &rec->cells.v[i];

		if (r->phase == row->phase && r->gpu == row->gpu && r->direction == row->direction)
			return r;
	}
	return NULL;
}

const struct dr_cell_row *dr_record_cell(struct dr_record *rec, const struct dr_cell_row *row)
{
	struct dr_cell_row *r = find_cell(rec, row);

	if (r) {
		r->switched = DR_MAX(r->switched, row->switched);
		dr_fields_fill(&dr_cell_fields, r, row);
	} else {
		r = ADD(rec, cells, row);
	}
	if (!r)
		return NULL;
	if (isnan(r->gbps))
		r->gbps = rate_gbps(r->bytes, r->seconds);
	if (isnan(r->sender_gbps))
		r->sender_gbps = rate_gbps(r->sender_bytes, r->sender_seconds);
	return r;
}

void dr_record_together(struct dr_record *rec, const struct dr_together_row *row)
{
	for (size_t i = 0; i < rec->together.n; i++) {
		struct dr_together_row *r = &rec->together.v[i];

		if (r->side == row->side && !strcmp(r->nic, row->nic)) {
			dr_fields_fill(&dr_together_fields, r, row);
			return;
		}
	}
	ADD(rec, together, row);
}

void dr_record_nic(struct dr_record *rec, const struct dr_nic_row *row)
{
	struct dr_nic_row *r = NULL;
	size_t i;

	for (i = 0; i < rec->nics.n && !r; i++)
		if (rec->nics.v[i].side == row->side && !strcmp(rec->nics.v[i].name, row->name))
			r = &rec->nics.v[i];
	if (r)
		dr_fields_fill(&dr_nic_fields, r, row);
	else
		r = ADD(rec, nics, row);
	if (r && isnan(r->gbps) && r->tx_bytes != DR_UNSET && r->rx_bytes != DR_UNSET)
		r->gbps = rate_gbps(r->tx_bytes + r->rx_bytes, r->seconds);
}

void dr_record_latency(struct dr_record *rec, const struct dr_latency_row *row)
{
	size_t i;

	for (i = 0; i < rec->latency.n; i++)
		if (rec->latency.v[i].gpu == row->gpu && rec->latency.v[i].bytes == row->bytes) {
			dr_fields_fill(&dr_latency_fields, &rec->latency.v[i], row);
			return;
		}
	ADD(rec, latency, row);
}

void dr_record_latency_hist(
	struct dr_record *rec, int64_t gpu, int64_t bytes, const struct dr_hist *rtt)
{
	struct dr_latency_row row;

	dr_latency_row_init(&row);
	row.gpu = gpu;
	row.bytes = bytes;
	row.samples = (int64_t)dr_hist_count(rtt);
	if (row.samples > 0) {
		row.p50_ns = dr_hist_percentile(rtt, 50);
		row.p90_ns = dr_hist_percentile(rtt, 90);
		row.p99_ns = dr_hist_percentile(rtt, 99);
		row.p999_ns = dr_hist_percentile(rtt, 99.9);
		row.max_ns = dr_hist_max(rtt);
	}
	dr_record_latency(rec, &row);
}

void dr_record_fault(struct dr_record *rec, const struct dr_fault_row *row)
{
	ADD(rec, faults, row);
}

void dr_record_switch(struct dr_record *rec, const struct dr_switch_row *row)
{
	list_add(rec, (void **)&rec->switches.v, &rec->switches.n, &rec->switches.cap, sizeof(*row),
		DR_RECORD_ROWS_MAX / 4, row);
}

void dr_record_interval(struct dr_record *rec, const struct dr_interval_row *row)
{
	struct dr_interval_row *r = ADD(rec, intervals, row);

	if (r && isnan(r->gbps) && r->duration_ns != DR_UNSET)
		r->gbps = rate_gbps(r->bytes, (double)r->duration_ns / 1e9);
}

void dr_record_event(struct dr_record *rec, const struct dr_event_row *row)
{
	struct dr_event_row *r = ADD(rec, events, row);

	if (!r)
		return;
	if (r->monotonic_ns == DR_UNSET)
		r->monotonic_ns = dr_now_ns();
	if (r->wall_ns == DR_UNSET)
		r->wall_ns = dr_wall_ns();
	if (r->side < 0)
		r->side = rec->side;
}

void dr_record_eventf(struct dr_record *rec, const char *kind, const char *fmt, ...)
{
	struct dr_event_row row;
	va_list ap;

	dr_event_row_init(&row);
	snprintf(row.kind, sizeof(row.kind), "%s", kind);
	va_start(ap, fmt);
	vsnprintf(row.text, sizeof(row.text), fmt, ap);
	va_end(ap);
	dr_record_event(rec, &row);
}

void dr_record_rail(struct dr_record *rec, const struct dr_rail_row *row)
{
	size_t i;

	for (i = 0; i < rec->rails.n; i++)
		if (rec->rails.v[i].rail == row->rail) {
			rec->rails.v[i] = *row;
			return;
		}
	ADD(rec, rails, row);
}

void dr_record_gpu(struct dr_record *rec, const struct dr_gpu_row *row)
{
	size_t i;

	for (i = 0; i < rec->gpus.n; i++) {
		struct dr_gpu_row *r = &rec->gpus.v[i];

		if (r->gpu == row->gpu && r->primary == row->primary && r->shadow == row->shadow) {
			*r = *row;
			return;
		}
	}
	ADD(rec, gpus, row);
}

void dr_record_memory(struct dr_record *rec, const struct dr_memory_row *row)
{
	size_t i;

	for (i = 0; i < rec->memory.n; i++) {
		struct dr_memory_row *r = &rec->memory.v[i];

		if (r->side == row->side && r->gpu == row->gpu) {
			*r = *row;
			return;
		}
	}
	ADD(rec, memory, row);
}

void dr_record_path(struct dr_record *rec, int64_t gpu, int64_t path, int64_t channels, int64_t up)
{
	struct dr_path_row row = { gpu, path, channels, up };
	size_t i;

	for (i = 0; i < rec->paths.n; i++)
		if (rec->paths.v[i].gpu == gpu && rec->paths.v[i].path == path) {
			rec->paths.v[i] = row;
			return;
		}
	ADD(rec, paths, &row);
}

void dr_record_error(struct dr_record *rec, int exit_status, const struct dr_err *e)
{
	struct dr_error_row row = { .exit_status = exit_status, .wall_ns = dr_wall_ns() };

	row.code = e ? e->code : 0;
	snprintf(row.text, sizeof(row.text), "%s", e ? e->text : "");
	ADD(rec, errors, &row);
}

void dr_record_errorf(struct dr_record *rec, int exit_status, const char *fmt, ...)
{
	struct dr_error_row row = { .exit_status = exit_status, .wall_ns = dr_wall_ns() };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(row.text, sizeof(row.text), fmt, ap);
	va_end(ap);
	ADD(rec, errors, &row);
}

static void sum(int64_t *into, int64_t v)
{
	if (v == DR_UNSET)
		return;
	*into = *into == DR_UNSET ? v : *into + v;
}

static void integrity_add(struct dr_integrity_row *into, const struct dr_integrity_row *from)
{
	sum(&into->messages, from->messages);
	sum(&into->bytes, from->bytes);
	sum(&into->lost, from->lost);
	sum(&into->duplicated, from->duplicated);
	sum(&into->reordered, from->reordered);
	sum(&into->corrupted, from->corrupted);
	if (from->verified >= 0)
		into->verified = into->verified < 0 ? from->verified
						    : DR_MIN(into->verified, from->verified);
}

void dr_record_integrity(struct dr_record *rec, const struct dr_integrity_row *add)
{
	integrity_add(&rec->integrity, add);
}

void dr_record_integrity_total(const struct dr_record *rec, struct dr_integrity_row *out)
{
	*out = rec->integrity;
	integrity_add(out, &rec->peer_integrity);
}
