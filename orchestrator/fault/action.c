/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An injection: 1. prepare, 2. record (state file), 3. inject, between two time stamps, and
 * prove the effect. Undoing takes the steps backwards and removes the record last, so that a process
 * killed at any point leaves a record of everything that is broken; undoing what is not broken does
 * nothing.
 */
#include "orchestrator/fault/kind_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int dr_fault_nic_find(
	const char *name, struct dr_fault_nic *nic, struct dr_state *s, struct dr_err *e)
{
	size_t n = strcspn(name, "@");

	snprintf(s->nic, sizeof(s->nic), "%.*s", (int)n, name);
	snprintf(nic->address, sizeof(nic->address), "%s", name[n] ? name + n + 1 : "");
	int rc = dr_netdev_by_name(s->nic, &nic->dev, e);
	if (rc < 0)
		return rc;
	s->ifindex = nic->dev.ifindex;
	memcpy(s->mac, nic->dev.mac, sizeof(s->mac));
	return nic->dev.loopback
		       ? dr_err_set(e, -EPERM,
				 "%s refused: it would cut all connections of this machine; "
				 "use close, or a demo as root",
				 s->nic)
		       : 0;
}

/* Step 1, and the key of the record. */
static int prepare(
	struct dr_fault_action *a, const char *name, char *key, size_t key_len, struct dr_err *e)
{
	const struct dr_fault_kind *k = a->spec->kind;
	struct dr_fault_nic nic = { .address = "" };

	a->state.kind = k;
	if (k->nic) {
		int rc = dr_fault_nic_find(name, &nic, &a->state, e);
		if (rc == 0 && !nic.dev.up)
			rc = dr_err_set(e, -ENETDOWN, "%s is down already: no fault to inject",
				a->state.nic);
		if (rc)
			return rc;
		snprintf(key, key_len, "%s", a->state.nic);
	} else {
		snprintf(a->state.nic, sizeof(a->state.nic), "%.*s", (int)strcspn(name, "@"), name);
		snprintf(key, key_len, "%s-%s", k->name, a->spec->value);
	}
	return k->prepare ? k->prepare(a, k->nic ? &nic : NULL, e) : 0;
}

static int finish(struct dr_fault_report *r, int rc, const struct dr_err *e)
{
	r->err = rc;
	if (rc < 0)
		snprintf(r->text, sizeof(r->text), "%s", e->text);
	return rc;
}

static void forget(struct dr_fault_action *a)
{
	dr_state_fini(&a->state);
	memset(a, 0, sizeof(*a));
}

/* Time stamps that the kind did not set. */
static void stamp(struct dr_fault_report *r, int64_t before_ns)
{
	if (r->after_ns)
		return;
	r->before_ns = before_ns;
	r->after_ns = dr_now_ns();
}

static int undo(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	int64_t before_ns = dr_now_ns();
	int rc = a->state.kind->undo ? a->state.kind->undo(a, r, e) : 0;

	stamp(r, before_ns);
	return rc;
}

/* Step 3. */
static int perform(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	const struct dr_fault_kind *k = a->spec->kind;
	struct dr_fault_report ignored = { .undo = true };
	int64_t before_ns = dr_now_ns();
	int rc = k->inject(a, r, e);

	stamp(r, before_ns);
	if (rc < 0 || !k->prove)
		return rc;
	rc = k->prove(a, e);
	if (rc < 0)
		undo(a, &ignored, NULL);
	return rc;
}

int dr_fault_action_inject(struct dr_fault_action *a, const struct dr_fault_spec *s,
	const char *nic, const struct dr_guard_options *opt, struct dr_fault_report *r)
{
	char key[2 * DR_FAULT_NIC_MAX];
	struct dr_err e = { 0 };

	a->spec = s;
	a->opt = opt;
	int rc = prepare(a, nic, key, sizeof(key), &e);
	if (rc == 0)
		rc = dr_state_create(opt->state_dir, key, &a->state, &a->file, &e);
	if (rc == 0)
		rc = perform(a, r, &e);
	a->spec = NULL;
	if (rc < 0) {
		r->before_ns = r->after_ns = 0;
		dr_state_remove(a->file);
		forget(a);
	}
	return finish(r, rc, &e);
}

/* 0; -ENODEV: the device that was broken is gone. It may have another name by now. */
static int find_nic(const struct dr_state *s, struct dr_err *e)
{
	struct dr_netdev d;
	int rc = dr_netdev_by_index(s->ifindex, &d, e);

	return rc || memcmp(d.mac, s->mac, sizeof(d.mac)) == 0 ? rc : -ENODEV;
}

static int reverse(struct dr_fault_action *a, struct dr_fault_report *r)
{
	struct dr_err e = { 0 };
	int rc = a->state.kind->nic && !a->held ? find_nic(&a->state, &e) : 0;

	if (rc == -ENODEV) {
		snprintf(r->text, sizeof(r->text), "%s is gone: nothing to undo", a->state.nic);
		return finish(r, 0, &e);
	}
	return finish(r, rc ? rc : undo(a, r, &e), &e);
}

int dr_fault_action_undo(struct dr_fault_action *a, struct dr_fault_report *r)
{
	int rc = reverse(a, r);

	if (rc == 0) {
		dr_state_remove(a->file);
		forget(a);
	}
	return rc;
}

void dr_fault_action_abandon(struct dr_fault_action *a)
{
	dr_state_leave(a->file);
	forget(a);
}

/* ---- after a crash ---- */

struct visit {
	const struct dr_guard_options *opt;
	bool undo;
	dr_fault_leftover_fn fn;
	void *arg;
};

static int visit_one(
	const struct dr_state *s, const char *path, const struct dr_state_owner *o, void *arg)
{
	struct dr_fault_leftover l = { .kind = s->kind->name,
		.nic = s->nic,
		.path = path,
		.err = o->alive ? -EBUSY : -ECANCELED,
		.guard = o->guard,
		.since_ns = o->since_ns };
	struct dr_fault_report r = { .undo = true };
	const struct visit *v = arg;
	struct dr_fault_action a = { .opt = v->opt, .state = *s };

	if (v->undo && !o->alive && (l.err = reverse(&a, &r)) == -EBUSY)
		l.err = -EIO; /* nobody holds it */
	l.text = r.text;
	v->fn(&l, v->arg);
	return l.err;
}

int dr_fault_leftovers(
	const struct dr_guard_options *opt, bool undo, dr_fault_leftover_fn fn, void *arg)
{
	struct visit v = { opt, undo, fn, arg };

	return dr_state_each(opt->state_dir, visit_one, &v);
}

struct repair {
	pid_t dead;
	struct dr_err *e;
};

static void repaired(const struct dr_fault_leftover *l, void *arg)
{
	struct repair *r = arg;

	/* What others hold, or left, is not of this guard. */
	if (l->err && l->guard != r->dead && (r->dead || l->err == -EBUSY))
		return;
	if (l->err)
		dr_err_set(r->e, l->err, "undo what %.120s records: %.100s", l->path,
			l->err == -EBUSY ? "another dualrail looks at it" : l->text);
	else
		dr_warn("fault", "undid what a killed run left: %s", l->text);
}

int dr_fault_repair(const struct dr_guard_options *opt, pid_t dead, struct dr_err *e)
{
	struct repair r = { dead, e };

	if (e)
		memset(e, 0, sizeof(*e));
	return dr_fault_leftovers(opt, true, repaired, &r);
}
