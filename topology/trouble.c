/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/trouble.h"

#include "base/sysfile.h"
#include "base/units.h"
#include "topology/netdev.h"

#include <inttypes.h>
#include <stdio.h>

#define NETDEV(member) offsetof(struct dr_netdev_counters, member)
#define OF_PORT SIZE_MAX /* a file of the RDMA port */

static const struct {
	const char *name;
	enum dr_trouble kind;
	size_t off;
} counters[DR_TROUBLE_COUNTERS] = {
	{ "rx_errors", DR_TROUBLE_ERRORS, NETDEV(rx_errors) },
	{ "tx_errors", DR_TROUBLE_ERRORS, NETDEV(tx_errors) },
	{ "rx_dropped", DR_TROUBLE_DROPS, NETDEV(rx_dropped) },
	{ "tx_dropped", DR_TROUBLE_DROPS, NETDEV(tx_dropped) },
	{ "rx_missed", DR_TROUBLE_DROPS, NETDEV(rx_missed) },
	{ "carrier_changes", DR_TROUBLE_LINK, NETDEV(carrier_changes) },
	{ "symbol_error", DR_TROUBLE_ERRORS, OF_PORT },
	{ "port_rcv_errors", DR_TROUBLE_ERRORS, OF_PORT },
	{ "local_link_integrity_errors", DR_TROUBLE_ERRORS, OF_PORT },
	{ "port_xmit_discards", DR_TROUBLE_DROPS, OF_PORT },
	{ "link_error_recovery", DR_TROUBLE_LINK, OF_PORT },
	{ "link_downed", DR_TROUBLE_LINK, OF_PORT },
};

struct ports {
	const char *root;
	char dir[96];
	struct dr_trouble_counts *out;
};

static int add_port(const char *port, void *arg)
{
	struct ports *p = arg;
	int64_t v;

	for (size_t i = 0; i < DR_TROUBLE_COUNTERS; i++)
		if (counters[i].off == OF_PORT &&
			dr_sysfile_number(
				&v, p->root, "%s/%s/counters/%s", p->dir, port, counters[i].name))
			p->out->n[i] += (uint64_t)v;
	return 0;
}

void dr_trouble_read(const char *root, int ifindex, const char *rdma, struct dr_trouble_counts *out)
{
	struct ports p = { .root = root, .out = out };
	struct dr_netdev_counters c;

	*out = (struct dr_trouble_counts){ 0 };
	bool counted = ifindex > 0 && dr_netdev_counters(ifindex, &c, NULL) == 0;
	for (size_t i = 0; counted && counters[i].off != OF_PORT; i++)
		out->n[i] = *(const uint64_t *)(const void *)((const char *)&c + counters[i].off);
	if (rdma[0] &&
		dr_sysfile_path(p.dir, sizeof(p.dir), "", "/sys/class/infiniband/%s/ports", rdma))
		dr_sysfile_each(root, p.dir, add_port, &p);
}

void dr_trouble_growth(const struct dr_trouble_counts *before, const struct dr_trouble_counts *now,
	int64_t sum[DR_TROUBLES], char *text, size_t len)
{
	text[0] = '\0';
	for (size_t i = 0; i < DR_TROUBLES; i++)
		sum[i] = 0;
	for (size_t i = 0; i < DR_TROUBLE_COUNTERS; i++) {
		int64_t n = (int64_t)(now->n[i] - before->n[i]);

		if (n <= 0)
			continue;
		sum[counters[i].kind] += n;
		dr_append(text, len, "%s%s +%" PRId64, text[0] ? ", " : "", counters[i].name, n);
	}
}
