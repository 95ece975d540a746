#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Injected faults are undone, whichever processes are killed while one is held. Every fault lasts 60 s or longer, so
# nothing here waits for its regular end.
# check.sh: address

load usual

setup() {
	common_setup
	two_rails
}

# holding SIDE OPTIONS...: a client in A that holds rail0 of that side down.
holding() {
	local net=$A
	[[ $1 == client ]] || net=$B
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover --key-file key \
		--allow-faults --fault link-down:path=0,side="$1",at=100ms,for=60s "${@:2}"
	wait_for is_down "$net" rail0
}

guard_of() {
	pgrep -P "$1" -x dualrail-guard
}

@test "SIGKILL of the client's guard: undone at once, the run ends with 2, the server serves the next" {
	new_key key
	server_in_b --allow-faults --key-file key
	holding client --json=c.json
	kill -9 "$(guard_of "$client")"
	judge_status 100 2 "$client"
	has_lower_up "$A" rail0
	whole c.json
	holds c.json '.errors[0].text | test("^the fault guard .* died; its faults were undone$")'
	holding client
	stop client INT
	has_lower_up "$A" rail0
}

@test "SIGKILL of the server's guard: undone at once, both ends record 2, the next run has another guard" {
	new_key key
	server_in_b --allow-faults --key-file key --json=s.json
	holding server --json=c.json
	kill -9 "$(guard_of "$server")"
	wait_for has_lower_up "$B" rail0
	judge_status 100 2 "$client"
	whole c.json
	holds c.json '.errors[0].text | test("^server .*: the fault guard .* died; its faults were undone$")'
	wait_for test -s s.json
	holds s.json '.exit_code == 2'
	holding server
	stop client INT
	wait_for has_lower_up "$B" rail0
}

keeper_of() {
	pgrep -P "$1" -x dualrail-keeper
}

@test "SIGKILL of the server's keeper: its guard undoes at once, both ends record 2, the server injects no more" {
	new_key key
	server_in_b --allow-faults --key-file key
	holding server --json=c.json
	kill -9 "$(keeper_of "$server")"
	wait_for has_lower_up "$B" rail0
	judge_status 100 2 "$client"
	holds c.json '.errors[0].text | test("^server .*: the fault guard .* died; its faults were undone$")'
	wait_for grep -q 'this server injects no faults until it is started again' server.err
	gives 0 in_a client 10.99.255.2 -q -D 100ms -g 0 --key-file key
}

@test "SIGKILL of the server's guard and keeper: both ends say that the fault stays and end with 2; a start undoes it" {
	local guard
	new_key key
	server_in_b --allow-faults --key-file key
	holding server --json=c.json
	guard=$(guard_of "$server")
	kill -STOP "$guard" # it must not undo
	kill -9 "$(keeper_of "$server")" "$guard"
	judge_status 100 2 "$client"
	holds c.json '.errors[0].text | test("^server .*: the fault guard .* died, and a fault could not be undone; run .dualrail doctor. as root: ")'
	ends "$server" 2
	grep 'could not be undone; run .dualrail doctor. as root' server.err
	is_down "$B" rail0
	run timeout "$WAIT_S" ip netns exec "$B" "$DUALRAIL" doctor --repair
	((status == 0))
	has_lower_up "$B" rail0
}

@test "SIGKILL of the client's guard and keeper: the run says that the fault stays and ends with 2" {
	local guard
	new_key key
	server_in_b --key-file key
	holding client --json=c.json
	guard=$(guard_of "$client")
	kill -STOP "$guard"
	kill -9 "$(keeper_of "$client")" "$guard"
	judge_status 100 2 "$client"
	holds c.json '.errors[0].text | test("^the fault guard .* died, and a fault could not be undone; run .dualrail doctor. as root: ")'
	repaired
}

@test "a command is not told the control NIC; --fault-nics and one hour bound what a client may ask for" {
	new_key key
	server_in_b --allow-faults --key-file key --fault-nics rail1
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
	refused "server 10.99.255.2:20000: --fault link-down: refused: it lasts 3601 s (for=), and the longest fault lasts 3600 s" \
		--fault link-down:nic=rail1,side=server,for=3601s
	has_lower_up "$B" rail0
	has_lower_up "$B" rail1
}

# in_a COMMAND...: dualrail in A, its output in $output.
in_a() {
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" "$@"
}

# repaired: the link is down until `doctor --repair`, which says what it undid, and has nothing to do afterwards.
repaired() {
	is_down "$A" rail0
	gives 2 in_a doctor --repair --dry-run
	[[ $output == *"fail  leftover     rail0"*"the fault link-down of a killed run is still active"* ]]
	gives 0 in_a doctor --repair
	[[ $output == *"note  leftover     rail0"*"undid the fault link-down of a killed run"* ]]
	has_lower_up "$A" rail0
	in_a doctor --repair
	[[ $output == *"ok    leftover "* ]]
}

@test "doctor names a fault that is held, and by whom; after SIGKILL of client and guard it is undone by doctor --repair" {
	local guard
	new_key key
	server_in_b --key-file key
	holding client
	gives 0 in_a doctor --repair
	[[ $output == *"note  fault        rail0"*"link-down is active since "*", held by dualrail ($client)"* ]]
	[[ $output == *"ok    leftover "* ]]
	is_down "$A" rail0
	guard=$(guard_of "$client")
	kill -STOP "$client" # it must not repair
	kill -9 "$guard" "$client"
	ends "$client" 137
	repaired
}

@test "a command of a killed run is undone by who defines its name, not by what the record says" {
	local guard keeper
	new_key key
	server_in_b --key-file key
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover --key-file key \
		--allow-faults --fault-exec "mark=touch made,rm made" --fault exec=mark:path=0,at=100ms,for=60s
	wait_for test -e made
	guard=$(guard_of "$client") keeper=$(keeper_of "$client")
	kill -STOP "$client" "$keeper"
	kill -9 "$guard" "$keeper" "$client"
	ends "$client" 137
	gives 2 in_a doctor --repair
	[[ $output == *"the fault exec of a killed run cannot be undone: 'mark' is not defined on this end; add --fault-exec mark=CMD,UNDO"* ]]
	gives 1 grep -a "rm made" /run/dualrail/fault-*-exec-mark
	[ -e made ]
	gives 0 in_a doctor --repair --fault-exec "mark=true,mv made undone"
	[[ $output == *"undid the fault exec of a killed run"* ]]
	[ -e undone ]
}

@test "SIGKILL of the whole PID namespace: undone by the next start, or by doctor --repair" {
	new_key key
	server_in_b --key-file key
	for undo in start repair; do
		start client ip netns exec "$A" unshare --pid --fork --kill-child "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" \
			--test failover --key-file key --allow-faults --fault link-down:path=0,at=100ms,for=60s
		wait_for is_down "$A" rail0
		in_a doctor --repair
		[[ $output == *"held by a dualrail of another PID namespace"* ]]
		# The first process closes its sockets before the kernel kills the others: the guard could be faster.
		kill -STOP "$(guard_of "$(pgrep -P "$client")")"
		stop client KILL
		wait_for leftover
		[ "$undo" = start ] || repaired
		[ "$undo" = repair ] || in_a client 10.99.255.2 -q -D 100ms -g 0 --key-file key
		has_lower_up "$A" rail0
	done
}

# leftover: nobody holds a fault in A any more, and one is there.
leftover() {
	gives 2 in_a doctor --repair --dry-run
}

@test "SIGKILL of the client's process group: its guard undoes the fault" {
	new_key key
	server_in_b --key-file key
	start client setsid ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover \
		--key-file key --allow-faults --fault link-down:path=0,at=100ms,for=60s
	wait_for is_down "$A" rail0
	kill -9 -- "-$client"
	ends "$client" 137
	wait_for has_lower_up "$A" rail0
}

# cgroup: a new one, in $group, all of whose processes can be killed at once; skips the test where there is none.
cgroup() {
	local root
	root=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)
	[[ $root ]] || skip "there is no cgroup v2 here"
	group=$root/dr$BASHPID
	mkdir "$group" 2>/dev/null || skip "a cgroup cannot be made here"
	[[ -e $group/cgroup.kill ]] || {
		rmdir "$group"
		skip "cgroup.kill needs Linux 5.14"
	}
}

@test "the whole cgroup of the client killed, its guard too: undone by doctor --repair" {
	local group
	cgroup
	new_key key
	server_in_b --key-file key
	# shellcheck disable=SC2016 # for that shell
	start client bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 \
		"${SMALL[@]}" --test failover --key-file key --allow-faults --fault link-down:path=0,at=100ms,for=60s
	wait_for is_down "$A" rail0
	echo 1 >"$group/cgroup.kill"
	ends "$client" 137
	wait_for rmdir "$group"
	wait_for leftover
	repaired
}
