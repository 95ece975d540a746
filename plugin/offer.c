/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/offer.h"

#include "base/fields.h"
#include "plugin/session.h"

#include <errno.h>
#include <string.h>

/* ---- what travels ---- */

enum { LANES_MAX = 64, BYTES_MAX = 1 << 30 };

#define UINT(name, least, most)                                                                    \
	DR_FIELD(#name, DR_F_UINT, T, name, .flags = DR_F_REQUIRED, .min = (least), .max = (most))
#define SIZES                                                                                      \
	UINT(threads, 1, HA_SESSION_THREADS_MAX), UINT(lanes, 1, LANES_MAX),                       \
		UINT(chunk, 1, BYTES_MAX), UINT(eager, 0, BYTES_MAX)

#define T struct ha_offer
static DR_TABLE(offer_fields, "offer of a comm", T, "", SIZES, UINT(process, 0, 0),
	UINT(session, 0, 0), UINT(comm, 0, UINT32_MAX),
	DR_FIELD("opens", DR_F_BOOL, T, opens, .flags = DR_F_REQUIRED),
	DR_FIELD("device", DR_F_STR, T, name, .flags = DR_F_REQUIRED),
	DR_FIELD("transport", DR_F_STR, T, transport, .flags = DR_F_REQUIRED));
#undef T

struct rail {
	unsigned nic;
};
#define T struct rail
static DR_TABLE(
	rail_fields, "rail", T, "", DR_FIELD("", DR_F_UINT, T, nic, .flags = DR_F_REQUIRED));
#undef T
#define T struct ha_answer
static DR_TABLE(answer_fields, "answer to a comm", T, "", SIZES,
	DR_FIELD_ROWS("rails", T, peer_nic, n_rails, rail_fields));
#undef T

/* ---- offer ---- */

static void to_nics(const struct dr_rdv_addr *in, unsigned n, struct dr_nic *out)
{
	dr_assert(n <= DR_NICS_MAX);
	for (unsigned i = 0; i < n; i++)
		dr_nic_set(&out[i], &in[i].addr.ss, in[i].prefix, in[i].nic, in[i].rank);
}

void ha_offer_nics(struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n)
{
	to_nics(own, n, o->nic);
	o->n_nics = n;
}

json_t *ha_offer_to_json(const struct ha_offer *o)
{
	json_t *j = dr_fields_to_json(&offer_fields, o);

	if (json_object_set_new(j, "nics", dr_nics_to_json(o->nic, o->n_nics)) == 0)
		return j;
	json_decref(j);
	return NULL;
}

int ha_offer_from_json(const json_t *j, struct ha_offer *out, struct dr_err *e)
{
	int n = dr_fields_from_json(&offer_fields, out, j, e);

	if (n == 0)
		n = dr_nics_from_json(json_object_get(j, "nics"), out->nic, e);
	out->n_nics = (unsigned)DR_MAX(n, 0);
	return DR_MIN(n, 0);
}

/* ---- plan ---- */

int ha_answer_choose(const struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n_own,
	bool backup, struct ha_answer *out, struct dr_err *e)
{
	struct dr_nic_pair pair[DR_NICS_MAX];
	struct dr_nic b[DR_NICS_MAX];

	to_nics(own, n_own, b);
	unsigned n = dr_nic_pair_up(o->nic, o->n_nics, b, n_own, pair);

	memset(out, 0, sizeof(*out));
	if (n == 0)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"no rail joins the ends: give two NICs one subnet, or both ends a route");
	/* Pairs are in the order of a: the device's NIC, then its shadow's. */
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < n && out->n_rails < (backup ? DR_PATHS : 1u); i++)
			if (pair[i].routed == (pass == 1)) {
				out->rail[out->n_rails] = own[pair[i].b];
				out->peer_nic[out->n_rails++] = pair[i].a;
			}
	return 0;
}

json_t *ha_answer_to_json(const struct ha_answer *p)
{
	return dr_fields_to_json(&answer_fields, p);
}

int ha_answer_from_json(const json_t *j, const struct ha_offer *o, const struct dr_rdv_addr *own,
	struct ha_answer *out, struct dr_err *e)
{
	int rc = dr_fields_from_json(&answer_fields, out, j, e);
	bool ok = rc == 0 && out->threads <= o->threads && out->lanes <= o->lanes &&
		  out->chunk <= o->chunk && out->eager <= o->eager && out->n_rails >= 1;

	for (unsigned i = 0; ok && i < out->n_rails; i++) {
		ok = out->peer_nic[i] < o->n_nics;
		if (ok)
			out->rail[i] = own[out->peer_nic[i]];
	}
	return ok || rc ? rc
			: dr_err_set(e, -EPROTO,
				  "the peer's answer to a comm is more than was offered");
}
