# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the benchmarks share; sourced. A benchmark looks like
#
#   bench_begin NAME "TOOL..." [LINKS]     # root, the program, tools, two namespaces, clean-up
#   start_server ...; compare ... ; figure ...
#   bench_end                              # BENCH_OUT/NAME.json and the table
#
# Two namespaces of this process's own, node a (the client's) and node b (the server's), with veth
# pairs between them: ctl0 carries the control connection, rail0.. the data. Node a has .1, node b .2
# in 10.88.<link>.0/24; ctl0 is 10.88.255.0/24.
#
# Environment: BENCH_PAIRS (15), BENCH_SECS (3, of one run), BENCH_MTU (9000), BENCH_OUT (build/bench), BENCH_CC (bbr
# reno: the congestion controls that a TCP benchmark is run with, one after the other).
set -uo pipefail

bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bench_root=$(cd "$bench_dir/../.." && pwd)
: "${BENCH_PAIRS:=15}" "${BENCH_SECS:=3}" "${BENCH_MTU:=9000}" "${BENCH_OUT:=$bench_root/build/bench}"
: "${BENCH_CC=bbr reno}"
PATH=$PATH:/usr/sbin:/sbin
stats=(python3 "$bench_dir/stats.py")
export DUALRAIL_MEMORY=${DUALRAIL_MEMORY-host} # whatever GPUs there are; gpu.sh asks for their memory by option
control=10.88.255.2 # of node b
# shellcheck disable=SC2034
rail=(10.88.0.2 10.88.1.2 10.88.2.2 10.88.3.2)
bench_failed=0

die() {
	echo "$bench_name: $*" >&2
	exit 1
}

note() {
	echo "  $*" >&2
}

# The program is missing something that is no fault of ours: exit status 77, the reason last.
skip() {
	echo "SKIP $bench_name: $*"
	exit 77
}

# bench_begin NAME "TOOL..." [LINKS]; the build tree is $1 of the script, see build_tree.
bench_begin() {
	local tool links=${3:-2}
	bench_name=$1
	((EUID == 0)) || skip "needs root, for network namespaces"
	for tool in ip ss python3 $2; do
		command -v "$tool" >/dev/null || skip "$tool is not installed (scripts/setup.sh bench)"
	done
	dualrail=$bench_build/dualrail
	[[ -x $dualrail ]] || die "$dualrail is not there: run make"
	mkdir -p "$BENCH_OUT" || die "cannot write $BENCH_OUT"
	work=$(mktemp -d)
	rows=$work/rows
	: >"$rows"
	: >"$work/commands"
	trap bench_clean EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	make_nodes "$links"
	"${stats[@]}" machine "$BENCH_MTU" >"$work/machine"
	echo "== $bench_name: $("${stats[@]}" machine-line "$work/machine")"
}

# Sets bench_build from the script's first argument; a path relative to where it was called.
build_tree() {
	bench_build=$(cd "${1:-$bench_root/build/release}" 2>/dev/null && pwd) || {
		echo "${1:-build/release}: no such build tree; run make" >&2
		exit 1
	}
}

make_nodes() {
	local links=$1 i name net
	ns_a=drb$$a ns_b=drb$$b
	ip netns add "$ns_a" || die "cannot make network namespaces"
	ip netns add "$ns_b" || die "cannot make network namespaces"
	a=(ip netns exec "$ns_a") b=(ip netns exec "$ns_b")
	ip -n "$ns_a" link set lo up
	ip -n "$ns_b" link set lo up
	for ((i = 0; i <= links; i++)); do
		name=rail$i net=10.88.$i
		((i == links)) && name=ctl0 net=10.88.255
		ip -n "$ns_a" link add "$name" mtu "$BENCH_MTU" type veth \
			peer name "$name" mtu "$BENCH_MTU" netns "$ns_b" || die "cannot make veth pairs"
		ip -n "$ns_a" addr add "$net.1/24" dev "$name"
		ip -n "$ns_b" addr add "$net.2/24" dev "$name"
		ip -n "$ns_a" link set "$name" up
		ip -n "$ns_b" link set "$name" up
	done
	# The kernel tells of a new link's carrier up to a second late; ucx_perftest wants to see it.
	for net in "$ns_a" "$ns_b"; do
		await 10 $$ carriers "$net" || die "the veth pairs have no carrier"
	done
}

# congestion NAME: for new connections in both namespaces.
congestion() {
	"${a[@]}" sysctl -qw net.ipv4.tcp_congestion_control="$1" 2>/dev/null &&
		"${b[@]}" sysctl -qw net.ipv4.tcp_congestion_control="$1"
}

# each_congestion FUNCTION: calls it with the name of each of BENCH_CC, which is set then.
each_congestion() {
	local cc
	for cc in $BENCH_CC; do
		if congestion "$cc"; then
			"$1" "$cc"
		else
			figure "$bench_name-$cc" "with $cc" "the kernel has no $cc" - skipped
		fi
	done
}

# carriers NETNS: every link but lo is up.
carriers() {
	! ip -n "$1" -o link | grep -v ' lo:' | grep -qv 'state UP'
}

bench_clean() {
	local pid
	trap - EXIT
	# Whatever runs in namespaces of our own is ours.
	for pid in $(jobs -p) $(ip netns pids "$ns_a") $(ip netns pids "$ns_b"); do
		kill "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	ip netns del "$ns_a" 2>/dev/null
	ip netns del "$ns_b" 2>/dev/null
	rm -rf "$work"
}

# await SECONDS PID COMMAND...: until COMMAND succeeds; fails when the time or process PID is over.
await() {
	local until=$((SECONDS + $1)) pid=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		((SECONDS > until)) && return 1
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.02
	done
}

# listening PORT: somebody in node b accepts connections there.
listening() {
	[[ $("${b[@]}" ss -Hltn "sport = :$1") ]]
}

# free_port [N]: the first of N ports in a row that nobody in node b listens on.
free_port() {
	local n=${1:-1} port
	while :; do
		port=$((20000 + RANDOM % 12000))
		[[ $("${b[@]}" ss -Hltn "sport >= :$port and sport < :$((port + n))") ]] || break
	done
	echo "$port"
}

# stop PID...
stop() {
	local pid
	for pid; do
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
}

# said COMMAND...: remember what was run, for the results.
said() {
	grep -qxF -- "$*" "$work/commands" 2>/dev/null || echo "$*" >>"$work/commands"
}

# Words in front of a dualrail command, to run it under something.
server_under=() client_under=()

# start_server [OPTION...]: sets server_pid and server_port; it listens when this returns.
start_server() {
	server_port=$(free_port 64)
	said dualrail server "$@"
	"${server_under[@]}" "${b[@]}" "$dualrail" server --port "$server_port" "$@" >"$work/server.log" 2>&1 &
	server_pid=$!
	await 20 "$server_pid" listening "$server_port" || {
		cat "$work/server.log" >&2
		die "the server does not listen"
	}
}

# client DOCUMENT [OPTION...]: one run against that server; its status. BENCH_LIMIT: seconds it may take.
client() {
	local doc=$1 rc
	shift
	said dualrail client HOST "$@"
	timeout -k 10 "${BENCH_LIMIT:-120}" "${client_under[@]}" "${a[@]}" "$dualrail" client "$control" \
		--port "$server_port" --json="$doc" -q "$@" >"$work/client.log" 2>&1
	rc=$?
	((rc == 0)) || {
		echo "$bench_name: dualrail client $* ended with $rc:" >&2
		tail -n 5 "$work/client.log" >&2
	}
	return "$rc"
}

# get DOCUMENT EXPRESSION: a value of a result document, e.g. total.gbps, latency.0.rtt_us.p50.
get() {
	"${stats[@]}" get "$1" "$2"
}

# compare ID TITLE UNIT BAR PEER OURS [PAIRS]: PEER and OURS are commands that print one number. They
# run alternately, the first of a pair in turn. BAR is like ">=0.95" and is about ours / peer.
compare() {
	local id=$1 title=$2 unit=$3 bar=$4 peer=$5 ours=$6 pairs=${7:-$BENCH_PAIRS} i x y
	: >"$work/pairs"
	for ((i = 1; i <= pairs; i++)); do
		if ((i % 2)); then
			x=$($peer) && y=$($ours)
		else
			y=$($ours) && x=$($peer)
		fi || {
			bench_failed=1
			"${stats[@]}" figure "$rows" "$id" "$title" "a run failed" "$bar" failed
			return 1
		}
		echo "$x $y" >>"$work/pairs"
		note "$id $i/$pairs: peer $x, ours $y $unit"
	done
	"${stats[@]}" pairs "$rows" "$id" "$title" "$unit" "$bar" <"$work/pairs"
}

# figure ID TITLE VALUE BAR VERDICT: one line of the results that is no ratio.
figure() {
	[[ $5 == failed ]] && bench_failed=1
	"${stats[@]}" figure "$rows" "$@"
}

# Exit status 0: everything ran (whatever the figures); 1: something did not, or data were wrong.
bench_end() {
	"${stats[@]}" finish "$bench_name" "$work" >"$BENCH_OUT/$bench_name.json" || bench_failed=1
	"${stats[@]}" table "$BENCH_OUT/$bench_name.json"
	exit "$bench_failed"
}
