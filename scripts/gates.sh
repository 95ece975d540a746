#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gates of a highly available NCCL transport, for libnccl-net-ha.so (docs/VALIDATION_PLAN.md, "Gates").
#
#   scripts/gates.sh [N...]      gates N (0 to 9), or all
#
# Each check of a gate is one line: PASS, FAIL or SKIP, the gate, its figure, and what it ran on. Gates 1 and 4 are judged by
# counts, which do not depend on the machine's load: system calls that send, and bytes and packets of the interfaces. Their times
# follow, as ratios: a median with its 95 % interval, as in scripts/bench. PASS: the median is within the bar, and the interval
# narrower than +-5 %. FAIL: all of the interval is beyond the bar. SKIP: undecided, or other processes used more than a tenth of
# the processors meanwhile. The last line is `N passed, N failed, N skipped`, and the exit status 1 if one failed.
#
# Namespaces need root. What needs a GPU is scripts/gpu/nccl.sh's.
# Environment: BUILD (build/release); PAIRS (15) of a ratio, MS (150) of one of its runs; SIZES ("8 8M") of gate 1 beside Socket;
# SEEDS (1000) of gate 7; HOURS (0.01) of gate 9, e.g. HOURS=24 scripts/gates.sh 9, with BUILD of a sanitizer if wanted.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
: "${BUILD:=$root/build/release}" "${PAIRS:=15}" "${MS:=150}" "${SIZES:=8 8M}" "${SEEDS:=1000}" "${HOURS:=0.01}"
A=drgate$$a B=drgate$$b
# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"
where=
uses=(0 0 0)
declare -A titles=([0]="load and contract" [1]="single-path parity" [2]="two-phase handshake" [3]="quota"
	[4]="no cost without faults" [5]="thresholds" [6]="no interruption" [7]="replay" [8]="optional completion"
	[9]="regression")

usage() {
	sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

# gate PASS|FAIL|SKIP GATE FIGURE
gate() {
	result "$1" "gate $2 ${titles[$2]}: $3" "$where"
}

# verdict STATUS GATE FIGURE: with the end of the output if it failed.
verdict() {
	if [[ $1 == 0 ]]; then
		gate PASS "$2" "$3"
	else
		gate FAIL "$2" "$3"
		(grep '^not ok' "$work/out" || grep -v '^#     info' "$work/out") | tail -n 8 | sed 's/^/      /'
	fi
}

leave() {
	local net
	for net in "$A" "$B"; do ip netns del "$net" 2>/dev/null; done
	rm -rf "$work"
}

# rails: two namespaces with two cables, new ones. False without root.
rails() {
	local net i
	[[ $(id -u) == 0 ]] || return
	for net in "$A" "$B"; do
		ip netns del "$net" 2>/dev/null
		ip netns add "$net" && ip -n "$net" link set lo up || return
	done
	for i in 0 1; do
		ip link add "rail$i" netns "$A" type veth peer name "rail$i" netns "$B" || return
		ip -n "$A" addr add "10.98.$i.1/24" dev "rail$i"
		ip -n "$B" addr add "10.98.$i.2/24" dev "rail$i"
		for net in "$A" "$B"; do ip -n "$net" link set "rail$i" up; done
	done
	export NCCL_SOCKET_IFNAME="=rail0,rail1"
	where=$nodes
}

needs_root="needs root for network namespaces"
plugin=$BUILD/libnccl-net-ha.so
contract=$BUILD/tests/plugin/contract_main
ring=$BUILD/tests/plugin/ring_main
exchange=$BUILD/tests/plugin/exchange_main
act=$root/tests/plugin/act.sh
nodes="two namespaces, veth, $(nproc) CPUs, Linux $(uname -r)"
loopback="loopback, $(nproc) CPUs, Linux $(uname -r)"

# run COMMAND...: its output in $work/out.
run() {
	"$@" >"$work/out" 2>&1 </dev/null
}

# value NAME: of the last line of ring_main.
value() {
	sed -nE "s/^ranks=.* $1=([^ ]*).*/\1/p" "$work/out"
}

count() {
	grep -cE "$1" "$work/out"
}

over_loopback() {
	where=$loopback
	NCCL_SOCKET_IFNAME=lo run "$@"
}

# nccl GATE PART...: parts of scripts/gpu/nccl.sh on this machine's GPU.
nccl() {
	local gate=$1 rc
	shift
	if ! nvidia-smi -L >/dev/null 2>&1; then
		where="this machine"
		gate SKIP "$gate" "NCCL ($*): there is no NVIDIA GPU"
		return 1
	fi
	where="$(nvidia-smi -L | wc -l) GPUs, $nodes"
	GPU_OUT=$work run "$root/scripts/gpu/nccl.sh" "$BUILD" "$@"
	rc=$?
	if [[ $rc == 0 ]] && (($(count ^SKIP) > 0)); then
		gate SKIP "$gate" "NCCL ($*): $(grep -m 1 ^SKIP "$work/out")"
		return 1
	fi
	verdict $rc "$gate" "NCCL: $(grep -E '^(PASS|FAIL)' "$work/out" | sed 's/^[A-Z]*  //' | paste -sd';')"
	return $rc
}

gate0() {
	local rc handle
	over_loopback "$contract" --versions 6-12 "$plugin" properties listen_again never_blocks listen_unused connect_to_nobody
	rc=$?
	handle=$(sed -nE 's/.*longest call ([0-9]+) us.*/\1/p' "$work/out" | sort -n | tail -n 1)
	verdict $rc 0 "$(count '^ok') cases with versions 6 to 12 of the interface, longest call of connect or accept $handle us"
	test_times
	over_loopback rules
	verdict $? 0 "$(count '^ok ') checks of the rules for any plugin with versions 6 to 12 of the interface, $(count ^VIOLATION) violations"
	over_loopback "$contract" --brief "$plugin"
	verdict $? 0 "$(count '^ok') cases that differ between the versions, $(count '^not ok') failed"
}

rules() {
	local v
	for v in 6 7 8 9 10 11 12; do
		HA_NCCL_TRANSPORT=tcp "$BUILD/dualrail" plugin "$plugin" --net-api "v$v" || return
	done
}

# Of the slower rank, under load: messages of 4 bytes to 512 KiB, 8 of each comm in flight. Beyond the bar on a busy machine says
# nothing about the plugin, since a thread that loses its CPU in a call counts, too.
test_times() {
	local rc p99
	over_loopback "$exchange" --only plugin --pairs 3 --ms "$MS" --test-times "$plugin"
	rc=$?
	p99=$(sed -nE 's/.* p99 ([0-9]+) us.*/\1/p' "$work/out" | sort -n | tail -n 1)
	if [[ $rc == 0 && $p99 -ge 100 ]]; then
		gate SKIP 0 "test(): p99 $p99 us, bar 100 us: undecided, it needs a quieter machine"
	else
		verdict $rc 0 "test(): $(grep -m 1 -E "p99 $p99 us" "$work/out" | sed 's/.*test: //'), bar for the p99 100 us"
	fi
}

# one_time SETTINGS BYTES: the time of an exchange with these variables set, us.
one_time() {
	local us
	# shellcheck disable=SC2086
	us=$(env $1 "$exchange" --netns "$A,$B" --only plugin --pairs 1 --ms "$MS" --sizes "$2" "$plugin" | awk '{ print $2 }')
	[[ $us =~ ^[0-9.]+$ ]] && echo "$us"
}

# beside BYTES SETTINGS SETTINGS: pairs of times with the first settings (the peer) and the second, alternating.
beside() {
	local i x y
	for ((i = 0; i < PAIRS; i++)); do
		if ((i % 2)); then
			x=$(one_time "$2" "$1") && y=$(one_time "$3" "$1") || return
		else
			y=$(one_time "$3" "$1") && x=$(one_time "$2" "$1") || return
		fi
		echo "$x $y"
	done
}

# Clock ticks of all processors so far that were not idle, and those of this script's children.
used() {
	awk '/^cpu / { print $2 + $3 + $4 + $9 }' /proc/stat
	awk '{ print $16 + $17 }' /proc/$$/stat
}

# watched: the share of the processors that others used since the last call, percent. Other processes that end count at their end.
watched() {
	local now before=("${uses[@]}")
	mapfile -t now < <(used && date +%s%N)
	uses=("${now[@]}")
	others=$(awk -v used=$((now[0] - before[0])) -v own=$((now[1] - before[1])) -v ns=$((now[2] - before[2])) \
		-v hz="$(getconf CLK_TCK)" -v n="$(nproc)" 'BEGIN { printf "%d", 100 * (used - own) / (n * hz * ns / 1e9) }')
}

# judge GATE BAR TITLE [CPUS]: of the pairs in $work/pairs, whose second time is ours. Without so many CPUs it cannot be missed.
judge() {
	local word text
	watched
	read -r word text < <(PYTHONPATH=$root/scripts/bench python3 - "$work/pairs" "$2" <<-'END'
		import statistics, sys
		import stats
		ratios = [float(b) / float(a) for a, b in (line.split() for line in open(sys.argv[1], encoding="utf-8"))]
		if not ratios:
		    print("FAIL no run ended")
		    sys.exit()
		median, (low, high) = statistics.median(ratios), stats.interval(ratios)
		word = {"met": "PASS", "not met": "FAIL"}.get(stats.judge(len(ratios), median, low, high, "<=" + sys.argv[2]), "SKIP")
		if word == "PASS" and median > float(sys.argv[2]):
		    word = "SKIP"
		print(word, "%.3f (%.3f to %.3f) of %d pairs, bar %s%s" % (median, low, high, len(ratios), sys.argv[2],
		      ": undecided, it needs more pairs or a quieter machine" if word == "SKIP" else ""))
	END
	)
	if [[ $word == FAIL && $text != no* ]] && (($(nproc) < ${4:-0})); then
		word=SKIP text+=": the threads of both ranks need $4 CPUs or more"
	fi
	if [[ $word == FAIL && $text != no* ]] && ((others > 10)); then
		word=SKIP text+=": not judged, other processes used $others % of the processors"
	fi
	gate "${word:-FAIL}" "$1" "$3: ${text:-no figure}"
}

# at_most GATE BAR TITLE OURS PEER: a ratio of counts.
at_most() {
	local text
	watched
	text="$3: $4 / $5"
	if ! [[ $4 =~ ^[0-9]+$ && $5 =~ ^[1-9][0-9]*$ ]]; then
		gate FAIL "$1" "$3: no count"
	elif awk -v a="$4" -v b="$5" -v bar="$2" 'BEGIN { exit !(a <= b * bar) }'; then
		gate PASS "$1" "$text, bar $2"
	elif ((others > 10)); then
		gate SKIP "$1" "$text, bar $2: not judged, other processes used $others % of the processors"
	else
		gate FAIL "$1" "$text, bar $2"
	fi
}

# all_reduces SETTINGS BYTES N [WORD...]: N all-reduces with these variables set, run by these words.
all_reduces() {
	# shellcheck disable=SC2086 # settings are words
	run env $1 "${@:4}" "$ring" --netns "$A,$B" --op all-reduce --bytes "$2" --iters "$3" --limit 120 "$plugin"
}

# sends SETTINGS: system calls that send in 2,000 all-reduces of 8 bytes, both ranks together. The least of three: where a rank
# runs late, an acknowledgement finds no message to go with.
sends() {
	local i n total least=
	for i in 1 2 3; do
		total=0
		for n in 200 2200; do
			all_reduces "$1" 8 "$n" strace -f -c -e trace=sendmsg,sendmmsg,sendto,write,writev -o "$work/calls" || return
			total=$(awk -v t="$total" '$1 ~ /^[0-9.]+$/ && $NF != "total" { n += $4 } END { print n - t }' "$work/calls")
		done
		((total > ${least:-total})) || least=$total
	done
	echo "$least"
}

# sent COUNTER RAIL: what the interfaces of both ends have sent: tx_bytes, tx_packets.
sent() {
	local net sum=0
	for net in "$A" "$B"; do sum=$((sum + $(ip netns exec "$net" cat "/sys/class/net/$2/statistics/$1"))); done
	echo "$sum"
}

# on_the_wire SETTINGS: bytes that the rails carry in 50 all-reduces of 8 MiB.
on_the_wire() {
	local before
	before=$(($(sent tx_bytes rail0) + $(sent tx_bytes rail1)))
	all_reduces "$1" 8M 50 || return
	echo $(($(sent tx_bytes rail0) + $(sent tx_bytes rail1) - before))
}

# Heartbeats are too rare with 10 s to count here.
gate1() {
	local size two="HA_NCCL_ENABLE_BACKUP=1 HA_NCCL_HEARTBEAT_MS=10000" one="HA_NCCL_ENABLE_BACKUP=0 HA_NCCL_HEARTBEAT_MS=10000"
	rails || { where="this machine" && gate SKIP 1 "$needs_root" && return; }
	if command -v strace >/dev/null; then
		at_most 1 1.01 "system calls that send in 2,000 all-reduces of 8 bytes, with the second path / without" "$(sends "$two")" "$(sends "$one")"
	else
		gate SKIP 1 "system calls that send: strace is not installed"
	fi
	at_most 1 1.01 "bytes on the wire of 50 all-reduces of 8 MiB, with the second path / without" \
		"$(on_the_wire HA_NCCL_ENABLE_BACKUP=1)" "$(on_the_wire HA_NCCL_ENABLE_BACKUP=0)"
	watched
	for size in 8 8M; do
		beside "$size" HA_NCCL_ENABLE_BACKUP=0 HA_NCCL_ENABLE_BACKUP=1 >"$work/pairs"
		judge 1 1.01 "time of an exchange of $size bytes, with the second path beside without"
	done
	for size in $SIZES; do
		run "$exchange" --netns "$A,$B" --pairs "$PAIRS" --ms "$MS" --sizes "$size" "$plugin"
		awk 'NF == 3 && $1 ~ /^[0-9]+$/ { print $3, $2 }' "$work/out" >"$work/pairs"
		judge 1 1.01 "time of an exchange of $size bytes, beside the way of NCCL's Socket transport" \
			"$([[ $size == 8 ]] || echo 8)" # small messages need no I/O thread
	done
	nccl 1 measure && parity
}

# NCCL's own measurement: ours beside the best of Socket's settings, by the mean of the runs.
parity() {
	local worst
	worst=$(awk '$3 == "B" { n[$1, $2]++; us[$1, $2] += $4; sets[$1]; sizes[$2] }
		END { for (s in sizes) { best = 0
			for (k in sets) if (k != "ha" && n[k, s]) { t = us[k, s] / n[k, s]; if (!best || t < best) best = t }
			if (best && n["ha", s]) { r = us["ha", s] / n["ha", s] / best; if (r > w) { w = r; at = s } } }
			if (w) printf "%.3f %s", w, at }' "$work/out")
	if [[ $worst ]] && awk -v r="${worst% *}" 'BEGIN { exit !(r <= 1.01) }'; then
		gate PASS 1 "NCCL: time of all-reduce / Socket at its best: at most ${worst% *} (${worst#* } bytes)"
	else
		gate FAIL 1 "NCCL: time of all-reduce / Socket at its best: up to ${worst:-unknown} bytes"
	fi
}

# The first path carries data while the second one cannot come up; then that one does, and takes over.
gate2() {
	local rc ready
	rails || { where="this machine" && gate SKIP 2 "$needs_root" && return; }
	WAIT_S=30 bash "$act" silence "$A" rail1
	HA_NCCL_DEBUG=1 WAIT_S=30 run "$ring" --netns "$A,$B" --op all-reduce --log --limit 60 \
		--do "20:nsenter --net=/run/netns/$A nft delete table inet cutrail1" --do "200:bash $act cut $A rail0 rail1" "$plugin"
	rc=$?
	ready=$(count 'path [01] gen [0-9]+: ready')
	((rc == 0 && $(value switches) > 0)) || rc=1
	verdict $rc 2 "$(value iterations) all-reduces, the first 20 with a silent shadow; it came up over the running first path, and $(value switches) switches went to it; $ready lines of paths that came up"
}

gate3() {
	local rc
	over_loopback "$contract" --versions 11 "$plugin" many
	rc=$?
	NCCL_SOCKET_IFNAME=lo "$ring" --iters 1 --log "$plugin" >"$work/log" 2>&1 || rc=1
	verdict $rc 3 "tcp: $(grep -m 1 -oE 'at most [0-9]+ comms for each device.*' "$work/log"); comms by the hundred are open at once"
	where="this machine"
	gate SKIP 3 "queue pairs and completion queues: the gates use no RDMA device"
}

# heartbeats: packets of the second path, and the milliseconds of 20,000 all-reduces of 8 bytes. The fewest of three: where an end
# runs late, the other one asks it at once.
heartbeats() {
	local i n start packets ms
	for i in 1 2 3; do
		packets=0 ms=0
		for n in 4000 24000; do
			start=$(date +%s%N) packets=$((-packets - $(sent tx_packets rail1)))
			all_reduces HA_NCCL_HEARTBEAT_MS=10 8 "$n" || return
			ms=$((($(date +%s%N) - start) / 1000000 - ms)) packets=$((packets + $(sent tx_packets rail1)))
		done
		((ms <= 0)) || echo "$((packets * 1000 / ms)) $packets $ms" # else the load has changed
	done | sort -n | head -n 1 | cut -d ' ' -f 2-
}

# Each rank has a session to the other. In each, either end sends a heartbeat every 10 ms over the second path: 400 packets a
# second, whatever the first path carries.
gate4() {
	local packets="" ms=0
	rails || { where="this machine" && gate SKIP 4 "$needs_root" && return; }
	at_most 4 1.005 "bytes on the wire of 50 all-reduces of 8 MiB, heartbeats every 10 ms / every 10 s" \
		"$(on_the_wire HA_NCCL_HEARTBEAT_MS=10)" "$(on_the_wire HA_NCCL_HEARTBEAT_MS=10000)"
	read -r packets ms < <(heartbeats)
	at_most 4 1.05 "packets of the second path in $ms ms of 20,000 all-reduces of 8 bytes / 0.4 for each ms" "$packets" $((ms * 2 / 5))
	watched
	beside 8 HA_NCCL_HEARTBEAT_MS=10000 HA_NCCL_HEARTBEAT_MS=10 >"$work/pairs"
	judge 4 1.01 "latency of 8 bytes, heartbeats every 10 ms beside every 10 s" 8
	beside 8M HA_NCCL_HEARTBEAT_MS=10000 HA_NCCL_HEARTBEAT_MS=10 >"$work/pairs"
	judge 4 1.005 "time of 8 MiB, heartbeats every 10 ms beside every 10 s" 8
}

gate5() {
	local rc bound
	where=$loopback
	run "$BUILD/plugin/config_test"
	rc=$?
	for mode in fast conservative; do
		bound+=" $(HA_NCCL_DETECT=$mode NCCL_SOCKET_IFNAME=lo "$ring" --iters 1 --log "$plugin" 2>&1 |
			grep -m 1 -oE "detection $mode [^,]*")"
	done
	[[ $bound == *"fast within"*conservative* ]] || rc=1
	verdict $rc 5 "bounds:${bound}"
	if ! command -v stress-ng >/dev/null; then
		gate SKIP 5 "false switches: stress-ng is not installed"
	elif rails; then
		stress-ng --cpu $((2 * $(nproc))) --timeout 60 >/dev/null 2>&1 &
		local stress=$!
		"$ring" --netns "$A,$B" --limit 300 --iters "${ITERS:-600}" "$plugin" >"$work/ring" 2>&1
		rc=$?
		kill "$stress" 2>/dev/null
		wait "$stress" 2>/dev/null
		cp "$work/ring" "$work/out"
		[[ $(value switches) == 0 ]] || rc=1
		verdict $rc 5 "$(value switches) false switches in $(value iterations) collectives beside two busy processes for each CPU"
	else
		where="this machine"
		gate SKIP 5 "false switches: $needs_root"
	fi
	where="this machine"
	gate SKIP 5 "window of the hardware (4.096 us x 2^t x (retry + 1)): the gates use no RDMA device"
}

gate6() {
	local kind what
	for kind in cut:back drop:undrop; do
		rails || { where="this machine" && gate SKIP 6 "$needs_root" && return; }
		what=$([[ $kind == cut:* ]] && echo "link down" || echo "silent loss")
		WAIT_S=30 HA_NCCL_HOLD_DOWN_MS=300 run "$ring" --netns "$A,$B" --limit 120 --do "20:bash $act ${kind%:*} $A rail0 rail1" \
			--do "20:bash $act ${kind#*:} $A rail0" --do "20:bash $act ${kind%:*} $B rail0 rail1" "$plugin"
		local rc=$?
		((rc == 0 && $(value switches_least) >= 2)) || rc=1
		verdict $rc 6 "$what, twice: no error, $(value checked) elements right, longest collective $(value longest_ms) ms"
	done
	nccl 6 soak
}

gate7() {
	where="simulation, $(nproc) CPUs"
	SEEDS=$SEEDS run "$BUILD/tests/sim/sim_test"
	verdict $? 7 "$(tail -n 1 "$work/out")"
	run "$BUILD/tests/exhaustive/exhaustive_test"
	verdict $? 7 "search of every interleaving in small scopes: $(count '^\[       OK') tests; planted bugs: make mutants"
}

gate8() {
	over_loopback "$contract" --versions 9-12 "$plugin" completion
	verdict $? 8 "receives without completion arrive with versions 9 to 12 of the interface: $(count '^ok') of 4"
	nccl 8 check
}

# Flaps in turns of link down and silent loss, at either end, until the time is over; each run checks every element.
gate9() {
	local start=$SECONDS end rc=0 n=0 switches=0 kind net
	rails || { where="this machine" && gate SKIP 9 "$needs_root" && return; }
	end=$((SECONDS + $(awk -v h="$HOURS" 'BEGIN { printf "%d", h * 3600 }')))
	while ((rc == 0 && (n == 0 || SECONDS < end))); do
		kind=$(((n / 2) % 2)) net=$( ((n % 2)) && echo "$A" || echo "$B")
		kind=$( ((kind)) && echo drop:undrop || echo cut:back)
		WAIT_S=60 HA_NCCL_HOLD_DOWN_MS=300 run "$ring" --netns "$A,$B" --limit 300 \
			--do "5:bash $act ${kind%:*} $net rail0 rail1" --do "5:bash $act ${kind#*:} $net rail0" \
			--do "5:bash $act ${kind%:*} $net rail0 rail1" --do "5:bash $act ${kind#*:} $net rail0" "$plugin" || rc=1
		switches=$((switches + $(value switches || echo 0)))
		n=$((n + 1))
	done
	verdict $rc 9 "soak of $(awk -v s=$((SECONDS - start)) 'BEGIN { printf "%.2f", s / 3600 }') hours: $((2 * n)) flaps, $switches switches, no error and no wrong element; build ${BUILD##*/}"
	over_loopback "$contract" --versions 11 "$plugin"
	verdict $? 9 "$(count '^ok') cases of the contract, $(count '^not ok') failed; build ${BUILD##*/}"
}

main() {
	local gate
	if [[ ${1-} == -h || ${1-} == --help ]]; then
		usage
		return 0
	fi
	for gate; do
		[[ $gate =~ ^[0-9]$ ]] || { echo "gates.sh: \"$gate\" is not a gate: 0 to 9" >&2 && return 2; }
	done
	(($#)) || set -- 0 1 2 3 4 5 6 7 8 9
	[[ -e $plugin && -x $contract ]] || { echo "gates.sh: $BUILD has no plugin or no tests: run make all tests" >&2 && return 2; }
	work=$(mktemp -d)
	trap leave EXIT
	trap 'exit 130' INT TERM
	unset "${!HA_NCCL_@}" "${!NCCL_@}"
	export HA_NCCL_TRANSPORT=tcp
	for gate; do watched && "gate$gate"; done
	sum_up
}

main "$@"
