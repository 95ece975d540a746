/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a result: each member with its meaning, once. Included by record.h this file declares the structs
 * and their tables (struct dr_nic_row, dr_nic_fields), included by fields.c it defines the tables, from which come
 * initialisation, JSON both ways, the merge, CSV, Prometheus and the JSON Schema. There is no guard, therefore.
 *
 *   F(kind, member, text, ...)          a field of the member's name, of a kind of base/fields.h; G(kind, "name", ...) of another name
 *   S(bytes, member, text, ...)         a string; E(member, names, text, ...) an enum (int)
 *   L("name", member, row, table, text)  a list of rows; R(...) one struct; B(member, max, ...) an array, its number in n_member
 *   A(kind, "name", member, text, ...)  a field of a member that another line declares
 *   C("name", value, text)              a constant; P("name", table, text) fields of this struct as an object; X(declaration;) no field
 * After the text: KEY, LABEL, METRIC, OUT (fields.c), further members of struct dr_field.
 */
#include "base/fields.h"
#include "base/hist.h"
#include "channel/channel.h"
#include "orchestrator/output/values.h"

#include <jansson.h>

#ifndef DR_ROW_TABLES
#define DR_LIST(type)                                                                              \
	struct {                                                                                   \
		type *v;                                                                           \
		size_t n, cap;                                                                     \
		struct dr_row_index index;                                                         \
	}
struct dr_list {
	void *v;
	size_t n, cap;
	struct dr_row_index index;
};
/* What a run has at most. */
struct dr_row_bounds {
	unsigned gpus, rails, channels; /* channels: of a GPU */
};

#define DR_RECORD_SCHEMA "dualrail/1"
struct dr_prom_labels;

#define BEGIN struct T {
#define END(table, ...)                                                                            \
	}                                                                                          \
	;                                                                                          \
	extern const struct dr_fields table;
#define F(kind, member, ...) ROW_##kind member;
#define G(kind, name, member, ...) ROW_##kind member;
#define E(member, ...) int member;
#define S(bytes, member, ...) char member[bytes];
#define L(name, member, row, ...) DR_LIST(struct row) member;
#define R(name, member, type, ...) struct type member;
#define B(member, max, row, ...)                                                                   \
	unsigned n_##member;                                                                       \
	struct row member[max];
#define A(...)
#define C(...)
#define P(...)
#define VERDICT(...)
#define X(...) __VA_ARGS__
#define ROW_INT int64_t
#define ROW_US int64_t
#define ROW_MS int64_t
#define ROW_NS int64_t
#define ROW_NUM double
#define ROW_BOOL bool
#define ROW_SINT int
#define ROW_ERRNO int
#define ROW_JSON json_t *
#endif

/* clang-format off */
/* The receiver's end adds bytes, seconds, messages, the sender's end sender_* and retransmits; the merge joins the
 * two by key. Rates that are unknown are computed. */
#define T dr_bandwidth_row
BEGIN
	F(INT, phase, "number of the measurement, from 0", KEY, LABEL("phase"))
	F(INT, gpu, "the client's GPU", KEY, LABEL("gpu"))
	E(direction, dr_direction_names, "direction of the data", KEY, LABEL("direction"))
	F(INT, message_bytes, "size of a message", LABEL("message_bytes"))
	F(INT, bytes, "payload received in the measurement")
	F(NUM, seconds, "time of the measurement on the receiver's clock")
	F(NUM, gbps, "payload received per second", METRIC("bandwidth_bytes_per_second",
		.help = "Payload per second received for this GPU, on the receiver's clock."))
	F(NUM, line_rate_percent, "gbps relative to the GPU's share of the speed of its primary rails")
	F(INT, messages, "messages received")
	F(INT, sender_bytes, "payload acknowledged to the sender")
	F(NUM, sender_seconds, "time of the measurement on the sender's clock")
	F(NUM, sender_gbps, "payload acknowledged per second")
	F(INT, retransmits, "retransmissions of the kernel at the sender; null: the transport does not tell",
		METRIC("retransmits", .help = "Retransmissions of the kernel at the sender."))
	F(INT, switched, "channels that were not on their own rail all the time: gbps is not the bandwidth of these rails",
		.flags = DR_F_LARGER, METRIC("switched_channels",
		.help = "Channels that were not on their own rail all the time of the measurement."))
END(dr_bandwidth_fields, "bandwidth", "bandwidth of one GPU, one direction, one measurement")
#undef T

/* The phase with the largest sum. NAN: no rows. */
#define T dr_total
BEGIN
	F(NUM, gbps, "sum over all GPUs and directions")
	F(NUM, to_server_gbps, "sum over all GPUs, client to server", METRIC("total_bandwidth_bytes_per_second",
		.help = "Sum over all GPUs of the payload per second, of the best measurement.",
		.extra = "direction", .value = "to-server"))
	F(NUM, to_client_gbps, "sum over all GPUs, server to client",
		METRIC("total_bandwidth_bytes_per_second", .extra = "direction", .value = "to-client"))
	F(INT, phase, "the measurement with the largest sum")
	F(INT, message_bytes, "its size of a message")
	F(NUM, line_gbps, "speed of all rails in use, one direction")
	F(NUM, line_rate_percent, "the slower direction relative to line_gbps")
	F(NUM, cpu_percent_local, "CPU time of this process; 100: one core", METRIC("cpu_cores",
		.help = "CPU used during the measurement, in cores.", .extra = "end", .value = "local"))
	F(NUM, cpu_percent_peer, "CPU time of the peer process; 100: one core",
		METRIC("cpu_cores", .extra = "end", .value = "peer"))
END(dr_total_fields, "total", "sums over all GPUs, of the measurement with the largest sum")
#undef T

/* --matrix: one GPU over one rail alone. The ends fill in their halves as with bandwidth. Where channels left their
 * rail while the cell was measured (switched > 0), gbps is not the bandwidth of that rail. The counters: between the
 * marks, or in the whole cell with --iters; unknown: there is none (loopback). */
#define T dr_matrix_cell_row
BEGIN
	F(INT, phase, "number of the measurement", KEY)
	F(INT, gpu, "the client's GPU; null: all GPUs", KEY)
	F(INT, rail, "the rail in use")
	S(64, nic, "the rail's NIC at the client")
	S(64, peer_nic, "the rail's NIC at the server")
	E(direction, dr_direction_names, "direction of the data", KEY)
	F(INT, message_bytes, "size of a message")
	F(INT, channels, "channels of this rail")
	F(INT, switched, "of these, channels that were on another rail for some time", .flags = DR_F_LARGER)
	F(INT, bytes, "payload received in the measurement")
	F(NUM, seconds, "time of the measurement on the receiver's clock")
	F(NUM, gbps, "payload received per second")
	F(INT, messages, "messages received")
	F(INT, sender_bytes, "payload acknowledged to the sender")
	F(NUM, sender_seconds, "time of the measurement on the sender's clock")
	F(NUM, sender_gbps, "payload acknowledged per second")
	F(INT, retransmits, "retransmissions of the kernel at the sender; null: the transport does not tell")
	F(INT, client_counter_bytes, "increase of the client's interface counter, headers included")
	F(INT, server_counter_bytes, "increase of the server's interface counter, headers included")
	F(INT, wrong_chunks, "chunks lost, duplicated, reordered or corrupted")
	F(INT, wrong_bytes, "bytes that differ from what was sent, in corrupted chunks; null: not compared (--verify)")
	S(160, first_wrong, "the first wrong chunk: where it differs, and how")
END(dr_matrix_cell_fields, "matrix_cells", "bandwidth of one GPU over one rail, one direction")
#undef T

#define T dr_matrix_total_row
BEGIN
	E(side, dr_end_names, "the NIC's end", KEY)
	F(INT, rail, "the rail")
	S(64, nic, "the rail's NIC at that end", KEY)
	F(INT, counter_tx_bytes, "increase of the interface's counter of sent bytes")
	F(INT, counter_rx_bytes, "increase of the interface's counter of received bytes")
	F(NUM, seconds, "time between the two readings")
	F(INT, switched, "channels of this rail that were on another one for some time")
END(dr_matrix_total_fields, "matrix_totals", "a NIC's own counters while all GPUs used all rails")
#undef T

/* Computed (matrix.c). total_gbps: of the receiving NIC's own counter, else the sending one's,
 * headers included; finding: enum dr_matrix_finding; cause "": ok. */
#define T dr_matrix_nic_row
BEGIN
	F(INT, rail, "the rail")
	S(64, nic, "the rail's NIC at the client")
	S(64, peer_nic, "the rail's NIC at the server")
	E(direction, dr_direction_names, "direction of the data")
	F(NUM, alone_gbps, "median of this rail's cells of one GPU that no channel left")
	F(NUM, least_gbps, "the lowest of these cells, without low_gbps")
	F(NUM, most_gbps, "the highest of these cells")
	F(NUM, others_percent, "alone_gbps relative to the median of the other rails' alone_gbps")
	F(INT, low_gpu, "GPU of a single cell that is far below the other cells of this rail; null: none")
	F(NUM, low_gbps, "that cell")
	F(NUM, total_gbps, "by the NIC's own counter while all GPUs used all rails")
	F(NUM, share_percent, "total_gbps relative to its sum over all NICs")
	E(finding, dr_matrix_finding_names, "what the cells and counters say about the rail")
	S(240, cause, "reason of the finding")
END(dr_matrix_nic_fields, "matrix_nics", "finding about one rail, one direction")
#undef T

/* gbps and counter_check (enum dr_nic_check) are computed. Unknown slack_bytes: 0. */
#define T dr_nic_row
BEGIN
	E(side, dr_end_names, "the NIC's end", KEY, LABEL("side"))
	S(64, name, "network interface or RDMA device", KEY, LABEL("nic"))
	F(NUM, speed_gbps, "speed that the NIC reports", METRIC("nic_speed_bytes_per_second",
		.help = "Speed that the NIC reports."))
	F(INT, tx_bytes, "payload sent over this NIC, replays included", METRIC("nic_tx_bytes",
		.help = "Payload sent over this NIC, replays included."))
	F(INT, rx_bytes, "payload received over this NIC", METRIC("nic_rx_bytes",
		.help = "Payload received over this NIC."))
	F(INT, counter_tx_bytes, "increase of the interface's counter of sent bytes", METRIC("nic_interface_tx_bytes",
		.help = "Increase of the interface's own counter of sent bytes."))
	F(INT, counter_rx_bytes, "increase of the interface's counter of received bytes", METRIC("nic_interface_rx_bytes",
		.help = "Increase of the interface's own counter of received bytes."))
	F(INT, counter_tx_packets, "increase of the interface's counter of sent packets")
	F(INT, counter_rx_packets, "increase of the interface's counter of received packets")
	F(INT, errors, "increase of its error counters: rx_errors, tx_errors; RDMA: symbol_error, port_rcv_errors, "
		"local_link_integrity_errors", METRIC("nic_errors", .help = "Increase of the NIC's error counters."))
	F(INT, drops, "increase of its drop counters: rx_dropped, tx_dropped, rx_missed; RDMA: port_xmit_discards",
		METRIC("nic_drops", .help = "Increase of the NIC's drop counters."))
	F(INT, link_changes, "changes of its carrier, up or down; RDMA: link_downed, link_error_recovery",
		METRIC("nic_link_changes", .help = "Changes of the NIC's carrier, up or down."))
	S(160, grown, "the counters among these that grew, and by how much")
	F(INT, connections, "paths established over this NIC, rebuilds included", METRIC("nic_connections",
		.help = "Paths established over this NIC, rebuilds included."))
	F(INT, slack_bytes, "additional tolerance of counter_check, for data in socket buffers at a switch", NO_CSV)
	F(NUM, seconds, "time between the readings of the counters")
	F(NUM, gbps, "payload of both directions per second")
	E(counter_check, check_names, "payload compared with the interface's counters")
	F(NUM, measured_gbps, "bandwidth by acknowledgements of the peer's transport while data waited, last measured; "
		"null: data never waited, or nothing raised a suspicion", METRIC("nic_measured_bytes_per_second",
		.help = "Bandwidth of the NIC while data waited, last measured."))
	E(degraded, dr_bool_names, "the rail is slow beside another one", METRIC("nic_degraded",
		.help = "1: the rail of this NIC is slow beside another one."))
END(dr_nic_fields, "nics", "one NIC of one end over the whole run")
#undef T

#define T dr_bin_row
BEGIN
	G(US, "from_us", from_ns, "begin of the bin")
	G(US, "to_us", to_ns, "its end, exclusive")
	F(INT, count, "round trips in it")
END(dr_bin_fields, "bin", "a bin of a histogram: four per power of two of nanoseconds, empty ones left out")
#undef T

#define LATENCY_HELP .help = "Round trip of one message; quantile 1 is the maximum."
#define T dr_latency_row
BEGIN
	F(INT, gpu, "the client's GPU", KEY, LABEL("gpu"))
	F(INT, bytes, "size of a message", KEY, OUT(.label = "message_bytes", .csv = "message_bytes"))
	S(64, nic, "NIC of the GPU's primary path at the client")
	F(INT, samples, "round trips measured", METRIC("latency_seconds", LATENCY_HELP, .suffix = "_count"))
	G(US, "rtt_us.p50", p50_ns, "median of the round trip", METRIC("latency_seconds", .extra = "quantile", .value = "0.5"))
	G(US, "rtt_us.p90", p90_ns, "90th percentile", METRIC("latency_seconds", .extra = "quantile", .value = "0.9"))
	G(US, "rtt_us.p99", p99_ns, "99th percentile", METRIC("latency_seconds", .extra = "quantile", .value = "0.99"))
	G(US, "rtt_us.p999", p999_ns, "99.9th percentile", METRIC("latency_seconds", .extra = "quantile", .value = "0.999"))
	G(US, "rtt_us.max", max_ns, "longest round trip", METRIC("latency_seconds", .extra = "quantile", .value = "1"))
	G(US, "sum", sum_ns, "sum of all round trips", .flags = DR_F_HIDDEN | DR_F_NO_CSV,
		METRIC("latency_seconds", .suffix = "_sum"))
	B(histogram, DR_HIST_BINS, dr_bin_row, dr_bin_fields, "the round trips by duration", NO_CSV,
		METRIC("round_trip_seconds", .help = "Round trips of one message by duration."))
	F(INT, switched, "channels that were not on their own rail all the time", .flags = DR_F_LARGER)
END(dr_latency_fields, "latency", "round trips of one GPU, one size")
#undef T

#include "orchestrator/output/rows_failover.h"

#define T dr_interval_row
BEGIN
	F(INT, phase, "number of the measurement")
	F(INT, gpu, "the client's GPU; null: sum of all")
	E(direction, dr_direction_names, "direction of the data")
	G(US, "start_us", start_ns, "begin, after the begin of the session")
	G(US, "duration_us", duration_ns, "duration")
	F(INT, bytes, "payload received")
	F(INT, chunks, "chunks received")
	E(omitted, dr_bool_names, "true: warm-up, in no other figure")
	F(NUM, gbps, "payload received per second")
END(dr_interval_fields, "intervals", "intermediate result (--interval); those that are not omitted add up to the measurement")
#undef T

/* Matrix cells: gpu, rail. */
#define T dr_phase_row
BEGIN
	F(INT, phase, "number of the measurement", KEY)
	E(side, dr_end_names, "end whose clock this is", KEY)
	E(test, dr_phase_names, "test that the measurement belongs to")
	F(INT, message_bytes, "size of a message")
	F(INT, gpu, "the client's GPU, of a cell of --matrix; null: all GPUs")
	F(INT, rail, "the rail, of a cell of --matrix; null: those of the GPUs")
	G(NS, "begin_monotonic_ns", begin_ns, "begin, warm-up included")
	G(NS, "end_monotonic_ns", end_ns, "end of the last GPU's part at this end; null: the run ended before")
END(dr_phase_fields, "phases", "begin and end of one measurement at one end")
#undef T

/* For --trace; in no document. connected_ns: with those of the other channels of the GPU. */
#define T dr_channel_row
BEGIN
	E(side, dr_end_names, "end whose clock this is", KEY)
	F(INT, gpu, "the client's GPU", KEY)
	F(INT, channel, "channel of the GPU", KEY)
	E(direction, dr_direction_names, "direction of the data")
	E(latency, dr_bool_names, "it carries the round trips of the latency test only")
	S(64, primary_nic, "NIC of the primary path at this end")
	S(64, shadow_nic, "NIC of the shadow path at this end")
	G(NS, "begin_monotonic_ns", begin_ns, "begin of the session at this end")
	G(NS, "connected_monotonic_ns", connected_ns, "all channels of the GPU were connected")
END(dr_channel_fields, "channels", "one channel at one end")
#undef T

#define T dr_event_row
BEGIN
	F(NS, monotonic_ns, "monotonic clock of that end")
	F(NS, wall_ns, "time since 1970")
	A(WALL, "time", wall_ns, "the same time, ISO 8601")
	E(side, dr_end_names, "end where it happened")
	S(24, kind, "fault, undo, switch, failback, protection, rail, silence, phase, peer-error, ...")
	F(INT, gpu, "the client's GPU")
	F(INT, channel, "channel of the GPU")
	F(INT, path, "path of the channel")
	S(64, nic, "NIC")
	S(320, text, "what happened")
END(dr_event_fields, "events", "what happened during the run")
#undef T

/* exit_status: enum dr_exit or 128 + signal; code: -errno, 0: none; criterion: made by dr_record_verdict, which
 * replaces it when it judges again. */
#define T dr_error_row
BEGIN
	G(SINT, "exit_code", exit_status, "exit status that this error alone causes", .min = 0, .max = 255)
	G(ERRNO, "errno", code, "error of the system")
	E(reason, dr_reason_names, "which error of exit status 3; null: another status")
	X(int64_t wall_ns;)
	A(WALL, "time", wall_ns, "when it was found, ISO 8601")
	S(256, text, "what failed, why, what to do", .flags = DR_F_REQUIRED)
	X(bool criterion;)
END(dr_error_fields, "errors", "an error, or a criterion that the run missed")
#undef T

#define T dr_rail_row
BEGIN
	F(INT, rail, "number of the rail", KEY)
	S(64, ifname, "this end's NIC")
	S(64, address, "its address")
	S(64, peer_ifname, "the peer's NIC")
	S(64, peer_address, "its address")
	F(BOOL, routed, "the two addresses share no subnet")
	F(NUM, speed_gbps, "speed of the slower NIC")
	G(INT, "mtu_bytes", mtu, "MTU")
	G(INT, "peer_mtu_bytes", peer_mtu, "MTU of the peer's NIC")
	F(INT, numa, "NUMA node of this end's NIC")
END(dr_rail_fields, "rails", "a pair of NICs, one at each end")
#undef T

#define T dr_unused_nic_row
BEGIN
	E(side, dr_end_names, "the NIC's end", KEY)
	S(64, nic, "network interface", KEY)
	S(64, address, "its address")
	S(64, reason, "why it is no rail")
END(dr_unused_nic_fields, "unused_nics", "a NIC with an address that is no rail of the session")
#undef T

/* A GPU has several rows when its channels are spread. */
#define T dr_gpu_row
BEGIN
	F(INT, gpu, "this end's GPU", KEY)
	S(64, name, "name of the device")
	S(24, bus_id, "PCI address")
	G(INT, "primary_rail", primary, "primary rail of these channels", KEY)
	G(INT, "shadow_rail", shadow, "shadow rail of these channels; null: none", KEY)
	F(INT, channels, "channels with these two rails")
	F(INT, numa, "NUMA node of the GPU")
	F(INT, cpu, "CPU of its worker thread")
	S(96, reason, "why these rails")
END(dr_gpu_fields, "gpus", "channels of a GPU that have the same two rails")
#undef T

/* Copies: in the bandwidth phases; those that were timed stand for all. */
#define T dr_memory_row
BEGIN
	E(side, dr_end_names, "the GPU's end", KEY)
	F(INT, gpu, "the GPU", KEY)
	E(memory, memory_names, "where its buffers are")
	S(96, name, "name of the device")
	S(16, bus_id, "PCI address")
	E(staged, dr_bool_names, "true: copied through pinned host memory; false: given to the NIC, or to the plugin")
	S(256, staged_because, "why it is staged, or how it is reached")
	G(INT, "copied_out_bytes", out_bytes, "copied from the GPU in the bandwidth measurements")
	G(INT, "copied_in_bytes", in_bytes, "copied to the GPU in the bandwidth measurements")
	G(NUM, "copy_out_busy_percent", out_busy_percent, "time in which copies from the GPU ran, by its clock")
	G(NUM, "copy_in_busy_percent", in_busy_percent, "time in which copies to the GPU ran, by its clock")
	G(INT, "unpacked_bytes", unpacked_bytes, "put together within the GPU, of data that a plugin left in pieces")
	G(NUM, "unpack_busy_percent", unpack_busy_percent, "time in which the GPU did that, by its clock")
	F(INT, copies, "copies, both directions")
	G(INT, "copies_timed", timed, "copies timed by the GPU's clock")
	G(INT, "copy_driver_calls", calls, "calls of the CUDA driver for the copies")
END(dr_memory_fields, "memory", "memory of one GPU")
#undef T

#define T dr_path_row
BEGIN
	F(INT, gpu, "this end's GPU", KEY, LABEL("gpu"))
	F(INT, path, "0 primary, 1 shadow", KEY, LABEL("path"))
	F(INT, channels, "channels of the GPU")
	F(INT, up, "of these, channels that have this path up", METRIC("path_channels_up",
		.help = "Channels of the GPU that have this path up."))
	F(INT, all_up, "1: all of them", .flags = DR_F_HIDDEN, METRIC("path_up",
		.help = "1: all channels of the GPU have this path up."))
END(dr_path_fields, "paths", "state of the paths at the end")
#undef T

/* Sums over one end's receivers. verified -1: nothing was checked. */
#define T dr_integrity_row
BEGIN
	F(INT, chunks, "chunks received", METRIC("chunks", .help = "Chunks received."))
	F(INT, bytes, "payload received")
	F(INT, lost, "chunks lost", METRIC("chunks_wrong", .help = "Chunks that differ from what was sent.",
		.extra = "reason", .value = "lost"))
	F(INT, duplicated, "chunks delivered twice", METRIC("chunks_wrong", .extra = "reason", .value = "duplicated"))
	F(INT, reordered, "chunks delivered out of order", METRIC("chunks_wrong", .extra = "reason", .value = "reordered"))
	F(INT, corrupted, "chunks with other bytes than sent", METRIC("chunks_wrong", .extra = "reason", .value = "corrupted"))
	E(verified, dr_bool_names, "true: every byte was compared (--verify); false: sequence numbers only")
END(dr_integrity_fields, "integrity", "what the receivers found, sums over both ends")
#undef T

/* The same of one measurement, as it was checked there, by the receivers of one end. */
#define T dr_check_row
BEGIN
	F(INT, phase, "number of the measurement", KEY)
	E(side, dr_end_names, "end that received", KEY)
	E(test, dr_phase_names, "test that the measurement belongs to")
	F(INT, chunks, "chunks received")
	F(INT, bytes, "payload received")
	F(INT, lost, "chunks lost")
	F(INT, duplicated, "chunks delivered twice")
	F(INT, reordered, "chunks delivered out of order")
	F(INT, corrupted, "chunks with other bytes than sent")
	E(verified, dr_bool_names, "true: every byte was compared; false: sequence numbers and lengths only")
END(dr_check_fields, "checks", "what one end's receivers found in one measurement")
#undef T

/* Settings that change the figures, and whether the end got the processor. Of its NICs: below. */
#define T dr_env_row
BEGIN
	E(side, dr_end_names, "the end", KEY, LABEL("side"))
	S(72, kernel, "kernel release")
	S(24, congestion_control, "net.ipv4.tcp_congestion_control, of data connections without --cc")
	S(64, tcp_rmem, "net.ipv4.tcp_rmem: least, default and largest receive buffer")
	S(64, tcp_wmem, "net.ipv4.tcp_wmem: least, default and largest send buffer")
	S(24, cpu_governor, "frequency governor of CPU 0")
	F(NUM, cpu_quota, "CPUs that the cgroup's cpu.max allows; null: no quota", METRIC("cpu_quota_cores",
		.help = "CPUs that the cgroup's quota allows."))
	F(INT, throttled, "times that the quota stopped the cgroup's processes during the run", METRIC("cpu_throttled",
		.help = "Times that the quota stopped the cgroup's processes."))
	G(US, "throttled_us", throttled_ns, "how long, in all", METRIC("cpu_throttled_seconds",
		.help = "How long the quota stopped the cgroup's processes."))
	G(US, "stall_us", stall_ns, "longest time that a worker's heartbeats were late: it did not get the processor",
		METRIC("stall_longest_seconds", .help = "Longest time that a worker did not get the processor."))
END(dr_env_fields, "environment", "settings of one end, and whether it got the processor")
#undef T

#define T dr_env_nic_row
BEGIN
	E(side, dr_end_names, "the NIC's end", KEY)
	S(64, nic, "network interface", KEY)
	G(INT, "mtu_bytes", mtu, "MTU")
	S(16, qdisc, "root queueing discipline")
	E(tso, dr_bool_names, "TCP segmentation offload")
	E(gso, dr_bool_names, "generic segmentation offload")
	E(gro, dr_bool_names, "generic receive offload")
	G(INT, "gso_max_bytes", gso_max, "largest packet to send before segmentation; above 65536: BIG TCP")
	G(INT, "gro_max_bytes", gro_max, "largest packet after aggregation; above 65536: BIG TCP")
	S(32, driver, "driver")
	S(32, firmware, "version of its firmware")
	S(160, interrupt_cpus, "CPUs of each of its interrupts")
END(dr_env_nic_fields, "environment_nics", "settings of one NIC")
#undef T

#define T dr_host
BEGIN
	S(72, name, "host name")
	S(72, kernel, "kernel release")
	F(INT, cpus, "CPUs online")
	F(INT, memory_bytes, "physical memory")
END(dr_host_fields, "host", "a host")
#undef T

#define T dr_detection
BEGIN
	S(16, mode, "--detect: fast, conservative or transport", LABEL("mode"))
	S(64, transport, "transport kind")
	G(MS, "bound_ms", bound_ns, "bound of the detection time, computed from the options; null: none", METRIC("detection_bound_seconds",
		.help = "Bound of the detection time, computed from the options."))
	G(US, "heartbeat_us", heartbeat_ns, "heartbeat interval")
	G(US, "lost_after_us", lost_after_ns, "silence after which both rails count as lost")
	G(US, "stuck_after_us", stuck_after_ns, "time without transport progress after which a path counts as failed")
	G(US, "hold_down_us", hold_down_ns, "time the primary path must be healthy before failback")
	E(failback, dr_bool_names, "channels return to the primary path")
	S(96, fence, "what the transport's fence promises; null: everything")
END(dr_detection_fields, "detection", "how failures are detected")
#undef T
/* No cells: there was no --matrix. total: all GPUs over all rails. */
#define T dr_matrix
BEGIN
	L("cells", cells, dr_matrix_cell_row, dr_matrix_cell_fields, "one for each rail, GPU (null: all GPUs) and direction")
	G(NUM, "total.gbps", gbps, "sum while all GPUs used all rails")
	G(NUM, "total.to_server_gbps", to_server_gbps, "the same, client to server")
	G(NUM, "total.to_client_gbps", to_client_gbps, "the same, server to client")
	L("total.counters", totals, dr_matrix_total_row, dr_matrix_total_fields, "one for each NIC")
	L("nics", nics, dr_matrix_nic_row, dr_matrix_nic_fields, "one for each rail and direction")
END(dr_matrix_fields, "matrix", "--matrix: bandwidth of every GPU over every rail")
#undef T

/* What a baseline keeps. kind: one GPU, one NIC with the GPUs that use no other (--matrix: all GPUs), one pair of GPU and NIC (--matrix). */
#define T dr_figure_run_row
BEGIN
	F(INT, time_s, "begin of the run, seconds since 1970")
	F(NUM, gbps, "payload received per second")
END(dr_figure_run_fields, "run", "one run of a baseline")
#undef T

#define T dr_figure_row
BEGIN
	E(kind, dr_figure_names, "what it is the bandwidth of", KEY)
	F(INT, gpu, "the client's GPU; null: of a NIC", KEY)
	S(64, nic, "NIC at the client; null: of a GPU", KEY)
	E(direction, dr_direction_names, "direction of the data", KEY)
	F(INT, message_bytes, "size of a message", KEY)
	F(INT, repeats, "runs")
	F(NUM, mean_gbps, "mean of all runs")
	F(NUM, min_gbps, "the smallest of all runs")
	B(runs, DR_FIGURE_RUNS, dr_figure_run_row, dr_figure_run_fields, "the last 32 runs")
END(dr_figure_fields, "figure", "a figure of a baseline, and its runs")
#undef T

#define T dr_comparison_row
BEGIN
	E(kind, dr_figure_names, "what it is the bandwidth of", LABEL("kind"))
	F(INT, gpu, "the client's GPU; null: of a NIC", LABEL("gpu"))
	S(64, nic, "NIC at the client; null: of a GPU", LABEL("nic"))
	E(direction, dr_direction_names, "direction of the data", LABEL("direction"))
	F(INT, message_bytes, "size of a message", LABEL("message_bytes"))
	F(NUM, gbps, "of this run; of preflight that measured twice: the higher one")
	F(NUM, mean_gbps, "of the baseline; gbps is compared with it")
	F(NUM, min_gbps, "the smallest of the baseline's runs")
	F(INT, repeats, "runs of the baseline")
	F(NUM, percent, "gbps relative to mean_gbps", METRIC("baseline_ratio",
		.help = "Bandwidth of this run relative to the mean of the baseline."))
	E(result, dr_comparison_names, "ok; below the threshold; not compared: not in this run, or not in the baseline")
END(dr_comparison_fields, "comparison", "one figure beside that of the baseline")
#undef T

/* --metrics-listen: sums over the life of this process, also while a session runs (session/live.c). In no document. */
#define SWITCHES_HELP .help = "Switches of channels: failover, failback to path 0, or a planned switch to path 1."
#define T dr_live_gpu_row
BEGIN
	F(INT, gpu, "the client's GPU", KEY, LABEL("gpu"))
	F(INT, tx_bytes, "payload acknowledged to this end", METRIC("gpu_tx_bytes_total",
		.help = "Payload sent for this GPU and acknowledged."))
	F(INT, rx_bytes, "payload consumed at this end", METRIC("gpu_rx_bytes_total",
		.help = "Payload received for this GPU, in order."))
	F(INT, tx_chunks, "chunks acknowledged to this end", METRIC("gpu_tx_chunks_total",
		.help = "Chunks sent for this GPU and acknowledged."))
	F(INT, rx_chunks, "chunks consumed at this end", METRIC("gpu_rx_chunks_total",
		.help = "Chunks received for this GPU, in order."))
	F(INT, in_flight, "chunks posted here and not acknowledged", METRIC("gpu_in_flight_chunks",
		.help = "Chunks that were posted at this end and not acknowledged."))
	F(INT, unprotected, "channels with a path down", METRIC("gpu_unprotected_channels",
		.help = "Channels that have one path only at the moment."))
	F(INT, failovers, "switches that nobody planned", METRIC("switches_total", SWITCHES_HELP,
		.extra = "kind", .value = "failover"))
	F(INT, failbacks, "planned switches to path 0", METRIC("switches_total", .extra = "kind", .value = "failback"))
	F(INT, leaves, "planned switches to path 1", METRIC("switches_total", .extra = "kind", .value = "leave"))
	F(INT, gaps, "failovers of channels that receive here", METRIC("delivery_gap_seconds",
		.help = "Time from the last delivery before a failover to the first one after it. Only a receiving end has it.", .suffix = "_count"))
	G(US, "gap_us_sum", gap_sum_ns, "sum of their gaps", METRIC("delivery_gap_seconds", .suffix = "_sum"))
	G(US, "gap_us_max", gap_max_ns, "the longest one", METRIC("delivery_gap_longest_seconds",
		.help = "The longest gap of a failover so far. Only a receiving end has it."))
END(dr_live_gpu_fields, "live_gpus", "one GPU, while the process runs")
#undef T

#define T dr_live_path_row
BEGIN
	F(INT, gpu, "the client's GPU", KEY, LABEL("gpu"))
	F(INT, path, "0 primary, 1 shadow", KEY, LABEL("path"))
	F(INT, tx_bytes, "payload sent, replays included", METRIC("path_tx_bytes_total",
		.help = "Payload sent over this path, replays included."))
	F(INT, rx_bytes, "payload received", METRIC("path_rx_bytes_total", .help = "Payload received over this path."))
	F(INT, connections, "connections made", METRIC("path_connections_total",
		.help = "Connections made for this path, rebuilt ones included."))
	F(INT, up, "channels that have it up", METRIC("path_channels_connected",
		.help = "Channels of the GPU that have this path up at the moment."))
	F(INT, active, "channels that use it", METRIC("path_channels_active",
		.help = "Channels of the GPU whose data use this path."))
END(dr_live_path_fields, "live_paths", "one path of a GPU, while the process runs")
#undef T

#define T dr_live_rail_row
BEGIN
	F(INT, rail, "the rail", KEY, LABEL("rail"))
	S(64, nic, "its NIC at this end", KEY, LABEL("nic"))
	E(state, dr_rail_state_names, "its state; null: no session runs", METRIC("rail_state",
		.help = "State of the rail in the session that runs: 0 alive, 1 suspect, 2 down."))
	F(INT, losses, "how often it went down outside the failover test", METRIC("rail_losses_total",
		.help = "Times that the rail went down outside the failover test."))
END(dr_live_rail_fields, "live_rails", "one rail, while the process runs")
#undef T

#define T dr_live_process
BEGIN
	F(INT, active, "1: a session runs", METRIC("session_active", .help = "1: a session runs, 0: none."))
	F(INT, sessions, "sessions begun", METRIC("sessions_total", .help = "Sessions that began in this process."))
END(dr_live_process_fields, "live_process", "the process")
#undef T

/* status and exit_code are -1 until dr_record_verdict; side -1: neither (usage error, topo). argv and options
 * are never NULL. dr_record_settle computes total, matrix.nics, gap_groups (in order of their first trial), gap_all
 * (kind "all", side -1), integrity_total (both ends) and line_rate_percent of the bandwidth rows. */
#define T dr_record
BEGIN
	C("schema", DR_RECORD_SCHEMA, "format of this document")
	S(40, run_id, "name of the run: its begin and a random number; that of the client at both ends")
	E(status, status_names, "pass; fail: a criterion was missed; error: the run did not complete; null: it is not over")
	F(SINT, exit_code, "exit status of the program; null: the run is not over", .min = 0, .max = 255)
	S(16, command, "server, client, demo or preflight")
	X(char target[256], tests[24];) /* HOST as given and --test; "": unknown. For Prometheus */
	X(const struct dr_prom_labels *labels;) /* of --prom-label; NULL: none; not owned */
	X(int64_t end_ns, session_ns;) /* verdict, DR_UNSET: not yet; time 0 of intervals and lines for people, 0: none */
	E(side, dr_end_names, "end that wrote this document")
	X(int64_t start_wall_ns;)
	A(WALL, "start_time", start_wall_ns, "begin of the run, ISO 8601")
	G(NS, "start_monotonic_ns", start_ns, "the same time on the monotonic clock")
	G(US, "peer_clock.offset_us", clock_offset_ns, "the peer's monotonic clock minus this end's; null: unknown, or not the client's document")
	G(US, "peer_clock.error_us", clock_error_ns, "bound of the error of peer_clock.offset_us")
	F(JSON, argv, "command line", .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}")
	F(JSON, options, "effective options by name", .schema = "{\"type\":\"object\"}")
	X(char version[64], peer_version[64];)
	A(STR, "versions.local", version, "version of this program")
	A(STR, "versions.peer", peer_version, "version of the peer's program")
	R("host", host, dr_host, dr_host_fields, "this host")
	R("host.peer", peer_host, dr_host, dr_host_fields, "the peer's host", .flags = DR_F_NULLABLE)
	L("environment.ends", environment, dr_env_row, dr_env_fields, "settings of each end that change the figures")
	L("environment.nics", environment_nics, dr_env_nic_row, dr_env_nic_fields, "settings of each NIC of the rails")
	L("topology.rails", rails, dr_rail_row, dr_rail_fields, "rails of the session")
	L("topology.unused_nics", unused_nics, dr_unused_nic_row, dr_unused_nic_fields, "NICs with an address that are no rail")
	L("topology.gpus", gpus, dr_gpu_row, dr_gpu_fields, "rails of each GPU")
	L("topology.paths", paths, dr_path_row, dr_path_fields, "state of each GPU's paths at the end")
	L("topology.memory", memory, dr_memory_row, dr_memory_fields, "where each GPU's buffers are")
	G(INT, "topology.numa_nodes", numa_nodes, "NUMA nodes of this host")
	X(char numa_binding[160];)
	A(STR, "topology.numa_binding", numa_binding, "how threads and buffers are bound to NUMA nodes")
	R("detection", detection, dr_detection, dr_detection_fields, "how failures are detected")
	L("bandwidth", bandwidth, dr_bandwidth_row, dr_bandwidth_fields, "one for each GPU, direction and measurement")
	L("nics", nics, dr_nic_row, dr_nic_fields, "one for each NIC of each end")
	R("total", total, dr_total, dr_total_fields, "sums over all GPUs")
	R("matrix", matrix, dr_matrix, dr_matrix_fields, "--matrix", .flags = DR_F_NULLABLE)
	L("latency", latency, dr_latency_row, dr_latency_fields, "one for each GPU and size")
	L("failover.faults", faults, dr_fault_row, dr_fault_fields, "one for each fault")
	L("failover.summary", gap_groups, dr_gap_summary, dr_gap_summary_fields, "faults by kind, side and direction")
	R("failover.gap_us", gap_all, dr_gap_summary, gap_fields, "gaps of all faults")
	G(INT, "failover.false_failovers", false_failovers, "switches without a fault; null: failover was not tested",
		METRIC("false_failovers", .help = "Switches while the active path forwarded."))
	A(NUM, "failover.bandwidth_before_gbps", gap_all.before_gbps, "median over all faults")
	A(NUM, "failover.bandwidth_during_gbps", gap_all.during_gbps, "median over all faults")
	A(NUM, "failover.bandwidth_after_gbps", gap_all.after_gbps, "median over all faults")
	G(INT, "unexpected_switches", unexpected_switches, "switches outside the failover test that nobody planned",
		METRIC("unexpected_switches", .help = "Switches outside the failover test that nobody planned."))
	L("failover.switches", switches, dr_switch_row, dr_switch_fields, "one for each switch of each channel and end")
	L("failover.delivery_gaps", delivery_gaps, dr_delivery_gap_row, dr_delivery_gap_fields, "--detect transport: one for each fault and channel that receives")
	R("integrity", integrity_total, dr_integrity_row, dr_integrity_fields, "what the receivers found")
	L("integrity.phases", checks, dr_check_row, dr_check_fields, "the same, one for each measurement and receiving end")
	L("baseline", baseline, dr_figure_row, dr_figure_fields, "--save-baseline: the figures, over all runs that wrote this file")
	L("comparison", comparison, dr_comparison_row, dr_comparison_fields, "--baseline: every figure of this run or of the baseline")
	L("phases", phases, dr_phase_row, dr_phase_fields, "begin and end of each measurement, at each end")
	L("intervals", intervals, dr_interval_row, dr_interval_fields, "intermediate results")
	L("events", events, dr_event_row, dr_event_fields, "what happened")
	L("errors", errors, dr_error_row, dr_error_fields, "why the run did not pass")
	X(uint64_t rows_lost;)
	A(UINT, "rows_lost", rows_lost, "rows left out for lack of memory or above the limit")
	X(double cpu_percent_local, cpu_percent_peer, min_nic_percent;) /* 100: one core busy; --min-nic: not above 0: the default */
	X(DR_LIST(struct dr_channel_row) channels;)
	X(struct dr_row_bounds bounds;) /* from dr_record_create on those of any run */
	X(bool run_of_peer;) /* run_id is the client's, and this is the server */
	X(DR_LIST(struct dr_live_gpu_row) live_gpus; DR_LIST(struct dr_live_path_row) live_paths;
		DR_LIST(struct dr_live_rail_row) live_rails;)
	X(struct dr_live_process live_process;) /* unknown: without --metrics-listen */
	X(struct dr_integrity_row integrity, peer_integrity;) /* unknown: this end received nothing */
	/* Of a first measurement, the caller's; the higher figure of both is compared. */
	X(const struct dr_comparison_row *earlier; size_t n_earlier;)
END(dr_record_fields, "result", "result document of a run")
#undef T
/* clang-format on */

#ifndef DR_ROW_TABLES
#undef BEGIN
#undef END
#undef F
#undef G
#undef E
#undef S
#undef L
#undef R
#undef B
#undef A
#undef C
#undef P
#undef VERDICT
#undef X
#endif
