#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail over verbs between two nodes, started with its script by hand: whole runs in peace. What goes wrong
# is in faults.bats.

load usual

@test "the path contract over a real device" {
	lab run 0 test -x "$DR/bin/conformance_test" || skip "conformance_test is not built"
	lab run -t 300 0 env DR_VERBS_RAIL=nic0,192.168.100.1 CMOCKA_MESSAGE_OUTPUT=TAP \
		"$DR/bin/conformance_test" '*verbs*' >tap || :
	grep -v '^ok' tap | tail -n 40
	[ "$(grep -c '^ok.*verbs' tap)" -ge 10 ]
	[ "$(grep -c '^not ok' tap)" -eq 0 ]
}

eight_by_two() {
	holds "$share/c.json" '.topology.gpus | length == 8 and all(.channels == 2)'
}

# Sixteen channels come up on the one processor of a guest. With heartbeats of 100 ms that can be too slow.
@test "two rails: eight GPUs, bandwidth and latency, every byte compared, the NICs' counters agree" {
	start_server --one-off "${TWO[@]}"
	succeeds "${TWO[@]}" --heartbeat 1s --test bw,lat -D 4s --verify
	ends "$server" 0
	document
	no_switch
	eight_by_two
	holds "$share/c.json" '.bandwidth | length == 8 and all(.gbps > 0 and .bytes > 0)'
	holds "$share/c.json" '.latency | length == 8 and all(.samples > 0 and .rtt_us.p50 > 0)'
	holds "$share/c.json" '[.nics[] | select(.tx_bytes > 1000000) | .name] | unique | length == 2'
}

# Each guest has one processor. Both ends of a round trip compete for theirs with another process, so that neither data
# nor acknowledgements move for whole time slices.
@test "round trips, both ends polling beside a busy process: no switch, no verdict of silence" {
	start busy0 0 timeout 90 sh -c 'while :; do :; done'
	busy0=$pid
	start busy1 1 timeout 90 sh -c 'while :; do :; done'
	busy1=$pid
	start_server --one-off -g 0 --poll busy "${TWO[@]}"
	succeeds "${TWO[@]}" -g 0 -N 1 --poll busy --test lat -s 64 --chunk 64 -D 20s
	ends "$server" 0
	document
	no_switch
	holds "$share/c.json" '.latency | length == 1 and .[0].samples > 0'
	# They were there all the time.
	kill -0 "$busy0" "$busy1"
}

@test "four rails, as found: all of them carry data" {
	start_server --one-off
	succeeds -D 4s
	ends "$server" 0
	document
	no_switch
	eight_by_two
	holds "$share/c.json" '.bandwidth | length == 8 and all(.gbps > 0)'
	holds "$share/c.json" '[.nics[] | select(.tx_bytes > 1000000) | .name] | unique | length == 4'
}

@test "both directions, several queue pairs a path, memory registered at first use" {
	start_server --one-off "${TWO[@]}"
	succeeds "${TWO[@]}" -D 3s --bidir --qps 2 --register lazy --verify
	document
	holds "$share/c.json" '[.bandwidth[].direction] | unique == ["to-client", "to-server"]'
}
