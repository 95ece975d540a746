/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 *  1. A healthy rail answers a full packet before the data paths are up: nothing waits for the test then. The client
 *     waits only while small packets pass and full ones may not.
 *  2. Each end leaves a rail for its own direction; the heartbeats tell the peer.
 *  3. Results are recorded once for each rail, when both directions are known or the time is over.
 */

void dr_session_mtu_start(struct dr_session *s)
{
	s->mtu_told = s->mtu_left = 0;
	dr_mtu_check_start(
		&s->mtu, &s->plan, dr_control_token(s->control), s->loop.poller, dr_now_ns());
}

int64_t dr_session_mtu_deadline(const struct dr_session *s)
{
	return dr_mtu_check_deadline(&s->mtu);
}

/* ---- what is said ---- */

static void say(struct dr_session *s, const char *text)
{
	dr_warn("path-mtu", "%s", text);
	dr_record_eventf(s->rec, "path-mtu", "%s", text);
}

static void tell_way(struct dr_session *s, unsigned rail, enum dr_plan_end receiver)
{
	struct dr_err text;
	enum dr_mtu_state st = dr_mtu_describe(&s->plan, &s->mtu, rail, receiver, &text);

	if (st == DR_MTU_HOLE || st == DR_MTU_REFUSED)
		say(s, text.text);
	else if (st == DR_MTU_UNKNOWN && s->mtu.rail[rail])
		dr_info("path-mtu", "%s", text.text);
}

static void record(struct dr_session *s, unsigned rail)
{
	for (size_t i = 0; i < s->rec->rails.n; i++) {
		struct dr_rail_row *row = &s->rec->rails.v[i];
		uint32_t to_server = dr_mtu_check_way(&s->mtu, rail, DR_PLAN_SERVER).bytes;
		uint32_t to_client = dr_mtu_check_way(&s->mtu, rail, DR_PLAN_CLIENT).bytes;

		if (row->rail != rail)
			continue;
		if (to_server)
			row->path_mtu_to_server = to_server;
		if (to_client)
			row->path_mtu_to_client = to_client;
	}
}

static void tell(struct dr_session *s, unsigned rail)
{
	const struct dr_plan_rail *r = s->plan.rail[rail];
	unsigned client = r[DR_PLAN_CLIENT].mtu, server = r[DR_PLAN_SERVER].mtu;
	struct dr_err text;

	record(s, rail);
	if (client && server && client != server) {
		dr_err_set(&text, -EMSGSIZE,
			"rail %u: MTU %u on the client's %s and %u on the server's %s: packets have %u "
			"bytes; set both to one MTU",
			rail, client, r[DR_PLAN_CLIENT].name, server, r[DR_PLAN_SERVER].name,
			DR_MIN(client, server));
		say(s, text.text);
	}
	tell_way(s, rail, DR_PLAN_SERVER);
	tell_way(s, rail, DR_PLAN_CLIENT);
}

/* ---- what is done ---- */

/* Everything that may be in flight on a channel fits into one packet, frames included. */
static bool fits(const struct dr_plan *p, const struct dr_mtu_way *w)
{
	return (uint64_t)p->chunk_max * p->window + 256 <= w->bytes;
}

static bool carries(const struct dr_session *s, unsigned rail, enum dr_plan_end receiver)
{
	struct dr_mtu_way w = dr_mtu_check_way(&s->mtu, rail, receiver);

	return !dr_mtu_way_hole(&s->plan, &w) || fits(&s->plan, &w);
}

static bool has_data(const struct dr_plan *p, enum dr_plan_end receiver)
{
	return p->lat || (receiver == DR_PLAN_SERVER ? p->forward : p->reverse);
}

static void leave(struct dr_session *s, unsigned rail)
{
	uint32_t full = s->mtu.full_bytes[rail];
	bool v6 = s->plan.rail[rail][s->side].addr.ss_family == AF_INET6;
	struct dr_command cmd = { .kind = DR_CMD_RAIL_SMALL,
		.position = DR_ALL,
		.channel = rail,
		.value = full - (v6 ? DR_MTU_HEADERS6 : DR_MTU_HEADERS4) };

	snprintf(cmd.text, sizeof(cmd.text), "packets of %u bytes do not arrive, of %u they do",
		full, dr_mtu_check_way(&s->mtu, rail, s->side == DR_PLAN_CLIENT).bytes);
	dr_local_post(s->local, DR_ALL, &cmd);
	s->mtu_left |= 1u << rail;
}

void dr_session_mtu_tick(struct dr_session *s, int64_t now)
{
	struct dr_err e;

	dr_mtu_check_tick(&s->mtu, now);
	if (!s->local)
		return;
	bool up = s->local->n_ready == s->plan.n_gpus && !dr_session_mtu_check(s, &e);
	for (unsigned i = 0; i < s->mtu.n_rails; i++) {
		if (!(s->mtu_told & (1u << i)) && dr_mtu_check_rail_over(&s->mtu, i)) {
			s->mtu_told |= 1u << i;
			tell(s, i);
		}
		if (!(s->mtu_left & (1u << i)) && up && !carries(s, i, !s->side) &&
			has_data(&s->plan, !s->side))
			leave(s, i);
	}
}

int dr_session_mtu_check(const struct dr_session *s, struct dr_err *e)
{
	for (unsigned receiver = 0; receiver < 2; receiver++) {
		unsigned n = 0, bytes = UINT32_MAX;
		char way[80];

		while (n < s->mtu.n_rails && !carries(s, n, receiver)) {
			bytes = DR_MIN(bytes, dr_mtu_check_way(&s->mtu, n, receiver).bytes);
			n++;
		}
		if (n == 0 || n < s->mtu.n_rails || !has_data(&s->plan, receiver))
			continue;
		return dr_err_set(e, -EMSGSIZE,
			"no rail carries data: %s: packets above %u bytes are lost%s; set the MTU of "
			"the NICs or of the switch ports so that they agree, for example: ip link set "
			"NIC mtu %u",
			dr_mtu_way_name(&s->plan, 0, receiver, way, sizeof(way)), bytes,
			n > 1 ? ", and on the other rails" : "", bytes);
	}
	return 0;
}
