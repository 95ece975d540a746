/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CLIENT_PRIV_H
#define DR_BOOTSTRAP_CLIENT_PRIV_H

#include "bootstrap/end.h"

/* Shared by client.c (the session) and client_dial.c (whom to dial, when). */

/* Dialling for connection 0: candidates in turn, a pause after each round. */
struct dr_client_dialer {
	struct dr_link *link; /* under way; NULL between two */
	bool active;
	unsigned index;
	int64_t next_ns, backoff_ns, began_ns, until_ns;
	unsigned attempts;
	unsigned refused_in_row;  /* where control was, for RESUME */
	enum dr_boot_cause cause; /* of the last attempt */
	char text[160];
	struct dr_addr last; /* len 0: none was dialled yet */
};

struct dr_boot_client {
	struct dr_boot_end e; /* exchange_until_ns: from OFFER on */
	char *host;
	uint16_t port_base, port_first;
	json_t *offer;
	struct dr_addr addrs[DR_ADDRS_MAX], local[DR_ADDRS_MAX], alternatives[DR_ADDRS_MAX];
	unsigned n_addrs, n_local, n_alternatives;
	bool numeric;
	int64_t resolved_ns;
	struct dr_err resolve_err;
	struct dr_client_dialer dial;
	struct dr_addr server; /* of connection 0 */
	unsigned server_gpus[DR_BOOT_GPUS_MAX];
	bool was_ready, drop_asked, wait_busy;
};

/* client_dial.c */
void dr_client_dial_start(struct dr_boot_client *c, int64_t now_ns, int64_t until_ns);
/* Dial what is due; true when it is time to give up, with cause and complete text. */
bool dr_client_dial_tick(
	struct dr_boot_client *c, int64_t now_ns, enum dr_boot_cause *cause, struct dr_err *e);
/* The attempt under way failed in a way that may pass. */
void dr_client_dial_failed(
	struct dr_boot_client *c, enum dr_boot_cause cause, const char *text, int64_t now_ns);
int64_t dr_client_dial_deadline(const struct dr_boot_client *c);
#define DR_CLIENT_LOCAL_ADVICE                                                                     \
	"widen net.ipv4.ip_local_port_range, or raise the limit of open files (ulimit -n)"
/* Connections of pairs 1..; failures that may pass are tried again until exchange_until_ns.
 * -errno: this process lacks what a connection needs. */
int dr_client_pairs_tick(struct dr_boot_client *c, int64_t now_ns);
int64_t dr_client_pairs_deadline(const struct dr_boot_client *c);

#endif
