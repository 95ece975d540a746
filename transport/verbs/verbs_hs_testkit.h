/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_HS_TESTKIT_H
#define DR_TRANSPORT_VERBS_HS_TESTKIT_H

#include "transport/verbs/verbs_hs.h"

/* The rules hold that hold between calls. */
static inline bool dr_verbs_admission_validate(const struct vb_admission *a)
{
	for (const struct vb_parked *k = a->parked; k < a->parked + VB_PARKED; k++)
		for (const struct vb_parked *o = a->parked; k->used && o < k; o++)
			if (o->used && o->hello.channel == k->hello.channel &&
				o->hello.index == k->hello.index)
				return false;
	return true;
}

#endif
