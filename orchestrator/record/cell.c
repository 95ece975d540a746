/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/record/cell.h"
#include "orchestrator/record/report.h"

/* In the order of enum dr_table_format: each pair is one prefix in bits and in bytes. */
static const struct rate_unit units[] = { { "Gb/s", 1 }, { "GB/s", 1.0 / 8 }, { "Mb/s", 1000 },
	{ "MB/s", 1000.0 / 8 } };
static unsigned in_use;

void dr_table_set_format(enum dr_table_format format)
{
	dr_assert((size_t)format < DR_ARRAY_LEN(units));
	in_use = format;
}

const struct rate_unit *rate_unit(bool other)
{
	return &units[in_use ^ other];
}
