#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# The gap of a failover on the receiver's clock: campaigns of faults of each kind at each side.
#
#   scripts/bench/failover.sh [BUILD]
#
#   one    one channel, chunk 64K: every kind of BENCH_KINDS; blackhole again with --heartbeat 1ms
#   many   8 GPUs x 8 channels: the same three, judged by what the gap lasts over the usual time between
#          deliveries plus the time that the replayed bytes take at the bandwidth before
#   back   link-down at the client with the default hold-down, 4 channels: bandwidth after the failback
#          against before the fault (within 3 %), gap of the failback (p99 <= 5 ms)
#
# Environment: TRIALS (200 of each kind and side), TRIALS_MANY (TRIALS), BENCH_PARTS ("one many back"),
# BENCH_KINDS (KIND or KIND,dir=in|out), BENCH_SIDES, FAULT_FOR (300ms), FAULT_EVERY (900ms), HOLD_DOWN (100ms). The documents
# stay in BENCH_OUT. Exit status 1 when data were wrong, a channel hung or a campaign did not run.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${TRIALS:=200}" "${TRIALS_MANY:=$TRIALS}" "${BENCH_PARTS:=one many back}" "${BENCH_SIDES:=client server}"
: "${BENCH_KINDS:=close link-down blackhole blackhole,dir=in blackhole,dir=out}"
: "${FAULT_FOR:=300ms}" "${FAULT_EVERY:=900ms}" "${HOLD_DOWN:=100ms}"

# campaign ID TITLE BAR MODE TRIALS FAULT [OPTION...]
campaign() {
	local id=$1 title=$2 bar=$3 mode=$4 trials=$5 fault=$6 doc=$BENCH_OUT/failover-$1.json every
	shift 6
	every=$(echo "$FAULT_EVERY" | awk '{ print /ms$/ ? $1 / 1000 : $1 + 0 }')
	rm -f "$doc"
	((trials > 1)) && fault+=",repeat=$trials,every=$FAULT_EVERY"
	BENCH_LIMIT=$(awk -v n="$trials" -v e="$every" 'BEGIN { print int(60 + 5 * n * e) }') \
		client "$doc" --test failover --allow-faults --key-file "$work/key" \
		--hold-down "$HOLD_DOWN" --fault "$fault" "$@"
	[[ -s $doc ]] && "${stats[@]}" gaps "$rows" "$doc" "$id" "$title" "$bar" "$mode" && return
	bench_failed=1
	[[ -s $doc ]] || figure "$id" "$title" "no document" "$bar" failed
}

# Sets fault for KIND at SIDE, and name, for the results.
of_kind() {
	local first=${1%%,*}
	fault="$first:path=0${1#"$first"},side=$2,at=1s,for=$FAULT_FOR"
	name=${1//,dir=/-}
}

one() {
	local kind side bar fault name
	start_server -g 0 --allow-faults --key-file "$work/key"
	for kind in $BENCH_KINDS; do
		bar="p50<=3 p99<=20"
		[[ $kind == blackhole* ]] && bar="p50<=12 p99<=30"
		for side in $BENCH_SIDES; do
			of_kind "$kind" "$side"
			campaign "one-$name-$side" "$kind at the $side, 1 channel" "$bar" gap "$TRIALS" "$fault" \
				-g 0 -N 1 -s 64K --chunk 64K
			[[ $kind == blackhole ]] || continue
			campaign "one-$name-$side-1ms" "$kind at the $side, 1 channel, heartbeat 1 ms" "p50<=10" gap \
				"$TRIALS" "$fault" -g 0 -N 1 -s 64K --chunk 64K --heartbeat 1ms
		done
	done
	stop "$server_pid"
}

many() {
	local kind side bar fault name
	start_server -g 0-7 --allow-faults --key-file "$work/key"
	for kind in $BENCH_KINDS; do
		bar="p99<=20"
		[[ $kind == blackhole* ]] && bar="p99<=100"
		for side in $BENCH_SIDES; do
			of_kind "$kind" "$side"
			campaign "many-$name-$side" "$kind at the $side, 8 x 8 channels" "$bar" excess \
				"$TRIALS_MANY" "$fault" -g 0-7 -N 8
		done
	done
	stop "$server_pid"
}

back() {
	local FAULT_EVERY=4s HOLD_DOWN=1s doc=$BENCH_OUT/failover-back.json
	start_server -g 0 --allow-faults --key-file "$work/key"
	campaign back "link-down at the client, 4 channels" - gap "$TRIALS" \
		"link-down:path=0,side=client,at=2s,for=1s" -g 0 -N 4 -s 1M --chunk 64K
	[[ ! -s $doc ]] || "${stats[@]}" failback "$rows" "$doc" || bench_failed=1
	stop "$server_pid"
}

bench_begin failover nft
(umask 077 && head -c 32 /dev/urandom >"$work/key")
for part in $BENCH_PARTS; do
	case $part in
	one | many | back) "$part" ;;
	*) die "BENCH_PARTS: no part $part" ;;
	esac
done
bench_end
