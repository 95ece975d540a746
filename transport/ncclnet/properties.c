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

/* Per version: asks the plugin, and copies what its struct has. */
#define READ(v, ...)                                                                               \
	static enum nccl_result read_##v(                                                          \
		const struct dr_nccl *n, int dev, union any *u, struct dr_nccl_properties *out)    \
	{                                                                                          \
		struct nccl_net_properties_##v *p = &u->v;                                         \
		enum nccl_result rc = n->properties.v(dev, p);                                     \
                                                                                                   \
		if (rc != NCCL_SUCCESS)                                                            \
			return rc;                                                                 \
		out->name = p->name;                                                               \
		out->pci_path = p->pciPath;                                                        \
		out->guid = p->guid;                                                               \
		out->ptr_support = p->ptrSupport;                                                  \
		out->speed_mbps = p->speed;                                                        \
		out->port = p->port;                                                               \
		out->max_comms = p->maxComms;                                                      \
		out->max_recvs = p->maxRecvs;                                                      \
		__VA_ARGS__                                                                        \
		return rc;                                                                         \
	}
#define DEVICE                                                                                     \
	out->device_type = p->netDeviceType;                                                       \
	out->device_version = p->netDeviceVersion;
#define GLOBAL out->reg_is_global = p->regIsGlobal;
#define SIZES                                                                                      \
	out->force_flush = p->forceFlush;                                                          \
	out->ndevs = p->vProps.ndevs;                                                              \
	out->p2p_bytes = p->maxP2pBytes;
#define MULTI out->multi_request = p->maxMultiRequestSize;

/* clang-format off */
READ(v6)
READ(v7, DEVICE)
READ(v8, DEVICE GLOBAL)
READ(v9, DEVICE GLOBAL SIZES)
READ(v11, DEVICE GLOBAL SIZES MULTI)
READ(v12, DEVICE GLOBAL SIZES MULTI)
#define VERSION(v) { sizeof(struct nccl_net_properties_##v), read_##v }
static const struct {
	size_t bytes;
	enum nccl_result (*read)(
		const struct dr_nccl *n, int dev, union any *u, struct dr_nccl_properties *out);
} versions[] = { VERSION(v6), VERSION(v7), VERSION(v8), VERSION(v9), VERSION(v9), VERSION(v11),
	VERSION(v12) };
/* clang-format on */

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
	rc = versions[n->version - DR_NCCL_OLDEST].read(n, dev, &p, out);
	for (size_t i = versions[n->version - DR_NCCL_OLDEST].bytes; i < sizeof(p); i++)
		out->past_end = out->past_end || p.bytes[i] != PATTERN;
	if (rc == NCCL_SUCCESS)
		out->unset = find_unset(out);
	return rc;
}
