#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a new user types first, over the loopback; no root needed.

load usual

# server OPTIONS...: with its defaults otherwise.
server() {
	free_port
	start server "$DUALRAIL" server --memory host --port "$port" "$@"
	wait_for grep -q listening server.err
}

# client HOST OPTIONS...: a short run.
short() {
	run timeout "$WAIT_S" "$DUALRAIL" client "$1" --memory host -N 1 -s 64K -D 100ms --json=c.json "${@:2}"
}

@test "client -g 0 against a server without -g: the server uses one GPU" {
	server
	gives 0 short 127.0.0.1 --port "$port" -g 0
	holds c.json '[.bandwidth[].gpu] == [0]'
	gives 0 short 127.0.0.1 --port "$port" -g 5,2
	holds c.json '[.bandwidth[].gpu] | sort == [2, 5]'
	run timeout "$WAIT_S" "$DUALRAIL" doctor 127.0.0.1 --port "$port" --memory host -g 0 --json=d.json
	holds d.json '.findings | any(.check == "peer-gpus" and .severity == "ok")'
	# What it does not have it cannot use.
	gives 3 short 127.0.0.1 --port "$port" -g 0-8
	[[ $output == *"client has 9"*"server 8"*"-g"* ]]
}

@test "-g 9999: status 2 at once, says how many GPUs there are and that they are emulated" {
	local list
	for list in 9999 0,32 65000 9999999; do
		run -2 timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 -g "$list" --memory host -q
		[[ $output == *"no such GPU: ${list#0,}; with --memory host there are 32 GPUs, emulated in host memory: use 0 to 31"* ]]
	done
	run -2 timeout "$WAIT_S" env DR_LIBCUDA=/no/such/libcuda.so "$DUALRAIL" server -g 9999
	[[ $output == *"no such GPU: 9999; without a CUDA GPU there are 32 GPUs, emulated"* ]]
	run -2 timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 -g 99999999999 -q
	[[ $output == *"no such GPU: 99999999999; "* ]]
	tells 2 "no such GPU: 9999" timeout "$WAIT_S" "$DUALRAIL" demo -g 9999 --memory host -q
	tells 2 "no such GPU: 9999" timeout "$WAIT_S" "$DUALRAIL" topo -g 9999
}

@test "a client without -g uses as many GPUs as the server names" {
	server -g 0-1
	gives 0 short 127.0.0.1 --port "$port"
	holds c.json '[.bandwidth[].gpu] | sort == [0, 1]'
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
	gives 0 short "127.0.0.1:$port" -g 0
	ends "$server" 0
	holds s.json '.exit_code == 0'
}

@test "server -1 --json: one document on standard output, however many clients were refused before" {
	server -1 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2 --json
	refused 3 -g 0,1
	refused 2 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2,lo@127.0.0.3
	refused 2 -g 0 --test failover --fault close:path=0,side=server --allow-faults
	gives 0 short "127.0.0.1:$port" -g 0
	ends "$server" 0
	holds server.out '.exit_code == 0 and .errors == []'
	[ "$(jq -s length server.out)" -eq 1 ]
	server -1 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2 --json
	refused 2 -g 0 --rails lo@127.0.0.1,lo@127.0.0.2,lo@127.0.0.3
	stop server
	[ "$(jq -s length server.out)" -eq 1 ]
	holds server.out '.exit_code == 143 and (.errors | length) == 1'
}

@test "--min-bw 50% without a known line rate: status 2 before the run, and what to give instead" {
	server
	gives 2 short "127.0.0.1:$port" --min-bw 50% -D 60s
	[[ $output == *"--min-bw 50%"*"(lo) reports its speed"*"--min-bw in Gb/s, or use --baseline"* ]]
	holds c.json '.bandwidth == [] and .errors[0].exit_code == 2'
	# The run that makes the baseline has nothing to compare with.
	gives 0 short "127.0.0.1:$port" --min-bw 50% --save-baseline base.json
	# With a baseline it is a share of that.
	gives 0 short "127.0.0.1:$port" --baseline base.json --min-bw 1%
}

@test "client HOST:PORT, [V6]:PORT; a port that is none, or differs from --port, is an error" {
	server
	gives 0 short "127.0.0.1:$port"
	gives 0 short "127.0.0.1:$port" --port "$port"
	if [[ -e /proc/sys/net/ipv6 ]] && ip -6 addr show lo | grep -q ::1; then
		gives 0 short "[::1]:$port" --rails lo@127.0.0.1,lo@127.0.0.2
	fi
	run timeout "$WAIT_S" "$DUALRAIL" doctor "127.0.0.1:$port" --memory host --json=d.json
	holds d.json '.findings | any(.check == "peer" and .severity == "ok")'
	local host
	for host in 127.0.0.1: 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:http "[::1]:x"; do
		tells 1 "is not a port" short "$host"
	done
	tells 1 "different ports" short 127.0.0.1:7 --port "$port"
}

@test "a client that waits for its server says so; -q does not" {
	free_port
	start client "$DUALRAIL" client "127.0.0.1:$port" --memory host -g 0 -N 1 -s 64K -D 100ms
	wait_for grep -q "waiting for a server on 127.0.0.1, port $port, for up to 30s" client.err
	start server "$DUALRAIL" server --memory host --port "$port" -1
	ends "$client" 0
	ends "$pid" 0
	gives 3 short "127.0.0.1:$port" -q --connect-timeout 2s
	[[ $output != *waiting* ]]
	server
	short "127.0.0.1:$port"
	[[ $output != *waiting* ]]
}
