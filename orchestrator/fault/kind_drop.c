/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/units.h"
#include "orchestrator/fault/nft.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* blackhole and loss: a packet filter. The kernel removes it with the guard, so that after a crash
 * nothing is left to undo. */

static int parse_percent(struct dr_fault_spec *s, struct dr_err *e)
{
	size_t n = strlen(s->value);

	if (n > 1 && s->value[n - 1] == '%')
		s->value[n - 1] = '\0';
	int rc = dr_parse_double(s->value, 0, 100, &s->number, e);
	/* The kernel draws one of a million. */
	return rc == 0 && s->number < 0.0001
		       ? dr_err_set(e, -EINVAL, "'%s' is below 0.0001 percent", s->value)
		       : rc;
}

static bool cuts(const struct dr_fault_spec *s)
{
	return s->number == 100;
}

static void describe(const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	static const char *const dirs[] = { "in both directions", "coming in", "going out" };
	char percent[64] = "every packet";

	if (a->spec->value[0])
		snprintf(percent, sizeof(percent), "%s %% of the packets", a->spec->value);
	snprintf(buf, len, "drop %s %s on %s%s (nf_tables)", percent, dirs[a->spec->dir],
		a->state.nic, duration);
}

static int prepare(struct dr_fault_action *a, const struct dr_fault_nic *nic, struct dr_err *e)
{
	(void)nic;
	return a->guard ? dr_guard_filters(a->guard, e) : dr_nft_probe(e);
}

static int inject(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	double percent = a->spec->value[0] ? a->spec->number : 100;
	struct dr_nft *nft;
	int rc = dr_nft_open(a->state.nic, a->spec->dir, percent, &nft, r, e);

	if (rc)
		return rc;
	a->held = nft;
	snprintf(r->text, sizeof(r->text), "%s on %s (%s)", a->spec->kind->name, a->state.nic,
		dr_nft_how(nft));
	return 0;
}

static int undo(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	(void)e;
	/* Whatever the answer is: the socket is closed, so the kernel removes the filter. */
	if (a->held)
		dr_nft_close(a->held, r);
	a->held = NULL;
	snprintf(r->text, sizeof(r->text), "%s passes packets again", a->state.nic);
	return 0;
}

const struct dr_fault_kind dr_fault_kind_blackhole = {
	.name = "blackhole",
	.help = "all packets of the NIC are dropped, its link stays up",
	.by = DR_FAULT_BY_GUARD,
	.nic = true,
	.dir = true,
	.describe = describe,
	.prepare = prepare,
	.inject = inject,
	.undo = undo,
};

const struct dr_fault_kind dr_fault_kind_loss = {
	.name = "loss",
	.value = "PERCENT",
	.help = "packets of the NIC are dropped at random",
	.by = DR_FAULT_BY_GUARD,
	.nic = true,
	.dir = true,
	.parse = parse_percent,
	.cuts = cuts,
	.describe = describe,
	.prepare = prepare,
	.inject = inject,
	.undo = undo,
};
