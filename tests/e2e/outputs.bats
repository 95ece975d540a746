#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The outputs of a run. On loopback, but for the counters of NICs.
# shellcheck disable=SC2154,SC2034,SC2016,SC2030,SC2031 # set by lib.bash

setup() {
	load lib
	common_setup
}

teardown() {
	common_teardown
	validated
}

# prom_rules FILE...: the rules of Prometheus text; prom_tool FILE...: the same by promtool.
prom_rules() {
	"$BATS_TEST_DIRNAME/../promtext.py" "$@"
}

prom_tool() {
	local one
	for one in "$@"; do
		promtool check metrics <"$one" || return 1
	done
}

# Both ends of a run between two namespaces, so that there are counters of NICs, with all tests.
prom_of_a_run() {
	two_rails
	start server ip netns exec "$B" "$DUALRAIL" server -g 0 -1 --prom server.prom
	server=$pid
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 -s 64K -D 150ms \
		--test bw,lat,failover --fault close:path=0,at=50ms --allow-faults --hold-down 50ms --prom client.prom
	[ "$status" -eq 0 ]
	ends "$server" 0
	grep -q '^dualrail_nic_interface_tx_bytes_total{' client.prom
	grep -q '^dualrail_nic_interface_tx_bytes_total{' server.prom
	grep -q '^dualrail_fault_trials_total{' client.prom
}

@test "--prom: the text of both ends follows the rules of the format and of metric names" {
	prom_of_a_run
	prom_rules client.prom server.prom
}

@test "--prom: promtool accepts the text of both ends" {
	command -v promtool >/dev/null || skip "promtool is not installed (Debian: prometheus)"
	prom_of_a_run
	prom_tool client.prom server.prom
}
