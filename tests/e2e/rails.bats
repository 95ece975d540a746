#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Rails that are configured at both ends and do not work: left out before the first figure, with NIC, address and cause;
# the end of the run where somebody named them. Needs root.
# check.sh: thread

load usual

setup() {
	common_setup
	two_rails
	command -v nft >/dev/null || skip "needs nft"
}

# filter NODE RULES: what the node's host firewall does with packets that arrive.
filter() {
	ip netns exec "$1" nft -f - <<-END || skip "no nftables here"
		table inet f {
			chain i {
				type filter hook input priority 0;
				$2
			}
		}
	END
}

# wrong_neighbour: A sends rail1's packets to a MAC address that is nobody's there.
wrong_neighbour() {
	ip -n "$A" neigh replace 10.99.1.2 lladdr 02:00:00:00:00:01 dev rail1 nud permanent
}

# left_out CAUSE [SERVER_CAUSE]: the run uses rail0 alone, passes, and both ends say why rail1 is missing.
left_out() {
	server_in_b --one-off
	client_in_a -D 200ms --json=c.json
	[ "$status" -eq 0 ]
	ends "$server" 0
	[[ $output == *"warn rails: rail1 10.99.1.1 -> the server's rail1 10.99.1.2 never came up and is not used: "*"$1"* ]]
	[[ $output == *"PASS (exit status 0), but rail1 is missing: no answer from 10.99.1.2"* ]]
	grep -q 'rail1 10.99.1.2, port [0-9]*: no connection from 10.99.1.1: .*'"${2:---data-ports}" server.err
	clean c.json
	holds c.json '[.topology.rails[].ifname] == ["rail0"] and ([.nics[].name] | unique) == ["rail0"]'
	holds c.json '.topology.unused_nics | any(.side == "client" and .nic == "rail1" and .reason == "no answer from 10.99.1.2")'
}

@test "a wrong neighbour, a peer's address that nobody has, a firewall: the rail is left out with the cause" {
	wrong_neighbour
	left_out "neighbour entry here is permanent (02:00:00:00:00:01); "
	says "a static neighbour entry that is wrong"
	ip -n "$A" neigh del 10.99.1.2 dev rail1
	filter "$B" 'iifname "rail1" tcp dport 1-65535 reject'
	left_out "is rejected (Connection refused) by a firewall"
	says "a firewall rejects, or ARP led to another NIC of the peer"
	ip netns exec "$B" nft flush ruleset
	filter "$B" 'iifname "rail1" drop'
	left_out "no answer from 10.99.1.2 on port "
	says "a firewall drops"
	ip netns exec "$B" nft flush ruleset
	ip netns exec "$B" sysctl -qw net.ipv4.conf.rail1.arp_ignore=8
	# The server asks for nothing either: its request would tell its own address.
	ip -n "$B" neigh replace 10.99.1.1 dev rail1 nud permanent \
		lladdr "$(ip -n "$A" -j link show rail1 | jq -r '.[0].address')"
	ip -n "$A" neigh flush dev rail1
	left_out "nobody answers ARP for 10.99.1.2" permanent
	says "nobody has the address, wrong VLAN or cable, arp_ignore"
}

@test "packets pass in one direction only: the same" {
	filter "$A" 'iifname "rail1" drop'
	left_out "no answer from 10.99.1.2"
	ip netns exec "$A" nft flush ruleset
	ip netns exec "$A" sysctl -qw net.ipv4.conf.rail1.rp_filter=1
	ip -n "$A" route add 10.99.1.2/32 dev rail0
	left_out "rp_filter of rail1 is strict, and the route to 10.99.1.2 leaves through rail0"
	says "strict rp_filter, and the route leaves through another NIC"
	ip -n "$A" route del 10.99.1.2/32 dev rail0
	ip netns exec "$B" sysctl -qw net.ipv4.conf.rail1.rp_filter=1
	ip -n "$B" route add 10.99.1.1/32 dev rail0
	left_out "no answer from 10.99.1.2" "rp_filter of rail1 is strict, and the route to 10.99.1.1"
}

@test "a rail that was named, at either end, or all rails: status 3 with the cause" {
	wrong_neighbour
	server_in_b
	tells 3 "rail rail1 10.99.1.1 -> the server's rail1 10.99.1.2 never came up: " \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --rails rail0,rail1
	tells 3 "rail rail1 10.99.1.1 -> " \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --map "0=rail0,rail1;1=rail1,rail0"
	kill "$server"
	server_in_b --rails rail0,rail1
	tells 3 "rail rail1 10.99.1.1 -> " \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}"
	kill "$server"
	# The control port alone is open.
	filter "$B" 'iifname "rail0" drop; iifname "rail1" drop'
	server_in_b
	tells 3 "(and 1 more) never came up: no answer from 10.99.0.2 on port " \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --json=c.json
	holds c.json '.errors[0].reason == "paths" and (.errors[0].text | contains("--data-ports"))'
	[ "$(grep -c 'no connection from .*--data-ports' server.err)" -eq 2 ]
}

@test "the proof's connections alone pass: the data paths never came up, which is not lost" {
	local first='tcp flags syn limit rate over 1/hour burst 1 packets drop'
	filter "$B" "iifname { rail0, rail1 } meta l4proto udp drop; iifname rail0 $first; iifname rail1 $first"
	server_in_b --one-off --data-ports 30000-30100
	tells 3 "the data paths never came up: rail0 10.99.0.1: no answer from 10.99.0.2, although its MAC address is known" \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --json=c.json
	holds c.json '.errors[0].reason == "paths" and (.errors[0].text | contains("--data-ports"))'
	ends "$server" 3
	# The last error of a path is part of it.
	ip netns exec "$B" nft flush ruleset
	filter "$B" 'iifname { "rail0", "rail1" } tcp dport != 30000 reject with tcp reset'
	server_in_b --one-off --data-ports 30000-30100
	tells 3 ": 10.99.0.2 on port 300" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" \
		--connect-timeout 2s --timeout 1s
	[[ $output == *" is rejected (Connection refused)"* ]]
	ends "$server" 3
}

@test "IPv6: a policy rule hides the way to the peer: no route" {
	ip -n "$A" addr flush dev rail1
	ip -n "$A" addr add fd12::1/64 dev rail1 nodad
	ip -n "$B" addr add fd12::2/64 dev rail1 nodad
	ip -n "$A" -6 rule add to fd12::2 unreachable
	server_in_b
	client_in_a -D 200ms
	[[ $status == 0 && $output == *"rail1 is missing: no answer from fd12::2"* ]]
	says "IPv6: no route, or a policy rule that hides its table"
}

mac() { ip -n "$1" -j link show "$2" | jq -r '.[].address'; }

# one_subnet: two NICs of each node on a switch in C, the only rails.
one_subnet() {
	local i node last
	C=dr${BASHPID}c
	ip netns add "$C"
	ip -n "$C" link add switch up type bridge || skip "no bridges here"
	for i in 0 1; do
		last=0
		for node in "$A" "$B"; do
			last=$((last + 1))
			ip -n "$node" link set "rail$i" down
			ip link add "flat$i" netns "$node" type veth peer name "$node.$i" netns "$C"
			ip -n "$node" addr add "10.95.0.$((i * 10 + last))/24" dev "flat$i"
			ip -n "$node" link set "flat$i" up
			ip -n "$C" link set "$node.$i" up master switch
		done
	done
}

@test "NICs in one subnet that answer ARP for each other: the rail that works is used, with the cause of the other" {
	local node
	one_subnet
	server_in_b
	client_in_a -D 200ms --json=c.json
	# Which NIC answers last is chance: mostly one rail works, sometimes none, or not for long.
	if ((status == 0)); then
		holds c.json '.topology.rails | length == 1'
	else
		[[ $status == 3 && $output == *" never came up: "*" answers ARP for "* ]]
	fi
	says "NICs of the peer in one subnet answer ARP for each other"
	# Both work now, and may not the next time.
	for node in "$A" "$B"; do
		ip netns exec "$node" sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
		ip -n "$node" neigh flush all
	done
	ip netns exec "$A" sysctl -qw net.ipv4.conf.all.arp_ignore=0
	ip -n "$A" neigh replace 10.95.0.2 lladdr "$(mac "$B" flat0)" dev flat0
	ip -n "$A" neigh replace 10.95.0.12 lladdr "$(mac "$B" flat1)" dev flat1
	ip -n "$B" neigh replace 10.95.0.1 lladdr "$(mac "$A" flat0)" dev flat0
	ip -n "$B" neigh replace 10.95.0.11 lladdr "$(mac "$A" flat1)" dev flat1
	client_in_a -D 200ms --json=c.json
	[ "$status" -eq 0 ]
	holds c.json '.topology.rails | length == 2'
	says "rails of an end share a subnet, and its NICs answer ARP for each other"
	[ "$(grep -c 'answer ARP for each other' <<<"$output")" -eq 1 ]
	ip netns exec "$A" sysctl -qw net.ipv4.conf.all.arp_ignore=1
	client_in_a -D 200ms -q
	[[ $status == 0 && $output != *"answer ARP for each other"* ]]
}

@test "UDP alone is lost: the rail is used, and a line says so" {
	filter "$B" 'iifname "rail1" meta l4proto udp drop'
	server_in_b --one-off
	client_in_a -D 200ms --json=c.json
	[ "$status" -eq 0 ]
	ends "$server" 0
	[[ $output == *"rail1 10.99.1.1 -> the server's rail1 10.99.1.2 passes TCP, but UDP is lost: "* ]]
	says "the firewall admits TCP only"
	holds c.json '.topology.rails | length == 2'
}

@test "preflight passes on what works, names what is missing, and the check that failed; doctor fails" {
	wrong_neighbour
	server_in_b
	gives 0 timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" preflight 10.99.255.2 -g 0-1 --json=p.json
	[[ $output == *"PASS (exit status 0): 2 GPUs x 1 NIC (rail0), "*"; rail1 is missing: no answer from 10.99.1.2; "*"; failed check: peer-address rail1: "* ]]
	holds p.json '.checks.exit_code == 2 and .exit_code == 0'
	gives 2 doctor_in_a 10.99.255.2
	holds d.json '.findings | any(.check == "peer-address" and .severity == "fail" and .where == "rail1")'
}
