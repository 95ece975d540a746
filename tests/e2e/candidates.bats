#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Which NICs and addresses of two nodes become rails by themselves: two network namespaces, as hosts of containers have
# them, with many NICs, with several addresses. Needs root.
# check.sh: thread

load usual

setup() {
	common_setup
	two_nodes
	unset "${!HA_NCCL_@}" "${!NCCL_@}"
	C=dr${BASHPID}c
	ip netns add "$C"
	ip -n "$A" link set lo up
	ip -n "$B" link set lo up
	link ctl0 10.99.255
}

# bridge NODE NAME ADDRESS
bridge() {
	ip -n "$1" link add "$2" type bridge
	ip -n "$1" addr add "$3" dev "$2"
	ip -n "$1" link set "$2" up
}

# to_container NODE NAME [ADDRESS]: a link whose other end is in another namespace.
to_container() {
	ip link add "$2" netns "$1" type veth peer name "c$((++containers))" netns "$C"
	ip -n "$C" link set "c$containers" up
	[[ ! ${3-} ]] || ip -n "$1" addr add "$3" dev "$2"
	ip -n "$1" link set "$2" up
}

# idle NODE: 41 interfaces of a host of containers and virtual machines, as at the other node.
idle() {
	local i
	bridge "$1" docker0 172.17.0.1/16
	bridge "$1" virbr0 192.168.122.1/24
	for i in {1..6}; do
		bridge "$1" "br-$i" "172.$((17 + i)).0.1/16"
		ip -n "$1" link add "veth$i" master "br-$i" up type veth peer name "port$i"
		ip -n "$1" link set "port$i" up
		ip -n "$1" link add "loop$i" type veth peer name "end$i"
		ip -n "$1" addr add "10.96.$i.1/24" dev "loop$i"
		ip -n "$1" link set "loop$i" up
		ip -n "$1" link set "end$i" up
		to_container "$1" "lxc$i" 10.97.0.1/32
	done
	for i in 1 2; do
		to_container "$1" "cali$i"
	done
	ip -n "$1" tuntap add tun0 mode tun
	ip -n "$1" addr add 10.95.0.1/24 dev tun0
	ip -n "$1" link set tun0 up
}

# over_rails COMMAND...: it sends more than 8 MB over the two rails of A.
over_rails() {
	local before
	before=$(sent)
	"$@"
	(($(sent) > before + 8000000))
}

sent() {
	local bytes sum=0
	for bytes in $(ip netns exec "$A" cat /sys/class/net/rail{0,1}/statistics/tx_bytes); do
		sum=$((sum + bytes))
	done
	echo "$sum"
}

# rails_are FILE NIC...: these and no others.
rails_are() {
	local names
	names=$(jq -r '.topology.rails | map(.ifname) | sort | join(" ")' "$1")
	[[ $names == "${*:2}" ]] || {
		echo "$names"
		return 1
	}
}

# uses NIC...: a run between A and B has these rails and no others. Its document: c.json.
uses() {
	client_in_a -D 100ms --json=c.json
	[[ $status == 0 ]]
	rails_are c.json "$@"
}

# given NODE NIC ADDRESS...: in this order, without duplicate address detection.
given() {
	local address nodad
	for address in "${@:3}"; do
		nodad=()
		[[ $address != *:* ]] || nodad=(nodad)
		ip -n "$1" addr add "$address" dev "$2" "${nodad[@]}"
	done
}

# bare NAME: a cable without addresses.
bare() {
	cable "$A" "$1" "$B" "$1" 10.94.0
	ip -n "$A" addr flush dev "$1"
	ip -n "$B" addr flush dev "$1"
}

# exchange: 8 MiB messages of the plugin between A and B.
exchange() {
	HA_NCCL_TRANSPORT=tcp run -0 timeout "$WAIT_S" "$DR_BUILD/tests/plugin/exchange_main" --netns "$A,$B" --pairs 1 \
		--ms 20 --channels 3 --sizes 8M "$DR_BUILD/libnccl-net-ha.so"
}

# blocks: the example of the library between A and B, over the NICs that it finds.
blocks() {
	local receiver
	cc -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -I"$DR_ROOT/library" "$DR_ROOT/docs/examples/kvblocks/blocks.c" \
		-L"$DR_BUILD" -ldualrail -o blocks
	export LD_LIBRARY_PATH=$DR_BUILD
	background receive ip netns exec "$B" ./blocks receive --handle handle
	receiver=$pid
	background send ip netns exec "$A" ./blocks send --handle handle --faults 0
	ends "$pid" 0
	ends "$receiver" 0
}

# A program that is compiled here cannot load a library with a sanitizer.
# bats test_tags=release
@test "two good rails among forty idle interfaces: client, preflight, sweep, plugin and library" {
	local sweep
	idle "$A"
	idle "$B"
	link rail0 10.99.0
	link rail1 10.99.1
	server_in_b
	uses rail0 rail1
	[[ $(tr -s '\n ' ' ' <<<"$output") == *"loop3 (10.96.3.1) and 3 more: tunnel or another virtual device"* ]]
	says "tunnel or another virtual device"
	run -0 ip netns exec "$A" timeout "$WAIT_S" "$DUALRAIL" preflight 10.99.255.2 -g 0-1 -N 1 -D 100ms --min-nic 1%
	[[ $output == *"2 GPUs x 2 NICs (rail0, rail1)"* ]]
	stop pid
	printf '10.99.255.%s\n' 1 2 >hosts
	start n1 ip netns exec "$B" "$DUALRAIL" sweep --hostfile hosts -g 0 -N 1 -D 100ms --min-pair 1
	sweep=$pid
	run -0 ip netns exec "$A" timeout "$WAIT_S" "$DUALRAIL" sweep --hostfile hosts -g 0 -N 1 -D 100ms --min-pair 1 --json=s.json
	ends "$sweep" 0
	holds s.json '.pairs[].lanes | map(.client_nic) | unique == ["rail0", "rail1"]'
	over_rails exchange
	over_rails blocks
}

@test "64 NICs and the management NIC: 16 rails, and the line that says which are not used" {
	local i
	for i in {0..63}; do
		link "rail$i" "10.98.$i"
	done
	server_in_b
	client_in_a -D 100ms --json=c.json
	[[ $status == 0 ]]
	holds c.json '.topology.rails | length == 16 and map(.ifname) == [range(16) | "rail\(.)"]'
	holds c.json '[.topology.unused_nics[] | select(.side == "client" and (.reason | contains("beyond 16 rails")))] | length == 48'
	[[ $(tr -s '\n ' ' ' <<<"$output") == *"rail16 (10.98.16.1), "*" and 44 more: no partner at the other end, or beyond 16 rails"* ]]
	says "no partner at the other end, or beyond 16 rails"
	exchange
}

@test "any two addresses of one subnet make a rail; one address can be named" {
	link rail0 10.99.0
	server_in_b
	bare rail1
	given "$A" rail1 fd12::1/64 2001:db8:1::1/64
	given "$B" rail1 2001:db8:1::2/64 fd12::2/64
	uses rail0 rail1
	ip -n "$B" addr flush dev rail1
	given "$A" rail1 10.50.0.1/24 10.99.1.1/24
	given "$B" rail1 10.51.0.1/24 10.99.1.2/24
	uses rail0 rail1
	holds c.json '.topology.rails | map(.address) | sort == ["10.99.0.1", "10.99.1.1"]'
	client_in_a --rails rail1@10.50.0.1 -D 100ms
	[[ $status == 2 && $output == *"name other --rails, INTERFACE@ADDRESS"* ]]
	run -0 ip netns exec "$A" timeout "$WAIT_S" "$DUALRAIL" doctor 10.99.255.2 -q
	# Link-local addresses are for those who name the NIC.
	ip -n "$A" addr flush dev rail1
	ip -n "$B" addr flush dev rail1
	given "$A" rail1 169.254.1.1/16
	given "$B" rail1 169.254.1.2/16
	uses rail0
	stop pid
	server_in_b --rails rail0,rail1
	client_in_a --rails rail0,rail1 -D 100ms --json=c.json
	[[ $status == 0 ]]
	rails_are c.json rail0 rail1
}

@test "an address that the other node has, or this one has twice, makes no rail" {
	link rail0 10.99.0
	link rail1 10.99.1
	link rail2 10.99.2
	bare rail3
	given "$A" rail3 10.93.0.1/16
	given "$B" rail3 10.93.0.1/16
	# Packets to 10.99.2.1 do not leave B.
	given "$B" lo 10.99.2.1/32
	server_in_b
	uses rail0 rail1
	says "no partner at the other end"
	given "$A" lo 10.99.1.1/32
	uses rail0
	says "no global address of its own"
	holds c.json '.topology.unused_nics | any(.nic == "rail2" and .side == "client")'
}
