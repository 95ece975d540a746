/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_REPORT_FIELDS_H
#define DR_REPORT_FIELDS_H

#include "orchestrator/record.h"

/*
 * One table per row type says which field has which name and unit; it initialises rows, writes them
 * as JSON and reads them back (the peer's part), so that no field is known in one place only.
 */
enum dr_field_kind {
	DR_F_INT,   /* int64_t, 0..2^53; DR_UNSET: null */
	DR_F_US,    /* int64_t ns, written as microseconds with decimals; may be negative */
	DR_F_NS,    /* int64_t ns, written as such; 0..2^62 */
	DR_F_STAMP, /* int64_t ns, 0 is "not reached": null */
	DR_F_WALL,  /* int64_t ns since 1970, written as ISO 8601; not read back */
	DR_F_NUM,   /* double; not finite: null */
	DR_F_ENUM,  /* int; index into names, -1: null */
	DR_F_STR,   /* char[len]; "": null */
	DR_F_U32,   /* uint32_t or unsigned */
	DR_F_U64,   /* uint64_t, 0..2^53 */
	DR_F_BOOL,  /* bool */
	DR_F_ERRNO, /* int; 0: null, else the name: "ECONNRESET" */
};

struct dr_field {
	const char *name; /* "rtt_us.p50" is p50 in the object rtt_us */
	enum dr_field_kind kind;
	size_t off, len;
	const char *const *names; /* ENUM: ends in NULL */
};
struct dr_fields {
	const char *what; /* "bandwidth" */
	const struct dr_field *f;
	size_t n;
	size_t size; /* of the row */
};

extern const struct dr_fields dr_bandwidth_fields, dr_cell_fields, dr_together_fields,
	dr_nic_fields, dr_latency_fields, dr_fault_fields, dr_switch_fields, dr_interval_fields,
	dr_event_fields, dr_rail_fields, dr_gpu_fields, dr_memory_fields, dr_path_fields,
	dr_integrity_fields, dr_host_fields;
extern const char *const dr_end_names[],
	*const dr_direction_names[], *const dr_verdict_names[], *const dr_status_names[];

/* names[i], "-" when i is out of range. */
const char *dr_enum_name(const char *const *names, int i);

void dr_fields_init(const struct dr_fields *t, void *row);
/* NULL: no memory. */
json_t *dr_fields_to_json(const struct dr_fields *t, const void *row);
/* Reads what is there; what is missing or null stays unknown; other keys are ignored. -EPROTO: a
 * value of the wrong type or out of range. */
int dr_fields_from_json(const struct dr_fields *t, void *row, const json_t *obj, struct dr_err *e)
	DR_MUST_CHECK;
/* A peer's text, cut to size bytes; '?' for control bytes: it may come to stand on a terminal. */
void dr_text_copy(char *to, size_t size, const char *from);
/* Fields that are unknown in `into` are taken from `from`. */
void dr_fields_fill(const struct dr_fields *t, void *into, const void *from);

/* Of any double and any bytes: null for what JSON has no number for, '?' for what is not UTF-8. */
json_t *dr_json_num(double v);
json_t *dr_json_int(int64_t v);	     /* DR_UNSET: null */
json_t *dr_json_str(const char *s);  /* "", NULL: null */
json_t *dr_json_text(const char *s); /* "" stays "" */
json_t *dr_json_wall(int64_t wall_ns);
/* obj.key = v, taking v over; counts failures in *failed, v NULL being one. */
void dr_json_put(json_t *obj, const char *key, json_t *v, int *failed);

#endif
