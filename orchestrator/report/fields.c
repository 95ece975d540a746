/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "orchestrator/report/fields.h"

#define INT_LIMIT ((int64_t)1 << 53)
#define NS_LIMIT ((int64_t)1 << 62)
#define US_LIMIT 4e15 /* microseconds whose nanoseconds fit with room for a difference */

#define F(name_, kind_, type, member)                                                              \
	{                                                                                          \
		.name = (name_), .kind = (kind_), .off = offsetof(type, member),                   \
		.len = sizeof(((type *)0)->member)                                                 \
	}
#define FE(name_, type, member, names_)                                                            \
	{                                                                                          \
		.name = (name_), .kind = DR_F_ENUM, .off = offsetof(type, member),                 \
		.len = sizeof(((type *)0)->member), .names = (names_)                              \
	}
#define TABLE(var, what_, fields, type)                                                            \
	const struct dr_fields var = { (what_), (fields), DR_ARRAY_LEN(fields), sizeof(type) }

const char *const dr_end_names[] = { "client", "server", NULL };
const char *const dr_direction_names[] = { "to-server", "to-client", NULL };
const char *const dr_verdict_names[] = { "PASS", "WRONG", "HANG", "CLEAN_ERROR", "MISSED_FAULT",
	NULL };
const char *const dr_status_names[] = { "pass", "fail", "error", NULL };
static const char *const bool_names[] = { "false", "true", NULL };
static const char *const memory_names[] = { "host", "cuda", NULL };
static const char *const scope_names[] = { "op", "path", "rail", "peer", "local", NULL };

/* clang-format off */
#define T struct dr_bandwidth_row
static const struct dr_field bandwidth[] = {
	F("phase", DR_F_INT, T, phase),
	F("gpu", DR_F_INT, T, gpu),
	FE("direction", T, direction, dr_direction_names),
	F("message_bytes", DR_F_INT, T, message_bytes),
	F("bytes", DR_F_INT, T, bytes),
	F("seconds", DR_F_NUM, T, seconds),
	F("gbps", DR_F_NUM, T, gbps),
	F("line_rate_percent", DR_F_NUM, T, line_rate_percent),
	F("messages", DR_F_INT, T, messages),
	F("sender_bytes", DR_F_INT, T, sender_bytes),
	F("sender_seconds", DR_F_NUM, T, sender_seconds),
	F("sender_gbps", DR_F_NUM, T, sender_gbps),
	F("retransmits", DR_F_INT, T, retransmits),
};
TABLE(dr_bandwidth_fields, "bandwidth", bandwidth, T);
#undef T

#define T struct dr_cell_row
static const struct dr_field cell[] = {
	F("phase", DR_F_INT, T, phase),
	F("gpu", DR_F_INT, T, gpu),
	F("rail", DR_F_INT, T, rail),
	F("nic", DR_F_STR, T, nic),
	F("peer_nic", DR_F_STR, T, peer_nic),
	FE("direction", T, direction, dr_direction_names),
	F("message_bytes", DR_F_INT, T, message_bytes),
	F("channels", DR_F_INT, T, channels),
	F("switched", DR_F_INT, T, switched),
	F("bytes", DR_F_INT, T, bytes),
	F("seconds", DR_F_NUM, T, seconds),
	F("gbps", DR_F_NUM, T, gbps),
	F("messages", DR_F_INT, T, messages),
	F("sender_bytes", DR_F_INT, T, sender_bytes),
	F("sender_seconds", DR_F_NUM, T, sender_seconds),
	F("sender_gbps", DR_F_NUM, T, sender_gbps),
	F("retransmits", DR_F_INT, T, retransmits),
	F("client_counter_bytes", DR_F_INT, T, client_counter_bytes),
	F("server_counter_bytes", DR_F_INT, T, server_counter_bytes),
};
TABLE(dr_cell_fields, "cells", cell, T);
#undef T

#define T struct dr_together_row
static const struct dr_field together[] = {
	FE("side", T, side, dr_end_names),
	F("rail", DR_F_INT, T, rail),
	F("nic", DR_F_STR, T, nic),
	F("counter_tx_bytes", DR_F_INT, T, counter_tx_bytes),
	F("counter_rx_bytes", DR_F_INT, T, counter_rx_bytes),
	F("seconds", DR_F_NUM, T, seconds),
	F("switched", DR_F_INT, T, switched),
};
TABLE(dr_together_fields, "together", together, T);
#undef T

#define T struct dr_nic_row
static const struct dr_field nic[] = {
	FE("side", T, side, dr_end_names),
	F("name", DR_F_STR, T, name),
	F("speed_gbps", DR_F_NUM, T, speed_gbps),
	F("tx_bytes", DR_F_INT, T, tx_bytes),
	F("rx_bytes", DR_F_INT, T, rx_bytes),
	F("counter_tx_bytes", DR_F_INT, T, counter_tx_bytes),
	F("counter_rx_bytes", DR_F_INT, T, counter_rx_bytes),
	F("connections", DR_F_INT, T, connections),
	F("slack_bytes", DR_F_INT, T, slack_bytes),
	F("seconds", DR_F_NUM, T, seconds),
	F("gbps", DR_F_NUM, T, gbps),
};
TABLE(dr_nic_fields, "nics", nic, T);
#undef T

#define T struct dr_latency_row
static const struct dr_field latency[] = {
	F("gpu", DR_F_INT, T, gpu),
	F("bytes", DR_F_INT, T, bytes),
	F("samples", DR_F_INT, T, samples),
	F("rtt_us.p50", DR_F_US, T, p50_ns),
	F("rtt_us.p90", DR_F_US, T, p90_ns),
	F("rtt_us.p99", DR_F_US, T, p99_ns),
	F("rtt_us.p999", DR_F_US, T, p999_ns),
	F("rtt_us.max", DR_F_US, T, max_ns),
};
TABLE(dr_latency_fields, "latency", latency, T);
#undef T

#define T struct dr_fault_row
static const struct dr_field fault[] = {
	F("trial", DR_F_INT, T, trial),
	F("kind", DR_F_STR, T, kind),
	F("path", DR_F_INT, T, path),
	FE("side", T, side, dr_end_names),
	F("nic", DR_F_STR, T, nic),
	F("at_monotonic_ns", DR_F_NS, T, at_ns),
	F("channels_affected", DR_F_INT, T, channels_affected),
	F("gpu", DR_F_INT, T, gpu),
	F("channel", DR_F_INT, T, channel),
	F("gap_us", DR_F_US, T, gap_ns),
	F("gap_us_median_channel", DR_F_US, T, gap_median_channel_ns),
	F("cadence_us.p50", DR_F_US, T, cadence_p50_ns),
	F("cadence_us.p99", DR_F_US, T, cadence_p99_ns),
	F("detect_us", DR_F_US, T, detect_ns),
	F("fence_us", DR_F_US, T, fence_ns),
	F("handshake_us", DR_F_US, T, handshake_ns),
	F("replay_us", DR_F_US, T, replay_ns),
	F("first_delivery_us", DR_F_US, T, first_delivery_ns),
	F("fault_after_us", DR_F_US, T, fault_after_ns),
	F("sender.detect_us", DR_F_US, T, sender_detect_ns),
	F("sender.fenced_us", DR_F_US, T, sender_fenced_ns),
	F("sender.answer_us", DR_F_US, T, sender_answer_ns),
	F("sender.first_frame_us", DR_F_US, T, sender_first_frame_ns),
	F("sender.first_ack_us", DR_F_US, T, sender_first_ack_ns),
	F("clock_offset_us", DR_F_US, T, clock_offset_ns),
	F("clock_error_us", DR_F_US, T, clock_error_ns),
	F("in_flight_messages", DR_F_INT, T, in_flight_messages),
	F("replayed_messages", DR_F_INT, T, replayed_messages),
	F("replayed_bytes", DR_F_INT, T, replayed_bytes),
	F("rounds", DR_F_INT, T, rounds),
	F("failback_us", DR_F_US, T, failback_ns),
	F("failback_gap_us", DR_F_US, T, failback_gap_ns),
	F("bandwidth_before_gbps", DR_F_NUM, T, bandwidth_before_gbps),
	F("bandwidth_during_gbps", DR_F_NUM, T, bandwidth_during_gbps),
	F("bandwidth_after_gbps", DR_F_NUM, T, bandwidth_after_gbps),
	FE("verdict", T, verdict, dr_verdict_names),
	F("cause", DR_F_STR, T, cause),
	F("note", DR_F_STR, T, note),
};
TABLE(dr_fault_fields, "faults", fault, T);
#undef T

#define T struct dr_switch_row
static const struct dr_field switches[] = {
	FE("side", T, side, dr_end_names),
	F("gpu", DR_F_INT, T, gpu),
	F("channel", DR_F_INT, T, channel),
	F("trial", DR_F_INT, T, trial),
	FE("receiver", T, receiver, bool_names),
	F("epoch", DR_F_U32, T, rec.epoch),
	F("from_path", DR_F_U32, T, rec.from),
	F("to_path", DR_F_U32, T, rec.to),
	F("planned", DR_F_BOOL, T, rec.planned),
	F("self_detected", DR_F_BOOL, T, rec.self_detected),
	FE("scope", T, rec.scope, scope_names),
	F("error", DR_F_ERRNO, T, rec.err),
	F("cause", DR_F_STR, T, rec.cause),
	F("last_delivery_ns", DR_F_STAMP, T, rec.last_delivery_ns),
	F("detect_ns", DR_F_STAMP, T, rec.detect_ns),
	F("fenced_ns", DR_F_STAMP, T, rec.fenced_ns),
	F("answer_ns", DR_F_STAMP, T, rec.answer_ns),
	F("first_frame_ns", DR_F_STAMP, T, rec.first_frame_ns),
	F("first_delivery_ns", DR_F_STAMP, T, rec.first_delivery_ns),
	F("in_flight_messages", DR_F_U32, T, rec.in_flight_messages),
	F("replayed_messages", DR_F_U32, T, rec.replayed_messages),
	F("replayed_bytes", DR_F_U64, T, rec.replayed_bytes),
	F("rounds", DR_F_U32, T, rec.rounds),
};
TABLE(dr_switch_fields, "switches", switches, T);
#undef T

#define T struct dr_interval_row
static const struct dr_field interval[] = {
	F("phase", DR_F_INT, T, phase),
	F("gpu", DR_F_INT, T, gpu),
	FE("direction", T, direction, dr_direction_names),
	F("start_us", DR_F_US, T, start_ns),
	F("duration_us", DR_F_US, T, duration_ns),
	F("bytes", DR_F_INT, T, bytes),
	F("messages", DR_F_INT, T, messages),
	F("retransmits", DR_F_INT, T, retransmits),
	F("gbps", DR_F_NUM, T, gbps),
};
TABLE(dr_interval_fields, "intervals", interval, T);
#undef T

#define T struct dr_event_row
static const struct dr_field event[] = {
	F("monotonic_ns", DR_F_NS, T, monotonic_ns),
	F("wall_ns", DR_F_NS, T, wall_ns),
	F("time", DR_F_WALL, T, wall_ns),
	FE("side", T, side, dr_end_names),
	F("kind", DR_F_STR, T, kind),
	F("gpu", DR_F_INT, T, gpu),
	F("channel", DR_F_INT, T, channel),
	F("path", DR_F_INT, T, path),
	F("nic", DR_F_STR, T, nic),
	F("text", DR_F_STR, T, text),
};
TABLE(dr_event_fields, "events", event, T);
#undef T

#define T struct dr_rail_row
static const struct dr_field rail[] = {
	F("rail", DR_F_INT, T, rail),
	F("ifname", DR_F_STR, T, ifname),
	F("address", DR_F_STR, T, address),
	F("peer_ifname", DR_F_STR, T, peer_ifname),
	F("peer_address", DR_F_STR, T, peer_address),
	F("routed", DR_F_BOOL, T, routed),
	F("speed_gbps", DR_F_NUM, T, speed_gbps),
	F("mtu_bytes", DR_F_INT, T, mtu),
	F("numa", DR_F_INT, T, numa),
};
TABLE(dr_rail_fields, "rails", rail, T);
#undef T

#define T struct dr_gpu_row
static const struct dr_field gpu[] = {
	F("gpu", DR_F_INT, T, gpu),
	F("name", DR_F_STR, T, name),
	F("bus_id", DR_F_STR, T, bus_id),
	F("primary_rail", DR_F_INT, T, primary),
	F("shadow_rail", DR_F_INT, T, shadow),
	F("channels", DR_F_INT, T, channels),
	F("numa", DR_F_INT, T, numa),
	F("cpu", DR_F_INT, T, cpu),
	F("reason", DR_F_STR, T, reason),
};
TABLE(dr_gpu_fields, "gpus", gpu, T);
#undef T

#define T struct dr_memory_row
static const struct dr_field memory[] = {
	FE("side", T, side, dr_end_names),
	F("gpu", DR_F_INT, T, gpu),
	FE("memory", T, memory, memory_names),
	F("name", DR_F_STR, T, name),
	F("bus_id", DR_F_STR, T, bus_id),
	FE("staged", T, staged, bool_names),
	F("staged_because", DR_F_STR, T, why),
	F("copied_out_bytes", DR_F_INT, T, out_bytes),
	F("copied_in_bytes", DR_F_INT, T, in_bytes),
	F("copy_out_busy_percent", DR_F_NUM, T, out_busy_percent),
	F("copy_in_busy_percent", DR_F_NUM, T, in_busy_percent),
	F("copies", DR_F_INT, T, copies),
	F("copies_timed", DR_F_INT, T, timed),
	F("copy_driver_calls", DR_F_INT, T, calls),
};
TABLE(dr_memory_fields, "memory", memory, T);
#undef T

#define T struct dr_path_row
static const struct dr_field path[] = {
	F("gpu", DR_F_INT, T, gpu),
	F("path", DR_F_INT, T, path),
	F("channels", DR_F_INT, T, channels),
	F("up", DR_F_INT, T, up),
};
TABLE(dr_path_fields, "paths", path, T);
#undef T

#define T struct dr_integrity_row
static const struct dr_field integrity[] = {
	F("messages", DR_F_INT, T, messages),
	F("bytes", DR_F_INT, T, bytes),
	F("lost", DR_F_INT, T, lost),
	F("duplicated", DR_F_INT, T, duplicated),
	F("reordered", DR_F_INT, T, reordered),
	F("corrupted", DR_F_INT, T, corrupted),
	FE("verified", T, verified, bool_names),
};
TABLE(dr_integrity_fields, "integrity", integrity, T);
#undef T

#define T struct dr_host
static const struct dr_field host[] = {
	F("name", DR_F_STR, T, name),
	F("kernel", DR_F_STR, T, kernel),
	F("cpus", DR_F_INT, T, cpus),
	F("memory_bytes", DR_F_INT, T, memory_bytes),
};
TABLE(dr_host_fields, "host", host, T);
#undef T
/* clang-format on */

const char *dr_enum_name(const char *const *names, int i)
{
	int k;

	for (k = 0; names[k]; k++)
		if (k == i)
			return names[k];
	return "-";
}

static bool is_int64(enum dr_field_kind k)
{
	return k == DR_F_INT || k == DR_F_US || k == DR_F_NS;
}

void dr_fields_init(const struct dr_fields *t, void *row)
{
	size_t i;

	memset(row, 0, t->size);
	for (i = 0; i < t->n; i++) {
		void *p = (char *)row + t->f[i].off;

		if (is_int64(t->f[i].kind))
			*(int64_t *)p = DR_UNSET;
		else if (t->f[i].kind == DR_F_NUM)
			*(double *)p = NAN;
		else if (t->f[i].kind == DR_F_ENUM)
			*(int *)p = -1;
	}
}

void dr_fields_fill(const struct dr_fields *t, void *into, const void *from)
{
	size_t i;

	for (i = 0; i < t->n; i++) {
		void *p = (char *)into + t->f[i].off;
		const void *q = (const char *)from + t->f[i].off;
		enum dr_field_kind k = t->f[i].kind;
		bool unknown = (is_int64(k) && *(int64_t *)p == DR_UNSET) ||
			       (k == DR_F_NUM && isnan(*(double *)p)) ||
			       (k == DR_F_ENUM && *(int *)p < 0) || (k == DR_F_STR && !*(char *)p);

		if (unknown)
			memcpy(p, q, t->f[i].len);
	}
}

/* ------------------------------- writing ------------------------------- */

json_t *dr_json_num(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

json_t *dr_json_int(int64_t v)
{
	return v == DR_UNSET ? json_null() : json_integer(v);
}

json_t *dr_json_text(const char *s)
{
	json_t *v;
	char *copy, *p;

	s = s ? s : "";
	v = json_string(s);
	if (v)
		return v;
	/* Not UTF-8 (a file name, a cut text), or no memory. */
	copy = dr_strdup(s);
	if (!copy)
		return NULL;
	for (p = copy; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	v = json_string(copy);
	dr_free(copy);
	return v;
}

json_t *dr_json_str(const char *s)
{
	return s && *s ? dr_json_text(s) : json_null();
}

json_t *dr_json_wall(int64_t wall_ns)
{
	char buf[32];

	if (wall_ns == DR_UNSET || wall_ns < 0)
		return json_null();
	dr_wall_format(wall_ns, buf, sizeof(buf));
	return json_string(buf);
}

static json_t *field_value(const struct dr_field *f, const void *p)
{
	int64_t v;
	int i;

	switch (f->kind) {
	case DR_F_INT:
	case DR_F_NS:
		return dr_json_int(*(const int64_t *)p);
	case DR_F_US:
		v = *(const int64_t *)p;
		return v == DR_UNSET ? json_null() : json_real((double)v / 1e3);
	case DR_F_STAMP:
		v = *(const int64_t *)p;
		return v ? json_integer(v) : json_null();
	case DR_F_WALL:
		return dr_json_wall(*(const int64_t *)p);
	case DR_F_NUM:
		return dr_json_num(*(const double *)p);
	case DR_F_ENUM:
		i = *(const int *)p;
		if (f->names == bool_names)
			return i < 0 ? json_null() : json_boolean(i);
		return *dr_enum_name(f->names, i) == '-' ? json_null()
							 : json_string(dr_enum_name(f->names, i));
	case DR_F_STR:
		return dr_json_str(p);
	case DR_F_U32:
		return json_integer(*(const uint32_t *)p);
	case DR_F_U64:
		return json_integer((json_int_t) * (const uint64_t *)p);
	case DR_F_BOOL:
		return json_boolean(*(const bool *)p);
	case DR_F_ERRNO:
		i = *(const int *)p;
		return i ? json_string(dr_errno_name(i)) : json_null();
	}
	return json_null();
}

void dr_json_put(json_t *obj, const char *key, json_t *v, int *failed)
{
	if (json_object_set_new(obj, key, v))
		++*failed;
}

/* The object that the field stands in, made when it is not there, and the key in it. */
static json_t *field_home(json_t *obj, const char *name, const char **key)
{
	const char *dot = strchr(name, '.');
	char outer[32];
	json_t *sub;

	*key = name;
	if (!dot)
		return obj;
	*key = dot + 1;
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
	sub = json_object_get(obj, outer);
	if (!sub) {
		json_object_set_new(obj, outer, json_object());
		sub = json_object_get(obj, outer);
	}
	return sub;
}

json_t *dr_fields_to_json(const struct dr_fields *t, const void *row)
{
	json_t *obj = json_object();
	int failed = 0;
	size_t i;

	if (!obj)
		return NULL;
	for (i = 0; i < t->n; i++) {
		const char *key;
		json_t *home = field_home(obj, t->f[i].name, &key);
		const void *p = (const char *)row + t->f[i].off;

		dr_json_put(home, key, field_value(&t->f[i], p), &failed);
	}
	if (failed) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}

/* ------------------------------- reading ------------------------------- */

void dr_text_copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
	for (; *to; to++)
		if ((unsigned char)*to < ' ' || *to == 0x7f)
			*to = '?';
}

static int read_int(const json_t *v, int64_t max, int64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max)
		return -EPROTO;
	*out = json_integer_value(v);
	return 0;
}

static int read_enum(const struct dr_field *f, const json_t *v, int *out)
{
	int i;

	if (f->names == bool_names) {
		if (!json_is_boolean(v))
			return -EPROTO;
		*out = json_is_true(v);
		return 0;
	}
	for (i = 0; json_is_string(v) && f->names[i]; i++)
		if (!strcmp(f->names[i], json_string_value(v))) {
			*out = i;
			return 0;
		}
	return -EPROTO;
}

static int read_errno(const json_t *v, int *out)
{
	int i;

	if (!json_is_string(v))
		return -EPROTO;
	for (i = 1; i < 134; i++)
		if (!strcmp(dr_errno_name(i), json_string_value(v))) {
			*out = -i;
			return 0;
		}
	*out = -EIO;
	return 0;
}

static int read_field(const struct dr_field *f, void *p, const json_t *v)
{
	int64_t i;
	double d;

	switch (f->kind) {
	case DR_F_INT:
		return read_int(v, INT_LIMIT, p);
	case DR_F_NS:
	case DR_F_STAMP:
		return read_int(v, NS_LIMIT, p);
	case DR_F_US:
		d = json_number_value(v);
		if (!json_is_number(v) || !(fabs(d) < US_LIMIT))
			return -EPROTO;
		*(int64_t *)p = llround(d * 1e3);
		return 0;
	case DR_F_WALL:
		return 0;
	case DR_F_NUM:
		if (!json_is_number(v))
			return -EPROTO;
		*(double *)p = json_number_value(v);
		return 0;
	case DR_F_ENUM:
		return read_enum(f, v, p);
	case DR_F_STR:
		if (!json_is_string(v))
			return -EPROTO;
		dr_text_copy(p, f->len, json_string_value(v));
		return 0;
	case DR_F_U32:
		if (read_int(v, UINT32_MAX, &i))
			return -EPROTO;
		*(uint32_t *)p = (uint32_t)i;
		return 0;
	case DR_F_U64:
		if (read_int(v, INT_LIMIT, &i))
			return -EPROTO;
		*(uint64_t *)p = (uint64_t)i;
		return 0;
	case DR_F_BOOL:
		if (!json_is_boolean(v))
			return -EPROTO;
		*(bool *)p = json_is_true(v);
		return 0;
	case DR_F_ERRNO:
		return read_errno(v, p);
	}
	return -EPROTO;
}

static const json_t *field_find(const json_t *obj, const char *name)
{
	const char *dot = strchr(name, '.');
	char outer[32];

	if (!dot)
		return json_object_get(obj, name);
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
	return json_object_get(json_object_get(obj, outer), dot + 1);
}

int dr_fields_from_json(const struct dr_fields *t, void *row, const json_t *obj, struct dr_err *e)
{
	size_t i;

	if (!json_is_object(obj))
		return dr_err_set(e, -EPROTO, "%s: the row is no object", t->what);
	dr_fields_init(t, row);
	for (i = 0; i < t->n; i++) {
		const json_t *v = field_find(obj, t->f[i].name);

		if (!v || json_is_null(v))
			continue;
		if (read_field(&t->f[i], (char *)row + t->f[i].off, v))
			return dr_err_set(e, -EPROTO, "%s.%s: wrong type or out of range", t->what,
				t->f[i].name);
	}
	return 0;
}
