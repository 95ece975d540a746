#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# dualrail over verbs beside perftest, alternating in the same two guests of the lab. `make bench-lab`
#
#   scripts/lab/bench.sh BUILD [PART...]
#
#   bw       one channel against ib_write_bw, messages of 64 KiB and 1 MiB, with as many bytes in flight: for
#            the same time, the first second left out, by the sender's clock, what the peer has acknowledged
#   lat      median round trip of 64 bytes, busy polling at both ends, against ib_send_lat and ib_write_lat
#   counts   packets, work requests, completions and system calls per message, both guests together, of one
#            rail, of two rails (a shadow path), and of two with heartbeats every 10 ms; without is every 10 s
#
# Guests are emulated: only the ratios mean something, and they are judged with +-15 %. Several labs can
# share the work; BENCH_HALF_WIDTH=0.15 scripts/bench/stats.py merge FILE... puts their results together.
# Environment: BENCH_PAIRS (15), BENCH_OUT (build/bench), BENCH_SECS (3, of one bandwidth run), BENCH_MIB
# (256, what a run of counts moves), BENCH_ITERS (2000, round trips), LAB_NICE. A lab that is up is used.
# shellcheck source=scripts/lab/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_MIB:=256}" "${BENCH_ITERS:=2000}"

# --- perftest ------------------------------------------------------------------------------------

# perftest PROGRAM [OPTION...]: a server in guest 1, the client's output in $work/perf.
perftest() {
	said "$@"
	in_b "$@" -d rxe0 -x "$("$lab" gid 1 rxe0)" -F
	await 30 "$peer_pid" listening 18515 || return 1
	"$lab" run -t 300 0 "$@" -d rxe0 -x "$("$lab" gid 0 rxe0)" -F "$control" >"$work/perf" 2>&1 && wait "$peer_pid" && return
	note "$1: $(tail -n 1 "$work/perf")"
	stop "$peer_pid"
	return 1
}

# Both sides of the comparison poll without a pause; at their nice value they would keep the guest's one processor
# from the thread that does the NIC's work (rxe's), ib_write_bw more so, for a third of its bandwidth.
polite=(nice -n 19)

# A window of 16 chunks of at most 512 KiB, as dualrail's. Average without the first and the last second;
# perftest's MB are MiB.
peer_bw() {
	perftest "${polite[@]}" ib_write_bw -s "$bytes" -t $((bytes > 524288 ? 8388608 / bytes : 16)) -D $((BENCH_SECS + 2)) -f 1 || return 1
	awk -v b="$bytes" '$1 == b { print $4 * 1048576 * 8 / 1e9; ok = 1 } END { exit !ok }' "$work/perf"
}

# Half a round trip, typical (the median).
peer_lat() {
	perftest "$tool" -s 64 -n "$BENCH_ITERS" || return 1
	awk '$1 == 64 { print 2 * $5; ok = 1 } END { exit !ok }' "$work/perf"
}

# --- dualrail ------------------------------------------------------------------------------------

ours_bw() {
	local server_under=("${polite[@]}") client_under=("${polite[@]}")
	measure --rails rxe0,rxe1 -g 0 -N 1 -s "$bytes" -w 1s -D "$BENCH_SECS" --poll busy || return 1
	get "$share/doc.json" bandwidth.0.sender_gbps
}

# perftest polls without a pause at both ends.
ours_lat() {
	local server_with=(--poll busy)
	measure --rails rxe0,rxe1 -g 0 -N 1 --test lat -s 64 -n "$BENCH_ITERS" --poll busy || return 1
	get "$share/doc.json" latency.0.rtt_us.p50
}

part_bw() {
	local bytes
	for bytes in 65536 1048576; do
		compare "lab-bw-$bytes" "1 channel, messages of $((bytes / 1024)) KiB / ib_write_bw" Gb/s ">=0.95" peer_bw ours_bw
	done
}

part_lat() {
	local tool
	for tool in ib_send_lat ib_write_lat; do
		compare "lab-lat-$tool" "64 B round trip, median, --poll busy / $tool" us "<=1.25" peer_lat ours_lat
	done
}

# --- counts --------------------------------------------------------------------------------------

counters=(packets frames requests completions calls)

# What rxe, and what the NICs have sent so far, of both guests, whose lines may come mixed.
sent() {
	# shellcheck disable=SC2016 # for the guest
	"$lab" run both sh -c 'cd /sys/class
		for n in 0 1; do
			read packets <infiniband/rxe$n/ports/1/hw_counters/sent_pkts
			read frames <net/nic$n/statistics/tx_packets
			echo "$packets $frames"
		done' | awk '{ p += $1; f += $2 } END { print p, f }'
}

# under NAME: the words in front of a command that is counted. Call 16 is ioctl: no message needs one, while one
# look through a GID table is a thousand.
under() {
	echo "perf stat -x, -o $inside/$1.calls -e raw_syscalls:sys_enter --filter id!=16" \
		"env DR_IBVERBS=/opt/dualrail/bin/wrcount.so WRCOUNT=$inside/$1.requests"
}

# totals MESSAGES OPTION...: the counters over one run and its seconds, in one line.
totals() {
	local before after messages=$1
	shift
	rm -f "$share"/*.calls "$share"/*.requests
	read -ra server_under <<<"$(under server)"
	read -ra client_under <<<"$(under client)"
	server_with=(--rails "$2")
	before=$(sent) && measure -g 0 -N 1 -s 64K -n "$messages" -w 0 "$@" && after=$(sent) || return 1
	echo "$before $after" | awk '{ printf "%d %d ", $3 - $1, $4 - $2 }'
	awk '{ requests += $2 + $4; completions += $5 } END { printf "%d %d ", requests, completions }' "$share"/*.requests
	awk -F, '$3 ~ /sys_enter/ { n += $1 } END { printf "%d ", n }' "$share"/*.calls
	get "$share/doc.json" bandwidth.0.seconds
}

# counted OPTION...: the counters per message and the seconds of BENCH_MIB, less what a run of 64 messages has,
# which is set-up for the greater part.
counted() {
	local long short messages=$((BENCH_MIB * 16))
	short=$(totals 64 "$@") && long=$(totals "$messages" "$@") || return 1
	echo "$short $long" | awk -v m=$((messages - 64)) '{ for (i = 1; i <= 5; i++) printf "%.5g ", ($(6 + i) - $i) / m; print $12 - $6 }'
}

# against WHAT TITLE BAR: a line of results for each counter, from the columns of $work/bare and $work/WHAT.
against() {
	local i
	for ((i = 0; i < ${#counters[@]}; i++)); do
		paste -d' ' <(cut -d' ' -f$((i + 1)) "$work/bare") <(cut -d' ' -f$((i + 1)) "$work/$1") |
			"${stats[@]}" pairs "$rows" "lab-${counters[i]}-$1" "${counters[i]}, $2 / one rail" "per message" "$3"
	done
}

# Heartbeats come by the clock, not by the message: what they add, and the bandwidth of which it is 1 %.
per_second() {
	paste -d' ' "$work/shadow" "$work/both" | awk -v names="${counters[*]}" -v m=$((BENCH_MIB * 16)) '
		{ split(names, name, " "); for (i = 1; i <= 5; i++) { x[i] += ($(6 + i) - $i) * m / $12; y[i] += $i } n++ }
		END { for (i = 1; i <= 5; i++) printf "%s%s %.0f/s (1 %% of %.0f MB/s)", (i > 1) ? ", " : "", name[i],
			x[i] / n, x[i] / (y[i] / 100) * 65536 / 1e6 }'
}

# The three run in turn, each round in another order.
part_counts() {
	local i k run order=(bare shadow both)
	command -v perf >/dev/null || {
		figure lab-counts "counts" "perf is not installed (scripts/setup.sh lab)" - skipped
		return
	}
	cc -O2 -shared -fPIC -Wl,--no-as-needed -o "$work/bin/wrcount.so" "$here/wrcount.c" -libverbs || die "wrcount.c does not compile"
	"$lab" put both "$work/bin" /opt/dualrail || die "cannot copy into the guests"
	: >"$work/bare"
	: >"$work/shadow"
	: >"$work/both"
	for ((i = 1; i <= BENCH_PAIRS; i++)); do
		for ((k = 0; k < 3; k++)); do
			run=${order[(i + k) % 3]}
			case $run in
			bare) counted --rails rxe0 --heartbeat 10s ;;
			shadow) counted --rails rxe0,rxe1 --heartbeat 10s ;;
			both) counted --rails rxe0,rxe1 --heartbeat 10ms ;;
			esac >>"$work/$run" || {
				figure lab-counts "counts" "a run failed" "-" failed
				return
			}
			note "counts $i/$BENCH_PAIRS: $run $(tail -n 1 "$work/$run")"
		done
	done
	server_under=() client_under=() server_with=()
	against shadow "shadow path" "<=1.01"
	against both "shadow path and heartbeats every 10 ms" "<=1.01"
	figure lab-heartbeats "heartbeats every 10 ms add" "$(per_second)" - -
}

(($#)) && shift
parts=("$@")
((${#parts[@]})) || parts=(bw lat counts)
bench_begin lab "ib_write_bw"
for part in "${parts[@]}"; do
	case $part in
	bw | lat | counts) "part_$part" ;;
	*) die "no part $part" ;;
	esac
done
bench_end
