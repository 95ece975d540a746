/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <errno.h>

/* What must hold in every state; numbers are the invariants of docs/PROTOCOL.md. */

static void check_buffers(const struct ex_scope *sc, const struct ex_state *s)
{
	const struct dr_fo *tx = &s->fo[EX_TX], *rx = &s->fo[EX_RX];

	for (unsigned p = 0; p < DR_PATHS; p++) {
		const struct ex_path *pa = &s->path[p];
		const struct ex_lane *l = &pa->lane[EX_L_DATA];

		for (unsigned m = 0; m < sc->msgs; m++) { /* 2 */
			if (m < tx->head && (pa->wr & ex_parts_of(sc, m)) != 0)
				ex_violation("message %u is the sending user's again, but path %u "
					     "may still read it",
					m, p);
			if (m < rx->head && (pa->rx & ex_parts_of(sc, m)) != 0)
				ex_violation("message %u is the receiving user's, but path %u may "
					     "still write it",
					m, p);
		}
		for (unsigned i = 0; i < l->n; i++)
			if (l->it[i].seq < rx->head)
				ex_violation(
					"message %u is the receiving user's, but a write to it is "
					"in flight on path %u",
					l->it[i].seq, p);
	}
}

void ex_check(const struct ex_scope *sc, const struct ex_state *s)
{
	const struct dr_fo *tx = &s->fo[EX_TX], *rx = &s->fo[EX_RX];

	for (unsigned e = 0; e < 2; e++) {
		const struct dr_fo *f = &s->fo[e];

		if (f->state != DR_FO_DEAD)
			dr_fo_validate(f);
		else if (f->err != -ENETDOWN &&
			 !(sc->clock && (f->err == -ETIMEDOUT || f->err == -EIO)))
			ex_violation("end %u ends: %s", e, f->why);
	}
	if (tx->head > rx->head) /* 3 */
		ex_violation("message %u is done at the sender and not consumed at the receiver",
			(unsigned)rx->head);
	if (tx->state != DR_FO_DEAD && rx->epoch > tx->epoch) /* 5 */
		ex_violation("the receiver is in an epoch that the sender has not begun");
	for (unsigned m = 0; m < sc->msgs; m++) { /* 1 */
		unsigned parts = ex_parts_of(sc, m);

		if (m < rx->head && (s->consumed & parts) != parts)
			ex_violation("message %u is delivered, but not all of it was consumed", m);
		if (m > rx->head && (s->consumed & parts) != 0)
			ex_violation("message %u is consumed before its turn", m);
	}
	if (rx->state != DR_FO_DEAD && rx->head < sc->msgs &&
		rx->got !=
			(s->consumed & ex_parts_of(sc, (unsigned)rx->head)) >> sc->base[rx->head])
		ex_violation(
			"the receiver lost track of the parts of message %u", (unsigned)rx->head);
	check_buffers(sc, s);
}

bool ex_done(const struct ex_scope *sc, const struct ex_state *s)
{
	return s->fo[EX_TX].head == sc->msgs && s->fo[EX_RX].head == sc->msgs;
}

bool ex_dead(const struct ex_state *s)
{
	bool tx = s->fo[EX_TX].state == DR_FO_DEAD, rx = s->fo[EX_RX].state == DR_FO_DEAD;

	return (tx || !s->fo[EX_TX].ever_up) && (rx || !s->fo[EX_RX].ever_up) && (tx || rx);
}
