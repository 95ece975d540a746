/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_REPORT_MATRIX_H
#define DR_REPORT_MATRIX_H

#include "channel/manager.h"
#include "orchestrator/record.h"

#include <stdio.h>

/*
 * What a matrix says about its NICs: one finding for each rail and direction, from the cells and the
 * NICs' own counters. The rules, first that holds:
 *
 *   idle  the counter of either end's NIC rose by less than a tenth of what the rail's cells delivered
 *         (the data went another way), or they delivered nothing; or it carried less than a hundredth of
 *         the busiest one when all rails were used together
 *   left  channels were not on the rail all the time in some of its cells
 *   slow  the best of its cells is below 80 % of the median of the other rails' best; or below 80 % of
 *         its own speed (the slower end's, where both ends tell) while another rail reaches that
 *   unknown, ok
 *
 * A cell that channels left says nothing about the rail's speed. Speeds in Gb/s.
 */
enum dr_matrix_verdict {
	DR_MATRIX_OK,
	DR_MATRIX_SLOW,
	DR_MATRIX_LEFT,
	DR_MATRIX_IDLE,
	DR_MATRIX_UNKNOWN
};

struct dr_matrix_nic {
	int64_t rail;
	int direction;		    /* enum dr_direction */
	const char *nic, *peer_nic; /* client's, server's; the record's */
	double alone_gbps;	    /* best cell that no channel left; NAN: none */
	double together_gbps; /* all GPUs over all rails: the receiving NIC's own counter, else the
				       sending one's; headers included. NAN: no counter */
	double share_percent; /* of the sum of those */
	int verdict;	      /* enum dr_matrix_verdict */
	char text[240];	      /* why, for people; "": ok */
};

/* In the order of the cells, at most cap; returns how many. 0: no matrix. */
size_t dr_matrix_nics(const struct dr_record *rec, struct dr_matrix_nic *out, size_t cap);
/* Key "matrix" of the document: {cells[], together{gbps, to_server_gbps, to_client_gbps, counters[]},
 * nics[]}; JSON null without a matrix. NULL: no memory. */
json_t *dr_matrix_to_json(const struct dr_record *rec);
/* The heat table and the findings; nothing without a matrix. Colours when f is a terminal. */
void dr_matrix_print(const struct dr_record *rec, FILE *f);
/* One cell, while it runs. */
void dr_matrix_print_cell(const struct dr_cell_row *r, FILE *f);

extern const char *const dr_matrix_verdict_names[]; /* ok, slow, left, idle, unknown */
enum { DR_MATRIX_NICS_MAX = 2 * DR_RAILS_MAX };

#endif
