#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail over verbs between two nodes: grey failures, made from outside. Filters in the receiving guest drop what
# the transport header of RoCE v2 says: reliable connections, datagrams, or packets above a size. Default options.

load usual

setup() {
	verbs_setup
	OPTS=(--transport verbs -N 1 -s 256K --chunk 32K --window 4)
	GPUS=(-g 0)
}

teardown() {
	lose_nothing
	common_teardown
}

# Opcodes of the base transport header, the first byte behind the UDP header: IBA vol. 1, 9.2.1.
RC='udp dport 4791 @th,64,8 0x00-0x1f'
UD='udp dport 4791 @th,64,8 0x64-0x65'

# one_switch CAUSE: from path 0 to path 1, detected by one end for that reason; never back.
one_switch() {
	jq -c '.failover.switches[] | [.side, .from_path, .to_path, .cause, .gap_us, (.first_delivery_ns - .last_delivery_ns) / 1e6]' "$share/c.json"
	holds "$share/c.json" "[.failover.switches[] | [.from_path, .to_path]] == [[0, 1], [0, 1]]"
	holds "$share/c.json" "[.failover.switches[] | select(.cause | test(\"$1\"))] | length > 0"
}

# left_for MATCH CAUSE: with the filter at either end, and data in either direction.
left_for() {
	local guest opt
	start_server "${TWO[@]}"
	for guest in 0 1; do
		for opt in "" -R; do
			under_way start_client "${TWO[@]}" -D 8s --verify $opt
			lose $guest nic0 "$1"
			ends "$client" 0
			hit $guest
			lab run $guest nft delete table ip grey
			document
			one_switch "$2"
		done
	done
}

@test "reliable connections carry nothing, datagrams pass: left for that reason, in either direction" {
	left_for "$RC" "is silent although the rail works"
}

@test "packets above 1,500 bytes are lost: the rail is left for that reason" {
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 8s --verify
	lose 1 nic0 "$LARGE"
	ends "$client" 0
	hit 1
	document
	one_switch "datagrams of 4095 bytes do not arrive"
}

@test "datagrams are lost on the idle rail, reliable connections carry: it goes down, and no channel switches" {
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 8s --verify
	lose 0 nic1 "$UD"
	lose 1 nic1 "$UD"
	ends "$client" 0
	hit 0
	hit 1
	lab run both nft delete table ip grey
	document
	no_switch
	holds "$share/c.json" '[.events[] | select(.text | test("no heartbeat"))] | length > 0'
}

# Nobody's process stands still for as long as a verdict takes, except where the host is starved.
@test "5 % loss in each direction: no switch" {
	for n in 0 1; do
		lab run both tc qdisc add dev nic$n root netem loss 5%
	done
	start_server "${TWO[@]}"
	succeeds "${TWO[@]}" -D 20s --verify
	document
	no_switch
}

@test "100 ms of round trip: no switch" {
	for n in 0 1; do
		lab run both tc qdisc add dev nic$n root netem delay 50ms limit 10000
	done
	start_server "${TWO[@]}"
	succeeds "${TWO[@]}" -D 10s --verify
	document
	no_switch
}

@test "a receiver that is stopped for 3 s: no switch" {
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 10s --verify
	lab run 1 sh -c 'pkill -STOP -x dualrail && sleep 3; pkill -CONT -x dualrail'
	ends "$client" 0
	document
	no_switch
}
