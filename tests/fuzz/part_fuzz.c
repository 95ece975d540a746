/* SPDX-License-Identifier: Apache-2.0 */
/* The peer's part of the results, its phases and its messages: whatever it says, every document that is made of it
 * is whole, and reads back. */
#include "bootstrap/conv.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/plan/plan.h"
#include "orchestrator/session/message.h"
#include "tests/fuzz/lib/fuzz.h"

#include <math.h>

static void check_phase(const struct dr_phase *p)
{
	dr_assert(p->message_bytes >= 1 && p->message_bytes <= 1ull << 40);
	dr_assert(p->chunk_bytes >= 1 && p->chunk_bytes <= p->message_bytes);
	dr_assert(p->chunk_bytes <= DR_PLAN_CHUNK_MAX);
	dr_assert(isfinite(p->rate_bits) && p->rate_bits >= 0);
	dr_assert(p->kind >= DR_PHASE_BW && p->kind <= DR_PHASE_FAILOVER);
}

static void message(const json_t *j)
{
	struct dr_message m, again;
	struct dr_err e = { 0 };
	json_t *echo;
	int rc = dr_message_read(j, &m, &e);

	if (rc) {
		dr_assert(rc == -EPROTO || rc == -ENOENT);
		dr_assert(e.text[0]);
		return;
	}
	dr_assert(m.which <= 1 && m.err <= 0 && m.n_totals <= DR_GPU_CHANNELS_MAX);
	if (m.kind == DR_MSG_PHASE)
		check_phase(&m.phase);
	echo = dr_message_to_json(&m);
	dr_assert(echo && dr_message_read(echo, &again, &e) == 0 && again.kind == m.kind);
	json_decref(echo);
}

static char *written(const json_t *doc)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	dr_assert(f && dr_json_write(doc, f, 0) == 0 && fclose(f) == 0);
	return text;
}

static void whole(struct dr_record *rec)
{
	json_t *doc = dr_record_to_json(rec), *again;
	char *text, *text_again;

	dr_assert(doc);
	text = written(doc);
	again = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	dr_assert(again);
	text_again = written(again);
	dr_assert(strcmp(text, text_again) == 0);
	free(text);
	free(text_again);
	json_decref(doc);
	json_decref(again);
}

static void write_all(struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct dr_thresholds t;

	whole(rec);
	dr_assert(f && dr_csv_write(rec, f) == 0 && dr_prom_write(rec, f) == 0);
	dr_table_header(rec, NULL, f);
	dr_table_print(rec, f);
	dr_thresholds_init(&t);
	t.max_gap_ns = DR_NS_PER_MS;
	dr_record_verdict(rec, &t);
	fclose(f);
	/* No text of the peer's moves a terminal's cursor. */
	for (size_t i = 0; i < len; i++)
		dr_assert((unsigned char)text[i] >= ' ' || text[i] == '\n');
	free(text);
	whole(rec);
}

/* A trace with the peer's spans: on one line of JSON, every span ends after its begin. */
static void write_trace(struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0, end, i;
	FILE *f = open_memstream(&text, &len);
	json_t *doc, *r, *s;

	rec->side = DR_END_CLIENT;
	rec->clock_offset_ns = rec->phases.n ? rec->phases.v[0].begin_ns : 0;
	dr_assert(f && dr_trace_write(rec, f) == 0 && fclose(f) == 0);
	doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	dr_assert(doc);
	json_array_foreach(json_object_get(doc, "resourceSpans"), end, r)
	{
		json_t *scope = json_array_get(json_object_get(r, "scopeSpans"), 0);

		json_array_foreach(json_object_get(scope, "spans"), i, s) dr_assert(
			strtoll(json_string_value(json_object_get(s, "startTimeUnixNano")), NULL,
				10) <=
			strtoll(json_string_value(json_object_get(s, "endTimeUnixNano")), NULL,
				10));
	}
	json_decref(doc);
	free(text);
}

static unsigned depth(const json_t *j)
{
	unsigned deepest = 0, d;
	const char *key;
	json_t *v;
	size_t i;

	json_object_foreach((json_t *)j, key, v)
	{
		d = depth(v);
		deepest = DR_MAX(deepest, d);
	}
	json_array_foreach((json_t *)j, i, v)
	{
		d = depth(v);
		deepest = DR_MAX(deepest, d);
	}
	return json_is_object(j) || json_is_array(j) ? deepest + 1 : 0;
}

FUZZ(z)
{
	struct dr_err e = { 0 };
	struct dr_record *rec;
	size_t len;
	uint8_t *p = fz_bytes(z, 1 << 16, &len);
	json_t *j = dr_conv_json_parse(p, len, &e), *wrapped;

	if (!j) {
		fz_explained(-EPROTO, &e);
		return;
	}
	dr_assert(depth(j) <= DR_JSON_DEPTH_MAX);
	fz_shows_json(j);
	message(j);
	wrapped = json_pack("{s:s, s:O}", "t", "phase", "phase", j);
	dr_assert(wrapped);
	message(wrapped);
	json_decref(wrapped);
	dr_assert(dr_record_create(&rec) == 0);
	(void)fz_failed(dr_record_merge(rec, j, &e), &e);
	write_all(rec);
	write_trace(rec);
	dr_record_destroy(rec);
	json_decref(j);
}
