#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Bandwidth of one channel against one iperf3 stream, and of four against iperf3 -P 4, over the same
# veth pair, with each congestion control of BENCH_CC.
#
#   scripts/bench/bw1.sh [BUILD]
#
# Messages of 1 MiB, one worker at each end, --poll adaptive, in chunks of each size of BENCH_CHUNKS (default:
# the program's own). iperf3 uses its own default buffer of 128 KiB, one second is left out at its start
# (dualrail leaves 300 ms out). Both figures are what the receiver got.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_CHUNKS:=default}"

start_iperf() {
	iperf_port=$(free_port)
	"${b[@]}" iperf3 -s -p "$iperf_port" >/dev/null 2>&1 &
	iperf_pid=$!
	await 10 "$iperf_pid" listening "$iperf_port" || die "iperf3 -s does not listen"
}

iperf() {
	said iperf3 -c HOST -t "$BENCH_SECS" -O 1 -P "$streams"
	"${a[@]}" iperf3 -c "${rail[0]}" -p "$iperf_port" -t "$BENCH_SECS" -O 1 -P "$streams" -J \
		>"$work/iperf.json" || return 1
	python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 1e9)' "$work/iperf.json"
}

ours() {
	local size=()
	[[ $chunk == default ]] || size=(--chunk "$chunk")
	client "$work/doc.json" -g 0 -N "$streams" -s 1M "${size[@]}" -D "$BENCH_SECS" || return 1
	get "$work/doc.json" total.gbps
}

both() {
	start_iperf
	start_server -g 0
	for chunk in $BENCH_CHUNKS; do
		streams=1
		compare "bw1-$chunk-$1" "1 channel, 1 MiB messages, chunk $chunk, $1 / iperf3" Gb/s ">=1.1" iperf ours
		streams=4
		compare "bw4-$chunk-$1" "4 channels, 1 MiB messages, chunk $chunk, $1 / iperf3 -P 4" Gb/s ">=1.0" \
			iperf ours
	done
	stop "$server_pid" "$iperf_pid"
}

bench_begin bw1 iperf3
each_congestion both
bench_end
