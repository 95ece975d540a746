#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Bandwidth with the default chunk, window and send buffer beside the best fixed setting of a sweep, for each number
# of channels of BENCH_CHANNELS (1 4 16 64) and each congestion control of BENCH_CC.
#
#   scripts/bench/defaults.sh [BUILD]
#
# The sweep: BENCH_CHUNKS (64K 128K 256K 512K 1M) x BENCH_WINDOWS (1 4 16) x BENCH_SOCKBUFS (auto 512K), messages of
# 1 MiB, BENCH_ROUNDS (2) runs of BENCH_SECS (1) each; what carries most on average is compared with the defaults in
# BENCH_PAIRS pairs. Choosing the best of many picks up luck, which the pairs take back. The table of the sweep is
# BENCH_OUT/defaults.txt.
# shellcheck source=scripts/bench/lib.sh
BENCH_SECS=${BENCH_SECS:-1}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_CHANNELS:=1 4 16 64}" "${BENCH_CHUNKS:=64K 128K 256K 512K 1M}" "${BENCH_WINDOWS:=1 4 16}"
: "${BENCH_SOCKBUFS:=auto 512K}" "${BENCH_ROUNDS:=2}"

# gbps OPTION...
gbps() {
	client "$work/doc.json" -g 0 -N "$channels" -s 1M -D "$BENCH_SECS" -w 300ms "$@" || return 1
	get "$work/doc.json" total.gbps
}

# Prints the options of the best, after a line of the table for each setting.
sweep() {
	local cc=$1 chunk window sockbuf options round
	: >"$work/sweep"
	for ((round = 0; round < BENCH_ROUNDS; round++)); do
		for chunk in $BENCH_CHUNKS; do
			for window in $BENCH_WINDOWS; do
				for sockbuf in $BENCH_SOCKBUFS; do
					options="--chunk $chunk --window $window"
					[[ $sockbuf == auto ]] || options+=" --sockbuf $sockbuf"
					# shellcheck disable=SC2086
					echo "$(gbps $options) $options" >>"$work/sweep"
				done
			done
		done
	done
	awk -v cc="$cc" -v n="$channels" '{ v = $1; sub(/^[^ ]* /, ""); sum[$0] += v; runs[$0]++ }
		END { for (o in sum) printf "%s\t%d channels\t%.1f\t%s\n", cc, n, sum[o] / runs[o], o }' "$work/sweep" |
		sort -t "$(printf '\t')" -k3,3gr | tee -a "$BENCH_OUT/defaults.txt" | head -n 1 | cut -f 4
}

fixed() {
	# shellcheck disable=SC2086
	gbps $best
}
default() { gbps; }

all() {
	start_server -g 0
	for channels in $BENCH_CHANNELS; do
		best=$(sweep "$1")
		compare "default-$channels-$1" "$channels channels, defaults, $1 / $best" Gb/s ">=0.95" fixed default
	done
	stop "$server_pid"
}

bench_begin defaults ""
: >"$BENCH_OUT/defaults.txt"
each_congestion all
bench_end
