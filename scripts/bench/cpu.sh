#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# CPU time per byte of 64 channels against 4: same bytes, same bytes in flight, one worker.
#
#   scripts/bench/cpu.sh [BUILD]
#
# Once with the defaults of the four (window 16, chunk 512K), once with chunks of 128K, where a window of
# one costs an acknowledgement for each of them. User + system time of both processes from start to end,
# set-up of the channels included. BENCH_GIB (8): bytes of one run; fewer than a few make the set-up count.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_GIB:=8}"

# channels N WINDOW CHUNK_KIB: ns of CPU per KiB. A server of its own, so that its time is this run's.
channels() {
	local n=$1 window=$2 kib=$3
	server_under=("${stats[@]}" cpu "$work/server.cpu")
	client_under=("${stats[@]}" cpu "$work/client.cpu")
	start_server -g 0 --one-off
	client "$work/doc.json" -g 0 -N "$n" --window "$window" -s "${kib}K" --chunk "${kib}K" \
		--iters "$((BENCH_GIB * 1048576 / kib / n))" --warmup 0 && wait "$server_pid" || return 1
	cat "$work/server.cpu" "$work/client.cpu" |
		awk -v kib="$((BENCH_GIB * 1048576))" '{ s += $1 + $2 } END { print s * 1e9 / kib }'
}

four() { channels 4 16 "$chunk"; }
sixtyfour() { channels 64 1 "$chunk"; }

bench_begin cpu ""
for chunk in 512 128; do
	compare "cpu-64-4-${chunk}K" \
		"CPU per byte, 64 channels x window 1 / 4 channels x window 16, chunk ${chunk}K" "ns/KiB" "<=1.15" \
		four sixtyfour
done
bench_end
