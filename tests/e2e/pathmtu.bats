#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Packets of full size that do not pass a rail, between two network namespaces: what the start of a run and doctor
# find, in each direction. Needs root.
# shellcheck disable=SC2016 # jq's variables

load usual

setup() {
	common_setup
	command -v nft >/dev/null || skip "needs nft"
	SMALL+=(-D 300ms --json=c.json)
	watch
	two_rails
	for dev in rail0 rail1 ctl0; do
		# Packets as on a wire, not the kernel's aggregates of 64 KiB.
		ip -n "$A" link set "$dev" mtu 9000 gso_max_segs 1
		ip -n "$B" link set "$dev" mtu 9000 gso_max_segs 1
	done
}

# hole NODE NIC [BYTES]: as if a switch dropped larger packets on their way to the node.
hole() {
	ip netns exec "$1" nft -f - <<-END
		table netdev hole-$2 {
			chain filtered {
				type filter hook ingress device $2 priority 0; policy accept;
				meta length > ${3:-1500} drop
			}
		}
	END
}

# What the test of a rail finds is judged only where its answers were not late: a search of some round trips.
LATE_MS=300

# path_mtu FILE RAIL TO-SERVER TO-CLIENT
path_mtu() {
	judge $LATE_MS holds "$1" ".topology.rails[$2] | [.path_mtu_to_server_bytes, .path_mtu_to_client_bytes] == [$3, $4]"
}

# says FILE SIDE TEXT: that end has exactly one event of this kind, with the text.
says() {
	judge $LATE_MS holds "$1" "[.events[] | select(.kind == \"path-mtu\" and .side == \"$2\").text] |
		length == 1 and (.[0] | contains(\"$3\"))"
}

# Only the GPU whose primary is that rail has switched, away from it, before data flowed.
left_before_data() {
	judge 100 holds c.json '[.failover.switches[].gpu] | unique == [0]'
	judge 100 holds c.json '[.nics[] | select(.side == "client" and .name == "rail0").tx_bytes] == [0]'
}

@test "full packets pass in both directions: recorded at both ends, no warning" {
	server_in_b -1 --json=s.json
	gives 0 client_in_a
	ends "$server" 0
	for file in c.json s.json; do
		path_mtu $file 0 9000 9000
		path_mtu $file 1 9000 9000
		holds $file '[.events[] | select(.kind == "path-mtu")] == []'
	done
	judge 100 holds c.json '.failover.switches == []'
}

@test "large packets to the server are lost on one rail: warned at both ends, data uses the other rail" {
	hole "$B" rail0
	server_in_b -1 --json=s.json
	tells 0 "packets above 1500 bytes are lost" client_in_a
	ends "$server" 0
	grep -q "packets above 1500 bytes are lost" server.err
	for file in c.json s.json; do
		path_mtu $file 0 1500 9000
		path_mtu $file 1 9000 9000
	done
	says c.json client "rail 0, client's rail0 -> server's rail0: packets above 1500 bytes are lost; set the MTU of the switch ports to 9000"
	says s.json server "rail 0, client's rail0 -> server's rail0: packets above 1500"
	clean c.json
	left_before_data
}

@test "large packets to the client are lost on one rail: warned at both ends, the server's data uses the other rail" {
	hole "$A" rail0 4444
	server_in_b -1 --json=s.json
	gives 0 client_in_a -R
	ends "$server" 0
	for file in c.json s.json; do
		path_mtu $file 0 9000 4444
		path_mtu $file 1 9000 9000
	done
	says c.json client "rail 0, server's rail0 -> client's rail0: packets above 4444 bytes are lost; set the MTU of the switch ports to 9000, or both NICs' to 4444"
	says s.json server "rail 0, server's rail0 -> client's rail0"
	clean c.json
	judge 100 holds c.json '[.failover.switches[].gpu] | unique == [0]'
}

@test "a hole against the direction of the data costs a warning only" {
	hole "$A" rail0
	server_in_b
	gives 0 client_in_a
	path_mtu c.json 0 9000 1500
	says c.json client "packets above 1500"
	judge 100 holds c.json '.failover.switches == []'
}

@test "no rail carries large packets: both ends say so and end with status 2" {
	hole "$B" rail0
	hole "$B" rail1 2000
	server_in_b -1 --json=s.json
	gives 2 client_in_a
	[[ $output == *"no rail carries data: rail 0, client's rail0 -> server's rail0: packets above 1500 bytes are lost"* ]]
	ends "$server" 2
	path_mtu c.json 0 1500 9000
	path_mtu c.json 1 2000 9000
	for file in c.json s.json; do
		holds $file '.exit_code == 2 and (.errors[0].text | contains("no rail carries data"))'
	done
	# Messages that fit pass.
	server_in_b -1
	gives 0 client_in_a -s 64 --window 4 -N 1
}

@test "NICs with different MTUs: packets have the smaller one, both ends are told" {
	ip -n "$B" link set rail1 mtu 1500
	server_in_b -1 --json=s.json
	gives 0 client_in_a
	ends "$server" 0
	path_mtu c.json 1 1500 1500
	holds c.json '.topology.rails[1] | .mtu_bytes == 9000 and .peer_mtu_bytes == 1500'
	holds s.json '.topology.rails[1] | .mtu_bytes == 1500 and .peer_mtu_bytes == 9000'
	says c.json client "rail 1: MTU 9000 on the client's rail1 and 1500 on the server's rail1"
	says s.json server "rail 1: MTU 9000 on the client's rail1 and 1500 on the server's rail1"
	judge 100 holds c.json '.failover.switches == []'
}

@test "a filter that drops all datagrams of the test: not tested, and no warning" {
	ip netns exec "$B" nft -f - <<-END
		table netdev quiet {
			chain filtered {
				type filter hook ingress device rail0 priority 0; policy accept;
				udp length 44 drop
				udp length > 1500 drop
			}
		}
	END
	server_in_b
	gives 0 client_in_a -D 6s
	path_mtu c.json 0 null null
	path_mtu c.json 1 9000 9000
	holds c.json '[.events[] | select(.kind == "path-mtu")] == []'
}

# found SEVERITY NIC TEXT: a finding path-mtu.
found() {
	judge $LATE_MS holds d.json ".findings | any(.check == \"path-mtu\" and .severity == \"$1\" and .where == \"$2\" and
		(.text | contains(\"$3\")))" || {
		jq -c '.findings[] | select(.check == "path-mtu")' d.json
		return 1
	}
}

@test "doctor names rail, direction, size and fix of a hole; the fix works" {
	hole "$B" rail0
	hole "$A" rail1 5000
	server_in_b
	gives 2 doctor_in_a 10.99.255.2
	found fail rail0 "client's rail0 -> server's rail0: packets above 1500 bytes are lost"
	found ok rail0 "server's rail0 -> client's rail0: packets of 9000 bytes arrive"
	found ok rail1 "client's rail1 -> server's rail1: packets of 9000 bytes arrive"
	found fail rail1 "server's rail1 -> client's rail1: packets above 5000 bytes are lost"
	holds d.json '[.findings[] | select(.check == "path-mtu" and .severity == "fail")] |
		all(.remedy | startswith("set the MTU of the switch ports to 9000"))'
	jq -r '.findings[] | select(.check == "path-mtu" and .severity == "fail").remedy' d.json |
		sed 's/.* to [0-9]*: //; s/ (at the server.*//' >fix
	ip netns exec "$A" sh -e fix
	ip netns exec "$B" sh -e fix
	gives 0 doctor_in_a 10.99.255.2
	found ok rail0 "client's rail0 -> server's rail0: packets of 1500 bytes arrive"
	found ok rail1 "server's rail1 -> client's rail1: packets of 5000 bytes arrive"
	# The server is free again, and its runs are as clean.
	gives 0 client_in_a
	path_mtu c.json 0 1500 1500
	holds c.json '[.events[] | select(.kind == "path-mtu")] == []'
}
