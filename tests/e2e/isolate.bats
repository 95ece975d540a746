#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `--isolate on`: each device of a network plugin of NCCL in a process of its own. What happens to that process is one NIC's
# failure, and nothing of it is left.
# shellcheck disable=SC2154,SC2030,SC2031 # set and used by lib.bash; tests are subshells

# bats file_tags=one-thread,nightly
setup() {
	load lib
	common_setup
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces: on loopback both rails are one device"
	ha=$DR_BUILD/libnccl-net-ha.so
	fake=$DR_BUILD/tests/plugins/libnccl-net-fake.so
	unset "${!HA_NCCL_@}" "${!NCCL_@}" "${!FAKENET@}"
	export NCCL_DYNAMIC_CHUNK_SIZE=524288
	FILE=$PWD/result.json
}

teardown() {
	common_teardown
}

# over PLUGIN [OPTIONS...]: the demo, in the background.
over() {
	start client "$DUALRAIL" demo -g 0-1 -N 2 -s 1M -w 0 --memory host --transport "nccl:$1" --isolate on --verify \
		-i 100ms --json="$FILE" "${@:2}"
	demo=$pid
}

# of NAME: the processes of this test with that name. They are forked, so that their command line is the program's.
of() {
	local p
	for p in $(pgrep -f "json=$FILE"); do
		[[ $(cat "/proc/$p/comm" 2>/dev/null) != "$1" ]] || echo "$p"
	done
}

all_four() {
	[[ $(of dualrail-plugin | wc -l) == 4 ]]
}

kill_one() {
	kill -KILL "$(of dualrail-plugin | head -n 1)"
}

nobody() {
	! pgrep -f "json=$FILE" >/dev/null
}

shut() {
	if wait_for nobody; then return; fi
	pgrep -af "json=$FILE"
	return 1
}

# survives BUG TEXT: one process has the bug of tests/plugins/net/bugs.h once. The run goes on over the other NIC, every
# byte is right, and a line says what happened.
survives() {
	touch once
	FAKENET_ONCE=$PWD/once FAKENET_BUGS=$1 over "$fake" --test bw -D 1s -v
	ends "$demo" 0
	[[ ! -e once ]]
	clean "$FILE"
	holds "$FILE" '.integrity.chunks > 0 and .status == "pass"'
	grep -q "the process of plugin FakeSocket has ended: it $2" client.err
	shut
}

@test "a plugin that crashes, exits or hangs in a call costs a NIC for a moment, and the run goes on" {
	survives crash:isend@200 'crashed in isend'
	holds "$FILE" '.unexpected_switches > 0'
	survives exit:test@2000 'called exit in test'
	survives hang:isend@200 'was ended to fence its buffers'
	holds "$FILE" '.unexpected_switches > 0'
	survives crash:accept 'crashed in accept'
	survives exit:regMr 'called exit in regMr'
}

@test "the plugin's process is killed, and the program is: nothing hangs, and nothing is left" {
	over "$fake" --test bw -D 5s
	wait_for flowing
	# On a busy machine a process may have been ended just now, and its channels may be on the other NIC.
	wait_for kill_one
	ends "$demo" 0
	clean "$FILE"
	holds "$FILE" '.status == "pass"'
	grep -q 'it ended by signal 9 (Killed); it is started again' client.err
	shut
	over "$fake" --test bw -D 60s
	wait_for flowing
	wait_for all_four
	kill -KILL "$demo"
	shut
}

# cut PERSONALITY
cut() {
	watch
	FAKENET=$1 over "$fake" --test failover -D 500ms --hold-down 200ms -v \
		--fault link-down:path=0,at=100ms,for=300ms --fault blackhole:path=0,at=100ms,for=300ms
	judge_status 100 0 "$demo"
	clean "$FILE"
	judge 100 holds "$FILE" '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0)'
	shut
}

@test "a link that goes down and one that falls silent: the process is ended, and comes back" {
	cut socket
}

@test "the same with a plugin that leaves data in pieces" {
	cut pieces
}

@test "the project's own plugin, with latency, in both directions" {
	HA_NCCL_ENABLE_BACKUP=0 over "$ha" --test bw,lat -D 500ms --bidir
	ends "$demo" 0
	clean "$FILE"
	holds "$FILE" '.integrity.chunks > 0 and all(.bandwidth[]; .gbps > 0) and all(.latency[]; .samples > 0)'
	shut
}

# refused STATUS TEXT COMMAND...
refused() {
	run timeout "$WAIT_S" "${@:3}"
	echo "$output"
	[[ $status == "$1" && $output == *"$2"* ]]
	shut
}

@test "what cannot start ends with its status and one cause" {
	local demo=("$DUALRAIL" demo -g 0 -q --memory host --isolate on --json="$FILE" --connect-timeout 3s)
	FAKENET_BUGS=exit:init refused 2 'has ended at its start: it called exit in init' "${demo[@]}" --transport "nccl:$fake"
	FAKENET_BUGS=crash:devices refused 2 'has ended at its start: it crashed in devices' "${demo[@]}" --transport "nccl:$fake"
	FAKENET_BUGS=error:init refused 2 'init of plugin FakeSocket returned 3' "${demo[@]}" --transport "nccl:$fake"
	FAKENET_BUGS=exit:listen refused 2 'plugin FakeSocket cannot listen on device' "${demo[@]}" --transport "nccl:$fake"
	FAKENET_BUGS=crash:isend refused 3 'it crashed in isend' "${demo[@]}" --transport "nccl:$fake"
	refused 2 'cannot be loaded' "${demo[@]}" --transport nccl:/etc/passwd
	FAKENET=pieces refused 2 '--unpack kernel needs data buffers in GPU memory' "${demo[@]}" --transport "nccl:$fake" --unpack kernel
}

# bats test_tags=release,nightly
@test "a plugin that does not come back from its start is given up" {
	FAKENET_BUGS=hang:init refused 2 'has not come up in its process within 10 s' "$DUALRAIL" demo -g 0 -q --memory host \
		--isolate on --json="$FILE" --transport "nccl:$fake"
}

@test "doctor tries the plugin in a process" {
	run timeout "$WAIT_S" "$DUALRAIL" doctor --transport "nccl:$fake" --isolate on --json="$FILE"
	echo "$output"
	[[ $output == *"of plugin FakeSocket, interface v12"* ]]
	FAKENET_BUGS=crash:init run timeout "$WAIT_S" "$DUALRAIL" doctor --transport "nccl:$fake" --isolate on --json="$FILE"
	echo "$output"
	[[ $status != 134 && $output == *"it crashed in init"* ]]
	shut
}
