/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include "base/units.h"

#include <stdio.h>

/*
 * --matrix: one bandwidth phase after the other, all from this process and on the receiver's clock.
 * For each rail: each GPU alone, then all GPUs (a NIC may carry more than one GPU can send); last, all
 * GPUs over all rails. A phase says by its masks whose channels send; the others stay open and idle,
 * so nothing is connected anew between two cells.
 */

void dr_client_cell_name(
	const struct dr_client *c, const struct dr_phase *phase, char *buf, size_t len)
{
	unsigned rail = (unsigned)__builtin_ctz(phase->rail_mask);
	const char *nic = c->plan.rail[rail][DR_PLAN_CLIENT].name;

	if (phase->gpu_mask)
		snprintf(buf, len, "GPU %u over %s",
			dr_node_gpu(c->node, (unsigned)__builtin_ctz(phase->gpu_mask)), nic);
	else
		snprintf(buf, len, "all GPUs over %s", nic);
}

void dr_client_matrix_announce(const struct dr_client *c, FILE *f)
{
	unsigned rails = c->plan.n_rails, gpus = c->plan.n_gpus;
	unsigned phases = rails * (gpus + (gpus > 1)) + 1;
	int64_t each_ns = c->opt->warmup_ns + c->opt->duration_ns;
	char each[32], all[32];

	fprintf(f, "matrix: %u GPUs x %u NICs = %u cells%s, then all together: ", gpus, rails,
		gpus * rails, gpus > 1 ? ", each NIC with all GPUs" : "");
	if (c->opt->iters) {
		fprintf(f, "%u measurements of %llu messages a channel\n", phases,
			(unsigned long long)c->opt->iters);
		return;
	}
	dr_format_duration(each_ns, each, sizeof(each));
	dr_format_duration(each_ns * phases, all, sizeof(all));
	fprintf(f, "%u x %s = about %s\n", phases, each, all);
	fflush(f);
}

static int measure(
	struct dr_client *c, const struct dr_phase *phase, uint32_t gpu_mask, uint32_t rail_mask)
{
	struct dr_phase p = *phase;

	p.gpu_mask = gpu_mask;
	p.rail_mask = rail_mask;
	/* --rate is a GPU's; phase->rate_bits is a channel's when those of all its rails send. */
	if (rail_mask)
		p.rate_bits *= c->plan.n_rails;
	return dr_client_measure(c, &p, c->opt->warmup_ns, c->opt->duration_ns);
}

int dr_client_matrix(struct dr_client *c, const struct dr_phase *phase)
{
	int rc = 0;

	if (!c->opt->quiet)
		dr_client_matrix_announce(c, dr_output_tables(c->out));
	for (unsigned r = 0; rc == 0 && r < c->plan.n_rails; r++) {
		for (unsigned k = 0; rc == 0 && k < c->plan.n_gpus; k++)
			rc = measure(c, phase, 1u << k, 1u << r);
		if (rc == 0 && c->plan.n_gpus > 1)
			rc = measure(c, phase, 0, 1u << r);
	}
	return rc ? rc : measure(c, phase, 0, 0);
}
