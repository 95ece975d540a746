#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Failback: bandwidth afterwards, the gap of the planned switch, and what 50 flaps leave behind.
#
#   scripts/bench/failback.sh [BUILD]
#
#   campaign  link-down at the client, TRIALS (100) times, default hold-down: bandwidth after the failback
#             against before the fault (within 3 %), gap of the failback (p99 <= 5 ms)
#   flaps     the link of the first rail goes down and up FLAPS (50) times under traffic: descriptors and
#             resident memory of both processes before and after
#
# The flaps are done from outside, ten more come before, so that pools and caches have their size.
# FLAP_S (1.5): from one to the next, a third of it down. BENCH_PARTS ("campaign flaps").
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${TRIALS:=100}" "${FLAPS:=50}" "${FLAP_S:=1.5}" "${BENCH_PARTS:=campaign flaps}" "${BENCH_RSS_KIB:=1024}"

campaign() {
	local doc=$BENCH_OUT/failback-campaign.json fault="link-down:path=0,at=2s,for=1s"
	((TRIALS > 1)) && fault+=",repeat=$TRIALS,every=4s"
	rm -f "$doc"
	start_server -g 0
	BENCH_LIMIT=$((TRIALS * 20 + 60)) client "$doc" -g 0 -N 4 -s 1M --chunk 64K --test failover --allow-faults \
		--fault "$fault"
	stop "$server_pid"
	[[ -s $doc ]] || {
		figure failback "failback" "no document" "-" failed
		return
	}
	"${stats[@]}" gaps "$rows" "$doc" failback-out "link-down at the client, 4 channels" "-" || bench_failed=1
	"${stats[@]}" failback "$rows" "$doc" || bench_failed=1
}

flap() {
	local i
	for ((i = 0; i < $1; i++)); do
		ip -n "$ns_a" link set rail0 down
		sleep "$(awk -v s="$FLAP_S" 'BEGIN { print s / 3 }')"
		ip -n "$ns_a" link set rail0 up
		sleep "$(awk -v s="$FLAP_S" 'BEGIN { print s * 2 / 3 }')"
	done
}

# held PID: its open descriptors and resident KiB, once it does not change any more.
held() {
	local now before='' i
	for ((i = 0; i < 100; i++)); do
		now="$(find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l)"
		[[ $now == "$before" ]] && ((i > 10)) && break
		before=$now
		sleep 0.1
	done
	echo "$now $(awk '/^VmRSS/ { print $2 }' "/proc/$1/status")"
}

# Nothing more until the channels are back on the first rail.
settle() {
	local last now i
	for ((i = 0; i < 60; i++)); do
		last=$("${a[@]}" cat /sys/class/net/rail0/statistics/tx_bytes)
		sleep 0.5
		now=$("${a[@]}" cat /sys/class/net/rail0/statistics/tx_bytes)
		((now - last > 10000000)) && return 0
	done
	return 1
}

# compared WHO PID BEFORE AFTER
compared() {
	local fd0 rss0 fd1 rss1 verdict=met
	read -r fd0 rss0 <<<"$2"
	read -r fd1 rss1 <<<"$3"
	((fd1 > fd0 || rss1 - rss0 > BENCH_RSS_KIB)) && verdict="not met"
	figure "flaps-$1" "left by $FLAPS flaps, $1" "descriptors $fd0 -> $fd1, RSS $rss0 -> $rss1 KiB" \
		"no more descriptors, RSS + $BENCH_RSS_KIB KiB" "$verdict"
}

flaps() {
	local doc=$BENCH_OUT/failback-flaps.json pid server0 server1 client0 client1 secs
	rm -f "$doc"
	secs=$(awk -v n="$FLAPS" -v s="$FLAP_S" 'BEGIN { print int((n + 10) * s + 90) }')
	start_server -g 0
	said dualrail client HOST -g 0 -N 8 -s 1M --chunk 64K --hold-down 200ms
	"${a[@]}" "$dualrail" client "$control" --port "$server_port" -g 0 -N 8 -s 1M --chunk 64K \
		--hold-down 200ms -D "$secs" -i 0 --json="$doc" -q >"$work/client.log" 2>&1 &
	pid=$!
	settle || { flaps_failed "no traffic" "$pid"; return; }
	flap 10
	settle || { flaps_failed "the traffic did not come back to the first rail" "$pid"; return; }
	sleep 2
	client0=$(held "$pid") server0=$(held "$server_pid")
	flap "$FLAPS"
	settle || { flaps_failed "the traffic did not come back to the first rail" "$pid"; return; }
	sleep 2
	client1=$(held "$pid") server1=$(held "$server_pid")
	kill -0 "$pid" 2>/dev/null || { flaps_failed "the client ended early" "$pid"; return; }
	stop "$pid" "$server_pid"
	compared client "$client0" "$client1"
	compared server "$server0" "$server1"
}

# flaps_failed WHY CLIENT
flaps_failed() {
	tail -n 5 "$work/client.log" >&2
	stop "$2" "$server_pid"
	figure flaps "left by $FLAPS flaps" "$1" "-" failed
}

bench_begin failback ""
for part in $BENCH_PARTS; do
	case $part in
	campaign | flaps) "$part" ;;
	*) die "BENCH_PARTS: no part $part" ;;
	esac
done
bench_end
