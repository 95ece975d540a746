/* SPDX-License-Identifier: Apache-2.0 */
/* What a server tells doctor, as JSON: what is accepted can be judged, and is fit for a terminal. */
#include "orchestrator/plan/probe.h"
#include "orchestrator/checks/peer.h"
#include "tests/fuzz/lib/fuzz.h"

enum { RAILS = 3 };

static void own_rails(struct dr_doctor_nic nic[RAILS])
{
	memset(nic, 0, RAILS * sizeof(*nic));
	for (unsigned i = 0; i < RAILS; i++) {
		struct dr_netdev_rail *r = &nic[i].rail;
		char text[32];

		snprintf(r->ifname, sizeof(r->ifname), "eth%u", i + 1);
		snprintf(text, sizeof(text), "10.1.%u.1", i);
		dr_assert(dr_netdev_addr_parse(text, &r->addr) == 0);
		r->prefix = 24;
		r->mtu = 9000;
		r->speed_mbps = 400000;
		r->running = true;
	}
}

static void judge(const struct dr_plan_probe *peer)
{
	struct dr_probe probe = { .peer = *peer };
	struct dr_doctor d = { .run = { .gpus = 8 }, .n = RAILS };
	json_t *doc;

	own_rails(d.nic);
	/* The second one's partner may be any of the peer's. */
	probe.plan.n_rails = 1;
	memcpy(probe.plan.rail[0][DR_PLAN_CLIENT].name, d.nic[1].rail.ifname, IFNAMSIZ);
	if (peer->n_nics > 0)
		memcpy(probe.plan.rail[0][DR_PLAN_SERVER].name, peer->nic[0].name, IFNAMSIZ);
	dr_check_peer(&d, &probe);
	dr_assert(d.f.n > 0);
	for (size_t i = 0; i < d.f.n; i++) {
		const struct dr_finding *x = &d.f.v[i];

		dr_assert(x->text[0]);
		dr_assert(x->severity < DR_SEVERITY_FAIL || x->remedy[0] || peer->why[0]);
	}
	doc = dr_findings_json(&d.f, NULL, 0);
	dr_assert(doc);
	json_decref(doc);
	dr_findings_fini(&d.f);
}

FUZZ(z)
{
	char *text = fz_text(z, 1 << 14);
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	struct dr_plan_probe probe;
	struct dr_err e = { 0 };

	if (fz_failed(dr_plan_probe_read(j, &probe, &e), &e)) {
		dr_assert(probe.n_gpus == 0 && probe.n_nics == 0);
	} else {
		dr_assert(probe.n_nics <= DR_PLAN_PROBE_NICS_MAX);
		dr_assert(probe.n_gpus > 0);
		judge(&probe);
	}
	json_decref(j);
}
