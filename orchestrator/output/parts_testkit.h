/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_PARTS_TESTKIT_H
#define DR_ORCHESTRATOR_OUTPUT_PARTS_TESTKIT_H

#include <stdio.h>

#include "base/rng.h"
#include "orchestrator/output/record.h"

/* A made-up run for the tests here: 8 GPUs on 4 rails of 100 Gb/s, two kinds of faults. Every figure
 * follows from the seed. */
enum { SAMPLE_GPUS = 8, SAMPLE_RAILS = 4, SAMPLE_TRIALS = 30 };

static inline void sample_topology(struct dr_record *rec)
{
	struct dr_rail_row rail;
	struct dr_gpu_row gpu;
	int i;

	for (i = 0; i < SAMPLE_RAILS; i++) {
		dr_fields_init(&dr_rail_fields, &rail);
		rail.rail = i;
		snprintf(rail.ifname, sizeof(rail.ifname), "eth%d", i + 1);
		snprintf(rail.address, sizeof(rail.address), "10.77.%d.1", i);
		snprintf(rail.peer_ifname, sizeof(rail.peer_ifname), "eth%d", i + 1);
		snprintf(rail.peer_address, sizeof(rail.peer_address), "10.77.%d.2", i);
		rail.speed_gbps = 100;
		rail.mtu = 9000;
		dr_record_add(rec, rails, &rail);
	}
	for (i = 0; i < SAMPLE_GPUS; i++) {
		dr_fields_init(&dr_gpu_fields, &gpu);
		gpu.gpu = i;
		snprintf(gpu.name, sizeof(gpu.name), "host memory");
		gpu.primary = i / 2;
		gpu.shadow = i / 2 ^ 1;
		gpu.channels = 8;
		dr_record_add(rec, gpus, &gpu);
		dr_record_add(rec, paths, &((struct dr_path_row){ i, 0, 8, 8, 0 }));
		dr_record_add(rec, paths, &((struct dr_path_row){ i, 1, 8, i == 7 ? 6 : 8, 0 }));
	}
}

static inline void sample_bandwidth(struct dr_record *rec)
{
	struct dr_bandwidth_row b;
	struct dr_nic_row nic;
	int i, side;

	for (i = 0; i < SAMPLE_GPUS; i++) {
		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = 0;
		b.gpu = i;
		b.direction = DR_TO_SERVER;
		b.message_bytes = 64 << 20;
		b.bytes = 29250000000 + i * 100000000;
		b.seconds = 5.0;
		b.messages = 436 + i;
		dr_record_add(rec, bandwidth, &b);
		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = 0;
		b.gpu = i;
		b.direction = DR_TO_SERVER;
		b.message_bytes = 64 << 20;
		b.sender_bytes = 29300000000 + i * 100000000;
		b.sender_seconds = 5.0;
		b.retransmits = i == 3 ? 17 : 0;
		dr_record_add(rec, bandwidth, &b);
	}
	for (side = 0; side < 2; side++)
		for (i = 0; i < SAMPLE_RAILS; i++) {
			int64_t data = 59000000000 + i * 400000000;

			dr_fields_init(&dr_nic_fields, &nic);
			nic.side = side;
			snprintf(nic.name, sizeof(nic.name), "eth%d", i + 1);
			nic.speed_gbps = 100;
			nic.seconds = 5.0;
			nic.connections = 64 + i;
			nic.tx_bytes = side == DR_END_CLIENT ? data : 0;
			nic.rx_bytes = side == DR_END_CLIENT ? 0 : data;
			nic.counter_tx_bytes =
				side == DR_END_CLIENT ? data + data / 130 : data / 900;
			nic.counter_rx_bytes =
				side == DR_END_CLIENT ? data / 900 : data + data / 130;
			if (i == 3 && side == DR_END_SERVER)
				nic.counter_rx_bytes = data / 2;
			dr_record_add(rec, nics, &nic);
		}
	rec->cpu_percent_local = 312.4;
	rec->cpu_percent_peer = 401.9;
}

static inline void sample_fault(struct dr_record *rec, struct dr_rng *rng, int trial, int kind)
{
	struct dr_switch_row sw[16];
	struct dr_fault_row row;
	int64_t origin = 1000000000 + trial * (int64_t)4000000000, offset = 5000000;
	int64_t base = kind ? 30000000 : 900000;
	int i;

	for (i = 0; i < 8; i++) {
		struct dr_switch_row *r = &sw[2 * i], *s = &sw[2 * i + 1];

		dr_fields_init(&dr_switch_fields, r);
		r->side = DR_END_SERVER;
		r->gpu = 2;
		r->channel = i;
		r->trial = trial;
		r->receiver = 1;
		r->rec = (struct dr_switch_record){ .epoch = (uint32_t)trial + 2,
			.from = 0,
			.to = 1,
			.self_detected = true,
			.scope = DR_SCOPE_RAIL,
			.err = -110,
			.rounds = 1 };
		snprintf(
			r->rec.cause, sizeof(r->rec.cause), "rail 1: 3 heartbeats of 10 ms missed");
		r->rec.last_delivery_ns = origin + (int64_t)dr_rng_below(rng, 100000);
		r->rec.detect_ns =
			r->rec.last_delivery_ns + base + (int64_t)dr_rng_below(rng, 9000000);
		r->rec.fenced_ns = r->rec.detect_ns + 30000 + (int64_t)dr_rng_below(rng, 20000);
		r->rec.answer_ns = r->rec.fenced_ns + 50000 + (int64_t)dr_rng_below(rng, 90000);
		r->rec.first_frame_ns =
			r->rec.answer_ns + 80000 + (int64_t)dr_rng_below(rng, 90000);
		r->rec.first_delivery_ns = r->rec.first_frame_ns + 200000;
		*s = *r;
		s->side = DR_END_CLIENT;
		s->receiver = 0;
		s->rec.last_delivery_ns -= offset - 20000;
		s->rec.detect_ns -= offset - 60000;
		s->rec.fenced_ns -= offset - 60000;
		s->rec.answer_ns -= offset - 60000;
		s->rec.first_frame_ns -= offset + 20000;
		s->rec.first_delivery_ns -= offset - 40000;
		s->rec.in_flight_messages = 12;
		s->rec.replayed_messages = 7;
		s->rec.replayed_bytes = 7 << 19;
		dr_record_add(rec, switches, r);
		dr_record_add(rec, switches, s);
	}
	dr_fields_init(&dr_fault_fields, &row);
	row.trial = trial;
	snprintf(row.kind, sizeof(row.kind), "%s", kind ? "blackhole" : "link-down");
	row.path = 0;
	row.side = kind ? DR_END_SERVER : DR_END_CLIENT;
	row.dir = kind ? 2 : -1;
	snprintf(row.nic, sizeof(row.nic), "eth2");
	row.at_ns = origin + 1000 - offset;
	dr_fault_row_from_switches(&row, sw, 16, offset, 30000, origin + 1000);
	row.failback_ns = 1200000000;
	row.failback_gap_ns = 410000;
	row.bandwidth_before_gbps = 47.2;
	row.bandwidth_during_gbps = 24.1;
	row.bandwidth_after_gbps = 47.1;
	row.verdict = kind && trial % 20 == 7 ? DR_VERDICT_MISSED_FAULT : DR_VERDICT_PASS;
	dr_record_add(rec, faults, &row);
}

static inline void sample_failover(struct dr_record *rec)
{
	struct dr_rng rng;
	int i;

	dr_rng_seed(&rng, 42);
	for (i = 0; i < 2 * SAMPLE_TRIALS; i++)
		sample_fault(rec, &rng, i, i % 2);
	rec->false_failovers = 0;
}

static inline void sample_rest(struct dr_record *rec)
{
	struct dr_integrity_row in = { 3500000, 236000000000, 0, 0, 0, 0, 1 };
	struct dr_interval_row iv;
	struct dr_latency_row lat;
	int i;

	for (i = 0; i < 2; i++) {
		dr_fields_init(&dr_latency_fields, &lat);
		lat.gpu = i;
		snprintf(lat.nic, sizeof(lat.nic), "mlx5_%d", i);
		lat.bytes = 64;
		lat.samples = 200000;
		lat.p50_ns = 9400 + i * 300;
		lat.p90_ns = 12100;
		lat.p99_ns = 19800;
		lat.p999_ns = 61000;
		lat.max_ns = 1203456;
		lat.n_histogram = 2;
		lat.histogram[0] = (struct dr_bin_row){ 8192, 10240, 199999 };
		lat.histogram[1] = (struct dr_bin_row){ (int64_t)1 << 40, (int64_t)5 << 38, 1 };
		dr_record_add(rec, latency, &lat);
	}
	dr_fields_init(&dr_interval_fields, &iv);
	iv.phase = 0;
	iv.direction = DR_TO_SERVER;
	iv.start_ns = 0;
	iv.duration_ns = DR_NS_PER_S;
	iv.bytes = 47250000000;
	iv.chunks = 704;
	dr_record_add(rec, intervals, &iv);
	dr_integrity_add(&rec->integrity, &in);
	dr_record_add(rec, checks,
		(&(struct dr_check_row){ .side = DR_END_SERVER,
			.test = 2,
			.chunks = in.chunks,
			.bytes = in.bytes,
			.verified = 1 }));
	dr_record_eventf(rec, "phase", "bandwidth, 64 MiB: begins");
}

static inline struct dr_record *sample_record(void)
{
	char *argv[] = { (char *)"dualrail", (char *)"client", (char *)"node-b", (char *)"--test",
		(char *)"bw,lat,failover" };
	struct dr_record *rec = NULL;

	if (dr_record_create(&rec))
		return NULL;
	rec->side = DR_END_CLIENT;
	snprintf(rec->command, sizeof(rec->command), "client");
	snprintf(rec->host.name, sizeof(rec->host.name), "node-a");
	snprintf(rec->peer_host.name, sizeof(rec->peer_host.name), "node-b");
	snprintf(rec->peer_version, sizeof(rec->peer_version), "0.1.0");
	dr_record_set_argv(rec, 5, argv);
	dr_record_set_options(
		rec, json_pack("{s:s,s:s,s:i,s:i,s:b}", "test", "bw,lat,failover", "transport",
			     "tcp", "channels", 8, "window", 16, "bidir", 0));
	snprintf(rec->detection.mode, sizeof(rec->detection.mode), "fast");
	snprintf(rec->detection.transport, sizeof(rec->detection.transport), "tcp");
	rec->detection.bound_ns = 45 * DR_NS_PER_MS;
	rec->detection.heartbeat_ns = 10 * DR_NS_PER_MS;
	rec->detection.failback = 1;
	sample_topology(rec);
	sample_bandwidth(rec);
	sample_failover(rec);
	sample_rest(rec);
	return rec;
}

#endif
