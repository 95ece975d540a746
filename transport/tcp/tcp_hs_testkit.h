/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_HS_TESTKIT_H
#define DR_TRANSPORT_TCP_HS_TESTKIT_H

#include "transport/tcp/tcp_hs.h"

#include "base/clock.h"

/* When the next slot expires; DR_NEVER: none is used. */
static inline int64_t dr_tcp_admission_deadline(const struct tcp_admission *a)
{
	int64_t first = DR_NEVER;

	for (unsigned i = 0; i < TCP_PENDING_MAX && a->n > 0; i++)
		if (a->slot[i].used)
			first = DR_MIN(first, a->slot[i].deadline_ns);
	return first;
}

/* A slot that is parked has a HELLO of its own; no other is parked for the same path. */
static inline bool tcp_slot_ok(const struct tcp_admission *a, const struct tcp_slot *s)
{
	if (!s->used)
		return true;
	if (!s->parked)
		return s->have < TCP_HELLO_LEN;
	for (const struct tcp_slot *o = a->slot; o < s; o++)
		if (o->used && o->parked && o->hello.channel == s->hello.channel &&
			o->hello.index == s->hello.index)
			return false;
	return s->have == TCP_HELLO_LEN;
}

/* The rules hold that hold between calls. */
static inline bool dr_tcp_admission_validate(const struct tcp_admission *a)
{
	unsigned n = 0;

	for (const struct tcp_slot *s = a->slot; s < a->slot + TCP_PENDING_MAX; s++) {
		n += s->used;
		if (!tcp_slot_ok(a, s))
			return false;
	}
	return n == a->n;
}

#endif
