# SPDX-License-Identifier: Apache-2.0
# A fabric of bridges with a node in each network namespace.
# shellcheck shell=bash

# shellcheck source=tests/e2e/lib.bash
source "${BASH_SOURCE[0]%/*}/lib.bash"

NODES=()

fabric_teardown() {
	local net
	end_background KILL
	for net in "${NODES[@]}" "${SW-}"; do
		[[ -z $net ]] || ip netns del "$net" 2>/dev/null || :
	done
}

# fabric N: N nodes with a NIC for control and two rails, on three switches.
fabric() {
	local i k net
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	SW=dr${BASHPID}s
	ip netns add "$SW" 2>/dev/null || skip "network namespaces cannot be made here"
	for k in ctl0 rail0 rail1; do
		ip -n "$SW" link add "$k" type bridge
		ip -n "$SW" link set "$k" up
	done
	: >hosts
	for ((i = 0; i < $1; i++)); do
		net=dr${BASHPID}n$i
		ip netns add "$net"
		NODES+=("$net")
		ip -n "$net" link set lo up
		port_of "$i" ctl0 255
		port_of "$i" rail0 0
		port_of "$i" rail1 1
		echo "10.96.255.$((10 + i))  # rank $i" >>hosts
	done
}

# port_of I NIC NET: the NIC of node I, and its port in the switch, NIC-I.
port_of() {
	ip -n "$SW" link add "$2-$1" type veth peer name "$2" netns "${NODES[$1]}"
	ip -n "$SW" link set "$2-$1" master "$2" up
	ip -n "${NODES[$1]}" addr add "10.96.$3.$((10 + $1))/24" dev "$2"
	ip -n "${NODES[$1]}" link set "$2" up
}
