/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_SESSION_PRIV_H
#define DR_PLUGIN_SESSION_PRIV_H

#include "plugin/comm.h"

/* Callbacks of a bulk manager (arg: struct ha_bulk), and of its thread. */
void ha_lane_completed(
	void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now_ns);
void ha_lane_credited(void *arg, struct dr_channel *ch, int64_t now_ns);
void ha_lane_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns);
/* Calls fn on each I/O thread of the session in turn until one returns not 0; returns that. */
typedef int (*ha_bulk_fn)(struct ha_bulk *b, void *arg, int64_t now_ns);
int ha_session_each(struct ha_session *s, ha_bulk_fn fn, void *arg);
/* On its thread, or with lock held: a channel of manager m. */
int ha_session_open_channel(struct ha_session *s, struct dr_manager *m, uint32_t id,
	struct dr_channel **out, struct dr_err *e);
/* Adds the counters of a channel. */
void ha_session_count(struct ha_session *s, struct dr_channel *ch, struct ha_counters *to);
void ha_lane_drop(struct ha_lane *l);
/* On its I/O thread: chunks of mr are posted. */
bool ha_lane_flies(const struct ha_lane *l, const struct ha_mr *mr);
/* The same, and its channel has a path that may carry them. */
bool ha_lane_coming(const struct ha_lane *l, const struct ha_mr *mr, int64_t now_ns);
/* On its I/O thread: chunks of mr that were not posted yet are dropped. */
void ha_lane_forget(struct ha_lane *l, const struct ha_mr *mr);
void ha_chunk_free(struct ha_chunk *k);
void ha_bulk_tick(struct ha_member *member, int64_t now_ns);
int64_t ha_bulk_deadline(const struct ha_member *member);

#endif
