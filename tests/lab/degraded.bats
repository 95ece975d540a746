#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A rail of dualrail over verbs between two nodes that becomes slow by means of tc.
# shellcheck disable=SC2154,SC2034 # set by lib.bash and bats, or for them

setup_file() {
	load lib
	install_dualrail
}

setup() {
	load lib
	verbs_setup
}

teardown() {
	common_teardown
}

# The queue has room for what a connection keeps in it, so that nothing is lost.
shape() {
	lab run both tc qdisc add dev "$1" root tbf rate "$2" burst 32kb limit 600kb ||
		skip "this kernel has no token bucket filter (sch_tbf)"
}

# said TEXT: a line of the client's log.
said() {
	grep -Eq "$1" client.err
}

@test "failback waits until the rail carries more than 1 Mb/s, which is named" {
	GPUS=(-g 0 --pair --map "0=rxe0,rxe1")
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 40s --verify --hold-down 200ms
	wait_for flowing
	flow_on 5
	lab link 0 nic0 down
	flow_on 5
	shape nic0 1mbit
	lab link 0 nic0 up
	wait_for said 'rail 0 \(nic0 -> nic0\) is degraded: .*b/s measured, rail 1 carries'
	flow_on 15
	lab run both tc qdisc del dev nic0 root
	ends "$client" 0
	document
	grep -Eo 'is degraded: [0-9.]+ [kM]b/s' client.err | awk '{ v = $3 * ($4 ~ /^M/ ? 1000 : 1) }
		v < 200 || v > 5000 { bad = 1 } END { exit bad || NR == 0 }'
	# One return of both channels, after the rail was repaired.
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and .to_path == 0)]
		| length == 2 and all(.planned)'
	holds "$share/c.json" '[.events[] | select(.kind == "degraded")] | length >= 1'
}
