#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Round trip of 64 bytes, against the peer that waits in the same way.
#
#   scripts/bench/lat.sh [BUILD]
#
#   --poll busy      median, against ucx_perftest -t tag_lat over UCX_TLS=tcp, its 50 % figure; idle, and beside
#                    stress-ng with BENCH_LOAD (2) workers
#   --poll adaptive  median, against the same; mean, against qperf tcp_lat (it gives a mean only)
#
# The comparisons with ucx_perftest are repeated with each congestion control of BENCH_CC. ucx_perftest takes a number of iterations: BENCH_UCX_ITERS (20000), BENCH_UCX_LOADED_ITERS (5000).
#
# Both peers print half of a round trip: twice their figure is compared. That can be checked: qperf -vv
# counts as many messages at each end as fit in its time when each takes twice the printed latency, and
# ucx_perftest takes iterations x 2 x latency. Busy polling wants two idle cores. The load fills two cores;
# on a larger machine, taskset -c 0,1 scripts/bench/lat.sh keeps everything on two.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_UCX_ITERS:=20000}" "${BENCH_UCX_LOADED_ITERS:=5000}" "${BENCH_LOAD:=2}"
iters=$BENCH_UCX_ITERS

ucx() {
	local port pid
	port=$(free_port)
	said UCX_TLS=tcp ucx_perftest HOST -t tag_lat -s 64 -n "$iters" -w 1000
	UCX_TLS=tcp UCX_NET_DEVICES=rail0 "${b[@]}" ucx_perftest -p "$port" >"$work/ucx.server" 2>&1 &
	pid=$!
	await 10 "$pid" listening "$port" || return 1
	UCX_TLS=tcp UCX_NET_DEVICES=rail0 timeout 120 "${a[@]}" ucx_perftest "${rail[0]}" -p "$port" \
		-t tag_lat -s 64 -n "$iters" -w 1000 >"$work/ucx" 2>&1 || {
		note "ucx_perftest: $(grep -h -m 1 ERROR "$work/ucx" "$work/ucx.server" | tail -n 1)"
		stop "$pid"
		return 1
	}
	wait "$pid"
	awk '$1 == "Final:" && $3 > 0 { print 2 * $3; ok = 1 } END { exit !ok }' "$work/ucx"
}

start_qperf() {
	qperf_port=$(free_port)
	"${b[@]}" qperf -lp "$qperf_port" >/dev/null 2>&1 &
	await 10 $! listening "$qperf_port" || die "qperf does not listen"
}

# "latency = 18.2 us": in a unit that it chooses.
qperf_mean() {
	said qperf HOST -t "$BENCH_SECS" -m 64 tcp_lat
	"${a[@]}" qperf "${rail[0]}" -lp "$qperf_port" -t "$BENCH_SECS" -m 64 tcp_lat >"$work/qperf" || return 1
	awk '$1 == "latency" { f = $4 == "ns" ? 1e-3 : $4 == "us" ? 1 : $4 == "ms" ? 1e3 : 1e6
		print 2 * $3 * f; ok = 1 } END { exit !ok }' "$work/qperf"
}

lat_run() {
	client "$work/doc.json" -g 0 -N 1 --test lat -s 64 -D "$BENCH_SECS" --poll "$poll"
}

ours_median() {
	lat_run && get "$work/doc.json" latency.0.rtt_us.p50
}

# One round follows the other, so the mean is the time through their number; 30 ms of warm-up count.
ours_mean() {
	lat_run || return 1
	get "$work/doc.json" latency.0.rtt_us.p50 >>"$work/medians"
	get "$work/doc.json" latency.0.samples | awk -v s="$BENCH_SECS" '{ print (s + 0.03) * 1e6 / $1 }'
}

# against_ucx ID TITLE BAR POLL: with a server of its own.
against_ucx() {
	poll=$4
	start_server -g 0 --poll "$poll"
	compare "$1" "64 B round trip, median, $2 / ucx_perftest tag_lat" us "$3" ucx ours_median
	stop "$server_pid"
}

loaded() {
	local pid
	command -v stress-ng >/dev/null || {
		figure "lat-busy-loaded-$1" "64 B round trip, --poll busy beside stress-ng" "stress-ng is not installed" \
			"<=1.2" skipped
		return
	}
	said stress-ng --cpu "$BENCH_LOAD"
	stress-ng --cpu "$BENCH_LOAD" >/dev/null 2>&1 &
	pid=$!
	iters=$BENCH_UCX_LOADED_ITERS
	against_ucx "lat-busy-loaded-$1" "--poll busy beside stress-ng --cpu $BENCH_LOAD, $1," "<=1.2" busy
	iters=$BENCH_UCX_ITERS
	stop "$pid"
}

all_against_ucx() {
	against_ucx "lat-busy-$1" "--poll busy, $1," "<=1.0" busy
	loaded "$1"
	against_ucx "lat-adaptive-$1" "--poll adaptive, $1," "<=1.2" adaptive
}

bench_begin lat ""
if command -v ucx_perftest >/dev/null; then
	each_congestion all_against_ucx
else
	figure lat-busy "64 B round trip / ucx_perftest" "ucx_perftest is not installed" "<=1.0" skipped
fi
if command -v qperf >/dev/null; then
	poll=adaptive
	start_qperf
	start_server -g 0 --poll adaptive
	compare lat-adaptive "64 B round trip, mean, --poll adaptive / qperf tcp_lat" us "<=1.1" qperf_mean ours_mean &&
		figure lat-adaptive-p50 "64 B round trip, --poll adaptive, median of the medians" \
			"$(sort -g "$work/medians" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }') us" - -
else
	figure lat-adaptive "64 B round trip, --poll adaptive / qperf" "qperf is not installed" "<=1.1" skipped
fi
bench_end
