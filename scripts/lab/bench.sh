#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# dualrail over verbs beside perftest, alternating in the same two guests of the lab. `make bench-lab`
#
#   scripts/lab/bench.sh BUILD [PART...]
#
#   bw       one channel against ib_write_bw, messages of 64 KiB and 1 MiB
#   lat      median round trip of 64 bytes, busy polling, against ib_send_lat and ib_write_lat
#   counts   packets per message of both guests: two rails and heartbeats every 10 ms against one rail
#            without a shadow path and heartbeats every 10 s
#   cut      what a cut does: dualrail's gap, and ib_write_bw over Linux bonding (active-backup), where the
#            queue pair's fate is looked at, not timed
#
# Guests are emulated: only the ratios mean something, and they are judged with +-15 % (judge.py).
# Environment: BENCH_PAIRS (15), BENCH_OUT (build/bench), BENCH_MIB (64, what a bandwidth run moves),
# BENCH_ITERS (2000, round trips), TRIALS (10), LAB_NICE. A lab that is up is used.
# shellcheck source=scripts/lab/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_MIB:=64}" "${BENCH_ITERS:=2000}" "${TRIALS:=10}"

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

# Average of the run; perftest's MB are MiB.
peer_bw() {
	perftest ib_write_bw -s "$bytes" -n $((BENCH_MIB * 1048576 / bytes)) || return 1
	awk -v b="$bytes" '$1 == b { print $4 * 1048576 * 8 / 1e9; ok = 1 } END { exit !ok }' "$work/perf"
}

# Half a round trip, typical (the median).
peer_lat() {
	perftest "$tool" -s 64 -n "$BENCH_ITERS" || return 1
	awk '$1 == 64 { print 2 * $5; ok = 1 } END { exit !ok }' "$work/perf"
}

# --- dualrail ------------------------------------------------------------------------------------

ours_bw() {
	measure --rails rxe0,rxe1 -g 0 -N 1 -s "$bytes" -n $((BENCH_MIB * 1048576 / bytes)) --poll busy || return 1
	get "$share/doc.json" total.gbps
}

ours_lat() {
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

# What rxe has sent on both rails, retries apart, by both guests.
packets() {
	# shellcheck disable=SC2016 # for the guest
	"$lab" run both sh -c 'cd /sys/class/infiniband
		cat rxe0/ports/1/hw_counters/sent_pkts rxe1/ports/1/hw_counters/sent_pkts' | awk '{ n += $1 } END { print n }'
}

frames() {
	"$lab" run both cat /sys/class/net/nic0/statistics/tx_packets /sys/class/net/nic1/statistics/tx_packets |
		awk '{ n += $1 } END { print n }'
}

# per_message COUNTER OPTION...: what the counter grows by in a run, over its messages of 64 KiB.
per_message() {
	local counter=$1 before after messages=$((BENCH_MIB * 16))
	shift
	before=$($counter) || return 1
	measure -g 0 -N 1 -s 64K -n "$messages" -w 0 "$@" || return 1
	after=$($counter) || return 1
	awk -v n=$((after - before)) -v m="$messages" 'BEGIN { print n / m }'
}

protected() { per_message "$counter" --rails rxe0,rxe1 --heartbeat 10ms; }
bare() { per_message "$counter" --rails rxe0 --heartbeat 10s; }

# The whole run with its set-up is counted, which is the same messages either way.
part_counts() {
	local counter
	for counter in packets frames; do
		compare "lab-$counter" "$counter per message, shadow path and heartbeats every 10 ms / neither" \
			"per message" "<=1.05" bare protected
	done
}

# --- cuts ----------------------------------------------------------------------------------------

# campaign KIND SIDE: a line of gaps of dualrail.
campaign() {
	local fault="$1:path=0,side=$2,at=1s,for=500ms"
	[[ $1 != blackhole ]] || fault+=",dir=in"
	server_with=(--allow-faults --key-file "$inside/key")
	measure --rails rxe0,rxe1 -g 0 -N 1 -s 64K --chunk 64K --window 4 --test failover --allow-faults \
		--key-file "$inside/key" --hold-down 200ms --fault "$fault,repeat=$TRIALS,every=2s"
	server_with=()
	[[ -s $share/doc.json ]] &&
		"${stats[@]}" gaps "$rows" "$share/doc.json" "lab-$1-$2" "$1 at the $2, 1 channel" - gap && return
	bench_failed=1
}

# shellcheck disable=SC2016 # for the guest
bond_up='modprobe bonding
for n in 2 3; do rdma link del rxe$n; ip link set nic$n down; ip addr flush dev nic$n; done
ip link add bond0 type bond mode active-backup miimon 100
ip link set nic2 master bond0; ip link set nic3 master bond0
ip link set bond0 mtu 4200 up
ip addr add 10.78.0.$1/24 dev bond0
for i in $(seq 100); do [ "$(cat /sys/class/net/bond0/carrier)" = 1 ] && break; sleep 0.1; done
echo nic2 >/sys/class/net/bond0/bonding/active_slave
rdma link add rxeb type rxe netdev bond0'

# shellcheck disable=SC2016
bond_down='rdma link del rxeb; ip link del bond0
for n in 2 3; do
	ip link set nic$n mtu 4200 up
	ip addr add 192.168.$((100 + n)).$1/24 dev nic$n
	ip addr add fd00:$((100 + n))::$1/64 dev nic$n nodad
	rdma link add rxe$n type rxe netdev nic$n
done'

both_bonds() {
	"$lab" run 0 sh -c "$1" - 1 && "$lab" run 1 sh -c "$1" - 2
}

# Sent on the bond since it was made.
bond_bytes() {
	"$lab" run 0 cat /sys/class/net/bond0/statistics/tx_bytes
}

grown() {
	(($(bond_bytes) > bond_before + 20000000))
}

active_slave() {
	[[ $("$lab" run 0 cat /sys/class/net/bond0/bonding/active_slave) == "$1" ]]
}

# perftest's "Failed status N" by the name of the completion.
completion() {
	sed -n 's/.*Failed status \([0-9]*\).*/\1/p' | head -n 1 | sed 's/^2$/a local QP operation error/
		s/^5$/flushed work requests/; s/^12$/the retry counter exceeded/; s/^[0-9]*$/completion status &/; s/^$/no completion/'
}

# One run of ib_write_bw over the bonds with the active slave cut in the middle; prints how it ended.
bond_trial() {
	local bond_before client_pid rc moved=no
	active_slave nic2 || both_bonds 'echo nic2 >/sys/class/net/bond0/bonding/active_slave'
	in_b timeout 60 ib_write_bw -d rxeb -x "$("$lab" gid 1 rxeb)" -F -s 65536 -n 3000
	await 30 "$peer_pid" listening 18515 || return 1
	bond_before=$(bond_bytes)
	"$lab" run -t 60 0 ib_write_bw -d rxeb -x "$("$lab" gid 0 rxeb)" -F -s 65536 -n 3000 "$control" >"$work/bond" 2>&1 &
	client_pid=$!
	await 60 "$client_pid" grown || {
		note "bond: the run ended before the cut"
		wait "$client_pid"
		stop "$peer_pid"
		return 1
	}
	"$lab" link 0 nic2 down
	await 20 $$ active_slave nic3 && moved=yes
	wait "$client_pid"
	rc=$?
	stop "$peer_pid"
	"$lab" link 0 nic2 up
	await 20 $$ "$lab" run 0 grep -q 1 /sys/class/net/nic2/carrier
	if ((rc == 0)); then
		echo "went on"
	elif ((rc == 124)); then
		echo "hung, slave moved: $moved"
	else
		echo "ended with $(completion <"$work/bond"), slave moved: $moved"
	fi
}

part_cut() {
	local i out
	campaign link-down client
	campaign link-down server
	campaign blackhole server
	said "ib_write_bw over bond0: mode active-backup miimon 100, rxe on the bond; active slave cut"
	"$lab" switch nic2 nic3
	: >"$work/bonds"
	if both_bonds "$bond_up" >"$work/bond.log" 2>&1; then
		for ((i = 1; i <= TRIALS; i++)); do
			out=$(bond_trial) || out="did not run"
			note "bond $i/$TRIALS: $out"
			echo "$out" >>"$work/bonds"
		done
	else
		echo "no bond: $(tail -n 1 "$work/bond.log")" >>"$work/bonds"
	fi
	both_bonds "$bond_down" >/dev/null 2>&1
	"$lab" switch
	figure lab-bond "ib_write_bw over active-backup bonding, active slave cut, $TRIALS times" \
		"$(sort "$work/bonds" | uniq -c | awk '{ n = $1; $1 = ""; printf "%s%d x%s", s, n, $0; s = "; " }')" - -
}

(($#)) && shift
parts=("$@")
((${#parts[@]})) || parts=(bw lat counts cut)
bench_begin lab "ib_write_bw"
for part in "${parts[@]}"; do
	case $part in
	bw | lat | counts | cut) "part_$part" ;;
	*) die "no part $part" ;;
	esac
done
bench_end
