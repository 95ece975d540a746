/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the failover test. Part of rows.h, whose macros they need: included alone it includes all of rows.h. */
#ifndef BEGIN
#include "orchestrator/output/rows.h"
#else
/* clang-format off */
/* detect_ns to first_delivery_ns add up to gap_ns. sender_*: since the receiver's last delivery, shifted to its clock
 * by clock_offset_ns. dr_fault_row_from_switches fills in what follows from the switches, dr_fault_row_from_gaps what
 * follows from the delivery gaps of channels that did not switch. */
#define T dr_fault_row
BEGIN
	F(INT, trial, "number of the fault, from 0")
	S(24, kind, "kind, as in --fault")
	F(INT, path, "the channels' path that it acts on: 0 primary, 1 shadow")
	E(side, dr_end_names, "end where it acts")
	E(dir, dr_fault_dir_names, "direction that is blocked, seen from the NIC's node; null: the kind has none")
	S(64, nic, "NIC that it acts on")
	G(NS, "at_monotonic_ns", at_ns, "time of the fault, on the monotonic clock of that end; exec: begin of the command; null: not known (manual)", NO_CSV)
	G(NS, "undone_monotonic_ns", undone_ns, "time when it was undone, likewise; null: it was not, or not known (manual)", NO_CSV)
	F(INT, channels_affected, "channels that switched, or had to be carried over another NIC by the transport")
	F(INT, gpu, "GPU of the channel with the longest gap")
	F(INT, channel, "its channel")
	G(US, "gap_us", gap_ns, "its gap: last delivery before the switch to first delivery after it, receiver's clock; detection.mode transport: the longest time between two deliveries "
		"from the fault until data that were posted after it arrived, without parts; null: CLEAN_ERROR, or none")
	G(US, "gap_us_median_channel", gap_median_channel_ns, "median of the affected channels' gaps")
	G(US, "cadence_us.p50", cadence_p50_ns, "time between two deliveries of a channel without a fault, median")
	G(US, "cadence_us.p99", cadence_p99_ns, "the same, 99th percentile")
	G(US, "detect_us", detect_ns, "part of the gap: last delivery to detection")
	G(US, "fence_us", fence_ns, "part of the gap: detection to the end of the fence")
	G(US, "handshake_us", handshake_ns, "part of the gap: fence to answer")
	G(US, "replay_us", replay_ns, "part of the gap: answer to first frame on the new path")
	G(US, "first_delivery_us", first_delivery_ns, "part of the gap: first frame to first delivery")
	G(US, "fault_after_us", fault_after_ns, "time of the fault after the last delivery; negative: before it; null: not known (exec, manual)")
	G(US, "fault_to_detect_us", fault_to_detect_ns, "detect_us - fault_after_us: time from the fault to its detection")
	G(US, "sender.detect_us", sender_detect_ns, "sender's detection after the receiver's last delivery", NO_CSV)
	G(US, "sender.fenced_us", sender_fenced_ns, "end of the sender's fence, likewise", NO_CSV)
	G(US, "sender.answer_us", sender_answer_ns, "answer at the sender, likewise", NO_CSV)
	G(US, "sender.first_frame_us", sender_first_frame_ns, "sender's first frame on the new path, likewise", NO_CSV)
	G(US, "sender.first_ack_us", sender_first_ack_ns, "first acknowledgement at the sender, likewise", NO_CSV)
	G(US, "clock_offset_us", clock_offset_ns, "receiver's clock minus sender's", NO_CSV)
	G(US, "clock_error_us", clock_error_ns, "bound of the error of clock_offset_us", NO_CSV)
	G(US, "error_after_us", error_after_ns, "CLEAN_ERROR: last delivery or acknowledgement at the client to the error, longest of its channels")
	F(INT, in_flight_chunks, "chunks in flight at the switch, sum over the channels")
	F(INT, replayed_chunks, "chunks sent again, sum over the channels")
	F(INT, replayed_bytes, "payload sent again, sum over the channels")
	F(INT, rounds, "most epochs that one switch took")
	G(US, "failback_us", failback_ns, "end of the fault to the end of failback; null: not known (manual)")
	G(US, "failback_gap_us", failback_gap_ns, "gap of the failback")
	F(NUM, bandwidth_before_gbps, "bandwidth before the fault")
	F(NUM, bandwidth_during_gbps, "bandwidth during the fault")
	F(NUM, bandwidth_after_gbps, "bandwidth after failback")
	E(verdict, dr_verdict_names, "outcome of the trial")
	S(96, cause, "reason of the switch, as the detecting end states it")
	S(96, note, "remark about the trial", NO_CSV)
END(dr_fault_fields, "faults", "one fault; gap and parts are those of the channel with the longest gap")
#undef T

#define T dr_switch_row
BEGIN
	E(side, dr_end_names, "end whose record and clock this is")
	F(INT, gpu, "the client's GPU")
	F(INT, channel, "channel of the GPU")
	F(INT, trial, "fault that it belongs to; null: none was active")
	E(receiver, dr_bool_names, "this end receives on the channel")
	E(unexpected, dr_bool_names, "not planned, and outside the failover test")
	X(struct dr_switch_record rec; bool told;) /* told: a line for people has it */
	A(UINT, "epoch", rec.epoch, "epoch after the switch")
	A(UINT, "from_path", rec.from, "path before")
	A(UINT, "to_path", rec.to, "path after")
	A(BOOL, "planned", rec.planned, "a failback or a request; not a failure")
	A(BOOL, "self_detected", rec.self_detected, "this end detected the failure itself")
	A(ENUM, "scope", rec.scope, "what failed", .names = scope_names)
	A(ERRNO, "error", rec.err, "error of the failed path")
	A(STR, "cause", rec.cause, "reason of the switch")
	G(US, "gap_us", gap_ns, "receiver: last delivery before the switch to first delivery after it")
	A(STAMP, "last_delivery_ns", rec.last_delivery_ns, "last delivery before the switch")
	A(STAMP, "detect_ns", rec.detect_ns, "detection, or request of the peer")
	A(STAMP, "fenced_ns", rec.fenced_ns, "end of the fence")
	A(STAMP, "answer_ns", rec.answer_ns, "answer sent or received")
	A(STAMP, "first_frame_ns", rec.first_frame_ns, "first frame on the new path")
	A(STAMP, "first_delivery_ns", rec.first_delivery_ns, "first delivery (sender: acknowledgement) on the new path")
	A(UINT, "in_flight_chunks", rec.in_flight_messages, "chunks in flight at the switch")
	A(UINT, "replayed_chunks", rec.replayed_messages, "chunks sent again")
	A(UINT, "replayed_bytes", rec.replayed_bytes, "payload sent again")
	A(UINT, "rounds", rec.rounds, "epochs that the switch took")
END(dr_switch_fields, "switches", "one end's record of one switch; times on its monotonic clock")
#undef T

/* --detect transport, where channels do not switch. first_delivery_ns is later than the fault, and last_delivery_ns is
 * earlier than the arrival of data that were posted after it. */
#define T dr_delivery_gap_row
BEGIN
	E(side, dr_end_names, "end that receives, whose clock this is")
	F(INT, gpu, "the client's GPU")
	F(INT, channel, "channel of the GPU")
	F(INT, trial, "the fault")
	G(US, "gap_us", gap_ns, "its longest time between two deliveries from the fault until data that were posted after it arrived")
	F(NS, last_delivery_ns, "the delivery at its begin")
	F(NS, first_delivery_ns, "the delivery at its end")
END(dr_delivery_gap_fields, "delivery_gaps", "--detect transport: delivery gap of one channel at one fault")
#undef T

/* All faults of one kind, side and direction; a row of the failover table. Each median by itself: they need not add up. */
#define T dr_gap_summary
BEGIN
	S(24, kind, "kind, as in --fault", LABEL("kind"))
	E(side, dr_end_names, "end where they act", LABEL("side"))
	E(dir, dr_fault_dir_names, "direction that they block; null: the kind has none", LABEL("dir"))
	G(INT, "trials", n, "number of faults")
	F(INT, hit, "of these, faults that hit data in flight; those that hit idle paths did not")
	X(int64_t gaps, p50_ns, p90_ns, p99_ns, max_ns, sum_ns;) /* of the faults in hit that have a gap */
	P("gap_us", gap_fields, "gaps")
	G(US, "detect_us_median", detect_ns, "median of detect_us", METRIC("switchover_part_seconds", .help = "Median of each part of the gap.",
		.extra = "part", .value = "detect"))
	G(US, "fence_us_median", fence_ns, "median of fence_us",
		METRIC("switchover_part_seconds", .extra = "part", .value = "fence"))
	G(US, "handshake_us_median", handshake_ns, "median of handshake_us",
		METRIC("switchover_part_seconds", .extra = "part", .value = "handshake"))
	G(US, "replay_us_median", replay_ns, "median of replay_us",
		METRIC("switchover_part_seconds", .extra = "part", .value = "replay"))
	G(US, "first_delivery_us_median", first_delivery_ns, "median of first_delivery_us",
		METRIC("switchover_part_seconds", .extra = "part", .value = "first_delivery"))
	G(NUM, "bandwidth_before_gbps", before_gbps, "median of bandwidth_before_gbps")
	G(NUM, "bandwidth_during_gbps", during_gbps, "median of bandwidth_during_gbps")
	G(NUM, "bandwidth_after_gbps", after_gbps, "median of bandwidth_after_gbps")
	F(INT, failbacks, "trials with a failback")
	G(US, "failback_gap_us_median", failback_gap_ns, "median of failback_gap_us")
	X(int64_t verdicts[DR_VERDICTS];)
	VERDICT(PASS, "trials that passed", .help = "Faults injected, by outcome.")
	VERDICT(WRONG, "trials with wrong data")
	VERDICT(HANG, "trials in which a channel did not switch before the deadline")
	VERDICT(CLEAN_ERROR, "trials in which the channel ended with an error at both ends")
	VERDICT(MISSED_FAULT, "trials in which the fault hit nothing, or no chunk was in flight")
	VERDICT(FAIL, "trials with a gap above --max-gap")
	VERDICT(INCOMPLETE, "trials that did not finish")
END(dr_gap_summary_fields, "summary", "all faults of one kind, side and direction")
#undef T
/* clang-format on */
#endif
