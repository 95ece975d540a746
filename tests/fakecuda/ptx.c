/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/ptx.h"

#include "base/defs.h"

#include <ctype.h>
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The text is taken apart once: registers, parameters and labels become numbers, a line an instruction
 * with up to four operands, in the order in which they stand. Then each thread runs it.
 */
enum { INS_MAX = 128, REGS_MAX = 64, NAME_MAX_ = 24, STEPS_MAX = 1000000 };

enum operand_kind { REG, IMMEDIATE, PARAM, LABEL, SPECIAL };
struct operand {
	enum operand_kind kind;
	uint64_t value; /* number of the register, parameter, instruction; the immediate */
};
struct machine;
struct ins;
typedef void (*ins_fn)(struct machine *m, const struct ins *i);
struct ins {
	ins_fn run;
	int guard; /* predicate register, -1: always */
	struct operand o[4];
	unsigned n;
};
struct code {
	struct ins ins[INS_MAX];
	unsigned n_ins, n_regs, n_params, n_labels;
	char reg[REGS_MAX][NAME_MAX_], param[DR_PTX_PARAMS_MAX][NAME_MAX_];
	char label[INS_MAX][NAME_MAX_];
	unsigned label_at[INS_MAX];
};
struct machine {
	const struct dr_ptx_launch *launch;
	uint64_t reg[REGS_MAX];
	unsigned cta, tid, pc;
	bool ended;
	char *why; /* empty: nothing is wrong */
	size_t why_len;
};

static void wrong(struct machine *m, const char *fmt, ...) DR_PRINTF(2, 3);
static void wrong(struct machine *m, const char *fmt, ...)
{
	va_list ap;

	if (m->why[0])
		return;
	va_start(ap, fmt);
	(void)vsnprintf(m->why, m->why_len, fmt, ap);
	va_end(ap);
}

/* ---- values and memory ---- */

enum { CTAID, NTID, TID, NCTAID };

static uint64_t get(const struct machine *m, const struct operand *o)
{
	const uint64_t special[] = { [CTAID] = m->cta,
		[NTID] = m->launch->block,
		[TID] = m->tid,
		[NCTAID] = m->launch->grid };

	if (o->kind == REG)
		return m->reg[o->value];
	if (o->kind == PARAM)
		return m->launch->param[o->value];
	return o->kind == SPECIAL ? special[o->value] : o->value;
}

static void set(struct machine *m, const struct ins *i, uint64_t value)
{
	m->reg[i->o[0].value] = value;
}

static void *at(struct machine *m, uint64_t address, size_t size, bool write)
{
	for (unsigned i = 0; i < DR_PTX_RANGES_MAX; i++) {
		const struct dr_ptx_range *r = &m->launch->range[i];
		uint64_t begin = (uintptr_t)r->begin;

		if (address >= begin && address - begin <= r->len &&
			size <= r->len - (address - begin) && (r->writable || !write) &&
			address % size == 0)
			return (void *)(uintptr_t)address;
	}
	wrong(m, "%s of %zu bytes at %#llx by thread %u of block %u", write ? "a write" : "a read",
		size, (unsigned long long)address, m->tid, m->cta);
	return NULL;
}

/* ---- instructions: the destination is operand 0 ---- */

#define TWO(name, expression)                                                                      \
	static void name(struct machine *m, const struct ins *i)                                   \
	{                                                                                          \
		uint64_t x = get(m, &i->o[1]), y = get(m, &i->o[2]);                               \
		set(m, i, (expression));                                                           \
	}
#define ONE(name, expression)                                                                      \
	static void name(struct machine *m, const struct ins *i)                                   \
	{                                                                                          \
		uint64_t x = get(m, &i->o[1]);                                                     \
		set(m, i, (expression));                                                           \
	}

static uint64_t reversed(uint64_t x)
{
	uint64_t r = 0;

	for (int b = 0; b < 64; b++)
		r |= (x >> b & 1) << (63 - b);
	return r;
}

ONE(copy, x)
ONE(copy32, (uint32_t)x)
ONE(brev64, reversed(x))
ONE(clz64, x ? (uint64_t)__builtin_clzll(x) : 64)
TWO(add64, x + y)
TWO(sub64, x - y)
TWO(mul64, x *y)
TWO(mul_wide, (uint64_t)(uint32_t)x *(uint32_t)y)
TWO(and64, x &y)
TWO(or64, x | y)
TWO(xor64, x ^ y)
TWO(and32, (uint32_t)(x &y))
TWO(shl64, y > 63 ? 0 : x << y)
TWO(shr64, y > 63 ? 0 : x >> y)
TWO(shl32, y > 31 ? 0 : (uint32_t)(x << y))
TWO(shr32, y > 31 ? 0 : (uint32_t)x >> y)
TWO(ge, x >= y)
TWO(ne, x != y)
TWO(eq, x == y)

static void bra(struct machine *m, const struct ins *i)
{
	m->pc = (unsigned)i->o[0].value;
}

static void ret(struct machine *m, const struct ins *i)
{
	(void)i;
	m->ended = true;
}

static void store(struct machine *m, const struct ins *i, size_t size)
{
	uint64_t le = htole64(get(m, &i->o[1]));
	void *p = at(m, get(m, &i->o[0]), size, true);

	if (p)
		memcpy(p, &le, size);
}

static void st8(struct machine *m, const struct ins *i)
{
	store(m, i, 1);
}

static void st32(struct machine *m, const struct ins *i)
{
	store(m, i, 4);
}

/* A vector is aligned as a whole. */
static void st_v2(struct machine *m, const struct ins *i)
{
	uint64_t le[] = { htole64(get(m, &i->o[1])), htole64(get(m, &i->o[2])) };
	void *p = at(m, get(m, &i->o[0]), sizeof(le), true);

	if (p)
		memcpy(p, le, sizeof(le));
}

static void ld8(struct machine *m, const struct ins *i)
{
	const uint8_t *p = at(m, get(m, &i->o[1]), 1, false);

	if (p)
		set(m, i, *p);
}

static void ld64(struct machine *m, const struct ins *i)
{
	const void *p = at(m, get(m, &i->o[1]), 8, false);
	uint64_t le;

	if (!p)
		return;
	memcpy(&le, p, sizeof(le));
	set(m, i, le64toh(le));
}

static void ld_v2(struct machine *m, const struct ins *i)
{
	const void *p = at(m, get(m, &i->o[2]), 16, false);
	uint64_t le[2];

	if (!p)
		return;
	memcpy(le, p, sizeof(le));
	m->reg[i->o[0].value] = le64toh(le[0]);
	m->reg[i->o[1].value] = le64toh(le[1]);
}

static void red_min(struct machine *m, const struct ins *i)
{
	uint64_t x = get(m, &i->o[1]), now;
	void *p = at(m, get(m, &i->o[0]), sizeof(now), true);

	if (!p)
		return;
	memcpy(&now, p, sizeof(now));
	now = DR_MIN(now, x);
	memcpy(p, &now, sizeof(now));
}

static const struct {
	const char *name;
	ins_fn run;
	unsigned n; /* operands */
} known[] = {
	{ "ld.param.u64", copy, 2 },
	{ "cvta.to.global.u64", copy, 2 },
	{ "mov.u64", copy, 2 },
	{ "mov.u32", copy32, 2 },
	{ "cvt.u64.u32", copy32, 2 },
	{ "cvt.u32.u64", copy32, 2 },
	{ "brev.b64", brev64, 2 },
	{ "clz.b64", clz64, 2 },
	{ "add.u64", add64, 3 },
	{ "sub.u64", sub64, 3 },
	{ "mul.lo.u64", mul64, 3 },
	{ "mul.wide.u32", mul_wide, 3 },
	{ "and.b64", and64, 3 },
	{ "or.b64", or64, 3 },
	{ "xor.b64", xor64, 3 },
	{ "and.b32", and32, 3 },
	{ "shl.b64", shl64, 3 },
	{ "shr.u64", shr64, 3 },
	{ "shl.b32", shl32, 3 },
	{ "shr.u32", shr32, 3 },
	{ "setp.ge.u64", ge, 3 },
	{ "setp.ne.u64", ne, 3 },
	{ "setp.eq.u64", eq, 3 },
	{ "bra", bra, 1 },
	{ "ret", ret, 0 },
	{ "st.global.u8", st8, 2 },
	{ "st.volatile.global.u32", st32, 2 },
	{ "st.global.v2.u64", st_v2, 3 },
	{ "ld.global.u8", ld8, 2 },
	{ "ld.global.u64", ld64, 2 },
	{ "ld.global.v2.u64", ld_v2, 3 },
	{ "red.global.min.u64", red_min, 2 },
};

/* ---- taking the text apart ---- */

/* The number of a name in a list, added when it is new. */
static unsigned number_of(char (*list)[NAME_MAX_], unsigned *n, unsigned max, const char *name)
{
	unsigned i;

	for (i = 0; i < *n; i++)
		if (strcmp(list[i], name) == 0)
			return i;
	dr_assert(*n < max && strlen(name) < NAME_MAX_);
	(void)snprintf(list[i], NAME_MAX_, "%s", name);
	return (*n)++;
}

static struct operand operand(struct code *c, const char *s)
{
	static const char *const special[] = {
		[CTAID] = "%ctaid.x", [NTID] = "%ntid.x", [TID] = "%tid.x", [NCTAID] = "%nctaid.x"
	};

	for (unsigned i = 0; i < DR_ARRAY_LEN(special); i++)
		if (strcmp(s, special[i]) == 0)
			return (struct operand){ SPECIAL, i };
	for (unsigned i = 0; i < c->n_params; i++)
		if (strcmp(s, c->param[i]) == 0)
			return (struct operand){ PARAM, i };
	if (s[0] == '%')
		return (struct operand){ REG, number_of(c->reg, &c->n_regs, REGS_MAX, s) };
	if (isdigit((unsigned char)s[0]))
		return (struct operand){ IMMEDIATE, strtoull(s, NULL, 0) };
	return (struct operand){ LABEL, number_of(c->label, &c->n_labels, INS_MAX, s) };
}

/* "@%p bra tail;", "st.global.v2.u64 [%at], {%word, %second};", "tail:" or ".reg ...": false when it
 * makes no sense. */
static bool take_line(struct code *c, char *line)
{
	const char *space = " \t,;[]{}";
	struct ins i = { .guard = -1 };
	char *rest = line, *word = strtok_r(rest, space, &rest);
	size_t k;

	if (!word || word[0] == '.')
		return true;
	if (word[strlen(word) - 1] == ':') {
		word[strlen(word) - 1] = '\0';
		k = number_of(c->label, &c->n_labels, INS_MAX, word);
		c->label_at[k] = c->n_ins;
		return true;
	}
	if (word[0] == '@') {
		i.guard = (int)operand(c, word + 1).value;
		word = strtok_r(rest, space, &rest);
	}
	for (k = 0; word && k < DR_ARRAY_LEN(known); k++)
		if (strcmp(word, known[k].name) == 0)
			break;
	if (!word || k == DR_ARRAY_LEN(known) || c->n_ins == INS_MAX)
		return false;
	i.run = known[k].run;
	while (i.n < DR_ARRAY_LEN(i.o) && (word = strtok_r(rest, space, &rest)) != NULL)
		i.o[i.n++] = operand(c, word);
	c->ins[c->n_ins++] = i;
	return i.n == known[k].n;
}

static void take_params(struct code *c, char *head)
{
	char *rest = head, *word;

	while ((word = strtok_r(rest, " \t\n,", &rest)) != NULL)
		if (word[0] != '.')
			(void)number_of(c->param, &c->n_params, DR_PTX_PARAMS_MAX, word);
}

/* Labels become the numbers of instructions. */
static void place_labels(struct code *c)
{
	for (unsigned i = 0; i < c->n_ins; i++)
		for (unsigned k = 0; k < c->ins[i].n; k++)
			if (c->ins[i].o[k].kind == LABEL)
				c->ins[i].o[k].value = c->label_at[c->ins[i].o[k].value];
}

static bool take_text(struct code *c, char *text, const char *entry, struct machine *m)
{
	char head[64], *line, *body;

	(void)snprintf(head, sizeof(head), ".entry %s(", entry);
	body = strstr(text, head);
	if (!body) {
		wrong(m, "no entry %s", entry);
		return false;
	}
	line = body + strlen(head);
	body = strchr(line, ')');
	dr_assert(body != NULL);
	*body++ = '\0';
	take_params(c, line);
	body = strchr(body, '{') + 1;
	/* A body ends with the brace that has a line of its own. */
	*strstr(body, "\n}") = '\0';
	while ((line = strsep(&body, "\n")) != NULL) {
		char copy_of_line[160];

		(void)snprintf(copy_of_line, sizeof(copy_of_line), "%s", line);
		if (!take_line(c, copy_of_line)) {
			wrong(m, "not understood: %s", line);
			return false;
		}
	}
	place_labels(c);
	return true;
}

/* ---- running ---- */

static void run_thread(struct machine *m, const struct code *c)
{
	memset(m->reg, 0xcc, sizeof(m->reg));
	m->pc = 0;
	m->ended = false;
	for (unsigned steps = 0; !m->ended && !m->why[0]; steps++) {
		const struct ins *i = &c->ins[m->pc++];

		if (m->pc > c->n_ins || steps > STEPS_MAX) {
			wrong(m, "thread %u of block %u comes to no end", m->tid, m->cta);
			return;
		}
		if (i->guard < 0 || m->reg[i->guard])
			i->run(m, i);
	}
}

int dr_ptx_run(const char *ptx, const char *entry, const struct dr_ptx_launch *launch, char *why,
	size_t why_len)
{
	struct machine m = { .launch = launch, .why = why, .why_len = why_len };
	struct code *c = calloc(1, sizeof(*c));
	char *text = strdup(ptx);

	dr_assert(c && text);
	why[0] = '\0';
	if (take_text(c, text, entry, &m))
		for (m.cta = 0; m.cta < launch->grid; m.cta++)
			for (m.tid = 0; m.tid < launch->block && !why[0]; m.tid++)
				run_thread(&m, c);
	free(text);
	free(c);
	return why[0] ? -1 : 0;
}
