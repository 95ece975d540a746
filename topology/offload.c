/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/offload.h"

#include "base/defs.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool ask(int fd, const char *ifname, void *request)
{
	struct ifreq ifr = { 0 };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
	ifr.ifr_data = request;
	return ioctl(fd, SIOCETHTOOL, &ifr) == 0;
}

static int value_of(int fd, const char *ifname, uint32_t cmd)
{
	struct ethtool_value v = { .cmd = cmd };

	return ask(fd, ifname, &v) ? v.data != 0 : -1;
}

void dr_offload_read(const char *ifname, struct dr_offload *out)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*out = (struct dr_offload){ -1, -1, -1, "", "" };
	if (fd < 0)
		return;
	out->tso = value_of(fd, ifname, ETHTOOL_GTSO);
	out->gso = value_of(fd, ifname, ETHTOOL_GGSO);
	out->gro = value_of(fd, ifname, ETHTOOL_GGRO);
	if (ask(fd, ifname, &info)) {
		snprintf(out->driver, sizeof(out->driver), "%.31s", info.driver);
		snprintf(out->firmware, sizeof(out->firmware), "%.31s", info.fw_version);
	}
	close(fd);
}
