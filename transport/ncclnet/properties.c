/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet.h"

#include <string.h>

/* Properties of a device, from the struct of the plugin's version. */

enum { PATTERN = 0xa5 };
static const int UNSET_INT = (int)0xa5a5a5a5;

union any {
	struct nccl_net_properties_v6 v6;
	struct nccl_net_properties_v7 v7;
	struct nccl_net_properties_v8 v8;
	struct nccl_net_properties_v9 v9;
	struct nccl_net_properties_v11 v11;
	struct nccl_net_properties_v12 v12;
	unsigned char bytes[sizeof(struct nccl_net_properties_v12) + 64];
};

#define HEAD(p)                                                                                    \
	(out->name = (p)->name, out->pci_path = (p)->pciPath, out->guid = (p)->guid,               \
		out->ptr_support = (p)->ptrSupport, out->speed_mbps = (p)->speed,                  \
		out->port = (p)->port, out->max_comms = (p)->maxComms,                             \
		out->max_recvs = (p)->maxRecvs)
#define DEVICE(p)                                                                                  \
	(out->device_type = (p)->netDeviceType, out->device_version = (p)->netDeviceVersion)
#define SIZES(p)                                                                                   \
	(out->reg_is_global = (p)->regIsGlobal, out->force_flush = (p)->forceFlush,                \
		out->ndevs = (p)->vProps.ndevs, out->p2p_bytes = (p)->maxP2pBytes)

static enum nccl_result ask(const struct dr_nccl *n, int dev, union any *p)
{
	switch (n->version) {
	case 6:
		return n->properties.v6(dev, &p->v6);
	case 7:
		return n->properties.v7(dev, &p->v7);
	case 8:
		return n->properties.v8(dev, &p->v8);
	case 9:
	case 10:
		return n->properties.v9(dev, &p->v9);
	case 11:
		return n->properties.v11(dev, &p->v11);
	default:
		return n->properties.v12(dev, &p->v12);
	}
}

static size_t bytes_of(unsigned version)
{
	static const size_t bytes[] = { sizeof(struct nccl_net_properties_v6),
		sizeof(struct nccl_net_properties_v7), sizeof(struct nccl_net_properties_v8),
		sizeof(struct nccl_net_properties_v9), sizeof(struct nccl_net_properties_v9),
		sizeof(struct nccl_net_properties_v11), sizeof(struct nccl_net_properties_v12) };

	return bytes[version - DR_NCCL_OLDEST];
}

static void copy(unsigned version, const union any *p, struct dr_nccl_properties *out)
{
	if (version == 6) {
		HEAD(&p->v6);
	} else if (version == 7) {
		HEAD(&p->v7);
		DEVICE(&p->v7);
	} else if (version == 8) {
		HEAD(&p->v8);
		DEVICE(&p->v8);
		out->reg_is_global = p->v8.regIsGlobal;
	} else if (version < 11) {
		HEAD(&p->v9);
		DEVICE(&p->v9);
		SIZES(&p->v9);
	} else if (version == 11) {
		HEAD(&p->v11);
		DEVICE(&p->v11);
		SIZES(&p->v11);
		out->multi_request = p->v11.maxMultiRequestSize;
	} else {
		HEAD(&p->v12);
		DEVICE(&p->v12);
		SIZES(&p->v12);
		out->multi_request = p->v12.maxMultiRequestSize;
	}
}

static const char *find_unset(const struct dr_nccl_properties *p)
{
	const struct {
		const char *name;
		int value;
	} member[] = { { "ptrSupport", p->ptr_support }, { "speed", p->speed_mbps },
		{ "port", p->port }, { "maxComms", p->max_comms }, { "maxRecvs", p->max_recvs },
		{ "netDeviceType", p->device_type }, { "regIsGlobal", p->reg_is_global },
		{ "forceFlush", p->force_flush }, { "vProps.ndevs", p->ndevs },
		{ "maxMultiRequestSize", p->multi_request } };
	static const uint64_t unset = 0xa5a5a5a5a5a5a5a5u;

	for (size_t i = 0; i < DR_ARRAY_LEN(member); i++)
		if (member[i].value == UNSET_INT)
			return member[i].name;
	if ((uint64_t)(uintptr_t)p->name == unset)
		return "name";
	if ((uint64_t)(uintptr_t)p->pci_path == unset)
		return "pciPath";
	return p->guid == unset ? "guid" : p->p2p_bytes == unset ? "maxP2pBytes" : NULL;
}

enum nccl_result dr_nccl_properties(
	const struct dr_nccl *n, int dev, struct dr_nccl_properties *out)
{
	union any p;
	enum nccl_result rc;

	memset(&p, PATTERN, sizeof(p));
	*out = (struct dr_nccl_properties){
		.ndevs = 1, .p2p_bytes = NCCL_NET_BYTES_MAX, .multi_request = 1
	};
	rc = ask(n, dev, &p);
	for (size_t i = bytes_of(n->version); i < sizeof(p); i++)
		out->past_end = out->past_end || p.bytes[i] != PATTERN;
	if (rc == NCCL_SUCCESS) {
		copy(n->version, &p, out);
		out->unset = find_unset(out);
	}
	return rc;
}
