/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_PLACE_H
#define DR_ORCHESTRATOR_FLEET_PLACE_H

#include "base/err.h"

#include <stdbool.h>

/*
 * Which node of the job this process is: its rank, the number of nodes, and the address of rank 0. They come from options,
 * a host file, or the variables that a scheduler sets. Pure: the environment is a function, the host file a text.
 *
 * scheduler            rank                    nodes                   rank 0
 * options              --rank                  --nodes                 --coordinator
 * Kubernetes           JOB_COMPLETION_INDEX    --nodes                 HOSTNAME with index 0 and its domain, see below
 * Open MPI (PMIx)      OMPI_COMM_WORLD_RANK    OMPI_COMM_WORLD_SIZE    --coordinator
 * MPICH (Hydra)        PMI_RANK                PMI_SIZE                --coordinator
 * Slurm                SLURM_PROCID            SLURM_NTASKS            first host of SLURM_STEP_NODELIST or
 *                                                                      SLURM_JOB_NODELIST, else SLURM_LAUNCH_NODE_IPADDR
 * torchrun             RANK                    WORLD_SIZE              MASTER_ADDR, MASTER_PORT
 *
 * An option replaces what variables say. Of the variables all that are set have to agree on rank and number: under Slurm
 * mpirun sets those of both. MASTER_ADDR is taken for the other schedulers too if they name no rank 0, as is the pod's
 * own name in an Indexed Job: NAME-0, with the domain behind the name of this host.
 */
enum { DR_PLACE_NODES_MAX = 65536 };

struct dr_place_inputs {
	int64_t rank, nodes;	 /* options; -1: not given */
	const char *coordinator; /* HOST[:PORT]; NULL: not given */
	uint16_t port;		 /* where none is named */
	const char *(*env)(void *arg, const char *name);
	const char *hostname; /* of this host, with its domain if it is known */
	void *arg;
};

struct dr_place {
	uint32_t rank, nodes;
	char host[256]; /* of rank 0 */
	uint16_t port;
	char source[64]; /* "Slurm", "--hostfile"; for messages */
};

/* -EINVAL, -ERANGE: what is missing or contradicts, and what to do. */
int dr_place_find(const struct dr_place_inputs *in, struct dr_place *out, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * A host file: one address or name per line, # begins a comment. The rank is the line of this node. own: is this address or
 * name one of this node's? -ENODEV: none of the lines is; -EINVAL: two are, a line with several words, or fewer than two
 * nodes. `in` may name a rank; the lines then only give the number of nodes and rank 0.
 */
int dr_place_hostfile(const struct dr_place_inputs *in, const char *text,
	bool (*own)(void *arg, const char *name), struct dr_place *out, struct dr_err *e)
	DR_MUST_CHECK;

/* The name or address of each rank of a host file that dr_place_hostfile has taken. */
void dr_place_names(
	const char *text, void (*put)(void *arg, uint32_t rank, const char *name), void *arg);

/* The first host of "node[03-07,9],other" is node03. -EINVAL. */
int dr_place_first_host(const char *list, char *out, size_t len) DR_MUST_CHECK;

#endif
