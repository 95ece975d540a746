/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/campaign_priv.h"

/*
 * Did the transport use the NIC that the fault is going to cut? One that moves by itself (--detect transport) may still be
 * on the other NIC after the fault before. Then the fault cuts nothing, and any gap has another reason. The NICs' own
 * counters tell, during the sample before the injection, if they count what the transport sends: a NIC may bypass them
 * (RDMA), and a driver may update them once a second.
 */
#define COUNTED_LEAST 0.9 /* of the payload; else the counters do not tell */
#define COUNTED_MOST                                                                               \
	1.3 /* headers and acknowledgements; above: counted twice, or of a longer time */
#define UNUSED_MOST                                                                                \
	0.1 /* of the payload of the channels that the fault acts on; heartbeats and acknowledgements */

void dr_trial_nics_read(const struct dr_local *l, int rail, struct dr_trial_nics *out)
{
	struct dr_local_flow flow = dr_local_flow(l);
	struct dr_netdev_counters now;
	struct dr_netdev *dev;
	size_t n;

	*out = (struct dr_trial_nics){ .payload = flow.tx_bytes + flow.rx_bytes };
	if (rail < 0 || dr_netdev_list(&dev, &n, NULL))
		return;
	for (size_t i = 0; i < n; i++) {
		if (dev[i].loopback || dr_netdev_counters(dev[i].ifindex, &now, NULL))
			continue;
		out->all += now.tx_bytes + now.rx_bytes;
		if (dev[i].ifindex != l->plan->rail[rail][l->side].ifindex)
			continue;
		out->nic = now.tx_bytes + now.rx_bytes;
		out->known = true;
	}
	dr_netdev_list_free(dev);
}

bool dr_trial_nic_unused(const struct dr_local *l, const struct dr_trial_nics *before,
	const struct dr_trial_nics *after)
{
	double payload = (double)(after->payload - before->payload);
	double all = (double)(after->all - before->all), nic = (double)(after->nic - before->nic);
	unsigned bulk = 0, affected = 0;

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		bulk += ch->bulk;
		affected += ch->trial.affected;
	}
	return before->known && after->known && affected && all >= COUNTED_LEAST * payload &&
	       all <= COUNTED_MOST * payload && nic < UNUSED_MOST * payload * affected / bulk;
}
