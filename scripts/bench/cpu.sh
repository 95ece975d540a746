#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# CPU time per byte of 64 channels, and of 256 (4 GPUs x 64), against 4: same bytes, one worker, with each
# congestion control of BENCH_CC.
#
#   scripts/bench/cpu.sh [BUILD]
#
# The four have a window of 16, the others of one, where each chunk costs an acknowledgement of its own; chunks of
# 512K and 128K. User + system time of both processes from start to end, set-up of the channels included.
# BENCH_GIB (8): bytes of one run; fewer than a few make the set-up count.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_GIB:=8}"

# channels GPUS N WINDOW CHUNK_KIB: ns of CPU per KiB. A server of its own, so that its time is this run's.
channels() {
	local gpus=$1 n=$2 window=$3 kib=$4
	server_under=("${stats[@]}" cpu "$work/server.cpu")
	client_under=("${stats[@]}" cpu "$work/client.cpu")
	start_server -g "0-$((gpus - 1))" --one-off --workers 1
	client "$work/doc.json" -g "0-$((gpus - 1))" -N "$n" --window "$window" -s "${kib}K" --chunk "${kib}K" \
		--workers 1 --iters "$((BENCH_GIB * 1048576 / kib / n / gpus))" --warmup 0 && wait "$server_pid" || return 1
	cat "$work/server.cpu" "$work/client.cpu" |
		awk -v kib="$((BENCH_GIB * 1048576))" '{ s += $1 + $2 } END { print s * 1e9 / kib }'
}

four() { channels 1 4 16 "$chunk"; }
sixtyfour() { channels 1 64 1 "$chunk"; }
many() { channels 4 64 1 "$chunk"; }

all() {
	local bar="<=1.15" bar_many="<=1.3"
	[[ $1 == bbr ]] && bar="<=1.5" bar_many=-
	for chunk in 512 128; do
		compare "cpu-64-4-${chunk}K-$1" \
			"CPU per byte, 64 channels x window 1 / 4 channels x window 16, chunk ${chunk}K, $1" "ns/KiB" "$bar" \
			four sixtyfour
	done
	compare "cpu-256-4-128K-$1" "CPU per byte, 256 channels x window 1 / 4 channels x window 16, chunk 128K, $1" \
		"ns/KiB" "$bar_many" four many
}

bench_begin cpu ""
each_congestion all
bench_end
