#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# scripts/gates.sh itself, with its cheapest gate. plugin.bats has what most gates run.

# bats file_tags=one-thread
load usual

setup() {
	common_setup
	gates=$DR_ROOT/scripts/gates.sh
	export BUILD=$DR_BUILD
}

@test "gates: help, unknown gates and a build without a plugin" {
	run "$gates" --help
	[[ $status == 0 && $output == *"scripts/gates.sh [N...]"* && $output == *HOURS=24* ]]
	run "$gates" 3 10
	[[ $status == 2 ]]
	one_line
	[[ $output == *'"10" is not a gate: 0 to 9'* ]]
	BUILD=$PWD run "$gates" 3
	[[ $status == 2 && $output == *"run make all tests"* ]]
}

@test "a gate: figures, what they ran on, and the sum" {
	run "$gates" 3
	[[ $status == 0 ]]
	[[ ${lines[0]} =~ ^"PASS  gate 3 quota: tcp: at most "[0-9]+" comms for each device".*"  (loopback, "[0-9]+" CPUs, Linux ".*")"$ ]]
	[[ ${lines[1]} =~ ^"SKIP  gate 3 quota: ".*"no RDMA device  (this machine)"$ ]]
	[[ ${lines[2]} == "1 passed, 0 failed, 1 skipped" && ${#lines[@]} == 3 ]]
}

@test "a gate that fails: status 1, with the end of the output" {
	mkdir -p build/tests/plugin
	touch build/libnccl-net-ha.so
	printf '#!/bin/sh\necho not ok 1 - v11 many\nexit 1\n' >build/tests/plugin/contract_main
	cp build/tests/plugin/contract_main build/tests/plugin/ring_main
	chmod +x build/tests/plugin/*_main
	BUILD=$PWD/build run "$gates" 3
	[[ $status == 1 ]]
	[[ ${lines[0]} == "FAIL  gate 3 quota: "* && ${lines[1]} == "      not ok 1 - v11 many" ]]
	[[ ${lines[3]} == "0 passed, 1 failed, 1 skipped" ]]
}
