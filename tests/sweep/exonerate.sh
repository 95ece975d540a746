#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How sure the last line of a sweep is: sweeps of a clean fabric, all of which have to end with "network exonerated", and of the
# same fabric with one rail outside the bounds, none of which may.
#
#   tests/sweep/exonerate.sh PROGRAM [SWEEPS [KIND...]]     as root; make exonerate SWEEPS=20
#
# Six nodes, network namespaces, with a NIC for control and two rails of 50 Mb/s each. The kinds, all by default: clean; tenth (one
# rail at 5 Mb/s), half (25 Mb/s), send and receive (5 Mb/s in one direction). The rail is drawn for each sweep, with SEED (1).
# BOUND: --min-pair (80). JOBS (one for two processors): sweeps at a time, each in a fabric of its own. A line per sweep, then the
# counts. Status 1: a sweep ended otherwise; 77: it cannot run here.
# shellcheck disable=SC2317 # a function that trap calls
set -uo pipefail

program=$(realpath "${1:?program}")
sweeps=${2:-20}
shift $(($# < 2 ? $# : 2))
kinds=("$@")
((${#kinds[@]})) || kinds=(clean tenth half send receive)
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
	clean) ;;
	tenth) sends "$2" "$3" "${slow[@]}" && receives "$2" "$3" "${slow[@]}" ;;
	half) sends "$2" "$3" "${half[@]}" && receives "$2" "$3" "${half[@]}" ;;
	send) sends "$2" "$3" "${slow[@]}" ;;
	receive) receives "$2" "$3" "${slow[@]}" ;;
	*) echo "no such kind: $1" >&2 && return 1 ;;
	esac
}

# The verdict of a sweep in $line, the status of rank 0 in $status.
sweep() {
	local i options=(-g 0 -N 1 -s 32K --window 4 -D 300ms -w 50ms --rate 50M --detect conservative --min-pair "${BOUND:-80}")
	for ((i = nodes - 1; i >= 0; i--)); do
		ip netns exec "$node_of$i" "$program" sweep "${options[@]}" --hostfile "$work/hosts" >"$work/$i.out" 2>"$work/$i.err" &
		pids+=($!)
	done
	status=0
	wait "${pids[nodes - 1]}" || status=$?
	wait "${pids[@]}"
	pids=()
	line=$(tail -n 1 "$work/0.out")
}

# one KIND NUMBER NODE NIC: a sweep; it leaves a file KIND-NUMBER in $results if it ended as it has to.
one() {
	local kind=$1 node=$3 nic=$4 status line
	work=$(mktemp -d)
	trap clean_up EXIT
	trap 'exit 143' TERM
	fabric && spoil "$kind" "$node" "$nic" || return
	sweep
	if [[ $kind == clean && $status == 0 && $line == *"network exonerated: 15 of 15 pairs of 6 nodes, 60 figures"* ]] ||
		[[ $kind != clean && $status == 7 && $line != *exonerated* && $line == *"rank $node $nic"* ]]; then
		touch "$results/$kind-$2"
	else
		cat "$work/0.out"
	fi
	echo "$kind $2: node $node $nic: $line"
}

((EUID == 0)) || { echo "SKIP: needs root for network namespaces" && exit 77; }
ip netns add "drx$$" 2>/dev/null || { echo "SKIP: network namespaces cannot be made here" && exit 77; }
ip netns del "drx$$"
for ((n = 1; n <= sweeps; n++)); do
	for kind in "${kinds[@]}"; do
		while (($(jobs -pr | wc -l) >= JOBS)); do wait -n; done
		node=$((RANDOM % nodes)) nic=rail$((RANDOM % 2))
		(one "$kind" "$n" "$node" "$nic") &
	done
done
wait
for kind in "${kinds[@]}"; do
	right=$(find "$results" -name "$kind-*" | wc -l) && ((right == sweeps)) || bad=1
	echo "$kind: judged rightly $right of $sweeps"
done
exit $bad
