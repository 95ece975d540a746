#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Connections of strangers beside runs over the loopback: needs no privilege. Strangers come from 127.0.0.2.
# check.sh: address

load usual

# flood NAME MODE COUNT SECONDS PORT...: in the background, and waits until it has begun.
flood() {
	local name=$1
	shift
	mkfifo "$name.hold"
	"$DR_BUILD/tests/flood/flood_main" "${@:1:3}" 127.0.0.2 127.0.0.1 "${@:4}" <>"$name.hold" >"$name.out" 2>"$name.err" 3>&- &
	pid=$!
	pids+=("$pid")
	wait_for grep -q flooding "$name.out"
}

descriptors() {
	local all=("/proc/$server/fd/"*)
	echo "${#all[@]}"
}

# Ports of the server's TCP listeners, data included.
server_ports() {
	ss -Htlnp | awk -v s="pid=$server," 'index($0, s) { sub(".*:", "", $4); print $4 }' | sort -u
}

@test "a flood of garbage on every port beside a run: it passes, and the server's descriptors are bounded" {
	local most=0 base n ports
	start_server --verbose=0
	under_way start_client -D 2s --verify --json=c.json
	base=$(descriptors)
	mapfile -t ports < <(server_ports)
	[ "${#ports[@]}" -ge 3 ]
	flood strangers garbage 30000 8 "${ports[@]}"
	while kill -0 "$client" 2>/dev/null; do
		n=$(descriptors)
		most=$((n > most ? n : most))
	done
	ends "$client" 0
	clean c.json
	# Pending ones of one source, and some between accept and close.
	echo "descriptors: $base before, at most $most"
	[ "$most" -le $((base + 64 + 16)) ]
	gives 0 client -D 100ms -q
	grep -q 'rejected connection from 127.0.0.2' server.err
	[ "$(wc -l <server.err)" -lt 2000 ]
}

@test "hundreds of silent and half connections: the next clients are served, and descriptors are bounded" {
	local base
	start_server --verbose=0
	base=$(descriptors)
	flood silent silent 300 20 "$port"
	flood half half 300 20 "$port"
	gives 0 client -D 100ms -q --connect-timeout 10s
	gives 0 client -D 100ms -q --connect-timeout 10s
	wait_for grep -q opened silent.out
	wait_for grep -q opened half.out
	[ "$(descriptors)" -le $((base + 64 + 8)) ]
	grep -q 'too many pending connections of this address' server.err
}

@test "few descriptors: those for data are kept free of strangers" {
	free_port
	# shellcheck disable=SC2016 # for that bash
	start server bash -c 'ulimit -n 128 && exec "$0" "$@"' "$DUALRAIL" server -g 0-1 --port "$port" --verbose=0
	wait_for grep -q listening server.err
	flood strangers silent 500 10 "$port"
	wait_for grep -q opened strangers.out
	[ "$(descriptors)" -le 100 ]
	gives 0 client -D 200ms --verify -q
	gives 0 client -D 100ms -q
}

@test "--allow-from: others are refused, counted and logged" {
	local base
	start_server --verbose=0 --allow-from 127.0.0.1,10.0.0.0/8,::1
	base=$(descriptors)
	flood strangers silent 300 20 "$port"
	wait_for grep -q opened strangers.out
	[ "$(descriptors)" -le $((base + 2)) ]
	gives 0 client -D 100ms -q
	grep -q 'rejected connection from 127.0.0.2:.* not in the networks of --allow-from (1 so far)' server.err
	[ "$(grep -c 'not in the networks' server.err)" -lt 100 ]
	run -1 "$DUALRAIL" server -g 0 --allow-from 10.0.0.1/8
	[[ $output == *"--allow-from"*"bits behind the prefix"* ]]
}

refused_for_memory() {
	gives 2 client -D 100ms --window 16 --chunk 1M -s 1M
	[[ $output == *"needs 65.0 MiB for channels at the server, which allows 16.0 MiB"*"--max-memory"* ]]
}

@test "--max-memory: a client cannot reserve more" {
	start_server --verbose=0 --max-memory 16M
	refused_for_memory
	# Small messages, many channels.
	gives 2 client -D 100ms --channels 64 --window 1 --chunk 64 -s 64
	[[ $output == *"needs 32.5 MiB for channels"* ]]
	gives 0 client -D 100ms --window 4
}

@test "--max-session: a client cannot stay longer, and the next one is answered" {
	start_server --verbose=0 --max-memory 16M --max-session 500ms --json=s.json
	tells 5 "the limit of the server (--max-session)" client -D 600s --window 4 --json=c.json
	wait_for holds s.json '.exit_code == 5'
	refused_for_memory
}
