/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_IBV_H
#define DR_TRANSPORT_VERBS_IBV_H

#include "base/err.h"

#include <infiniband/verbs.h>

/*
 * libibverbs.so.1, opened at run time, so that one binary runs where there is no RDMA stack. Headers
 * come from libibverbs-dev; what verbs.h defines inline (ibv_post_send, ibv_post_recv, ibv_poll_cq,
 * ibv_req_notify_cq) goes through the context's ops and is used as it is; everything exported is
 * called through this table and never by name.
 *
 * Conventions as in verbs.h (pointer or NULL + errno; 0 or errno; 0 or -1 + errno): whoever calls
 * converts. Names: the symbol without "ibv_".
 */
struct dr_ibv {
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *d);
	struct ibv_context *(*open_device)(struct ibv_device *d);
	int (*close_device)(struct ibv_context *c);
	int (*query_device)(struct ibv_context *c, struct ibv_device_attr *a);
	int (*query_port)(
		struct ibv_context *c, uint8_t port, struct ibv_port_attr *a); /* all fields that
										the caller zeroed are valid or 0 */
	int (*query_gid_ex)(struct ibv_context *c, uint32_t port, uint32_t index,
		struct ibv_gid_entry *e, uint32_t flags, size_t entry_size);
	/* All ports at once: how many entries, -errno; NULL where the library is older than 32. */
	ssize_t (*query_gid_table)(struct ibv_context *c, struct ibv_gid_entry *e, size_t max,
		uint32_t flags, size_t entry_size);
	int (*get_async_event)(struct ibv_context *c, struct ibv_async_event *ev);
	void (*ack_async_event)(struct ibv_async_event *ev);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *c);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova,
		int fd, int access); /* NULL where the library is older */
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *c);
	int (*destroy_comp_channel)(struct ibv_comp_channel *ch);
	struct ibv_cq *(*create_cq)(
		struct ibv_context *c, int cqe, void *ctx, struct ibv_comp_channel *ch, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **ctx);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *a);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask);
	int (*query_qp)(
		struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *ia);
	int (*destroy_qp)(struct ibv_qp *qp);
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *a);
	int (*destroy_ah)(struct ibv_ah *ah);
	const char *(*wc_status_str)(enum ibv_wc_status s);
	const char *(*event_type_str)(enum ibv_event_type t);
	const char *(*port_state_str)(enum ibv_port_state s);
};

/* The table, opened once for the process (DR_IBVERBS names another library than libibverbs.so.1);
 * thread-safe. -ENOENT with what to install when it is missing, -ENOSYS when it lacks a symbol. */
int dr_ibv_load(const struct dr_ibv **out, struct dr_err *e) DR_MUST_CHECK;

#endif
