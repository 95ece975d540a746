#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Meshes of network namespaces: each pair of nodes that has a cable has a subnet of its own, and every
# node forwards for the others. Needs root.
# check.sh: thread

load usual

setup() {
	common_setup
	four_nodes
}

# The mesh of three, and a network for control between A and B.
mesh_with_control() {
	mesh
	cable "$A" ctl0 "$B" ctl0 10.97.255
}

# serve NODE OPTIONS...
serve() {
	start "server-$1" ip netns exec "$1" "$DUALRAIL" server -g 0-1 "${@:2}"
	server=$pid
}

# client_in NODE HOST OPTIONS...
client_in() {
	run timeout "$WAIT_S" ip netns exec "$1" "$DUALRAIL" client "$2" "${SMALL[@]}" "${@:3}"
}

start_client_in() {
	start client ip netns exec "$1" "$DUALRAIL" client "$2" "${SMALL[@]}" -i 100ms "${@:3}"
}

# carried NODE DEVICE BYTES: more than that has left by it.
carried() {
	(($(ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_bytes") > $3))
}

# one_cable_one_way_round FILE [CHANNELS]: both used as such; both paths of each of the channels (4) came up.
one_cable_one_way_round() {
	whole "$1"
	clean "$1"
	holds "$1" '.exit_code == 0'
	holds "$1" '.topology.rails | length == 2 and (map(.routed) | sort) == [false, true]'
	holds "$1" '[.topology.rails[] | select(.routed | not) | .rail] == (.topology.gpus | map(.primary_rail) | unique)'
	holds "$1" '[.topology.rails[] | select(.routed) | .rail] == (.topology.gpus | map(.shadow_rail) | unique)'
	# Heartbeats at least leave by each NIC, whatever way the kernel prefers.
	holds "$1" ".nics | length == 4 and all(.connections >= ${2-4} and .counter_tx_bytes > 2000)"
}

@test "a mesh of three: each pair runs over its cable, protected by the way round" {
	mesh
	serve "$A"
	serve "$B"
	serve "$C"
	gives 0 client_in "$A" 10.97.1.2 -D 300ms --verify --json=ab.json
	[[ $output == *"primary ab 10.97.1.1, shadow ac 10.97.2.1 (routed)"* ]]
	[[ $output == *"is routed: ac 10.97.2.1 <-> bc 10.97.3.1 share no subnet"* ]]
	one_cable_one_way_round ab.json
	gives 0 client_in "$B" 10.97.3.2 -D 300ms --verify --bidir --json=bc.json
	one_cable_one_way_round bc.json
	gives 0 client_in "$C" 10.97.2.1 -D 300ms --verify -R --json=ca.json
	one_cable_one_way_round ca.json
}

@test "the cable cut in mid-run, control with it: data goes on by the way round, nothing is lost" {
	mesh
	serve "$B" --json=s.json
	under_way start_client_in "$A" 10.97.1.2 -D 6s --verify --json=c.json
	run carried "$A" ac 20000000
	[ "$status" -ne 0 ]
	ip -n "$A" link set ab down
	wait_for carried "$A" ac 20000000
	ends "$client" 0
	one_cable_one_way_round c.json
	judge 100 holds c.json '[.failover.switches[] | select(.side == "server")] | length == 4 and
		all(.from_path == 0 and .to_path == 1)'
	holds c.json '.events | any(.kind == "control" and (.text | startswith("resumed")))'
	holds c.json '[.nics[] | select(.name == "ac" or .name == "bc")] | length == 2 and
		all(.tx_bytes + .rx_bytes > 20000000)'
}

@test "a fault on the cable, and one on the way round, with a network for control" {
	local opts=at=200ms,for=200ms
	SMALL=(-g 0 -N 2 -s 1M)
	mesh_with_control
	serve "$B"
	client_in "$A" 10.97.255.2 --test failover --allow-faults --hold-down 100ms --verify \
		--json=c.json --fault "link-down:path=1,$opts" --fault "link-down:path=0,$opts" \
		--fault "blackhole:path=0,$opts"
	judge_status 100 0
	one_cable_one_way_round c.json 2
	holds c.json '.failover.faults | map(.nic) == ["ac", "ab", "ab"]'
	judge 100 holds c.json '.failover.faults | all(.verdict == "PASS")'
	judge 100 holds c.json '.failover.faults | map(.channels_affected > 0) == [false, true, true]'
	judge 100 holds c.json '.failover.false_failovers == 0'
}

@test "a line: through the node between, unprotected, and it says so" {
	cable "$A" ab "$B" ba 10.97.1
	cable "$B" bc "$C" cb 10.97.3
	via "$A" 10.97.3 10.97.1.2 ab
	via "$C" 10.97.1 10.97.3.1 cb
	serve "$C"
	gives 0 client_in "$A" 10.97.3.2 -D 300ms --verify --json=c.json
	[[ $output == *"primary ab 10.97.1.1 (routed), no shadow: unprotected"* ]]
	[[ $output == *"one rail only: every channel is unprotected"* ]]
	clean c.json
	holds c.json '.topology.rails | length == 1 and all(.routed)'
	holds c.json '.topology.gpus | all(.shadow_rail == null)'
}

# bats test_tags=nightly
@test "a ring of four: two ways to the node opposite; one is cut where neither end sees it" {
	cable "$A" ab "$B" ba 10.97.1
	cable "$B" bx "$D" xb 10.97.5
	cable "$D" dc "$C" cd 10.97.2
	cable "$C" cy "$A" ay 10.97.6
	# A's NICs are ab and ay; the node opposite, D, has xb and dc. B and C forward.
	via "$A" 10.97.5 10.97.1.2 ab
	via "$A" 10.97.2 10.97.6.1 ay
	via "$D" 10.97.1 10.97.5.1 xb
	via "$D" 10.97.6 10.97.2.2 dc
	serve "$D" --rails xb,dc
	# Named in another order than at the server: the routes tell which belongs to which.
	SMALL=(-g 0 -N 2 -s 1M)
	under_way start_client_in "$A" 10.97.5.2 --rails ay,ab -D 4s --verify --json=c.json
	ip netns exec "$C" sysctl -qw net.ipv4.ip_forward=0
	wait_for carried "$A" ab 20000000
	ip netns exec "$C" sysctl -qw net.ipv4.ip_forward=1
	ends "$client" 0
	clean c.json
	holds c.json '.topology.rails | map(.ifname + "-" + .peer_ifname) == ["ay-dc", "ab-xb"] and all(.routed)'
	holds c.json '.topology.gpus | all(.primary_rail == 0 and .shadow_rail == 1)'
	judge 100 holds c.json '[.failover.switches[] | select(.side == "server" and (.planned | not))] | length == 2'
}

# settled NODE...: no address of theirs is under test for duplicates. Until its link-local address is not, a router asks for no
# neighbour on behalf of others (one to two seconds).
settled() {
	local net
	for net in "$@"; do
		[[ ! $(ip -n "$net" -6 addr show tentative) ]] || return 1
	done
}

# bats test_tags=nightly
@test "IPv6: the cable and the way round" {
	local i=0 spec
	mesh
	for net in "$A" "$B" "$C"; do
		ip netns exec "$net" sysctl -qw net.ipv6.conf.all.disable_ipv6=0 \
			net.ipv6.conf.all.forwarding=1 || skip "no IPv6 here"
	done
	for spec in "$A ab $B ba" "$A ac $C ca" "$B bc $C cb"; do
		read -r n1 d1 n2 d2 <<<"$spec"
		i=$((i + 1))
		ip -n "$n1" addr add "fd97:$i::1/64" dev "$d1" nodad || skip "no IPv6 here"
		ip -n "$n2" addr add "fd97:$i::2/64" dev "$d2" nodad
	done
	ip -n "$A" route add fd97:3::/64 via fd97:2::2 dev ac
	ip -n "$B" route add fd97:2::/64 via fd97:3::2 dev bc
	wait_for settled "$A" "$B" "$C"
	serve "$B"
	under_way start_client_in "$A" fd97:1::2 -D 3s --verify --json=c.json
	ip -n "$A" link set ab down
	wait_for carried "$A" ac 20000000
	ends "$client" 0
	one_cable_one_way_round c.json
	holds c.json '.topology.rails | all(.address | startswith("fd97:"))'
}

@test "nothing shared and no route: status 2, both lists and what to do" {
	cable "$A" ctl0 "$B" ctl0 10.97.255
	cable "$A" ac "$C" ca 10.97.2
	cable "$B" bd "$D" db 10.97.4
	serve "$B" --rails bd
	gives 2 client_in "$A" 10.97.255.2 --rails ac -q --json=c.json
	[[ $output == *"client 10.97.2.1/24"*"server 10.97.4.1/24"*"--rails"* ]]
	whole c.json
	holds c.json '.exit_code == 2 and (.errors | length == 1)'
	# Left to itself it takes what there is: the network of control.
	kill "$server"
	serve "$B"
	gives 0 client_in "$A" 10.97.255.2 -D 200ms --json=c.json
	holds c.json '.topology.rails | map(.ifname) == ["ctl0"] and all(.routed | not)'
}
