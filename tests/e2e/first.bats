#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a new user types first, over the loopback; no root needed.
# shellcheck disable=SC2154,SC2034,SC2030,SC2031 # set by lib.bash and by run

setup() {
	load lib
	common_setup
}

teardown() {
	common_teardown
	validated
}

# server OPTIONS...: with its defaults otherwise.
server() {
	free_port
	start server "$DUALRAIL" server --memory host --port "$port" "$@"
	server=$pid
	wait_for grep -q listening server.err
}

# client HOST OPTIONS...: a short run.
short() {
	run timeout "$WAIT_S" "$DUALRAIL" client "$1" --memory host -N 1 -s 64K -D 100ms --json=c.json "${@:2}"
	tail -n 5 <<<"$output"
}

@test "client -g 0 against a server without -g: the server uses one GPU" {
	server
	short 127.0.0.1 --port "$port" -g 0
	[ "$status" -eq 0 ]
	holds c.json '[.bandwidth[].gpu] == [0]'
	short 127.0.0.1 --port "$port" -g 5,2
	[ "$status" -eq 0 ]
	holds c.json '[.bandwidth[].gpu] | sort == [2, 5]'
	run timeout "$WAIT_S" "$DUALRAIL" doctor 127.0.0.1 --port "$port" --memory host -g 0 --json=d.json
	holds d.json '.findings | any(.check == "peer-gpus" and .severity == "ok")'
	# What it does not have it cannot use.
	short 127.0.0.1 --port "$port" -g 0-8
	[ "$status" -eq 3 ]
	[[ $output == *"client has 9"*"server 8"*"-g"* ]]
}

@test "-g 9999: status 2 at once, says how many GPUs there are and that they are emulated" {
	local list
	for list in 9999 0,32 65000 9999999; do
		run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 -g "$list" --memory host -q
		[ "$status" -eq 2 ]
		[[ $output == *"no such GPU: ${list#0,}; with --memory host there are 32 GPUs, emulated in host memory: use 0 to 31"* ]]
	done
	run timeout "$WAIT_S" env DR_LIBCUDA=/no/such/libcuda.so "$DUALRAIL" server -g 9999
	[ "$status" -eq 2 ]
	[[ $output == *"no such GPU: 9999; without a CUDA GPU there are 32 GPUs, emulated"* ]]
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 -g 99999999999 -q
	[ "$status" -eq 2 ]
	[[ $output == *"no such GPU: 99999999999; "* ]]
	run timeout "$WAIT_S" "$DUALRAIL" demo -g 9999 --memory host -q
	[ "$status" -eq 2 ]
	[[ $output == *"no such GPU: 9999"* ]]
	run timeout "$WAIT_S" "$DUALRAIL" topo -g 9999
	[ "$status" -eq 2 ]
	[[ $output == *"no such GPU: 9999"* ]]
}

@test "a client without -g uses as many GPUs as the server names" {
	server -g 0-1
	short 127.0.0.1 --port "$port"
	[ "$status" -eq 0 ]
	holds c.json '[.bandwidth[].gpu] | sort == [0, 1]'
	short 127.0.0.1 --port "$port" -g 0
	[ "$status" -eq 3 ]
	[[ $output == *"lists of equal length"* ]]
}

# refused STATUS OPTIONS...: the client is refused with this status, and the server still runs.
refused() {
	short "127.0.0.1:$port" -q "${@:2}"
	[ "$status" -eq "$1" ] && kill -0 "$server"
}

@test "server -1 serves the first client that it does not refuse, whatever it refuses the others for" {
	echo 0123456789abcdef0123456789abcdef >key
	chmod 600 key
	server -1 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2 --json=s.json
	refused 3 -g 0,1
	refused 3 -g 0 --key-file key
	refused 2 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2,lo@127.0.0.3
	refused 2 -g 0 --test failover --fault close:path=0,side=server --allow-faults
	grep -q 'refused: .*; waiting for another client (--one-off)' server.err
	short "127.0.0.1:$port" -g 0
	[ "$status" -eq 0 ]
	ends "$server" 0
	holds s.json '.exit_code == 0'
}

@test "server -1 --json: one document on standard output, however many clients were refused before" {
	server -1 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2 --json
	refused 3 -g 0,1
	refused 2 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2,lo@127.0.0.3
	refused 2 -g 0 --test failover --fault close:path=0,side=server --allow-faults
	short "127.0.0.1:$port" -g 0
	[ "$status" -eq 0 ]
	ends "$server" 0
	holds server.out '.exit_code == 0 and .errors == []'
	[ "$(jq -s length server.out)" -eq 1 ]
	server -1 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2 --json
	refused 2 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2,lo@127.0.0.3
	kill -TERM "$server"
	ends "$server" 143
	[ "$(jq -s length server.out)" -eq 1 ]
	holds server.out '.exit_code == 143 and (.errors | length) == 1'
}

@test "--min-bw 50% without a known line rate: status 2 before the run, and what to give instead" {
	server
	short "127.0.0.1:$port" --min-bw 50% -D 60s
	[ "$status" -eq 2 ]
	[[ $output == *"--min-bw 50%"*"(lo) reports its speed"*"--min-bw in Gb/s, or use --baseline"* ]]
	holds c.json '.bandwidth == [] and .errors[0].exit_code == 2'
	short "127.0.0.1:$port" --min-bw 0.001 --save-baseline base.json
	[ "$status" -eq 0 ]
	# With a baseline it is a share of that.
	short "127.0.0.1:$port" --baseline base.json --min-bw 1%
	[ "$status" -eq 0 ]
}

@test "client HOST:PORT, [V6]:PORT; a port that is none, or differs from --port, is an error" {
	server
	short "127.0.0.1:$port"
	[ "$status" -eq 0 ]
	short "127.0.0.1:$port" --port "$port"
	[ "$status" -eq 0 ]
	if [[ -e /proc/sys/net/ipv6 ]] && ip -6 addr show lo | grep -q ::1; then
		short "[::1]:$port" --rails lo@127.0.0.1,lo@127.0.0.2
		[ "$status" -eq 0 ]
	fi
	run timeout "$WAIT_S" "$DUALRAIL" doctor "127.0.0.1:$port" --memory host --json=d.json
	holds d.json '.findings | any(.check == "peer" and .severity == "ok")'
	local host
	for host in 127.0.0.1: 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:http "[::1]:x"; do
		short "$host"
		[ "$status" -eq 1 ]
		[[ $output == *"is not a port"* ]]
	done
	short 127.0.0.1:7 --port "$port"
	[ "$status" -eq 1 ]
	[[ $output == *"different ports"* ]]
}

@test "a client that waits for its server says so; -q does not" {
	free_port
	start client "$DUALRAIL" client "127.0.0.1:$port" --memory host -g 0 -N 1 -s 64K -D 100ms
	client=$pid
	wait_for grep -q "waiting for a server on 127.0.0.1, port $port, for up to 30s" client.err
	start server "$DUALRAIL" server --memory host --port "$port" -1
	ends "$client" 0
	ends "$pid" 0
	short "127.0.0.1:$port" -q --connect-timeout 2s
	[ "$status" -eq 3 ]
	[[ $output != *waiting* ]]
	server
	short "127.0.0.1:$port"
	[[ $output != *waiting* ]]
}
