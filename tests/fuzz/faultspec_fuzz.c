/* SPDX-License-Identifier: Apache-2.0 */
/* --fault KIND:path=0,.. and --fault-exec NAME=CMD,UNDO: the first byte says which. */
#include "orchestrator/fault/fault.h"
#include "tests/fuzz/lib/fuzz.h"

static const int64_t TIME_MAX_NS = 1000000 * DR_NS_PER_S;

static void in_range(const struct dr_fault_spec *s)
{
	dr_assert(s->path <= 1 && s->gpu >= -1 && s->channel >= -1);
	dr_assert(s->at_ns >= 0 && s->at_ns <= TIME_MAX_NS);
	dr_assert(s->for_ns >= 0 && s->for_ns <= TIME_MAX_NS);
	dr_assert(s->repeat >= 1 && s->repeat <= 1000000);
	dr_assert((s->repeat > 1) == (s->every_ns > 0));
	dr_assert(s->repeat == 1 || s->every_ns > s->for_ns);
	if (strcmp(dr_fault_name(s), "loss") == 0)
		dr_assert(s->number > 0 && s->number <= 100 && s->value[0]);
	if (strcmp(dr_fault_name(s), "exec") == 0)
		dr_assert(s->value[0]);
}

static bool same(const struct dr_fault_spec *a, const struct dr_fault_spec *b)
{
	return a->kind == b->kind && a->on_path == b->on_path && a->path == b->path &&
	       strcmp(a->nic, b->nic) == 0 && a->side == b->side && a->at_ns == b->at_ns &&
	       a->for_ns == b->for_ns && a->repeat == b->repeat && a->every_ns == b->every_ns &&
	       a->dir == b->dir && a->number == b->number && strcmp(a->value, b->value) == 0 &&
	       a->gpu == b->gpu && a->channel == b->channel;
}

static void spec(char *text)
{
	struct dr_fault_spec s, again;
	struct dr_err e = { 0 };
	char canonical[DR_FAULT_SPEC_MAX], line[512];

	if (fz_failed(dr_fault_spec_parse(text, &s, &e), &e)) {
		dr_assert(e.code == -EINVAL);
		return;
	}
	in_range(&s);
	dr_fault_spec_format(&s, canonical, sizeof(canonical));
	dr_assert(strlen(canonical) < sizeof(canonical) - 1);
	dr_assert(dr_fault_spec_parse(canonical, &again, &e) == 0);
	dr_assert(same(&s, &again));
	dr_fault_describe(&s, "eth1", NULL, line, sizeof(line));
}

static void execs(char *text)
{
	struct dr_fault_execs t = { 0 };
	char *rest = text, *line;

	while ((line = strsep(&rest, "\n")) != NULL) {
		struct dr_err e = { 0 };
		size_t before = t.n;
		bool bad = fz_failed(dr_fault_execs_add(&t, line, &e), &e);

		dr_assert(t.n == before + !bad);
		if (bad)
			continue;
		dr_assert(t.v[before].cmd[0] && t.v[before].undo[0]);
		dr_assert(dr_fault_execs_find(&t, t.v[before].name) == &t.v[before]);
	}
	dr_fault_execs_fini(&t);
}

FUZZ(z)
{
	bool commands = fz_u8(z) == '!';
	char *text = fz_text(z, 2048);

	(commands ? execs : spec)(text);
}
