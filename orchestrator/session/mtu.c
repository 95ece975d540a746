/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/mtu.h"

#include "base/key.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void open_one(struct dr_mtu_check *m, struct dr_plan_rail *r, uint16_t min, uint16_t max)
{
	struct dr_mtu_own *own = &m->own[m->n_own];
	int port;

	if (r->mtu == 0 || r->rank == DR_NIC_NONE)
		return;
	port = dr_mtu_rail_open(&own->end, r->name, &r->addr, min, max, m->side == DR_PLAN_SERVER);
	if (port <= 0) {
		dr_info("path-mtu", "%s %s is not tested: %s", r->name, r->address,
			strerror(-port));
		return;
	}
	snprintf(own->address, sizeof(own->address), "%s", r->address);
	r->mtu_port = own->port = (uint16_t)port;
	m->n_own++;
}

void dr_mtu_check_open(struct dr_mtu_check *m, struct dr_plan *p, enum dr_plan_end side,
	uint16_t port_min, uint16_t port_max)
{
	dr_mtu_check_close(m);
	m->side = side;
	for (unsigned i = 0; side == DR_PLAN_SERVER && i < p->n_rails; i++)
		open_one(m, &p->rail[i][side], port_min, port_max);
	for (unsigned i = 0; side == DR_PLAN_CLIENT && i < p->n_offered; i++)
		open_one(m, &p->offered[i], port_min, port_max);
}

static struct dr_mtu_own *own_of(struct dr_mtu_check *m, const struct dr_plan_rail *r)
{
	for (unsigned i = 0; i < m->n_own; i++)
		if (m->own[i].port == r->mtu_port && strcmp(m->own[i].address, r->address) == 0)
			return &m->own[i];
	return NULL;
}

void dr_mtu_check_start(struct dr_mtu_check *m, const struct dr_plan *p,
	const uint8_t token[DR_TOKEN_LEN], struct dr_poller *poller, int64_t now)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);

	_Static_assert((int)DR_KEY_LEN == (int)DR_MTU_KEY, "the key's length");
	m->n_rails = p->n_rails;
	for (unsigned i = 0; i < p->n_rails; i++) {
		const struct dr_plan_rail *here = &p->rail[i][m->side],
					  *there = &p->rail[i][!m->side];
		struct dr_mtu_own *own = own_of(m, here);
		struct dr_mtu_params prm = { .full_bytes = DR_MIN(here->mtu, there->mtu),
			.rail = (uint8_t)i,
			.connector = m->side == DR_PLAN_CLIENT };

		if (!own || !there->mtu_port || !there->mtu)
			continue;
		if (k && k->packet_bytes)
			prm.full_bytes =
				k->packet_bytes(&p->kind_params, prm.full_bytes, own->end.v6);
		dr_key_derive(token, DR_KEY_MTU, prm.key);
		int rc = dr_mtu_rail_start(
			&own->end, poller, &there->addr, there->mtu_port, &prm, now);
		m->full_bytes[i] = DR_MIN(prm.full_bytes, (uint32_t)DR_MTU_PACKET_MAX);
		if (rc == 0)
			m->rail[i] = &own->end;
		else
			dr_info("path-mtu", "rail %u is not tested: %s", i, strerror(-rc));
	}
}

int64_t dr_mtu_check_deadline(const struct dr_mtu_check *m)
{
	int64_t next = DR_NEVER;

	for (unsigned i = 0; i < m->n_rails; i++)
		if (m->rail[i])
			next = DR_MIN(next, dr_mtu_rail_deadline(m->rail[i]));
	return next;
}

void dr_mtu_check_tick(struct dr_mtu_check *m, int64_t now)
{
	for (unsigned i = 0; i < m->n_rails; i++)
		if (m->rail[i])
			dr_mtu_rail_tick(m->rail[i], now);
}

bool dr_mtu_check_rail_over(const struct dr_mtu_check *m, unsigned rail)
{
	const struct dr_mtu_rail *r = m->rail[rail];

	return !r || dr_mtu_search_over(&r->search) ||
	       (dr_mtu_final(r->search.own.state) && dr_mtu_final(r->search.peer.state));
}

void dr_mtu_check_close(struct dr_mtu_check *m)
{
	for (unsigned i = 0; i < m->n_own; i++)
		dr_mtu_rail_close(&m->own[i].end);
	memset(m, 0, sizeof(*m));
}

/* "both NICs' to 1500", or the kind's option. */
static const char *smaller(const struct dr_plan *p, const struct dr_plan_rail r[2], unsigned bytes,
	char *buf, size_t len)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);

	if (!k || !k->fit_packets ||
		!k->fit_packets(bytes, r->addr.ss_family == AF_INET6, buf, len))
		snprintf(buf, len, "both NICs' to %u: ip link set %s mtu %u (at the server: %s)",
			bytes, r[DR_PLAN_CLIENT].name, bytes, r[DR_PLAN_SERVER].name);
	return buf;
}

enum dr_mtu_state dr_mtu_describe(const struct dr_plan *p, const struct dr_mtu_check *m,
	unsigned rail, enum dr_plan_end receiver, struct dr_err *text)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);
	const struct dr_plan_rail *r = p->rail[rail];
	const struct dr_mtu_rail *test = m->rail[rail];
	struct dr_mtu_result w = { .state = DR_MTU_UNKNOWN };
	const char *to = receiver == DR_PLAN_SERVER ? "server" : "client";
	char fix[96];

	if (test)
		w = receiver == m->side ? test->search.peer : test->search.own;
	if (w.state == DR_MTU_REFUSED && k && k->bypass)
		w.state = DR_MTU_HOLE;
	if (w.state == DR_MTU_HOLE) {
		dr_err_set(text, -EMSGSIZE,
			"packets above %u bytes to the %s are lost; set the MTU of the switch ports to %u, or %s",
			w.bytes, to, DR_MIN(r[0].mtu, r[1].mtu),
			smaller(p, r, w.bytes, fix, sizeof(fix)));
	} else if (w.state == DR_MTU_REFUSED) {
		dr_err_set(text, -EMSGSIZE,
			"a device on the path to the %s has MTU %u, the NICs have %u: packets are smaller; "
			"raise it there (ip route get ADDRESS shows what the kernel has learnt)",
			to, w.bytes, m->full_bytes[rail]);
	} else if (w.state == DR_MTU_PASSES) {
		dr_err_set(text, 0, "packets of %u bytes to the %s arrive", w.bytes, to);
	} else {
		w.state = DR_MTU_UNKNOWN;
		dr_err_set(text, 0,
			"too few answers from the %s; check for losses: ip -s link show %s", to,
			r[m->side].name);
	}
	return w.state;
}
