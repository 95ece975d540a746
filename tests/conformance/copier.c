/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/copier.h"

#include "base/mem.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

enum { WAYS = 2, COPIES_MAX = 256 };

struct copy {
	void *to;
	const void *from;
	size_t len;
	unsigned looks; /* until it is done */
};

struct copier {
	struct copier_opts o;
	struct dr_rng rng;
	struct copy copy[WAYS][COPIES_MAX]; /* place = ticket % COPIES_MAX */
	uint64_t started[WAYS], done[WAYS];
	bool stopped[WAYS];
	unsigned fail[COPIER_CALLS];
	unsigned allocs, lost;
	bool broken;
};

void copier_create(const struct copier_opts *o, struct copier **out)
{
	struct copier *c = dr_calloc(1, sizeof(*c));

	dr_assert(c != NULL);
	c->o = *o;
	if (!c->o.outstanding)
		c->o.outstanding = 64;
	dr_assert(c->o.outstanding <= COPIES_MAX);
	dr_rng_seed(&c->rng, o->seed);
	*out = c;
}

void copier_destroy(struct copier *c)
{
	if (!c)
		return;
	dr_assert(c->allocs == c->lost);
	dr_free(c);
}

void copier_lose(struct copier *c, unsigned allocs)
{
	c->lost = allocs;
}

static bool fails(struct copier *c, enum copier_call call)
{
	return c->fail[call] && --c->fail[call] == 0;
}

static int alloc(void *arg, size_t len, void **out, struct dr_err *e)
{
	struct copier *c = arg;

	if (fails(c, COPIER_ALLOC))
		return dr_err_set(e, -ENOMEM, "copier: no pinned memory");
	*out = dr_pages_alloc(len);
	dr_assert(*out != NULL);
	c->allocs++;
	return 0;
}

static void release(void *arg, void *mem, size_t len)
{
	struct copier *c = arg;

	for (int way = 0; way < WAYS; way++) /* no copy still needs it */
		for (uint64_t t = c->done[way] + 1; t <= c->started[way] && !c->broken; t++) {
			const struct copy *k = &c->copy[way][t % COPIES_MAX];
			const uint8_t *host = way == DR_STAGE_OUT ? k->to : k->from;

			dr_assert(host < (uint8_t *)mem || host >= (uint8_t *)mem + len);
		}
	c->allocs--;
	dr_pages_free(mem, len);
}

static int start(void *arg, const struct dr_stage_span *what, uint64_t *ticket, struct dr_err *e)
{
	enum dr_stage_way way = what->way;
	struct copier *c = arg;
	struct copy *k;

	dr_assert(what->len > 0);
	if (c->started[way] - c->done[way] == c->o.outstanding)
		return -EAGAIN;
	if (c->broken || fails(c, COPIER_START))
		return dr_err_set(e, -EIO, "copier: cannot start a copy");
	k = &c->copy[way][++c->started[way] % COPIES_MAX];
	*k = (struct copy){ .to = way == DR_STAGE_OUT ? what->host : what->dev,
		.from = way == DR_STAGE_OUT ? what->dev : what->host,
		.len = what->len,
		.looks = (unsigned)dr_rng_below(&c->rng, c->o.looks_max + 1) };
	*ticket = c->started[way];
	return 0;
}

static void end_copy(struct copier *c, int way)
{
	struct copy *k = &c->copy[way][++c->done[way] % COPIES_MAX];

	memcpy(k->to, k->from, k->len);
}

static int done(void *arg, enum dr_stage_way way, uint64_t *ticket, struct dr_err *e)
{
	struct copier *c = arg;

	if (fails(c, COPIER_DONE))
		c->broken = true;
	if (c->broken)
		return dr_err_set(e, -EIO, "copier: a copy failed");
	while (!c->stopped[way] && c->done[way] < c->started[way]) {
		struct copy *k = &c->copy[way][(c->done[way] + 1) % COPIES_MAX];

		if (k->looks > 0) {
			k->looks--;
			break;
		}
		end_copy(c, (int)way);
	}
	*ticket = c->done[way];
	return 0;
}

static void wait(void *arg, enum dr_stage_way way, uint64_t ticket)
{
	struct copier *c = arg;

	while (c->done[way] < ticket)
		end_copy(c, (int)way);
}

const struct dr_stage_ops copier_ops = { alloc, release, start, done, wait };

unsigned copier_busy(const struct copier *c)
{
	unsigned n = 0;

	for (int way = 0; way < WAYS && !c->broken; way++)
		n += c->stopped[way] ? 0 : (unsigned)(c->started[way] - c->done[way]);
	return n;
}

uint64_t copier_copies(const struct copier *c, enum dr_stage_way way)
{
	return c->done[way];
}

void copier_fail(struct copier *c, enum copier_call call, unsigned n)
{
	c->fail[call] = n;
}

void copier_stop(struct copier *c, enum dr_stage_way way, bool stopped)
{
	c->stopped[way] = stopped;
}
