#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Injected faults are undone, whichever processes are killed while one is held. Every fault lasts 60 s or longer, so
# nothing here waits for its regular end.
# shellcheck disable=SC2154 # set by lib.bash

load lib

setup() {
	common_setup
	two_rails
}

teardown() {
	common_teardown
	validated
}

has_lower_up() {
	ip -n "$1" link show "$2" | grep -q LOWER_UP
}

is_down() {
	! ip -n "$1" link show "$2" | grep -q '[<,]UP[,>]'
}

key() {
	head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >key
	chmod 600 key
}

server_in_b() {
	start server ip netns exec "$B" "$DUALRAIL" server -g 0-1 "$@"
	server=$pid
	wait_for grep -q 'listening on port' server.err
}

# holding SIDE OPTIONS...: a client in A that holds rail0 of that side down.
holding() {
	local net=$A
	[[ $1 == client ]] || net=$B
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover --key-file key \
		--allow-faults --fault link-down:path=0,side="$1",at=100ms,for=60s "${@:2}"
	client=$pid
	wait_for is_down "$net" rail0
}

guard_of() {
	pgrep -P "$1" -x dualrail-guard
}

@test "SIGKILL of the client's guard: undone at once, the run ends with 2, the server serves the next" {
	key
	server_in_b --allow-faults --key-file key
	holding client --json=c.json
	kill -9 "$(guard_of "$client")"
	ends "$client" 2
	has_lower_up "$A" rail0
	whole c.json
	holds c.json '.errors[0].text | test("^the fault guard .* died; its faults were undone$")'
	holding client
	kill -INT "$client"
	ends "$client" 130
	has_lower_up "$A" rail0
}

@test "SIGKILL of the server's guard: undone at once, both ends record 2, the next run has another guard" {
	key
	server_in_b --allow-faults --key-file key --json=s.json
	holding server --json=c.json
	kill -9 "$(guard_of "$server")"
	wait_for has_lower_up "$B" rail0
	ends "$client" 2
	whole c.json
	holds c.json '.errors[0].text | test("^server .*: the fault guard .* died; its faults were undone$")'
	wait_for test -s s.json
	holds s.json '.exit_code == 2'
	holding server
	kill -INT "$client"
	ends "$client" 130
	wait_for has_lower_up "$B" rail0
}

@test "a command is not told the control NIC; --fault-nics and --fault-max-for bound what a client may ask for" {
	key
	server_in_b --allow-faults --key-file key --fault-nics rail1 --fault-max-for 20s
	refused() {
		run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover --key-file key \
			--allow-faults "${@:2}"
		[ "$status" -eq 2 ]
		[[ $output == *"$1"* ]]
	}
	refused "--fault exec: ctl0 refused: the control connection needs that device" --rails ctl0,rail1 \
		--fault-exec "mark=touch told,rm -f told" --fault exec=mark:nic=ctl0
	[ ! -e told ]
	refused "--fault exec: refused: rail1 is not in --fault-nics rail0 of this end" --fault-nics rail0 \
		--fault-exec "mark=touch told,rm -f told" --fault exec=mark:nic=rail1
	refused "server 10.99.255.2:20000: --fault link-down: refused: rail0 is not in --fault-nics rail1 of this end" \
		--fault link-down:path=0,side=server
	refused "server 10.99.255.2:20000: --fault link-down: refused: it lasts 21.0 s (for=), and the --fault-max-for of this end is 20.0 s" \
		--fault link-down:nic=rail1,side=server,for=21s
	has_lower_up "$B" rail0
	has_lower_up "$B" rail1
}
