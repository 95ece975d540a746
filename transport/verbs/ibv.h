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
 * Conventions as in verbs.h (pointer or NULL + errno; 0 or errno; 0 or -1 + errno): the caller
 * converts. Names: the symbol without "ibv_".
 */
/* clang-format off */
/* X(field, result, arguments): the symbol is "ibv_" and the field. OTHER(field, symbol, result, arguments).
 * OPT(...) as OTHER: NULL where the library is older. */
#define DR_IBV_CALLS(X, OTHER, OPT)                                                                \
	X(get_device_list, struct ibv_device **, (int *n))                                         \
	X(free_device_list, void, (struct ibv_device **list))                                      \
	X(get_device_name, const char *, (struct ibv_device *d))                                   \
	X(open_device, struct ibv_context *, (struct ibv_device *d))                               \
	X(close_device, int, (struct ibv_context *c))                                              \
	X(query_device, int, (struct ibv_context *c, struct ibv_device_attr *a))                   \
	/* all fields that the caller zeroed are valid or 0 */                                     \
	X(query_port, int, (struct ibv_context *c, uint8_t port, struct ibv_port_attr *a))         \
	OTHER(query_gid_ex, _ibv_query_gid_ex, int,                                                \
		(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e,    \
			uint32_t flags, size_t entry_size))                                        \
	/* all ports at once: how many entries, -errno */                                          \
	OTHER(query_gid_table, _ibv_query_gid_table, ssize_t,                                      \
		(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags,       \
			size_t entry_size))                                                        \
	X(get_async_event, int, (struct ibv_context *c, struct ibv_async_event *ev))               \
	X(ack_async_event, void, (struct ibv_async_event *ev))                                     \
	X(alloc_pd, struct ibv_pd *, (struct ibv_context *c))                                      \
	X(dealloc_pd, int, (struct ibv_pd *pd))                                                    \
	X(reg_mr, struct ibv_mr *, (struct ibv_pd *pd, void *addr, size_t len, int access))        \
	OPT(reg_dmabuf_mr, ibv_reg_dmabuf_mr, struct ibv_mr *,                                     \
		(struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access))  \
	X(dereg_mr, int, (struct ibv_mr *mr))                                                      \
	X(create_comp_channel, struct ibv_comp_channel *, (struct ibv_context *c))                 \
	X(destroy_comp_channel, int, (struct ibv_comp_channel *ch))                                \
	X(create_cq, struct ibv_cq *, (struct ibv_context *c, int cqe, void *ctx,                  \
		struct ibv_comp_channel *ch, int vector))                                          \
	X(destroy_cq, int, (struct ibv_cq *cq))                                                    \
	X(get_cq_event, int, (struct ibv_comp_channel *ch, struct ibv_cq **cq, void **ctx))        \
	X(ack_cq_events, void, (struct ibv_cq *cq, unsigned n))                                    \
	X(create_qp, struct ibv_qp *, (struct ibv_pd *pd, struct ibv_qp_init_attr *a))             \
	X(modify_qp, int, (struct ibv_qp *qp, struct ibv_qp_attr *a, int mask))                    \
	X(query_qp, int, (struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,                      \
		struct ibv_qp_init_attr *ia))                                                      \
	X(destroy_qp, int, (struct ibv_qp *qp))                                                    \
	X(create_ah, struct ibv_ah *, (struct ibv_pd *pd, struct ibv_ah_attr *a))                  \
	X(destroy_ah, int, (struct ibv_ah *ah))                                                    \
	X(wc_status_str, const char *, (enum ibv_wc_status s))                                     \
	X(event_type_str, const char *, (enum ibv_event_type t))                                   \
	X(port_state_str, const char *, (enum ibv_port_state s))
/* clang-format on */
#define DR_IBV_FIELD(field, result, args) result(*field) args;
#define DR_IBV_FIELD_AS(field, symbol, result, args) result(*field) args;
struct dr_ibv {
	DR_IBV_CALLS(DR_IBV_FIELD, DR_IBV_FIELD_AS, DR_IBV_FIELD_AS)
};

/* What has to be installed, as Debian names it. */
#define DR_IBV_PACKAGES "libibverbs1 ibverbs-providers"

/* The table, opened once for the process (DR_IBVERBS names another library than libibverbs.so.1);
 * thread-safe. -ENOENT with what to install when it is missing, -ENOSYS when it lacks a symbol. */
int dr_ibv_load(const struct dr_ibv **out, struct dr_err *e) DR_MUST_CHECK;

#endif
