/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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
	char part[HA_PATH_BYTES + 32];
	FILE *f = NULL;
	int fd, rc = 0;

	snprintf(part, sizeof(part), "%s.%d", path, (int)getpid());
	(void)unlink(part); /* of an earlier process with this number */
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd >= 0 && !(f = fdopen(fd, "w")))
		close(fd);
	if (!f)
		return dr_err_set(e, -errno, "HA_NCCL_METRICS_FILE: %s: %s", part, strerror(errno));
	ha_counters_print(c, d, f);
	if (ferror(f))
		rc = -EIO;
	if (fclose(f) != 0)
		rc = -errno;
	if (rc == 0 && rename(part, path) != 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	(void)unlink(part);
	return dr_err_set(e, rc, "HA_NCCL_METRICS_FILE: %s: %s", path, strerror(-rc));
}
