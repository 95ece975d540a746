/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_TROUBLE_H
#define DR_TOPOLOGY_TROUBLE_H

#include <stddef.h>
#include <stdint.h>

/*
 * What a NIC counts of errors, drops and changes of its link: the network device's counters
 * (rtnetlink), and those of the ports of an RDMA device (/sys/class/infiniband/NAME/ports). A
 * counter that cannot be read is 0. Thread safe.
 */
enum dr_trouble { DR_TROUBLE_ERRORS, DR_TROUBLE_DROPS, DR_TROUBLE_LINK, DR_TROUBLES };
enum { DR_TROUBLE_COUNTERS = 12 };
struct dr_trouble_counts {
	uint64_t n[DR_TROUBLE_COUNTERS];
};

/* root: as of base/sysfile.h. ifindex 0: no network device; rdma: "": no RDMA device, else all of its ports. */
void dr_trouble_read(
	const char *root, int ifindex, const char *rdma, struct dr_trouble_counts *out);
/* Sums of what grew, by kind; text: "rx_missed +12, symbol_error +3", "": nothing. A counter that was reset did not
 * grow. */
void dr_trouble_growth(const struct dr_trouble_counts *before, const struct dr_trouble_counts *now,
	int64_t sum[DR_TROUBLES], char *text, size_t len);

#endif
