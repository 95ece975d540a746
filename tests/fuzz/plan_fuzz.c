/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a run: --map and --spread as typed, the client's offer and the server's reply as JSON.
 * The first byte says which. What is accepted makes a plan whose every number is in its range.
 */
#include "bootstrap/conv.h"
#include "orchestrator/plan/plan.h"
#include "tests/fuzz/lib/fuzz.h"

#include <arpa/inet.h>

enum { RAILS = 3, GPUS = 4 };

static void own_rails(struct dr_netdev_rail r[RAILS], unsigned host)
{
	memset(r, 0, RAILS * sizeof(*r));
	for (unsigned i = 0; i < RAILS; i++) {
		char text[32];

		snprintf(r[i].ifname, sizeof(r[i].ifname), "eth%u", i + 1);
		snprintf(text, sizeof(text), "10.1.%u.%u", i, host);
		dr_assert(dr_netdev_addr_parse(text, &r[i].addr) == 0);
		r[i].prefix = 24;
		r[i].ifindex = (int)i + 2;
		r[i].speed_mbps = -1;
		r[i].nic = i;
	}
}

static void some_gpus(struct dr_plan *p)
{
	p->n_gpus = GPUS;
	for (unsigned k = 0; k < GPUS; k++)
		p->gpu[k][0] = p->gpu[k][1] = 2 * k;
}

static void base(struct dr_plan *p)
{
	struct dr_netdev_rail own[RAILS];

	memset(p, 0, sizeof(*p));
	own_rails(own, 1);
	some_gpus(p);
	dr_plan_set_rails(p, own, RAILS);
	snprintf(p->transport, sizeof(p->transport), "tcp");
	p->n_each = 5;
	p->forward = p->lat = true;
	p->window = 4;
	p->chunk_max = 1 << 16;
	p->heartbeat_ns = 10 * DR_NS_PER_MS;
	p->hold_down_ns = DR_NS_PER_S;
	p->lost_after_ns = DR_NS_PER_S;
}

/* As both ends use a plan that dr_plan_check has passed. */
static void use(const struct dr_plan *p)
{
	struct dr_manager_channel channel[DR_GPU_CHANNELS_MAX];
	struct dr_manager_params m;
	char text[512];

	for (unsigned k = 0; k < p->n_gpus; k++) {
		unsigned n = dr_plan_n_channels(p);

		dr_assert(n >= 1 && n <= DR_GPU_CHANNELS_MAX);
		dr_plan_manager(p, DR_PLAN_SERVER, &m);
		dr_assert(dr_plan_channels(p, DR_PLAN_SERVER, k, channel) == n);
		for (unsigned c = 0; c < n; c++)
			dr_assert(
				channel[c].primary < p->n_rails && channel[c].shadow < p->n_rails);
		dr_plan_describe(p, DR_PLAN_CLIENT, k, true, text, sizeof(text));
		fz_shows(text);
	}
	dr_assert(p->window >= 1 && p->window <= DR_CHANNEL_WINDOW_MAX);
	dr_assert(p->chunk_max >= 1 && p->chunk_max <= DR_PLAN_CHUNK_MAX);
	/* Sums with the clock stay far away from the end of int64_t. */
	dr_assert(p->heartbeat_ns >= DR_NS_PER_MS && p->heartbeat_ns <= 1000000 * DR_NS_PER_S);
	dr_assert(p->hold_down_ns >= 0 && p->hold_down_ns <= 1000000 * DR_NS_PER_S);
	dr_assert(p->interval_ns >= 0 && p->interval_ns <= 1000000 * DR_NS_PER_S);
	dr_assert(p->lost_after_ns >= 0 && p->lost_after_ns <= 1000000 * DR_NS_PER_S);
}

static void typed(char *s, bool map)
{
	struct dr_plan p;
	struct dr_err e = { 0 };
	int rc;

	base(&p);
	rc = map ? dr_plan_parse_map(&p, s, &e) : dr_plan_parse_spread(&p, s, &e);
	if (rc) {
		dr_assert(rc < 0 && e.text[0]);
		return;
	}
	dr_assert(dr_plan_check(&p, &e) == 0);
	use(&p);
}

static void offer(const json_t *j)
{
	struct dr_netdev_rail own[RAILS];
	struct dr_err e = { 0 };
	struct dr_plan p, again;
	json_t *echo;

	if (dr_plan_read_offer(&p, j, &e)) {
		fz_explained(-EPROTO, &e);
		return;
	}
	for (unsigned i = 0; i < p.n_offered; i++) {
		const char *c = p.offered[i].name;

		for (; *c; c++)
			dr_assert((unsigned char)*c > ' ' && *c != 0x7f);
	}
	if (!dr_plan_kind(&p))
		return; /* the server refuses it next: dr_plan_follow_transport */
	some_gpus(&p);
	echo = dr_plan_offer(&p);
	dr_assert(echo && dr_plan_read_offer(&again, echo, &e) == 0);
	json_decref(echo);
	dr_assert(again.n_offered == p.n_offered && again.n_each == p.n_each &&
		  again.seed == p.seed && again.heartbeat_ns == p.heartbeat_ns);
	own_rails(own, 2);
	if (dr_plan_pair_nics(&p, own, RAILS, false, &e) == 0 && dr_plan_settle(&p, &e) == 0) {
		use(&p);
		json_decref(dr_plan_reply(&p));
	} else {
		dr_assert(e.text[0]);
	}
}

static void reply(const json_t *j)
{
	struct dr_err e = { 0 };
	struct dr_plan p, was;
	unsigned at = 0;

	base(&p);
	was = p;
	if (dr_plan_read_reply(&p, j, &e)) {
		fz_explained(-EPROTO, &e);
		return;
	}
	dr_assert(p.n_rails >= 1 && p.n_rails <= RAILS);
	for (unsigned i = 0; i < p.n_rails; i++, at++) {
		while (at < RAILS && strcmp(was.rail[at][0].address, p.rail[i][0].address) != 0)
			at++;
		dr_assert(at < RAILS);
	}
	if (dr_plan_settle(&p, &e) == 0)
		use(&p);
}

FUZZ(z)
{
	uint8_t what = fz_u8(z) % 4;
	char *s = fz_text(z, 8192);
	json_t *j = what < 2 ? NULL : dr_conv_json_parse(s, strlen(s), NULL);

	if (what < 2)
		typed(s, what == 0);
	else if (j)
		(what == 2 ? offer : reply)(j);
	json_decref(j);
}
