/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/message.h"

#include "base/fields.h"
#include "orchestrator/plan/plan.h"

#include <errno.h>
#include <string.h>

/* What is read here comes from a peer: every value is checked, none is asserted. */

/* As the options --size and --iters allow. */
#define BYTES_MAX (1ll << 40)
#define COUNT_MAX 1000000000000000

#define REQUIRED(name, kind, type, member, ...)                                                    \
	DR_FIELD(name, kind, type, member, .flags = DR_F_REQUIRED, __VA_ARGS__)

#define PHASE(kind, member, ...) REQUIRED(#member, kind, struct dr_phase, member, __VA_ARGS__)
static const struct dr_field phase_fields[] = {
	PHASE(DR_F_UINT, index, .max = INT32_MAX),
	PHASE(DR_F_UINT, kind, .max = DR_PHASE_FAILOVER),
	PHASE(DR_F_UINT, message_bytes, .min = 1, .max = BYTES_MAX),
	PHASE(DR_F_UINT, chunk_bytes, .min = 1, .max = DR_PLAN_CHUNK_MAX),
	PHASE(DR_F_UINT, iters, .max = COUNT_MAX),
	PHASE(DR_F_UINT, warmup, .max = COUNT_MAX),
	PHASE(DR_F_BOOL, verify),
	PHASE(DR_F_NUM, rate_bits),
	PHASE(DR_F_UINT, gpu_mask),
	PHASE(DR_F_UINT, rail_mask),
};
static DR_FIELDS(phase_table, "phase", phase_fields, struct dr_phase);

/* The count of one channel: a number, not an object. */
static const struct dr_field count_fields[] = {
	{ .kind = DR_F_UINT, .name = "", .len = sizeof(uint64_t), .flags = DR_F_REQUIRED }
};
static DR_FIELDS(count_table, "totals", count_fields, uint64_t);

#define MEMBER(name, kind, member, ...) REQUIRED(name, kind, struct dr_message, member, __VA_ARGS__)
#define ID MEMBER("id", DR_F_UINT, fault.id)
#define INDEX MEMBER("index", DR_F_UINT, index)
#define TOKEN MEMBER("token", DR_F_UINT, token)
#define TEXT(name, member) MEMBER(name, DR_F_STR, member)
#define ERR(member) MEMBER("err", DR_F_SINT, member, .min = -4095)
#define ROWS DR_FIELD("part", DR_F_JSON, struct dr_message, part, .flags = DR_F_OMIT)
#define CADENCE(name, member) DR_FIELD(name, DR_F_NS, struct dr_message, member, .flags = DR_F_OMIT)

#define KIND(name, ...)                                                                            \
	{                                                                                          \
		.what = (name), .f = (const struct dr_field[]){ __VA_ARGS__ },                     \
		.n = DR_ARRAY_LEN(((const struct dr_field[]){ __VA_ARGS__ })),                     \
		.size = sizeof(struct dr_message)                                                  \
	}
#define BARE(name)                                                                                 \
	{                                                                                          \
		.what = (name), .size = sizeof(struct dr_message)                                  \
	}
static const struct dr_fields tables[DR_MSG_KINDS] = {
	[DR_MSG_PHASE] = KIND("phase", DR_FIELD_ROW("phase", struct dr_message, phase, phase_table,
					       .flags = DR_F_REQUIRED)),
	[DR_MSG_MARK] = KIND("mark", MEMBER("which", DR_F_UINT, which, .max = 1)),
	[DR_MSG_STOP] = BARE("stop"),
	[DR_MSG_COLLECT] = KIND("collect", TOKEN),
	[DR_MSG_INJECT] = KIND("inject", ID, TEXT("spec", text)),
	[DR_MSG_UNDO] = KIND("undo", ID),
	[DR_MSG_SWITCH] = BARE("switch"),
	[DR_MSG_GAPS] = KIND("gaps", INDEX, MEMBER("which", DR_F_UINT, which, .max = 1),
		DR_FIELD("since_ns", DR_F_NS, struct dr_message, since_ns, .flags = DR_F_OMIT)),
	[DR_MSG_ABORT] =
		KIND("abort", MEMBER("status", DR_F_SINT, status, .max = 255), TEXT("text", text)),
	[DR_MSG_EXPECT] = KIND("expect", MEMBER("gpu", DR_F_UINT, gpu),
		DR_FIELD_ROWS("totals", struct dr_message, totals, n_totals, count_table,
			.flags = DR_F_REQUIRED),
		DR_FIELD_ROWS("bytes", struct dr_message, bytes, n_bytes, count_table,
			.flags = DR_F_OMIT)),
	[DR_MSG_FINISH] = KIND("finish", ROWS),
	[DR_MSG_UP] = BARE("up"),
	[DR_MSG_PHASE_OK] = KIND("phase-ok", INDEX),
	[DR_MSG_DONE] = KIND("done", INDEX, ROWS, CADENCE("cadence_p50_ns", cadence_p50_ns),
		CADENCE("cadence_p99_ns", cadence_p99_ns)),
	[DR_MSG_PART] = KIND("part", TOKEN, ROWS),
	[DR_MSG_FAULT] = KIND("fault", ID, MEMBER("undo", DR_F_BOOL, fault.undo), ERR(fault.err),
		MEMBER("before_ns", DR_F_NS, fault.before_ns),
		MEMBER("after_ns", DR_F_NS, fault.after_ns), TEXT("text", fault.text)),
	[DR_MSG_FAILED] = KIND("failed", ERR(err), TEXT("text", text)),
};

static int check_phase(const struct dr_phase *p, struct dr_err *e)
{
	if (p->chunk_bytes > p->message_bytes)
		return dr_err_set(e, -EPROTO, "phase.chunk_bytes: %u is more than message_bytes",
			p->chunk_bytes);
	if (!(p->rate_bits >= 0))
		return dr_err_set(e, -EPROTO, "phase.rate_bits: %g is negative", p->rate_bits);
	return 0;
}

json_t *dr_message_to_json(const struct dr_message *m)
{
	json_t *j = dr_fields_to_json(&tables[m->kind], m);

	if (j && json_object_set_new(j, "t", json_string(tables[m->kind].what))) {
		json_decref(j);
		return NULL;
	}
	return j;
}

int dr_message_read(const json_t *j, struct dr_message *out, struct dr_err *e)
{
	const char *t = json_string_value(json_object_get(j, "t"));
	unsigned k = 0;

	if (!t)
		return dr_err_set(e, -EPROTO, "message without a type");
	while (k < DR_MSG_KINDS && strcmp(tables[k].what, t) != 0)
		k++;
	if (k == DR_MSG_KINDS)
		return dr_err_set(e, -ENOENT, "unknown message \"%.32s\"", t);
	int rc = dr_fields_from_json(&tables[k], out, j, e);
	if (rc)
		return rc;
	out->kind = (enum dr_message_kind)k;
	out->part = json_object_get(j, "part");
	return k == DR_MSG_PHASE ? check_phase(&out->phase, e) : 0;
}
