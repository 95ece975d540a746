/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/settings.h"

#include "base/sysfile.h"
#include "topology/offload.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t third_number(const char *root, const char *name)
{
	uint64_t max = 0;
	char text[96];

	if (dr_sysfile_text(text, sizeof(text), root, "/proc/sys/net/ipv4/%s", name) <= 0 ||
		sscanf(text, "%*u %*u %" SCNu64, &max) != 1)
		return 0;
	return max;
}

void dr_settings_read(const char *root, struct dr_settings *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < DR_RAILS_MAX; i++)
		out->nic[i].tso = out->nic[i].gso = out->nic[i].gro = -1;
	dr_sysfile_text(out->congestion_control, sizeof(out->congestion_control), root,
		"/proc/sys/net/ipv4/tcp_congestion_control");
	out->rmem_max = third_number(root, "tcp_rmem");
	out->wmem_max = third_number(root, "tcp_wmem");
}

void dr_settings_read_nic(const char *ifname, struct dr_settings_nic *out)
{
	struct dr_offload o;

	dr_offload_read(ifname, &o);
	*out = (struct dr_settings_nic){ .tso = o.tso, .gso = o.gso, .gro = o.gro };
}
