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

# missing NIC TEXT: only that NIC is used, and the event of the other one has the text.
missing() {
	judge $LATE_MS holds c.json "[.events[] | select(.kind == \"rail\").text | contains(\"$2\")] | any"
	judge $LATE_MS holds c.json "[.topology.rails[].ifname] == [\"$1\"] and .failover.switches == []"
	judge $LATE_MS holds c.json '.topology.unused_nics | any(.reason | startswith("loses large packets with"))'
}

@test "full packets pass in both directions: no warning" {
	server_in_b -1
	gives 0 client_in_a
	ends "$server" 0
	[[ $output != *MTU* ]]
	judge 100 holds c.json '.failover.switches == [] and ([.events[] | select(.kind == "rail")] == [])'
}

@test "large packets are lost on one rail, in either direction: it is left out, with size and fix" {
	hole "$B" rail0
	server_in_b
	gives 0 client_in_a
	says "packets of full size are lost, smaller ones pass"
	missing rail1 "packets above 1500 bytes to the server are lost; set the MTU of the switch ports to 9000, or"
	ip netns exec "$B" nft delete table netdev hole-rail0
	hole "$A" rail0 4444
	gives 0 client_in_a
	missing rail1 "packets above 4444 bytes to the client are lost"
	grep -q "packets above 4444 bytes to the client are lost" server.err server.out
}

@test "no rail carries large packets, or one that was named does not: status 3, with size and fix" {
	hole "$B" rail0
	server_in_b
	tells 3 "packets above 1500 bytes to the server are lost" client_in_a --rails rail0,rail1
	hole "$B" rail1 2000
	tells 3 "(and 1 more) never came up: packets above 1500 bytes to the server are lost" client_in_a
}

@test "NICs with different MTUs: packets have the smaller one, and a warning says so" {
	ip -n "$B" link set rail1 mtu 1500
	server_in_b -1 --json=s.json
	tells 0 "the MTU is 9000 at the client and 1500 at the server: packets have 1500 bytes" client_in_a
	ends "$server" 0
	holds c.json '.topology.rails[1] | .mtu_bytes == 9000 and .peer_mtu_bytes == 1500'
	holds s.json '.topology.rails[1] | .mtu_bytes == 1500 and .peer_mtu_bytes == 9000'
	judge 100 holds c.json '.failover.switches == []'
}

@test "a filter that drops all datagrams of the test: the rail is used" {
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
	holds c.json '[.topology.rails[].ifname] == ["rail0", "rail1"]'
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
	found fail rail0 "packets above 1500 bytes to the server are lost"
	found ok rail0 "packets of 9000 bytes to the client arrive"
	found ok rail1 "packets of 9000 bytes to the server arrive"
	found fail rail1 "packets above 5000 bytes to the client are lost"
	holds d.json '[.findings[] | select(.check == "path-mtu" and .severity == "fail")] |
		all(.remedy | startswith("set the MTU of the switch ports to 9000"))'
	jq -r '.findings[] | select(.check == "path-mtu" and .severity == "fail").remedy' d.json |
		sed 's/.* to [0-9]*: //; s/ (at the server.*//' >fix
	ip netns exec "$A" sh -e fix
	ip netns exec "$B" sh -e fix
	gives 0 doctor_in_a 10.99.255.2
	found ok rail0 "packets of 1500 bytes to the server arrive"
	found ok rail1 "packets of 5000 bytes to the client arrive"
	# The server is free again, and its runs are as clean.
	gives 0 client_in_a
	holds c.json '.topology.rails | length == 2'
}
