#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The power of a node is cut while a fault is held: of the client, whose server holds one for it, and of the node that holds
# one itself. TRIALS=n repeats each.

load usual

setup_file() {
	[[ ${LAB_BUSY-} ]] || install_dualrail
}

setup() {
	[[ -z ${LAB_BUSY-} ]] || skip "boots a guest again, which takes a minute; make check-lab runs it"
	verbs_setup
}

teardown() {
	[[ -z ${LAB_BUSY-} ]] || return 0
	[[ ! -e $(lab share)/../power.0 ]] || lab power 0 on
	common_teardown
}

is_up() {
	lab run "$1" ip link show "$2" | grep -q 'LOWER_UP'
}

is_down() {
	! lab run "$1" ip link show "$2" | grep -q '[<,]UP[,>]'
}

no_fault() {
	[[ $(lab run "$1" "$DR/bin/dualrail" doctor --repair --dry-run) == *"ok    leftover"* ]]
}

# One server for all trials: the lab ends what runs longer than WAIT_S.
serve() {
	WAIT_S=$((WAIT_S * (1 + ${TRIALS:-1}))) start server 1 "$DR/bin/dualrail" server -g 0 --rails nic0,nic1 \
		--allow-faults --key-file "$DR/key" --timeout 10s
}

# cut SIDE GUEST: the fault is held in that guest, and the client's power is cut.
cut() {
	start client 0 "$DR/bin/dualrail" client 10.77.0.2 -g 0 -N 1 -s 64K --rails nic0,nic1 --heartbeat 100ms --key-file "$DR/key" \
		--test failover --allow-faults --warmup 0 --fault "link-down:path=0,side=$1,at=0,for=600s"
	wait_for is_down "$2" nic0 || {
		tail -n 5 client.out client.err server.out server.err
		return 1
	}
	lab power 0 off
	kill "$client"
	wait "$client" || :
}

again() {
	lab power 0 on
	install_dualrail
	wait_for is_up 0 nic0
	wait_for is_up 1 nic0
	no_fault 0
	no_fault 1
	wait_for lab check
}

@test "a client's node loses power: the server undoes the fault that it holds for it, and serves on" {
	serve
	for ((i = 0; i < ${TRIALS:-1}; i++)); do
		cut server 1
		wait_for is_up 1 nic0
		again
	done
}

@test "the node that holds a fault loses power: after its next boot the link is up and nothing is left" {
	serve
	for ((i = 0; i < ${TRIALS:-1}; i++)); do
		cut client 0
		again
	done
}
