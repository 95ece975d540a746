/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/search.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HELP = 1u << 31 }; /* in an edge: a fault or a repair */
enum { M_DONE = 1, M_DEAD = 2, M_OWES = 4, M_REACHES = 8, M_ENDS = 16 };

__extension__ typedef unsigned __int128 wide;

/* Two arrays in one: a look costs one miss. */
struct __attribute__((packed, aligned(4))) entry {
	uint64_t hash; /* 0: free */
	uint32_t state;
};

struct buf {
	uint8_t *b;
	size_t n, cap;
};

struct search {
	const struct ex_scope *sc;
	const struct ex_limits *lim;
	struct ex_result *res;
	FILE *out;
	struct entry *table;		/* open addressing */
	uint64_t slots, n, cap;		/* states */
	uint32_t *parent, *how, *first; /* by state; first of its edges */
	uint8_t *mark;
	uint32_t *edge;
	uint64_t edges, edges_cap;
	struct buf level, next;
};

static jmp_buf caught;
static bool catching;
static char wrong[256];

_Noreturn void ex_violation(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(wrong, sizeof(wrong), fmt, ap);
	va_end(ap);
	if (catching)
		longjmp(caught, 1);
	fprintf(stderr, "outside a step: %s\n", wrong);
	__builtin_trap();
}

/* In place of base/assert.c: an assertion of the core is a counterexample. */
_Noreturn void dr_assert_fail(const char *expr, const char *file, int line)
{
	ex_violation("%s:%d: assertion failed: %s", file, line, expr);
}

const char *ex_try(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t,
	uint8_t *key, unsigned *len)
{
	if (setjmp(caught) != 0) {
		catching = false;
		return wrong;
	}
	catching = true;
	if (t != NULL)
		ex_step(sc, s, t);
	else
		ex_init(sc, s);
	*len = ex_pack(sc, s, key);
	catching = false;
	return NULL;
}

static uint64_t fingerprint(const uint8_t *b, unsigned n)
{
	uint64_t h = 0x9e3779b97f4a7c15u ^ n;

	for (unsigned i = 0; i < n; i += 8) {
		uint64_t w = 0;
		wide m;

		memcpy(&w, b + i, DR_MIN(n - i, 8u));
		m = (wide)(h ^ w ^ 0xa0761d6478bd642fu) * (0xe7037ed1a0b428dbu + 2 * i);
		h = (uint64_t)m ^ (uint64_t)(m >> 64) ^ h >> 29;
	}
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93u;
	h ^= h >> 32;
	return h != 0 ? h : 1;
}

static void *grown(void *p, uint64_t n, size_t size)
{
	p = realloc(p, n * size);
	dr_assert(p != NULL);
	return p;
}

static uint64_t bytes(const struct search *x)
{
	return x->slots * 12 + x->cap * 13 + x->edges_cap * 4 + x->level.cap + x->next.cap;
}

static void buf_add(struct buf *b, const uint8_t *key, unsigned len)
{
	if (b->n + len + 2 > b->cap) {
		b->cap = DR_MAX(b->cap * 3 / 2, (size_t)1 << 16);
		b->b = grown(b->b, b->cap, 1);
	}
	b->b[b->n++] = (uint8_t)(len & 255);
	b->b[b->n++] = (uint8_t)(len >> 8);
	memcpy(b->b + b->n, key, len);
	b->n += len;
}

static void table_grow(struct search *x)
{
	uint64_t was = x->slots;
	struct entry *old = x->table;

	x->slots = was != 0 ? 2 * was : 1 << 12;
	x->table = calloc(x->slots, sizeof(*x->table));
	dr_assert(x->table != NULL);
	for (uint64_t i = 0; i < was; i++) {
		uint64_t j = old[i].hash & (x->slots - 1);

		if (old[i].hash == 0)
			continue;
		while (x->table[j].hash != 0)
			j = (j + 1) & (x->slots - 1);
		x->table[j] = old[i];
	}
	free(old);
}

/* Index of the state with this key; new ones go to the next level. */
static uint32_t enter(struct search *x, uint64_t h, const uint8_t *key, unsigned len,
	uint32_t parent, uint32_t how)
{
	uint64_t i;

	if (x->n * 4 >= x->slots * 3)
		table_grow(x);
	for (i = h & (x->slots - 1); x->table[i].hash != 0; i = (i + 1) & (x->slots - 1))
		if (x->table[i].hash == h)
			return x->table[i].state;
	if (x->n == x->cap) {
		x->cap = x->cap != 0 ? x->cap * 3 / 2 : 1 << 12;
		x->parent = grown(x->parent, x->cap, sizeof(*x->parent));
		x->how = grown(x->how, x->cap, sizeof(*x->how));
		x->first = grown(x->first, x->cap + 1, sizeof(*x->first));
		x->mark = grown(x->mark, x->cap, 1);
	}
	x->table[i] = (struct entry){ h, (uint32_t)x->n };
	x->parent[x->n] = parent;
	x->how[x->n] = how;
	x->mark[x->n] = 0;
	buf_add(&x->next, key, len);
	return (uint32_t)x->n++;
}

static uint32_t tr_code(const struct ex_tr *t)
{
	return t->kind | (uint32_t)t->p << 8 | (uint32_t)t->e << 9 | (uint32_t)t->fault << 10 |
	       (uint32_t)t->dup << 11 | (uint32_t)t->hold << 12 | (uint32_t)t->arg << 16;
}

static struct ex_tr tr_of(uint32_t c)
{
	return (struct ex_tr){ .kind = c & 255,
		.p = c >> 8 & 1,
		.e = c >> 9 & 1,
		.fault = c >> 10 & 1,
		.dup = c >> 11 & 1,
		.hold = c >> 12 & 1,
		.arg = (uint8_t)(c >> 16) };
}

/* The way to state `to`, and then `last` if there is one. */
static void print_trace(const struct search *x, uint32_t to, const struct ex_tr *last)
{
	unsigned n = 0, len;
	uint32_t *way;
	struct ex_state s;
	uint8_t key[EX_PACK_MAX];
	char line[512], was[512] = "";

	for (uint32_t i = to; i != 0; i = x->parent[i])
		n++;
	way = grown(NULL, n + 2, sizeof(*way));
	for (uint32_t i = to, k = n; i != 0; i = x->parent[i])
		way[--k] = x->how[i];
	if (last != NULL)
		way[n++] = tr_code(last);
	if (n > 0) /* else the first state itself may be broken */
		ex_init(x->sc, &s);
	for (unsigned k = 0; k < n; k++) {
		struct ex_tr t = tr_of(way[k]);
		bool dead;

		ex_tr_text(x->sc, &s, &t, line, sizeof(line));
		fprintf(x->out, "%4u  %s\n", k + 1, line);
		dead = ex_try(x->sc, &s, &t, key, &len) != NULL;
		ex_state_text(&s, line, sizeof(line));
		if (strcmp(line, was) != 0)
			fprintf(x->out, "          %s\n", line);
		memcpy(was, line, sizeof(was));
		if (dead)
			break;
		ex_unpack(x->sc, key, &s);
	}
	free(way);
}

static void broken(struct search *x, uint32_t at, const struct ex_tr *last, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "%s", what);
	fprintf(x->out, "BROKEN (%s): %s\n", ex_personality_name(x->sc->kind), text);
	print_trace(x, at, last);
	fprintf(x->out, "BROKEN (%s): %s\n", ex_personality_name(x->sc->kind), text);
	x->res->broken = true;
}

static void edge_add(struct search *x, uint32_t to)
{
	if (x->edges == x->edges_cap) {
		x->edges_cap = x->edges_cap != 0 ? x->edges_cap * 3 / 2 : 1 << 14;
		x->edge = grown(x->edge, x->edges_cap, sizeof(*x->edge));
	}
	x->edge[x->edges++] = to;
}

/* Then the channel may end. */
static bool hung(const struct ex_state *s)
{
	return s->path[0].end[0].hung || s->path[0].end[1].hung || s->path[1].end[0].hung ||
	       s->path[1].end[1].hung;
}

static uint8_t mark_of(const struct search *x, const struct ex_state *s)
{
	uint8_t m = 0;

	if (ex_done(x->sc, s))
		m |= M_DONE;
	if (ex_dead(s))
		m |= M_DEAD;
	if (s->fo[0].state != DR_FO_DEAD && s->fo[1].state != DR_FO_DEAD &&
		!(s->path[0].cut && s->path[1].cut) && !x->sc->grey && !hung(s))
		m |= M_OWES;
	return m;
}

static bool helps(const struct ex_scope *sc, const struct ex_tr *t)
{
	/* Where no completion is lost, nothing gets stuck. */
	bool slow = t->kind == EX_NO_ANSWER || (t->kind == EX_STUCK && sc->kind == EX_STREAM);

	return t->fault || t->kind == EX_HEAL || t->kind == EX_BREAK || (sc->prompt && slow);
}

static bool answers_elsewhere(const struct dr_fo *before, const struct dr_fo *after)
{
	bool answers = after->state == DR_FO_RUN &&
		       (before->state != DR_FO_RUN || before->epoch != after->epoch);

	return answers && after->active != after->target;
}

static void count_end(struct ex_result *r, const struct dr_fo *f, const struct ex_tr *t)
{
	if (f->err == -EIO)
		r->rare[EX_R_FENCE]++;
	else if (f->err == -ETIMEDOUT)
		r->rare[strstr(f->why, "30 s") != NULL ? EX_R_SWITCH : EX_R_ROUNDS]++;
	else if (t->kind != EX_TAKE)
		r->rare[EX_R_NO_PATH]++;
}

static void count_rare(struct ex_result *r, const struct ex_state *was, const struct ex_state *is,
	const struct ex_tr *t)
{
	const struct dr_fo *tx = &is->fo[EX_TX];

	for (unsigned e = 0; e < 2; e++) {
		const struct dr_fo *a = &was->fo[e], *b = &is->fo[e];

		if (a->state != DR_FO_DEAD && b->state == DR_FO_DEAD)
			count_end(r, b, t);
		for (unsigned p = 0; p < DR_PATHS && b->state != DR_FO_DEAD; p++) {
			r->rare[EX_R_GIVEN_UP] += b->path[p].stuck && !a->path[p].stuck;
			r->rare[EX_R_BACKOFF] += b->path[p].backoff_ns == DR_NS_PER_S / 2;
		}
	}
	r->rare[EX_R_FAILBACK] += tx->planned && was->fo[EX_TX].state == DR_FO_SWITCH &&
				  tx->state == DR_FO_RUN && tx->active == 0;
	r->rare[EX_R_FLAPS] += tx->penalty == 4;
	r->rare[EX_R_CALM] += tx->penalty < was->fo[EX_TX].penalty;
}

static bool expand(struct search *x, uint32_t i, const uint8_t *key)
{
	static struct ex_state base, s;
	static uint8_t out[EX_TRS_MAX][EX_PACK_MAX];
	struct ex_tr t[EX_TRS_MAX];
	unsigned n, len[EX_TRS_MAX];
	uint64_t hash[EX_TRS_MAX];

	ex_unpack(x->sc, key, &base);
	x->first[i] = (uint32_t)x->edges;
	x->mark[i] = mark_of(x, &base);
	x->res->done += (x->mark[i] & M_DONE) != 0;
	x->res->dead += (x->mark[i] & M_DEAD) != 0;
	n = ex_enabled(x->sc, &base, t);
	for (unsigned k = 0; k < n; k++) {
		const char *what;

		ex_copy(&s, &base);
		what = ex_try(x->sc, &s, &t[k], out[k], &len[k]);
		if (what != NULL) {
			broken(x, i, &t[k], what);
			return false;
		}
		if (x->sc->clock)
			count_rare(x->res, &base, &s, &t[k]);
		x->res->elsewhere += answers_elsewhere(&base.fo[EX_RX], &s.fo[EX_RX]);
		hash[k] = fingerprint(out[k], len[k]);
		__builtin_prefetch(&x->table[hash[k] & (x->slots - 1)]);
	}
	for (unsigned k = 0; k < n; k++) {
		uint32_t to = enter(x, hash[k], out[k], len[k], i, tr_code(&t[k]));

		x->res->seen[t[k].kind]++;
		if (to != i)
			edge_add(x, to | (helps(x->sc, &t[k]) ? HELP : 0));
	}
	x->res->transitions += n;
	if (n == 0 && !(x->mark[i] & (M_DONE | M_DEAD))) {
		broken(x, i, NULL, "nothing can happen any more");
		return false;
	}
	return true;
}

/* From which states can one marked `from` be reached? Sets `mark`; the edges lead forward mostly, so
 * going backwards few rounds are needed. */
static void reach(struct search *x, uint8_t from, uint8_t mark, bool repairs)
{
	bool again = true;

	for (uint64_t i = 0; i < x->n; i++)
		if (x->mark[i] & from)
			x->mark[i] |= mark;
	while (again) {
		again = false;
		for (uint64_t i = x->n; i-- > 0;) {
			if (x->mark[i] & mark)
				continue;
			for (uint32_t k = x->first[i]; k < x->first[i + 1]; k++) {
				uint32_t e = x->edge[k];

				if (!(e & HELP) || repairs) {
					if (!(x->mark[e & ~(uint32_t)HELP] & mark))
						continue;
					x->mark[i] |= mark;
					again = true;
					break;
				}
			}
		}
	}
}

static bool liveness(struct search *x)
{
	reach(x, M_DONE, M_REACHES, false);
	reach(x, M_DONE | M_DEAD, M_ENDS, false);
	for (uint64_t i = 0; i < x->n; i++) {
		if ((x->mark[i] & M_OWES) && !(x->mark[i] & M_REACHES)) {
			broken(x, (uint32_t)i, NULL,
				"a rail is whole, yet the transfer can never finish from here");
			return false;
		}
		if (!(x->mark[i] & M_ENDS)) {
			broken(x, (uint32_t)i, NULL, "the channel can never end from here");
			return false;
		}
	}
	return true;
}

static void run(struct search *x)
{
	struct ex_result *r = x->res;
	uint8_t key[EX_PACK_MAX];
	static struct ex_state s;
	const char *what;
	uint64_t i = 0;
	unsigned len;

	table_grow(x);
	what = ex_try(x->sc, &s, NULL, key, &len);
	if (what != NULL) {
		broken(x, 0, NULL, what);
		return;
	}
	enter(x, fingerprint(key, len), key, len, 0, 0);
	while (x->next.n > 0) {
		struct buf b = x->level;

		x->level = x->next;
		x->next = b;
		x->next.n = 0;
		for (size_t at = 0; at < x->level.n; i++) {
			len = x->level.b[at] | (unsigned)x->level.b[at + 1] << 8;

			r->bytes = DR_MAX(r->bytes, bytes(x));
			if (r->bytes > x->lim->bytes ||
				(x->lim->states != 0 && x->n >= x->lim->states))
				return;
			if (!expand(x, (uint32_t)i, x->level.b + at + 2))
				return;
			at += 2 + len;
		}
		r->depth += x->next.n > 0;
	}
	x->first[x->n] = (uint32_t)x->edges;
	dr_assert(x->edges < UINT32_MAX);
	r->complete = true;
	liveness(x);
}

bool ex_search(
	const struct ex_scope *sc, const struct ex_limits *lim, FILE *out, struct ex_result *res)
{
	struct search x = { .sc = sc, .lim = lim, .out = out, .res = res };
	int64_t began = dr_now_ns();

	memset(res, 0, sizeof(*res));
	run(&x);
	res->states = x.n;
	res->misses = (double)x.n * (double)x.n / 0x1p65;
	res->seconds = (double)(dr_now_ns() - began) / 1e9;
	free(x.table);
	free(x.parent);
	free(x.how);
	free(x.first);
	free(x.mark);
	free(x.edge);
	free(x.level.b);
	free(x.next.b);
	return !res->broken;
}
