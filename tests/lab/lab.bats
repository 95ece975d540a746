#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The lab itself: what the tests of verbs take for granted.

setup() {
	load lib
	common_setup
}

teardown() {
	common_teardown
}

# none_runs GUEST NAME
none_runs() {
	[[ ! $(lab run "$1" pgrep -x "$2") ]]
}

@test "commands: output, error output, exit status and arguments come through; time is limited" {
	rc=0
	lab run 1 sh -c 'echo out; echo err >&2; exit 7' >out 2>err || rc=$?
	[ "$rc" -eq 7 ]
	[ "$(cat out)" = out ]
	[ "$(cat err)" = err ]
	[ "$(lab run 0 printf '%s|' 'a  b' "it's" '*' '')" = "a  b|it's|*||" ]
	[ "$(lab run 0 head -c 3000000 /dev/zero | wc -c)" -eq 3000000 ]
	rc=0
	lab run -t 1 0 sleep 100 || rc=$?
	[ "$rc" -eq 124 ]
	wait_for none_runs 0 sleep
}

@test "commands in both guests at once; files in and out" {
	start one 1 sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; hostname'
	one=$pid
	date >file
	lab put both file /tmp/lab-test
	lab put 1 file /tmp/go
	ends "$one" 0
	[ "$(cat one.out)" = node1 ]
	lab get 0 /tmp/lab-test/file back
	cmp file back/file
	lab run both rm -rf /tmp/lab-test /tmp/go
}

@test "four rails: devices, MTU 4096, a GID with the address, packets both ways" {
	for g in 0 1; do
		for n in 0 1 2 3; do
			lab run "$g" ibv_devinfo -d "rxe$n" >info
			grep -q 'state:.*PORT_ACTIVE' info
			grep -q 'active_mtu:.*4096' info
			lab run "$g" sh -c "cat /sys/class/infiniband/rxe$n/ports/1/gids/*" >gids
			grep -q "0000:0000:0000:0000:0000:ffff:c0a8:$(printf %02x $((100 + n)))0$((g + 1))" gids
		done
		lab run "$g" ibv_devices >devices
		[ "$(grep -c 'rxe[0-3]' devices)" -eq 4 ]
	done
	lab check
}

@test "ib_write_bw over each rail, with data on that rail alone" {
	for n in 0 1 2 3; do
		before=$(lab run 0 cat "/sys/class/net/nic$n/statistics/tx_bytes")
		start server 1 ib_write_bw -d "rxe$n" -x "$(lab gid 1 "rxe$n")" -F -s 65536 -n 200
		wait_for listens 1 18515
		lab run 0 ib_write_bw -d "rxe$n" -x "$(lab gid 0 "rxe$n")" -F -s 65536 -n 200 "10.77.0.2" >bw
		ends "$server" 0
		awk '$1 == 65536 { exit !($4 > 0) }' bw
		after=$(lab run 0 cat "/sys/class/net/nic$n/statistics/tx_bytes")
		[ $((after - before)) -ge $((200 * 65536)) ]
	done
}

# listens GUEST PORT
listens() {
	[[ $(lab run "$1" ss -Hltn "sport = :$2") ]]
}

watching() {
	grep -q 'async event FD' events.out
}

@test "link down outside: carrier and port go on that side alone, with events, and come back" {
	start events 0 stdbuf -oL ibv_asyncwatch -d rxe1
	wait_for watching
	lab link 0 nic1 down
	wait_for carrier 0 nic1 0
	wait_for port_state 0 rxe1 DOWN
	wait_for grep -q IBV_EVENT_PORT_ERR events.out
	carrier 1 nic1 1
	port_state 1 rxe1 ACTIVE
	run -1 lab check
	[[ $output == *"nic1: no answer"* ]]
	lab link 0 nic1 up
	wait_for carrier 0 nic1 1
	wait_for port_state 0 rxe1 ACTIVE
	wait_for grep -q IBV_EVENT_PORT_ACTIVE events.out
	lab check
}

@test "the switch forgets a port: silence, no loss of carrier; the receiver's cut does not hold the sender up" {
	lab port 1 nic2 off
	run -1 lab check
	[[ $output == *"nic2: no answer"* ]]
	carrier 0 nic2 1
	carrier 1 nic2 1
	lab port 1 nic2 on
	lab check
	lab run 1 ip link set nic2 down
	before=$(lab run 0 cat /sys/class/net/nic2/statistics/tx_packets)
	# The neighbour is known: packets leave although nobody fetches them.
	lab run 0 sh -c 'ip neigh replace 192.168.102.2 lladdr 52:54:00:4c:01:02 dev nic2
		busybox ping -q -c 5000 -A -w 4 192.168.102.2' || :
	lab run 0 timeout 10 bash -c 'for i in {1..6000}; do echo x >/dev/udp/192.168.102.2/9; done'
	after=$(lab run 0 cat /sys/class/net/nic2/statistics/tx_packets)
	[ $((after - before)) -ge 6000 ]
	lab run 1 ip link set nic2 up
	lab run 0 ip neigh del 192.168.102.2 dev nic2
	wait_for lab check
}

# gone FOLDER: nothing of the lab there is left, its lock says.
gone() {
	flock -n "$1/lock" true
}

@test "a second lab beside this one; nothing of it is left after down, nor when its owner or keeper is killed" {
	export LAB_DIR=$BATS_TEST_TMPDIR/second LAB_RAILS=1 LAB_MEM=512M
	lab up
	[ "$(lab run 0 hostname)" = node0 ]
	lab down
	gone "$LAB_DIR"
	run pgrep -f "$LAB_DIR"
	[ -z "$output" ]
	sleep 1000 3>&- &
	owner=$!
	lab up --owner "$owner"
	kill -9 "$owner"
	wait_for gone "$LAB_DIR"
	lab up
	kill -9 "$(cat "$LAB_DIR/keeper")"
	wait_for gone "$LAB_DIR"
}

@test "without root, and without QEMU: said so, status 77" {
	run -77 setpriv --reuid nobody --clear-groups "$DR_ROOT/scripts/lab/lab.sh" up
	[[ $output == *root* ]]
	mkdir empty
	for tool in bash uname dirname readlink; do ln -s "$(command -v "$tool")" empty/; done
	sed "s|^PATH=.*|PATH=$PWD/empty|" "$DR_ROOT/scripts/lab/lab.sh" >lab.sh
	run -77 env LAB_DIR="$PWD/none" bash lab.sh up
	[[ $output == *qemu-system-x86_64*"not installed"* ]]
}
