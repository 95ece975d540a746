/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_OFFLOAD_H
#define DR_TOPOLOGY_OFFLOAD_H

/* What of a network device, beside its speed and MTU, changes the figures of TCP. */
struct dr_offload {
	int tso, gso, gro;	       /* 1 on, 0 off, -1 unknown */
	char driver[32], firmware[32]; /* "": unknown */
};

/* Of the device in the caller's network namespace, through the ethtool ioctl. What the device does not tell stays
 * unknown. */
void dr_offload_read(const char *ifname, struct dr_offload *out);

#endif
