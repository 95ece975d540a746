#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# What it costs to reach a transport through NCCL's network interface: our own plugin as --transport nccl:FILE without a
# failover of its own, beside --transport tcp. Host memory.
#
#   scripts/bench/hosted.sh [BUILD]
#
#   bandwidth  -g 0 -N 4 -s 1M, and -N 1
#   latency    --test lat -s 64, median round trip
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
plugin=$bench_build/libnccl-net-ha.so

direct() {
	server_port=$direct_port "$run" --transport tcp
}

hosted() {
	server_port=$hosted_port "$run" --transport "nccl:$plugin"
}

run_bandwidth() {
	client "$work/doc.json" -g 0 -N "$channels" -s 1M -D "$BENCH_SECS" "$@" && get "$work/doc.json" total.gbps
}

run_latency() {
	client "$work/doc.json" -g 0 -N 1 --test lat -s 64 -D "$BENCH_SECS" "$@" &&
		get "$work/doc.json" latency.0.rtt_us.p50
}

with_congestion() {
	start_server --transport tcp -g 0
	direct_port=$server_port direct_pid=$server_pid
	start_server --transport "nccl:$plugin" -g 0
	hosted_port=$server_port hosted_pid=$server_pid
	run=run_bandwidth
	for channels in 1 4; do
		compare "hosted-$channels-$1" "-N $channels, 1 MiB messages, our plugin as a transport / TCP, $1" Gb/s ">=0.97" direct hosted
	done
	run=run_latency
	compare "hosted-latency-$1" "64 B round trip, median, our plugin as a transport / TCP, $1" us - direct hosted
	stop "$direct_pid" "$hosted_pid"
}

bench_begin hosted jq
[[ -e $plugin ]] || skip "this build has no plugin"
export HA_NCCL_TRANSPORT=tcp HA_NCCL_ENABLE_BACKUP=0
each_congestion with_congestion
bench_end
