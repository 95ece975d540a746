/* SPDX-License-Identifier: Apache-2.0 */
/* Baselines: a file with anything in it is refused with a reason, or judged against without a number
 * that is none. The first byte is the percentage asked for. */
#include "orchestrator/output/parts.h"
#include "tests/fuzz/lib/fuzz.h"

static void judge(const json_t *baseline, double percent)
{
	struct dr_thresholds t;
	struct dr_record *rec;
	int rc;

	dr_assert(dr_record_create(&rec) == 0);
	for (int i = 0; i < 2; i++) {
		struct dr_bandwidth_row b;

		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = 0;
		b.gpu = i;
		b.direction = DR_TO_SERVER;
		b.message_bytes = 1 << 20;
		b.gbps = 10;
		dr_record_add(rec, bandwidth, &b);
	}
	dr_thresholds_init(&t);
	t.baseline = baseline;
	t.min_bw_percent = percent;
	rc = dr_record_verdict(rec, &t);
	dr_assert(rc == 0 || rc == DR_EXIT_ENV || rc == DR_EXIT_THRESHOLD);
	dr_assert((rc == 0) == (rec->errors.n == 0));
	for (size_t i = 0; i < rec->errors.n; i++)
		dr_assert(!strstr(rec->errors.v[i].text, "nan") &&
			  !strstr(rec->errors.v[i].text, "inf"));
	dr_record_destroy(rec);
}

FUZZ(z)
{
	double percent = fz_u8(z);
	struct dr_err e = { 0 };
	json_t *j = NULL;

	if (!fz_failed(dr_baseline_load("--baseline", fz_file(z, z->p, z->n), &j, &e), &e)) {
		dr_assert(json_array_size(json_object_get(j, "bandwidth")) >= 1);
		judge(j, percent);
	}
	json_decref(j);
}
