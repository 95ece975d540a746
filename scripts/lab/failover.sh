#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Campaigns of faults over RDMA in the lab: the gap on the receiver's clock, kind by kind, side by side.
#
#   scripts/lab/failover.sh BUILD [KIND:SIDE...]     six campaigns, or those named here
#
# KIND is qp-error, link-down or blackhole (silent loss of what comes in there), SIDE client or server. One
# channel unless GPUS and CHANNELS say more. Every campaign's result document stays in BENCH_OUT, as
# lab-failover-KIND-SIDE-MODE-HEARTBEAT.json (with LAB_TAG in front of .json): give different labs
# different campaigns, or the same ones and a tag each, and put the documents together afterwards, as one line:
#   scripts/bench/stats.py gaps /dev/null DOCUMENT,DOCUMENT... ID TITLE -
#
# Environment: TRIALS (100 of each); MODES (fast), of which conservative runs with black holes alone: the
# others are told by the NIC at once, whatever is waited for; HEARTBEATS ("100ms 20ms"), for fast; GPUS
# (0), CHANNELS (1); FAULT_EVERY (2s), FAULT_FOR (500ms), HOLD_DOWN (200ms); BENCH_OUT, LAB_DIR, LAB_NICE.
# Exit status 1 when data were wrong, a channel hung, a switch came for no reason or too early, or a
# campaign did not run.
# shellcheck source=scripts/lab/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${TRIALS:=100}" "${MODES:=fast}" "${HEARTBEATS:=100ms 20ms}" "${GPUS:=0}" "${CHANNELS:=1}"
: "${FAULT_EVERY:=2s}" "${FAULT_FOR:=500ms}" "${HOLD_DOWN:=200ms}" "${LAB_TAG:=}"

# campaign KIND SIDE MODE HEARTBEAT
campaign() {
	local kind=$1 side=$2 mode=$3 heartbeat=$4 every=$FAULT_EVERY lasts=$FAULT_FOR doc title
	local fault="$kind:path=0,side=$side,at=1s"
	doc=$BENCH_OUT/lab-failover-$kind-$side-$mode-$heartbeat$LAB_TAG.json
	rm -f "$doc"
	[[ $kind != blackhole ]] || fault+=",dir=in"
	if [[ $mode == conservative ]]; then
		# The NIC gives up after half a second, and the fault must last until then.
		lasts=1s every=2500ms
	fi
	fault+=",for=$lasts,repeat=$TRIALS,every=$every"
	server_with=(--allow-faults --key-file "$inside/key")
	BENCH_LIMIT=$((120 + TRIALS * 8)) measure --rails rxe0,rxe1 -g "$GPUS" -N "$CHANNELS" -s 32K \
		--chunk 32K --window 2 --ib-retry 6 --heartbeat "$heartbeat" --detect "$mode" --test failover \
		--allow-faults --key-file "$inside/key" --hold-down "$HOLD_DOWN" --fault "$fault" || bench_failed=1
	server_with=()
	title="$kind at the $side, $mode, heartbeat $heartbeat"
	if [[ -s $share/doc.json ]] && cp "$share/doc.json" "$doc"; then
		"${stats[@]}" gaps "$rows" "$doc" "$kind-$side-$mode-$heartbeat" "$title" - || bench_failed=1
	else
		figure "$kind-$side-$mode-$heartbeat" "$title" "no document" - failed
	fi
}

(($#)) && shift
what=("$@")
((${#what[@]})) || what=({qp-error,link-down,blackhole}:{client,server})
for one in "${what[@]}"; do
	[[ $one =~ ^(qp-error|link-down|blackhole):(client|server)$ ]] || {
		echo "$one: KIND:SIDE is expected, e.g. qp-error:server" >&2
		exit 1
	}
done
bench_begin lab-failover "nft"
for mode in $MODES; do
	for heartbeat in $([[ $mode == conservative ]] && echo 100ms || echo "$HEARTBEATS"); do
		for one in "${what[@]}"; do
			[[ $mode == conservative && $one != blackhole:* ]] ||
				campaign "${one%:*}" "${one#*:}" "$mode" "$heartbeat"
		done
	done
done
bench_end
