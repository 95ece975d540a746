/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

/* Options: which nodes a sweep has, and how it pairs and judges them. */

/* clang-format off */
static const struct dr_opt sweep[] = {
	{ .name = "pattern", .kind = DR_OPT_CHOICE, .arg = "NAME", .def = "all-pairs",
	  .choices = "all-pairs|ring|bisection|one-to-all|random",
	  .commands = SWEEP, .offset = AT(pattern),
	  .brief = "pairs to measure",
	  .help = "Pairs to measure. all-pairs: every pair, in rounds in which every node is busy; ring: each node with "
		  "the next; bisection: the lower half with the upper, all at once; "
		  "one-to-all: rank 0 with each; random: each with four others. "
		  "The more pairs a node is in, the surer it can be told from its partners." },
	{ .name = "hostfile", .file = DR_OPT_READ, .kind = DR_OPT_STRING, .arg = "FILE",
	  .commands = SWEEP, .offset = AT(hostfile),
	  .brief = "nodes to start on, one per line",
	  .help = "Nodes of the sweep, one address or name per line, # starts a comment. The rank is the line of this "
		  "node; the first line coordinates. Default: what the scheduler tells (Kubernetes, Slurm, Open MPI, "
		  "MPICH, torchrun)." },
	{ .name = "rank", .kind = DR_OPT_UINT, .arg = "N", .max = 65535,
	  .commands = SWEEP, .offset = AT(rank),
	  .help = "Number of this node, from 0; rank 0 coordinates. Default: the scheduler's." },
	{ .name = "nodes", .kind = DR_OPT_UINT, .arg = "N", .max = 65536,
	  .commands = SWEEP, .offset = AT(nodes),
	  .help = "Number of nodes. Default: the scheduler's; an Indexed Job of Kubernetes needs it." },
	{ .name = "coordinator", .kind = DR_OPT_STRING, .arg = "HOST[:PORT]",
	  .commands = SWEEP, .offset = AT(coordinator),
	  .brief = "node of rank 0",
	  .help = "Where rank 0 is. Default: from Slurm, the name of the pod, or MASTER_ADDR; under mpirun it must "
		  "be given. Rank 0 listens on --port or this PORT; the servers of a node's pairs on ports "
		  "behind --port." },
	{ .name = "join-timeout", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "60s",
	  .unit = "seconds", .min = 1e8, .max = 1e14,
	  .commands = SWEEP, .offset = AT(join_timeout_ns),
	  .help = "Time for all nodes to join. Then the sweep begins without those that are missing." },
	{ .name = "pair-timeout", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "120s",
	  .unit = "seconds", .min = 1e9, .max = 8e13,
	  .commands = SWEEP, .offset = AT(pair_timeout_ns),
	  .help = "Longest time of a pair's run; then it has failed." },
	{ .name = "min-pair", .kind = DR_OPT_DOUBLE, .arg = "PERCENT", .def = "80", .min = 1, .max = 100,
	  .commands = SWEEP, .offset = AT(min_pair),
	  .brief = "a pair below this is named",
	  .help = "A figure is low below this share of the median of all figures: a NIC of one node to a NIC of "
		  "another, one direction. Status 7 if one is low." },
	{ .name = "repeat", .kind = DR_OPT_UINT, .arg = "N", .def = "2", .max = 10,
	  .commands = SWEEP, .offset = AT(reviews),
	  .brief = "times that each pair is measured",
	  .help = "Measure pairs that failed or are low again, up to N times, before they are judged. The best of "
		  "each figure counts; wrong bytes count from any run." },
	{ .name = "resume", .file = DR_OPT_READ, .kind = DR_OPT_STRING, .arg = "FILE",
	  .commands = SWEEP, .offset = AT(resume),
	  .brief = "measure only what this document lacks",
	  .help = "At rank 0: keep the pairs of this document of a sweep, and measure those that are missing or "
		  "failed." },
};
/* clang-format on */

const struct dr_opt_group dr_options_sweep = { "Sweep", sweep, DR_ARRAY_LEN(sweep) };
