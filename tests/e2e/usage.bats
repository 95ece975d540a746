#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input: a status that says whose mistake it is, and one line that says what to do.
# shellcheck disable=SC2154 # set by lib.bash

# bats file_tags=one-thread
setup() {
	load lib
	common_setup
}

teardown() {
	common_teardown
	validated
}

@test "no command, unknown command: status 1" {
	run "$DUALRAIL"
	[ "$status" -eq 1 ]
	one_line
	run "$DUALRAIL" serve
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *'"serve" is not a command'* ]]
}

@test "unknown option, missing host: status 1" {
	run "$DUALRAIL" client 127.0.0.1 --chanels 8
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *--chanels* ]]
	run "$DUALRAIL" client
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *HOST* ]]
}

@test "a size that is none: status 1, names it" {
	run "$DUALRAIL" client 127.0.0.1 -s 8x
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *8x* ]]
}

@test "zero channels, window 0 and 257: status 1" {
	for bad in "-N 0" "--window 0" "--window 257" "-s 0"; do
		# shellcheck disable=SC2086
		run "$DUALRAIL" client 127.0.0.1 $bad
		[ "$status" -eq 1 ]
		one_line
		[[ $output == *"out of range"* ]]
	done
}

@test "an explicit chunk above the smallest size: status 1; the default adapts" {
	run "$DUALRAIL" client 127.0.0.1 -s 4K --chunk 8K
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *--chunk* ]]
	run "$DUALRAIL" client 127.0.0.1 -b 1K -e 64K --chunk 2K
	[ "$status" -eq 1 ]
	run "$DUALRAIL" client 127.0.0.1 -s 4K --dry-run
	[ "$status" -eq 0 ]
}

@test "options that exclude each other: status 1" {
	for bad in "--bidir -R" "-n 5 -D 1" "--json --json-stream" "-s 1M -b 1K -e 1M" \
		"--fault close:path=0"; do
		# shellcheck disable=SC2086
		run "$DUALRAIL" client 127.0.0.1 $bad
		[ "$status" -eq 1 ]
		one_line
	done
}

@test "a transport that is not built in: status 2, names those that are" {
	for kind in rfc1149 nccl:/no/such/libnccl-net.so; do
		run "$DUALRAIL" client 127.0.0.1 --transport "$kind"
		[ "$status" -eq 2 ]
		one_line
		[[ $output == *"not in this build"*tcp* ]]
	done
}

@test "a server that is not there: status 3 within the connect timeout" {
	free_port
	run timeout 20 "$DUALRAIL" client 127.0.0.1 --port "$port" --connect-timeout 300ms -q
	[ "$status" -eq 3 ]
	[[ $output == *refused* ]]
	run timeout 20 "$DUALRAIL" client no.such.host.invalid --connect-timeout 300ms -q
	[ "$status" -eq 3 ]
}

@test "a port in use: status 2, names it" {
	start_server
	wait_for grep -q listening server.err
	run timeout 20 "$DUALRAIL" server -g 0-1 --port "$port"
	[ "$status" -eq 2 ]
	[[ $output == *"$port"* ]]
}

@test "an unwritable result file: status 2 before anything runs" {
	run "$DUALRAIL" client 127.0.0.1 --json=/no/such/folder/x.json
	[ "$status" -eq 2 ]
	one_line
	[[ $output == */no/such/folder* ]]
}

@test "a fault without --allow-faults: status 2, names the option" {
	run "$DUALRAIL" client 127.0.0.1 --test failover --fault close:path=0 -q
	[ "$status" -eq 2 ]
	[[ $output == *--allow-faults* ]]
}

@test "a fault on the loopback is refused" {
	run "$DUALRAIL" client 127.0.0.1 --test failover --fault link-down:path=0 --allow-faults -q
	[ "$status" -eq 2 ]
	[[ $output == *"lo refused"* ]]
}

@test "a bad command line still leaves a whole document when --json names a file" {
	run "$DUALRAIL" client 127.0.0.1 --json=r.json --rails no-such-device
	[ "$status" -eq 2 ]
	whole r.json
	holds r.json '.exit_code == 2 and .status == "error"'
}

@test "a configuration file, the environment and the command line, in this order" {
	echo '{"channels": 3, "window": 4}' >c.json
	run env DUALRAIL_WINDOW=5 "$DUALRAIL" client 127.0.0.1 --config c.json --dry-run -v
	[ "$status" -eq 0 ]
	[[ $output == *"channels=3"* && $output == *"window=5"* ]]
	run env DUALRAIL_WINDOW=5 "$DUALRAIL" client 127.0.0.1 --config c.json --dry-run -v --window 6
	[[ $output == *"window=6"* ]]
	run env UCCL_TCPX_NUM_CHANNELS=7 UCCL_TCPX_BOOTSTRAP_PORT_BASE=20100 \
		"$DUALRAIL" client 127.0.0.1 --dry-run -v
	[[ $output == *"channels=7"* && $output == *"port=20100"* ]]
	run "$DUALRAIL" client 127.0.0.1 --config /no/such.json
	[ "$status" -eq 2 ]
	one_line
}

@test "help and version" {
	run "$DUALRAIL" --help
	[ "$status" -eq 0 ]
	[[ $output == *client* ]]
	run "$DUALRAIL" client --help
	[ "$status" -eq 0 ]
	[[ $output == *--hold-down* ]]
	run "$DUALRAIL" --version
	[ "$status" -eq 0 ]
	one_line
	run "$DUALRAIL" --man
	[ "$status" -eq 0 ]
	[[ $output == *".SH OPTIONS"* ]]
}

@test "run_p2p.sh: one line and status 2 for what it cannot do; a node list skips this node" {
	local script=$BATS_TEST_DIRNAME/../../scripts/run_p2p.sh
	run "$script" nonsense
	[ "$status" -eq 2 ]
	one_line
	run "$script" client
	[ "$status" -eq 2 ]
	one_line
	run "$script" client nowhere.txt
	[ "$status" -eq 2 ]
	one_line
	printf '# comment\n127.0.0.1\n 192.0.2.99 # the other\n' >nodes.txt
	run env DUALRAIL="$(type -P echo)" "$script" client nodes.txt -D 1
	[ "$status" -eq 0 ]
	[ "$output" = "client 192.0.2.99 -D 1" ]
}
