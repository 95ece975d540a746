/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_MATCH_TESTKIT_H
#define DR_PLUGIN_MATCH_TESTKIT_H

#include "plugin/match.h"

/* The invariants of match.c, which hold between calls. */
static inline void validate_group(const struct ha_match_group *g)
{
	unsigned n_free = 0, n_left = 0;

	for (unsigned b = 0; b < g->n; b++) {
		n_free += !g->buf[b].taken;
		n_left += !g->buf[b].done;
		dr_assert(g->buf[b].taken || !g->buf[b].done);
	}
	dr_assert(n_free == g->n_free && n_left == g->n_left);
}

static inline void ha_match_validate(const struct ha_match *m)
{
	uint64_t listed = 0;

	for (unsigned i = 0; i < m->order_n; i++)
		listed |= 1ull << m->order[(m->order_at + i) % HA_GROUPS_MAX];
	for (unsigned g = 0; g < HA_GROUPS_MAX; g++) {
		bool used = m->used >> g & 1;

		if (used)
			validate_group(&m->group[g]);
		dr_assert((listed >> g & 1) == (used && m->group[g].n_free > 0));
	}
	for (unsigned i = 0; i < m->n_frames; i++)
		dr_assert(m->frame[i].h.ordinal <
			  (i + 1 < m->n_frames ? m->frame[i + 1].h.ordinal : m->next_ordinal));
	dr_assert(m->tried <= m->n_frames);
}

#endif
