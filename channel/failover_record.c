/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/failover_priv.h"

#include <stdio.h>

/* The record of a switch, from its cause to the first delivery or acknowledgement after it. A
 * further fault meanwhile belongs to it. A failback begins when the last record is closed. */

/* A busy sender has nothing on its way for a moment, too, until its user posts again. */
static const int64_t IDLE_NS = 10 * DR_NS_PER_MS;

bool dr_fo_idle(const struct dr_fo *f, int64_t now)
{
	return f->prm.sender ? f->tail == f->acked && now - f->last_ns >= IDLE_NS
			     : f->tail == f->head;
}

void dr_fo_record_open(
	struct dr_fo *f, bool self, enum dr_scope scope, int err, const char *why, int64_t now)
{
	struct dr_switch_record *r = &f->rec;

	if (f->rec_open) /* a further fault during the switch belongs to the same record */
		return;
	*r = (struct dr_switch_record){ .from = f->active,
		.self_detected = self,
		.scope = scope,
		.err = err,
		.idle = dr_fo_idle(f, now),
		.last_delivery_ns = f->last_ns,
		.detect_ns = now };
	snprintf(r->cause, sizeof(r->cause), "%s", why);
	f->rec_open = true;
}

/* A planned switch that needs another epoch lost its path. */
void dr_fo_record_round(struct dr_fo *f, bool planned)
{
	struct dr_switch_record *r = &f->rec;

	if (r->planned)
		snprintf(r->cause, sizeof(r->cause), "a path failed during a planned switch");
	r->planned = planned && r->rounds == 0;
	r->rounds++;
}

void dr_fo_record_close(struct dr_fo *f, int64_t now)
{
	struct dr_switch_record *r = &f->rec;
	int64_t *t[] = { &r->last_delivery_ns, &r->detect_ns, &r->fenced_ns, &r->answer_ns,
		&r->first_frame_ns, &r->first_delivery_ns };

	if (!f->rec_open)
		return;
	r->first_delivery_ns = now;
	/* A step that ended before it was requested counts as zero. */
	for (size_t i = 1; i < DR_ARRAY_LEN(t); i++)
		*t[i] = DR_MAX(*t[i], *t[i - 1]);
	r->epoch = f->epoch;
	r->to = f->active;
	f->rec_open = false;
	f->done = *r;
	if (r->planned)
		f->failbacks++;
	else
		f->switches++;
	dr_fo_add(f, DR_FOA_SWITCHED, f->active);
}
