/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_OFFER_H
#define DR_PLUGIN_OFFER_H

#include "channel/manager.h"
#include "bootstrap/rdv.h"
#include "topology/nic_list.h"
#include "transport/kind.h"

/*
 * What the ends of a session agree on. Pure functions. NICs are listed best first: those of the device that NCCL chose,
 * those of its shadow, the others.
 */
enum { HA_OFFER_NAME_BYTES = 72 };

struct ha_offer {
	uint64_t process, session; /* of the dialling end */
	bool opens;		   /* the session is new */
	uint32_t comm;		   /* id in the session */
	unsigned threads, lanes;
	uint64_t chunk, eager;		  /* bytes */
	char name[HA_OFFER_NAME_BYTES];	  /* the device */
	char transport[DR_KIND_NAME_MAX]; /* of the data */
	unsigned n_nics;
	struct dr_nic nic[DR_NICS_MAX]; /* as the dialling end listed them */
};
/* The addresses that the dialling end lists, at most DR_NICS_MAX. */
void ha_offer_nics(struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n);
json_t *ha_offer_to_json(const struct ha_offer *o);
/* Any JSON is safe: -EPROTO. */
int ha_offer_from_json(const json_t *j, struct ha_offer *out, struct dr_err *e) DR_MUST_CHECK;

struct ha_answer {
	unsigned threads, lanes;
	uint64_t chunk, eager;
	unsigned n_rails;		   /* 0: the session exists */
	struct dr_rdv_addr rail[DR_PATHS]; /* own end */
	unsigned peer_nic[DR_PATHS];	   /* position in the offer's list */
};
/*
 * At the listening end: rail 0 joins the first NIC of the offer that shares a subnet with one of `own`, rail 1 the next
 * one on other NICs. Where none does, a rail may be routed. backup false: one rail. -EADDRNOTAVAIL: no rail joins the ends.
 */
int ha_answer_choose(const struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n_own,
	bool backup, struct ha_answer *out, struct dr_err *e) DR_MUST_CHECK;
json_t *ha_answer_to_json(const struct ha_answer *p);
/* At the dialling end; own: as in its offer. -EPROTO, also where it is more than was offered. */
int ha_answer_from_json(const json_t *j, const struct ha_offer *o, const struct dr_rdv_addr *own,
	struct ha_answer *out, struct dr_err *e) DR_MUST_CHECK;

#endif
