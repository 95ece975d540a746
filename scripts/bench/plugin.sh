#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# The time of a ring all-reduce's messages between two processes over the NCCL plugin, beside the same messages sent as NCCL's
# Socket transport does, in host memory and without NCCL: tests/plugin/exchange_main.c.
#
#   scripts/bench/plugin.sh [BUILD]
#
# BENCH_SIZES (8,4K,64K,256K,1M,8M), BENCH_MS (150, of one run), BENCH_CHANNELS (2), BENCH_PEERS (0x0 1x2): sockets per
# thread x threads of the peer's comms; 0x0: everything in the caller's thread, which is NCCL's default.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_SIZES:=8,4K,64K,256K,1M,8M}" "${BENCH_MS:=150}" "${BENCH_CHANNELS:=2}" "${BENCH_PEERS:=0x0 1x2}"
plugin=$bench_build/libnccl-net-ha.so exchange=$bench_build/tests/plugin/exchange_main

# beside CC PEER: all sizes.
beside() {
	local threads=${2#*x} socks size
	socks=$((${2%x*} * threads))
	said exchange_main --sizes "$BENCH_SIZES" --channels "$BENCH_CHANNELS" --socks "$socks" --threads "$threads"
	"$exchange" --netns "$ns_a,$ns_b" --pairs "$BENCH_PAIRS" --ms "$BENCH_MS" --sizes "$BENCH_SIZES" \
		--channels "$BENCH_CHANNELS" --socks "$socks" --threads "$threads" "$plugin" >"$work/exchange" || {
		cat "$work/exchange" >&2
		figure "plugin-$1-$2" "NCCL plugin / Socket $2, $1" "did not run" - failed
		return 0
	}
	cut -d ' ' -f 1 "$work/exchange" | sort -nu >"$work/sizes"
	while read -r size; do
		awk -v n="$size" '$1 == n { print $3, $2 }' "$work/exchange" >"$work/pairs"
		"${stats[@]}" pairs "$rows" "plugin-$1-$2-$size" "$size B, NCCL plugin / Socket $2, $1" us "<=1.05" <"$work/pairs"
	done <"$work/sizes"
}

with_congestion() {
	local peer
	for peer in $BENCH_PEERS; do
		beside "$1" "$peer"
	done
}

bench_begin plugin "jq"
[[ -e $plugin && -x $exchange ]] || skip "this build has no plugin"
export HA_NCCL_TRANSPORT=tcp NCCL_SOCKET_IFNAME="=rail0,rail1"
each_congestion with_congestion
bench_end
