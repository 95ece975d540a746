/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_HOST_H
#define DR_TESTS_PLUGIN_HOST_H

#include "base/nccl_net_abi.h"

#include <stdbool.h>

/*
 * A host for network plugins: it loads one as NCCL does and hides the version of the ABI. Only what that version has is
 * used; what it lacks is marked below.
 *
 * Versions 6 to 10 have no contexts: as NCCL does, init is called once for all contexts of the host, and finalize tells
 * the plugin nothing. Calls may come from several threads, as the plugin's rules say.
 *
 * A result is the plugin's. The host checks what holds for every call and counts violations in `broken`.
 */
enum { HOST_OLDEST = 6, HOST_NEWEST = 12 };

/* One line that the plugin logged. */
struct host_line {
	enum nccl_log_level level;
	char text[240];
	_Atomic bool whole; /* not being written */
};
/* The last lines, line number n in [n % HOST_LINES]. Memory of the user, e.g. shared with another process. */
enum { HOST_LINES = 256 };
struct host_log {
	_Atomic unsigned n;
	struct host_line line[HOST_LINES];
};

struct host {
	unsigned version;
	void *so;
	const void *table;
	unsigned contexts;
	const char *name;
	/* The same in all versions. */
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*dereg)(void *comm, void *mhandle);
	enum nccl_result (*flush)(
		void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
	enum nccl_result (*test)(void *request, int *done, int *sizes);
	enum nccl_result (*close_send)(void *comm);
	enum nccl_result (*close_recv)(void *comm);
	enum nccl_result (*close_listen)(void *comm);
};

/* Loads the file and finds the table of that version. 0 or -errno, with the reason in `why`. */
int host_load(struct host *h, const char *file, unsigned version, char *why, size_t len);
/* dlclose. The plugin's memory must not be touched afterwards. */
void host_unload(struct host *h);
/* Where the plugin's lines go; NULL: nowhere. One for the process. */
void host_log_to(struct host_log *log);
/* The number of lines of that level that contain the text. Level NONE: of all levels. */
unsigned host_logged(const struct host_log *log, enum nccl_log_level level, const char *text);

bool host_has_contexts(const struct host *h);

/* *ctx is preset to a wild pointer, which the plugin has to overwrite. */
enum nccl_result host_init(struct host *h, void **ctx);
enum nccl_result host_finalize(struct host *h, void *ctx);

/* All members of all versions; `has` says which of them this version has. */
struct host_properties {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support, speed, port, max_comms, max_recvs;
	float latency;
	struct {
		bool device, global, vprops, multi, rail;
	} has;
	int device_type, device_version;   /* v7 */
	int reg_is_global;		   /* v8 */
	int force_flush, ndevs, first_dev; /* v9 */
	size_t p2p_bytes, coll_bytes;
	int multi_request;     /* v11 */
	int rail_id, plane_id; /* v12 */
	/* The struct was filled with a pattern before the call. */
	bool rest_zero; /* members without a meaning are zero */
	bool past_end;	/* bytes behind the struct were written */
};
enum nccl_result host_properties(const struct host *h, int dev, struct host_properties *out);

enum nccl_result host_listen(
	const struct host *h, void *ctx, int dev, void *handle, void **listen_comm);
/* devices: with pointers for device handles, of which the plugin must write none; else NULL is passed. */
enum nccl_result host_connect(
	const struct host *h, void *ctx, int dev, void *handle, void **send_comm);
enum nccl_result host_accept(const struct host *h, void *listen_comm, void **recv_comm);
/* The next connects and accepts pass NULL in place of a pointer to a device handle. */
void host_no_device_handles(bool on);

enum nccl_result host_reg(
	const struct host *h, void *comm, void *data, size_t size, int type, void **mhandle);

/* One buffer. */
struct host_buffer {
	void *data, *mhandle;
	size_t size;
	int tag;
};
/* *request is an argument of irecv: its value at entry counts from version 9 on. */
enum nccl_result host_send(
	const struct host *h, void *comm, const struct host_buffer *b, void **request);
enum nccl_result host_recv(
	const struct host *h, void *comm, int n, const struct host_buffer *b, void **request);
/* -1 where the version has none. */
int host_set_attr(const struct host *h, void *ctx, struct nccl_net_attr *attr);
/* Members that NCCL would act on, and that a plugin for host devices leaves out. */
bool host_has_consumed(const struct host *h);
bool host_has_device_mr(const struct host *h);

const char *host_result_name(enum nccl_result rc);

#endif
