/* SPDX-License-Identifier: Apache-2.0 */
/* What a server tells doctor, as JSON: what is accepted can be judged, and is fit for a terminal. */
#include "orchestrator/doctor/look.h"
#include "orchestrator/doctor/peer.h"
#include "tests/fuzz/lib/fuzz.h"

#include <stdio.h>

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

static void judge(const struct dr_look *look)
{
	struct dr_doctor_run run = { .gpus = 8 };
	struct dr_doctor_end end[RAILS];
	struct dr_doctor_nic nic[RAILS];
	struct dr_findings f = { 0 };
	json_t *doc;

	own_rails(nic);
	dr_look_ends(look, nic, RAILS, end);
	dr_check_peer(&run, false, nic, RAILS, look, &f);
	dr_assert(f.n > 0);
	for (size_t i = 0; i < f.n; i++) {
		dr_assert(f.v[i].text[0]);
		dr_assert(f.v[i].severity < DR_SEVERITY_FAIL || f.v[i].remedy[0] || look->why[0]);
	}
	doc = dr_findings_json(&f, NULL, 0);
	dr_assert(doc);
	json_decref(doc);
	dr_findings_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	char *text = fz_text(&z, 1 << 14);
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	struct dr_look look;
	struct dr_err e = { 0 };
	int rc = dr_look_read(j, &look, &e);

	if (rc) {
		fz_explained(rc, &e);
		dr_assert(!look.tells && look.n_nics == 0 && look.n_pairs == 0);
	} else {
		dr_assert(look.n_nics <= DR_LOOK_NICS_MAX && look.n_pairs <= DR_LOOK_NICS_MAX);
		dr_assert(!look.tells || look.n_gpus > 0);
		judge(&look);
	}
	json_decref(j);
	free(text);
	return 0;
}
