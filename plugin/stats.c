/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/stats.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>

#define OPTION "HA_NCCL_METRICS_FILE"

void ha_counters_add(struct ha_counters *to, const struct dr_channel_stats *st, bool sender,
	const unsigned by_path[DR_PATHS])
{
	for (unsigned i = 0; i < DR_PATHS; i++) {
		unsigned d = by_path[i];

		*(sender ? &to->tx_bytes[d] : &to->rx_bytes[d]) += st->path_bytes[i];
		to->connections[d] += st->path_connections[i];
	}
	if (sender)
		return; /* both ends count a switch; the receiver knows the gap */
	to->switches += st->switches;
	to->failbacks += st->failbacks;
}

void ha_counters_sum(struct ha_counters *to, const struct ha_counters *from)
{
	for (unsigned i = 0; i < HA_DEVICES_MAX; i++) {
		to->tx_bytes[i] += from->tx_bytes[i];
		to->rx_bytes[i] += from->rx_bytes[i];
		to->connections[i] += from->connections[i];
	}
	to->switches += from->switches;
	to->failbacks += from->failbacks;
	to->comms += from->comms;
	to->gap_seconds += from->gap_seconds;
}

static void head(FILE *to, const char *name, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
}

static void total(FILE *to, const char *name, const char *help, double value)
{
	head(to, name, help);
	fprintf(to, "%s %.17g\n", name, value);
}

void ha_counters_print(const struct ha_counters *c, const struct ha_devices *d, FILE *to)
{
	head(to, "dualrail_nccl_bytes_total", "User data carried over a device, replays included.");
	for (unsigned i = 0; i < d->n; i++)
		fprintf(to,
			"dualrail_nccl_bytes_total{device=\"%s\",direction=\"tx\"} %llu\n"
			"dualrail_nccl_bytes_total{device=\"%s\",direction=\"rx\"} %llu\n",
			d->dev[i].name, (unsigned long long)c->tx_bytes[i], d->dev[i].name,
			(unsigned long long)c->rx_bytes[i]);
	head(to, "dualrail_nccl_connections_total",
		"Data connections made over a device, including rebuilt ones.");
	for (unsigned i = 0; i < d->n; i++)
		fprintf(to, "dualrail_nccl_connections_total{device=\"%s\"} %llu\n", d->dev[i].name,
			(unsigned long long)c->connections[i]);
	total(to, "dualrail_nccl_comms_total", "Comms opened.", (double)c->comms);
	total(to, "dualrail_nccl_switches_total",
		"Switches of paths of receivers, failbacks included.", (double)c->switches);
	total(to, "dualrail_nccl_failbacks_total", "Planned switches of receivers.",
		(double)c->failbacks);
	total(to, "dualrail_nccl_gap_seconds_total",
		"Delivery gaps of all unplanned switches of receivers.", c->gap_seconds);
}

int ha_counters_write(
	const struct ha_counters *c, const struct ha_devices *d, const char *path, struct dr_err *e)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int rc = f ? 0 : -ENOMEM;

	if (f) {
		ha_counters_print(c, d, f);
		rc = fclose(f) ? -ENOMEM : 0;
	}
	/* Not flushed to disk: it is written again in seconds, by a thread that others wait for. */
	rc = rc ? dr_err_set(e, rc, OPTION ": out of memory")
		: dr_file_write(OPTION, path, text, len, 0, e);
	free(text); /* lint-ok: of open_memstream */
	return rc;
}
