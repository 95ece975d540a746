/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_KIND_H
#define DR_TRANSPORT_VERBS_KIND_H

#include "transport/kind.h"
#include "transport/verbs/dev.h"

/* The descriptor of the verbs kind. */
extern const struct dr_transport_kind dr_verbs_kind;

/* What is worth saying about a device that works: its GID, and its MTU against out->netdev_mtu. */
void dr_verbs_findings(const struct dr_verbs_dev *d, struct dr_kind_probe *out);

#endif
