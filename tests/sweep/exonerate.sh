#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How sure the last line of a sweep is: sweeps of a clean fabric, all of which have to end with "network exonerated", of the same
# fabric with one rail outside the bounds, none of which may, and with a node that is lost, which has to be named, and it alone.
#
#   tests/sweep/exonerate.sh PROGRAM [SWEEPS [KIND...]]     as root; make exonerate SWEEPS=20
#
# Six nodes, network namespaces, with a NIC for control and two rails of 50 Mb/s each. The kinds, all by default: clean; tenth (one
# rail at 5 Mb/s), half (25 Mb/s), send and receive (5 Mb/s in one direction), killed (SIGKILL), cut (no link), absent (never
# started). Rail, node and the moment of the loss are drawn for each sweep, with SEED (1). A node that is lost after its last pair
# may be exonerated.
# BOUND: --min-pair (80). JOBS (one for two processors): sweeps at a time, each in a fabric of its own. A line per sweep, then the
# counts. Status 1: a sweep ended otherwise; 77: it cannot run here.
# shellcheck disable=SC2317 # a function that trap calls
set -uo pipefail

program=$(realpath "${1:?program}")
sweeps=${2:-20}
shift $(($# < 2 ? $# : 2))
kinds=("$@")
((${#kinds[@]})) || kinds=(clean tenth half send receive killed cut absent)
: "${JOBS:=$((($(nproc) + 1) / 2))}" "${SEED:=1}"
nodes=6
RANDOM=$SEED
pids=() bad=0 # pids: of a sweep
results=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

clean_up() {
	local i
	for i in "${pids[@]}"; do kill -KILL "$i" 2>/dev/null; done
	ip netns del "$sw" 2>/dev/null
	for ((i = 0; i < nodes; i++)); do ip netns del "$node_of$i" 2>/dev/null; done
	rm -rf "$work"
}

port_of() {
	ip -n "$sw" link add "$2-$1" type veth peer name "$2" netns "$node_of$1" &&
		ip -n "$sw" link set "$2-$1" master "$2" up &&
		ip -n "$node_of$1" addr add "10.97.$3.$((10 + $1))/24" dev "$2" && ip -n "$node_of$1" link set "$2" up
}

# The nodes, and a switch for each of their NICs.
fabric() {
	local i k
	sw=drx${BASHPID}s node_of=drx${BASHPID}n
	ip netns add "$sw" || return
	for k in ctl0 rail0 rail1; do
		ip -n "$sw" link add "$k" type bridge && ip -n "$sw" link set "$k" up || return
	done
	for ((i = 0; i < nodes; i++)); do
		ip netns add "$node_of$i" && ip -n "$node_of$i" link set lo up || return
		port_of "$i" ctl0 255 && port_of "$i" rail0 0 && port_of "$i" rail1 1 || return
		echo "10.97.255.$((10 + i))" >>"$work/hosts"
	done
}

# Into and out of a NIC: sends is what the node does, receives what the switch sends to it.
sends() { tc -n "$node_of$1" qdisc replace dev "$2" root "${@:3}"; }
receives() { tc -n "$sw" qdisc replace dev "$2-$1" root "${@:3}"; }

spoil() {
	local slow=(tbf rate 5mbit burst 16k latency 400ms) half=(tbf rate 25mbit burst 16k latency 400ms)
	case $1 in
	clean | killed | cut | absent) ;;
	tenth) sends "$2" "$3" "${slow[@]}" && receives "$2" "$3" "${slow[@]}" ;;
	half) sends "$2" "$3" "${half[@]}" && receives "$2" "$3" "${half[@]}" ;;
	send) sends "$2" "$3" "${slow[@]}" ;;
	receive) receives "$2" "$3" "${slow[@]}" ;;
	*) echo "no such kind: $1" >&2 && return 1 ;;
	esac
}

# lose KIND NODE PID SECONDS: the node, so long after the first round has begun.
lose() {
	local nic
	[[ $1 == killed || $1 == cut ]] || return
	until grep -qs '^round 1,' "$work/0.err"; do sleep 0.05; done
	sleep "$4"
	[[ $1 == cut ]] || kill -KILL "$3" 2>/dev/null
	for nic in ctl0 rail0 rail1; do
		[[ $1 == killed ]] || ip -n "$sw" link set "$nic-$2" down
	done
}

# sweep KIND NODE SECONDS: the verdict in $line, the status of rank 0 in $status.
sweep() {
	local i lost='' options=(-g 0 -N 1 -s 32K --window 4 -D 300ms -w 50ms --rate 50M --detect conservative --min-pair "${BOUND:-80}"
		--join-timeout 20s)
	for ((i = nodes - 1; i >= 0; i--)); do
		[[ $1 != absent || $i != "$2" ]] || continue
		ip netns exec "$node_of$i" "$program" sweep "${options[@]}" --hostfile "$work/hosts" >"$work/$i.out" 2>"$work/$i.err" &
		pids+=($!)
		[[ $i != "$2" ]] || lost=$!
	done
	lose "$1" "$2" "$lost" "$3"
	status=0
	wait "${pids[-1]}" || status=$?
	wait "${pids[@]}"
	pids=()
	line=$(tail -n 1 "$work/0.out")
}

# right KIND NODE NIC: is the verdict?
right() {
	case $1 in
	clean) [[ $status == 0 && $line == *"network exonerated: 15 of 15 pairs of 6 nodes, 60 figures"* ]] ;;
	killed | cut | absent) [[ $status == 3 && $line == *"; 1 node missing: rank $2 ("* ]] || right clean ;;
	*) [[ $status == 7 && $line != *exonerated* && $line == *"rank $2 $3"* ]] ;;
	esac
}

# one KIND NUMBER NODE NIC SECONDS: a sweep; it leaves a file KIND-NUMBER in $results if it ended as it has to.
one() {
	local kind=$1 node=$3 nic=$4 status line
	work=$(mktemp -d)
	trap clean_up EXIT
	trap 'exit 143' TERM
	fabric && spoil "$kind" "$node" "$nic" || return
	sweep "$kind" "$node" "$5"
	if right "$kind" "$node" "$nic"; then
		touch "$results/$kind-$2"
	else
		cat "$work/0.out"
	fi
	echo "$kind $2: node $node $nic, after $5 s: $line"
}

((EUID == 0)) || { echo "SKIP: needs root for network namespaces" && exit 77; }
ip netns add "drx$$" 2>/dev/null || { echo "SKIP: network namespaces cannot be made here" && exit 77; }
ip netns del "drx$$"
for ((n = 1; n <= sweeps; n++)); do
	for kind in "${kinds[@]}"; do
		while (($(jobs -pr | wc -l) >= JOBS)); do wait -n; done
		node=$((RANDOM % nodes)) nic=rail$((RANDOM % 2)) after=$((RANDOM % 9)).$((RANDOM % 10))
		# Rank 0 has the verdict.
		[[ $kind != killed && $kind != cut && $kind != absent ]] || node=$((1 + RANDOM % (nodes - 1)))
		(one "$kind" "$n" "$node" "$nic" "$after") &
	done
done
wait
for kind in "${kinds[@]}"; do
	right=$(find "$results" -name "$kind-*" | wc -l) && ((right == sweeps)) || bad=1
	echo "$kind: judged rightly $right of $sweeps"
done
exit $bad
