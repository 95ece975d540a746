/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_TOPO_DRA_H
#define DR_ORCHESTRATOR_TOPO_DRA_H

#include "base/err.h"
#include "base/fields.h"
#include "topology/topo.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Devices that Kubernetes allocated to this pod by dynamic resource allocation (DRA), from the metadata that its drivers
 * mount into a container (KEP-5304, DeviceMetadata of metadata.resource.k8s.io; alpha in Kubernetes 1.36, beta in 1.37):
 *
 *   DIR/resourceclaims/CLAIM/REQUEST/DRIVER-metadata.json
 *   DIR/resourceclaimtemplates/CLAIM-OF-THE-POD/REQUEST/DRIVER-metadata.json
 *
 * A file is one or more JSON objects, the same metadata in several versions of the interface. Attributes are the standard
 * ones of resource.kubernetes.io: pciBusID, pcieRoot ("pci0000:15") and numaNode (a number, or a list that begins with it).
 * What is absent is "" or -1.
 */
enum { DR_DRA_DEVICES_MAX = 256, DR_DRA_FILE_MAX = 1 << 20 };

struct dr_dra_device {
	char claim[64]; /* name of the directory */
	char request[64], driver[64], name[64];
	char bus_id[16]; /* "0000:1b:00.0" */
	char pcie_root[24];
	char ifname[16]; /* of its network interface in this pod */
	int numa;
};

struct dr_dra {
	struct dr_dra_device *v; /* in the order of the paths */
	size_t n;
};

/* Everything in dir; out is empty where dir does not exist. A file that cannot be used is named in a warning and left
 * out. -errno: dir or a directory below it cannot be read. */
int dr_dra_read(const char *dir, struct dr_dra *out, struct dr_err *e) DR_MUST_CHECK;
/* Appends the devices of one file's text. Nothing is appended with an error. -EBADMSG: it is malformed, or has no version
 * that is known; -E2BIG: more than DR_DRA_DEVICES_MAX in all; -ENOMEM. */
int dr_dra_parse(struct dr_dra *d, const char *claim, const char *text, size_t len,
	struct dr_err *e) DR_MUST_CHECK;
void dr_dra_free(struct dr_dra *d);

/* The devices as an array of dr_dra_fields, with what they are here; NULL: no memory. */
extern const struct dr_fields dr_dra_fields;
json_t *dr_dra_json(const struct dr_dra *d, const struct dr_topo *t);
/* The same as a table, and which GPUs have a NIC of the pod below their PCIe root; nothing for an empty list. */
void dr_dra_print(const json_t *list, FILE *f);

/* Number of the GPU, or the NIC, that the device is; -1, NULL: none of t. */
int dr_dra_gpu(const struct dr_dra_device *d, const struct dr_topo *t);
const struct dr_topo_nic *dr_dra_nic(const struct dr_dra_device *d, const struct dr_topo *t);

#endif
