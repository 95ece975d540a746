/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_STATS_H
#define DR_PLUGIN_STATS_H

#include "plugin/device.h"

#include <stdio.h>

/*
 * Counters of the process's part of the plugin, which only grow. The owner collects them from its sessions; here they are
 * added and written as a Prometheus text file for the textfile collector of node_exporter.
 */
struct ha_counters {
	uint64_t tx_bytes[HA_DEVICES_MAX], rx_bytes[HA_DEVICES_MAX], connections[HA_DEVICES_MAX];
	uint64_t switches, failbacks, comms;
	double gap_seconds; /* of all switches at receivers */
};

/* Adds those of a channel: by_path: devices of its paths; sender: data left here. */
void ha_counters_add(struct ha_counters *to, const struct dr_channel_stats *st, bool sender,
	const unsigned by_path[DR_PATHS]);
void ha_counters_sum(struct ha_counters *to, const struct ha_counters *from);
/* The text, one series per device or total. */
void ha_counters_print(const struct ha_counters *c, const struct ha_devices *d, FILE *to);
/* Writes it as dr_file_write does. -errno. */
int ha_counters_write(const struct ha_counters *c, const struct ha_devices *d, const char *path,
	struct dr_err *e);

#endif
