#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# HOST is the address of a rail: which NICs carry data, which faults are allowed, what a cut of that rail does. Two
# namespaces with rails e0 and e1, and ctl0. Needs root.

load usual

setup() {
	common_setup
	two_nodes
	link e0 10.98.0
	link e1 10.98.1
	link ctl0 10.98.255
}

serve() {
	start server ip netns exec "$B" "$DUALRAIL" server -g 0 --memory host -q "$@"
}

# client_to HOST OPTIONS...: a short run from A.
client_to() {
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client "$1" --memory host -N 1 -s 64K -D 100ms --json=c.json \
		"${@:2}"
}

# rails_are NIC...: the run passed, and its rails have these NICs at both ends.
rails_are() {
	[ "$status" -eq 0 ]
	[[ $(jq -r '.topology.rails | map(.ifname) | sort | join(" ")' c.json) == "$*" ]]
	[[ $(jq -r '.topology.rails | map(.peer_ifname) | sort | join(" ")' c.json) == "$*" ]]
}

# default_over NODE NIC...: its default route; several NICs: equal-cost next hops.
default_over() {
	local hops=() nic
	for nic in "${@:2}"; do hops+=(nexthop dev "$nic"); done
	ip -n "$1" route replace default "${hops[@]}"
}

@test "HOST is a rail's address: rails that one end names are rails at the other end, too" {
	serve
	client_to 10.98.0.2 --rails e0,e1
	rails_are e0 e1
	client_to 10.98.0.2 --rails e0
	rails_are e0
	stop server
	serve --rails e0
	client_to 10.98.0.2
	rails_are e0
	stop server
	serve --rails e0,e1
	client_to 10.98.0.2
	rails_are e0 e1
}

@test "HOST is a rail's address, nobody names rails: it is a rail if the default route is on another NIC" {
	serve
	client_to 10.98.0.2 # the speed of a veth device is unknown
	rails_are ctl0 e1
	default_over "$A" e0 e1
	client_to 10.98.0.2
	rails_are ctl0 e1
	default_over "$A" ctl0
	client_to 10.98.0.2 -v # the server follows the client
	rails_are e0 e1
	[[ $output != *"carries control"* ]]
	says "management NIC: it has the default route"
	default_over "$B" ctl0
	client_to 10.98.0.2
	rails_are e0 e1
	client_to 10.98.255.2
	rails_are e0 e1
}

@test "HOST is the address of a NIC that is as fast as the others: it is a rail" {
	local node i
	for node in "$A" "$B"; do
		for i in 0 1; do # a VLAN reports the speed of a veth device
			ip -n "$node" link add link "e$i" name "v$i" type vlan id 7 || skip "no VLAN devices here"
			ip -n "$node" addr add "10.96.$i.$([[ $node == "$A" ]] && echo 1 || echo 2)/24" dev "v$i"
			ip -n "$node" addr flush dev "e$i"
			ip -n "$node" link set "v$i" up
		done
		ip -n "$node" link set ctl0 down
	done
	serve
	client_to 10.96.0.2
	rails_are v0 v1
}

@test "the rail of the control connection is cut: data leaves it, control is resumed over the other one" {
	default_over "$A" ctl0
	serve --json=s.json
	start client ip netns exec "$A" "$DUALRAIL" client 10.98.0.2 --memory host -N 2 -s 64K -D 4s -i 100ms \
		--rate 100M --verify --json=c.json
	wait_for flowing
	ip -n "$A" link set e0 down
	ends "$client" 0
	status=0 rails_are e0 e1
	clean c.json
	judge 100 holds c.json '.failover.switches | length > 0 and all(.to_path == 1)'
	holds c.json '.events | any(.kind == "control" and (.text | startswith("lost")))'
	judge 1000 holds c.json '.events | any(.kind == "control" and (.text | startswith("resumed")))'
}

@test "faults never act on the NIC of the control connection: it is no rail where a fault would" {
	default_over "$A" ctl0
	serve
	client_to 10.98.0.2 -v -s 1M --test failover --allow-faults --hold-down 100ms \
		--fault link-down:path=0,at=100ms,for=100ms
	rails_are ctl0 e1
	[[ ${output//$'\n'  / } == *"not used: e0 (10.98.0.1): control connection"* ]]
	# A fault that names another NIC leaves it a rail.
	client_to 10.98.0.2 -s 1M --test failover --allow-faults --hold-down 100ms --fault link-down:nic=e1,at=100ms,for=100ms \
		-g 0 -N 2 --spread all
	rails_are e0 e1
	gives 2 client_to 10.98.0.2 --test failover --allow-faults --fault link-down:nic=e0
	[[ $output == *"e0 refused: the control connection needs that device"* ]]
}

@test "the management link must carry data: a warning, and none where the host has no other" {
	serve
	ip -n "$A" link set e0 down
	ip -n "$A" link set e1 down
	client_to 10.98.255.2
	rails_are ctl0
	[[ $output == *"ctl0 carries control and data: no other NICs of both ends make a pair"* ]]
	[[ $output == *"not used: e0 (10.98.0.1), e1 (10.98.1.1): down"* ]]
	ip -n "$A" link del e0
	ip -n "$A" link del e1
	client_to 10.98.255.2
	rails_are ctl0
	[[ $output != *"carries control and data"* ]]
}

@test "--control with an IPv6 address that is still tentative: says so" {
	ip netns exec "$A" sysctl -qw net.ipv6.conf.ctl0.dad_transmits=100 || skip "no IPv6 here"
	ip -n "$A" addr add fd98::1/64 dev ctl0
	ip -n "$A" -6 addr show dev ctl0 tentative | grep -q fd98::1 || skip "no duplicate address detection here"
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.98.255.2 --control fd98::1 -q
	[ "$status" -eq 2 ]
	[[ $output == *"--control fd98::1: the address cannot be used yet (tentative)"* ]]
}

@test "--control decides which NIC carries control: the rails and the faults follow it" {
	serve
	# 10.98.0.2 is reached over e0 by default.
	gives 0 client_to 10.98.0.2 --control ctl0 --dry-run
	[[ $output == *"primary e0 "* && $output != *"primary ctl0 "* ]]
	client_to 10.98.0.2 --control ctl0 --test failover --allow-faults --fault link-down:nic=ctl0
	[ "$status" -eq 2 ]
	[[ $output == *"ctl0 refused"*"give a HOST that is reached over another NIC"* ]]
}
