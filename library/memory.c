/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

#include <errno.h>

/*
 * A range is registered on every data channel of every peer that has channels: dr_mem belongs to a channel. On one NIC the
 * registrations of the same bytes are one (transport/path.h).
 */
static const int64_t DEREGISTER_NS = DR_NS_PER_S;

static struct dualrail_memory **bucket(struct dualrail *d, uint64_t key)
{
	return &d->keys[dr_mix64(key) % DR_LIB_KEY_BUCKETS];
}

const struct dr_mem *dr_lib_mem(
	const struct dualrail_peer *p, const struct dualrail_memory *m, unsigned channel)
{
	for (const struct dr_lib_reg *r = m->regs; r; r = r->next)
		if (r->peer == p)
			return &r->mem[channel];
	return NULL;
}

struct dualrail_memory *dr_lib_by_key(struct dualrail *d, uint64_t key)
{
	for (struct dualrail_memory *m = *bucket(d, key); m; m = m->key_next)
		if (m->key == key && !m->gone)
			return m;
	return NULL;
}

void dr_lib_unuse(struct dualrail_memory *m)
{
	if (--m->users == 0)
		pthread_cond_broadcast(&m->d->changed);
}

/* ---- of one peer ---- */

static int dereg(struct dualrail_peer *p, struct dr_lib_reg *r, struct dr_err *e)
{
	int rc = 0;

	for (unsigned i = 2; i < 2 + 2 * p->lanes; i++) {
		struct dr_err *to = rc ? NULL : e;
		int err = r->mem[i].base
				  ? dr_channel_mem_dereg(p->ch[i], &r->mem[i], dr_now_ns(), to)
				  : 0;

		rc = rc ? rc : err;
	}
	return rc;
}

static int reg(struct dualrail_peer *p, struct dualrail_memory *m, struct dr_err *e)
{
	struct dr_lib_reg *r = dr_calloc(1, sizeof(*r));
	int rc = 0;

	if (!r)
		return dr_err_set(e, -ENOMEM, "registration: out of memory");
	r->peer = p;
	for (unsigned i = 2; i < 2 + 2 * p->lanes && rc == 0; i++)
		rc = dr_channel_mem_reg(p->ch[i], &m->m, &r->mem[i], e);
	if (rc != 0) {
		(void)dereg(p, r, NULL); /* nothing was posted */
		dr_free(r);
		return rc;
	}
	r->next = m->regs;
	m->regs = r;
	return 0;
}

static int unreg(struct dualrail_peer *p, struct dualrail_memory *m, struct dr_err *e)
{
	struct dr_lib_reg **at = &m->regs, *r;
	int rc;

	while (*at && (*at)->peer != p)
		at = &(*at)->next;
	r = *at;
	if (!r)
		return 0;
	rc = dereg(p, r, e);
	*at = r->next;
	dr_free(r);
	return rc;
}

int dr_lib_regs_add(struct dualrail_peer *p, struct dr_err *e)
{
	int rc = 0;

	for (struct dualrail_memory *m = p->d->memories; m && rc == 0; m = m->next)
		if (!m->gone)
			rc = reg(p, m, e);
	return rc;
}

int dr_lib_regs_remove(struct dualrail_peer *p, struct dr_err *e)
{
	int rc = 0;

	for (struct dualrail_memory *m = p->d->memories; m; m = m->next) {
		int err = unreg(p, m, rc ? NULL : e);

		rc = rc ? rc : err;
	}
	return rc;
}

/* ---- of the endpoint ---- */

static int add(struct dualrail *d, struct dualrail_memory *m, struct dr_err *e)
{
	int rc = 0;

	if (m->key != 0 && dr_lib_by_key(d, m->key))
		return dr_err_set(e, -EEXIST, "key %llu is in use; deregister its memory first",
			(unsigned long long)m->key);
	for (struct dualrail_peer *p = d->peers; p && rc == 0; p = p->next)
		if (p->m && !p->closed)
			rc = reg(p, m, e);
	if (rc == 0) {
		m->next = d->memories;
		d->memories = m;
		m->key_next = *bucket(d, m->key);
		*bucket(d, m->key) = m;
		return 0;
	}
	for (struct dualrail_peer *p = d->peers; p; p = p->next)
		(void)unreg(p, m, NULL); /* nothing was posted */
	return rc;
}

int dualrail_register(struct dualrail *d, void *base, size_t len, uint64_t key,
	struct dualrail_memory **out, struct dualrail_error *error)
{
	struct dr_err e = { 0 };
	struct dualrail_memory *m;
	int rc;

	if (!base || len == 0)
		return dr_lib_error(error,
			(dr_err_set(&e, -EINVAL, "registration: a range without bytes"), &e));
	m = dr_calloc(1, sizeof(*m));
	if (!m)
		return dr_lib_error(
			error, (dr_err_set(&e, -ENOMEM, "registration: out of memory"), &e));
	m->d = d;
	m->key = key;
	m->m = (struct dr_memory){ .base = base, .len = len, .kind = DR_MEMORY_HOST };
	dr_lib_lock(d);
	rc = add(d, m, &e);
	dr_lib_unlock(d);
	if (rc != 0) {
		dr_free(m);
		return dr_lib_error(error, &e);
	}
	*out = m;
	return 0;
}

static void wait_unused(struct dualrail_memory *m)
{
	int64_t until = dr_now_ns() + DEREGISTER_NS;

	while (m->users > 0 && dr_now_ns() < until)
		(void)dr_cond_wait(&m->d->changed, &m->d->lock, until);
}

static bool reads(const struct dualrail_put *put, const struct dualrail_memory *m)
{
	for (size_t i = 0; i < put->n && atomic_load(&put->state) == 0; i++)
		if (put->block[i].memory == m)
			return true;
	return false;
}

static bool writes(const struct dr_lib_lane *l, const struct dualrail_memory *m)
{
	const struct dr_lib_chunk *k;

	for (unsigned i = 0; i < DR_LIB_WINDOW; i++)
		if (l->flying[i] && l->flying[i]->target == m)
			return true;
	STAILQ_FOREACH(k, &l->waiting, next)
	if (k->target == m)
		return true;
	return false;
}

static bool uses(const struct dualrail_peer *p, const struct dualrail_memory *m)
{
	for (const struct dualrail_put *put = p->d->puts; put; put = put->all)
		if (put->peer == p && reads(put, m))
			return true;
	for (unsigned i = 0; i < p->lanes; i++)
		if (writes(&p->rx[i], m))
			return true;
	return false;
}

static int unreg_all(struct dualrail_memory *m, struct dr_err *e)
{
	int rc = 0;

	for (struct dualrail_peer *p = m->d->peers; p; p = p->next) {
		int err;

		if (m->users > 0 && uses(p, m))
			dr_lib_end(p, -ECANCELED, "memory of a transfer was deregistered");
		err = unreg(p, m, rc ? NULL : e);
		rc = rc ? rc : err;
	}
	dr_assert(m->users == 0);
	return rc;
}

int dualrail_deregister(struct dualrail_memory *m, struct dualrail_error *error)
{
	struct dualrail *d = m->d;
	struct dr_err e = { 0 };
	int rc;

	dr_lib_lock(d);
	m->gone = true;
	wait_unused(m);
	rc = unreg_all(m, &e);
	if (rc == 0 && m->users > 0)
		rc = dr_err_set(&e, -EBUSY,
			"deregistration: a connection still uses the memory; "
			"disconnect it first");
	if (rc == 0) {
		DR_UNLINK(&d->memories, m, next);
		DR_UNLINK(bucket(d, m->key), m, key_next);
	}
	dr_lib_unlock(d);
	if (rc != 0) /* not freed: a NIC may still access the memory */
		return dr_lib_error(error, &e);
	dr_free(m);
	return 0;
}
