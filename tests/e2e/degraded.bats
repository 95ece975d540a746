#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Rails that become slow by means of tc, between two namespaces. Needs root.
# shellcheck disable=SC2154 # set by lib.bash

# check.sh: alone
# bats file_tags=release,nightly
setup() {
	load lib
	common_setup
	command -v tc >/dev/null || skip "needs tc"
	watch
	two_rails
	shape rail1 2gbit
}

teardown() {
	common_teardown
	validated
}

# shape NIC RATE [LATENCY]: of packets as on a wire, in both directions, with a queue of 20 ms.
shape() {
	for node in "$A" "$B"; do
		ip -n "$node" link set dev "$1" gso_max_segs 1
		tc -n "$node" qdisc replace dev "$1" root handle 1: tbf rate "$2" burst 64kb latency "${3:-20ms}" ||
			skip "this kernel has no token bucket filter (sch_tbf)"
	done
}

# pair OPTIONS...: a server and a client, the result in result.json, its rows as they come in client.out.
pair() {
	free_port
	start server ip netns exec "$B" "$DUALRAIL" server -g "$2" -1 --port "$port"
	server=$pid
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 --port "$port" -N 2 -s 1M --chunk 128K -i 100ms \
		--json=result.json "$@"
	client=$pid
	wait_for grep -q 'Gb/s' client.out
}

finish() {
	judge_status 100 0 "$client"
	judge_status 100 0 "$server"
}

# said TEXT: a line of the client's log.
said() {
	grep -Eq "$1" client.err
}

@test "a rail with a small fraction of the other rail's rate is named, and not left" {
	shape rail0 2gbit
	pair -g 0,1 --map "0=rail0,rail1;1=rail1,rail0" -D 6
	shape rail0 100mbit 200ms # a shorter queue drops whole flights, which may look like a failure
	finish
	jq -e '[.nics[] | select(.side == "client" and .name == "rail1")][0].gbps < 1.2' result.json &&
		skip "not judged: this machine carries less than twelve times as much on the other rail"
	judge 500 said 'rail 0 \(rail0 -> rail0\) is degraded: 0\.(0[6-9]|1)[0-9]* Gb/s measured, rail 1 carries'
	judge 100 holds result.json '[.nics[] | select(.side == "client" and .name == "rail0")][0] |
		.degraded and .measured_gbps > 0.06 and .measured_gbps < 0.12'
	judge 100 holds result.json '[.nics[] | select(.side == "client" and .name == "rail1")][0].degraded == false'
	judge 100 holds result.json '[.events[] | select(.kind == "degraded")] | length == 1'
	judge 100 holds result.json '.failover.switches == []'
}

@test "a rail that is asked for little is not called degraded" {
	shape rail0 2gbit
	pair -g 0,1 --map "0=rail0,rail1;1=rail1,rail0" -D 3 --rate 10M
	finish
	judge 100 holds result.json '[.nics[] | select(.degraded)] == []'
	judge 100 holds result.json '[.events[] | select(.kind == "degraded")] == []'
}
