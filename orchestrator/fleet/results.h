/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_RESULTS_H
#define DR_ORCHESTRATOR_FLEET_RESULTS_H

#include "base/fields.h"
#include "orchestrator/fleet/pattern.h"

#include <jansson.h>

/* What a sweep measured: nodes with their NICs, pairs of nodes with the figures of each pair of NICs and direction. */

enum {
	DR_SWEEP_NICS_MAX = 32,
	DR_SWEEP_LANES_MAX = 2 * DR_SWEEP_NICS_MAX,
	DR_SWEEP_RUNS_MAX = 11 /* of a pair: the first, and --repeat */
};

struct dr_sweep_nic {
	char name[32];
	int64_t speed_mbps; /* DR_UNSET: unknown */
	bool up, carrier;   /* set up by the administrator; link is there */
	bool told;	    /* by the node; false: only named by runs */
};

enum dr_sweep_presence { DR_SWEEP_AWAITED, DR_SWEEP_PRESENT, DR_SWEEP_LOST };
struct dr_sweep_node {
	uint32_t rank;
	int presence; /* enum dr_sweep_presence */
	char host[64], address[80];
	char reason[160];	  /* of a lost one */
	struct dr_sweep_nic *nic; /* with n_nics a DR_F_LIST */
	size_t n_nics;
};

/* Data from one NIC to another, of one pair of nodes. */
struct dr_sweep_lane {
	uint8_t client_nic, server_nic; /* index into the node's NICs */
	uint8_t to_client;		/* direction; 0: to the server */
	uint8_t n_runs;			/* that had it */
	float gbps;	/* the best run; not finite: no data, or it went over another NIC */
	uint32_t wrong; /* chunks with wrong bytes; most of a run */
	float run[DR_SWEEP_RUNS_MAX]; /* gbps of each, in their order */
	bool has_alone;		      /* alone is set */
	float alone; /* Gb/s of this direction while nothing was sent the other way; not finite: no data */
};

/* Directions of a run. */
enum dr_sweep_way { DR_SWEEP_BOTH_WAYS, DR_SWEEP_TO_SERVER, DR_SWEEP_TO_CLIENT };

enum dr_sweep_state { DR_SWEEP_RUNNING, DR_SWEEP_OK, DR_SWEEP_FAILED, DR_SWEEP_MISSING };
struct dr_sweep_result {
	struct dr_sweep_pair pair;
	uint8_t state; /* enum dr_sweep_state */
	uint8_t attempts;
	bool client_done, server_done; /* of the attempt that runs */
	bool again;		       /* to be measured once more */
	uint8_t way;		       /* enum dr_sweep_way, of the run that comes or runs */
	uint32_t round;		       /* the last one that it was in; 0: none */
	bool known;		       /* of the document of --resume, and not measured since */
	int16_t exit_code;	       /* of the client's run; -1: none */
	uint16_t n_lanes;
	struct dr_sweep_lane *lane;
	float rtt_us;	    /* largest median of a GPU; NAN: not measured */
	float rtt_p99_us;   /* largest 99th percentile of a GPU */
	uint32_t unused[2]; /* bit i: the client's, the server's NIC i was not usable */
	char *text;	    /* of a failure; NULL: none */
	char *counters;	    /* that grew in the last run, by end and NIC; NULL: none */
};

/* The node's NIC of that name, added if there is room; -1: none. */
int dr_sweep_nic_index(struct dr_sweep_node *n, const char *name);

/*
 * The figures of a pair as one node sends them to the coordinator, made from the document of the client's run:
 * {"exit_code", "text", "rtt_us", "rtt_p99_us", "lanes": [[client NIC, server NIC, to client, Gb/s, wrong chunks]...],
 * "unused": [[client's end, NIC]...]}. doc NULL: the run left no document. A new reference; NULL: no memory.
 */
json_t *dr_sweep_figures(const json_t *doc, int exit_code, const char *text);
/*
 * Takes such figures into r; the texts are clean (base/text.h). Of a pair that was measured before, the best of each figure
 * counts: noise only lowers figures, and what is slow is low in every run. All figures are kept. Wrong bytes count from any
 * run. Of a run in one direction the figures become `alone` of their lanes. Sets state to OK or FAILED. 0, -EPROTO (not such an object: FAILED), -ENOMEM (as it was).
 */
int dr_sweep_take(struct dr_sweep_result *r, struct dr_sweep_node *client,
	struct dr_sweep_node *server, const json_t *figures);
/* What is low: no figure, or one below the bound, which is a share (--min-pair) of the median. */
static inline bool dr_sweep_is_low(float gbps, double bound)
{
	return !((double)gbps >= bound);
}
/* The lowest figure, of one direction or both; NAN: none. */
float dr_sweep_lowest(const struct dr_sweep_result *r, enum dr_sweep_way way);
/* FAILED with this text, unless it was measured before. */
void dr_sweep_fail(struct dr_sweep_result *r, const char *text);
void dr_sweep_result_fini(struct dr_sweep_result *r);
void dr_sweep_node_fini(struct dr_sweep_node *n);

#endif
