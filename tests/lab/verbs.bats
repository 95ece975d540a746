#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail over verbs between two nodes: whole runs, and what goes wrong.
# shellcheck disable=SC2154,SC2030,SC2031 # set by lib.bash and bats

setup_file() {
	load lib
	install_dualrail
}

setup() {
	load lib
	verbs_setup
}

teardown() {
	common_teardown
}

@test "the path contract over a real device" {
	lab run 0 test -x "$DR/bin/conformance_test" || skip "conformance_test is not built"
	lab run -t 300 0 env DR_VERBS_RAIL=nic0,192.168.100.1 CMOCKA_MESSAGE_OUTPUT=TAP \
		"$DR/bin/conformance_test" '*verbs*' >tap || :
	grep -v '^ok' tap | tail -n 40
	[ "$(grep -c '^ok.*verbs' tap)" -ge 10 ]
	[ "$(grep -c '^not ok' tap)" -eq 0 ]
}

@test "two rails: eight GPUs, bandwidth and latency, every byte compared, the NICs' counters agree" {
	start_server --one-off "${TWO[@]}"
	client "${TWO[@]}" --test bw,lat -D 4s --verify
	[ "$status" -eq 0 ]
	ends "$server" 0
	document
	no_switch
	holds "$share/c.json" '.bandwidth | length == 8 and all(.gbps > 0 and .bytes > 0)'
	holds "$share/c.json" '.latency | length == 8 and all(.samples > 0 and .rtt_us.p50 > 0)'
	holds "$share/c.json" '[.nics[] | select(.tx_bytes > 1000000) | .name] | unique | length == 2'
}

@test "four rails, as found: all of them carry data" {
	start_server --one-off
	client -D 4s
	[ "$status" -eq 0 ]
	ends "$server" 0
	document
	no_switch
	holds "$share/c.json" '.bandwidth | length == 8 and all(.gbps > 0)'
	holds "$share/c.json" '[.nics[] | select(.tx_bytes > 1000000) | .name] | unique | length == 4'
}

@test "both directions, several queue pairs a path, memory registered at first use" {
	start_server --one-off "${TWO[@]}"
	client "${TWO[@]}" -D 3s --bidir --qps 2 --register lazy --verify
	[ "$status" -eq 0 ]
	document
	holds "$share/c.json" '[.bandwidth[].direction] | unique == ["to-client", "to-server"]'
}

# campaign N OPTION...: N faults, with leave at both ends.
campaign() {
	local n=$1
	shift
	start_server "${TWO[@]}" --allow-faults --key-file "$DR/key"
	client "${TWO[@]}" --key-file "$DR/key" --test failover --allow-faults --hold-down 200ms "$@"
	[ "$status" -eq 0 ]
	clean "$share/c.json"
	passed "$n"
	holds "$share/c.json" '.failover.false_failovers == 0'
	holds "$share/c.json" '.failover.faults | any(.failback_us != null)'
}

@test "queue pairs in the error state, at either end" {
	campaign 4 --fault qp-error:path=0,for=300ms,repeat=2,every=3s \
		--fault qp-error:path=0,side=server,for=300ms,repeat=2,every=3s
}

@test "links down, at either end" {
	campaign 4 --fault link-down:path=0,for=500ms,repeat=2,every=4s \
		--fault link-down:path=0,side=server,for=500ms,repeat=2,every=4s
}

@test "a black hole at the server" {
	campaign 2 --fault blackhole:path=0,side=server,dir=in,for=700ms,repeat=2,every=4s
}

@test "connections closed, at either end" {
	campaign 4 --fault close:path=0,for=300ms,repeat=2,every=3s \
		--fault close:path=0,side=server,for=300ms,repeat=2,every=3s
}

@test "the device deleted under the run: no data lost, nothing of ours holds it afterwards" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 6s --verify
	wait_for flowing
	# The kernel waits with it for the last user of the device.
	start del 0 rdma link del rxe0
	del=$pid
	ends "$client" 0
	ends "$del" 0
	document
	lab run 0 rdma link add rxe0 type rxe netdev nic0
	client "${TWO[@]}" -D 1s
	[ "$status" -eq 0 ]
}

@test "the NIC set to try for ever: heartbeats find the cut" {
	campaign 1 --ib-retry 7 --fault blackhole:path=0,side=server,dir=in,for=1s
}

@test "carrier lost outside, at the client and at the server: one switch each, no fault announced" {
	start_server "${TWO[@]}"
	for side in 0 1; do
		start_client "${TWO[@]}" -D 12s --verify
		wait_for flowing
		lab link $side nic0 down
		flow_on 8
		lab link $side nic0 up
		ends "$client" 0
		document
		holds "$share/c.json" '[.failover.switches[] | select(.planned | not)] | length > 0'
	done
}

@test "the switch forgets a port: no event anywhere, data go on over the other rail" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 12s --verify
	wait_for flowing
	lab port 1 nic0 off
	flow_on 8
	lab port 1 nic0 on
	ends "$client" 0
	document
	holds "$share/c.json" '[.failover.switches[] | select(.planned | not)] | length > 0'
}

@test "both rails lost: the client ends with 4, the server records 4 and serves the next" {
	start_server "${TWO[@]}" --json="$inside/s.json"
	start_client "${TWO[@]}" -D 100s
	wait_for flowing
	lab link 0 nic0 down
	lab link 0 nic1 down
	ends "$client" 4
	holds "$share/c.json" '.exit_code == 4'
	wait_for test -s "$share/s.json"
	holds "$share/s.json" '.exit_code == 4'
	lab link 0 nic0 up
	lab link 0 nic1 up
	wait_for lab check
	client "${TWO[@]}" -D 1s
	[ "$status" -eq 0 ]
}

@test "the receiver's process dies: the client ends with 3, nothing stays in either kernel" {
	for g in 0 1; do resources $g >resources.$g; done
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 100s
	wait_for flowing
	lab run 1 pkill -KILL -x dualrail
	ends "$client" 3
	holds "$share/c.json" '.exit_code == 3'
	for g in 0 1; do wait_for as_before $g; done
}

@test "the receiver's carrier goes while nothing is in flight: the other rail takes over" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -g 0 --pair -D 15s --rate 200k
	wait_for flowing
	lab link 1 nic0 down
	flow_on 8
	ends "$client" 0
	document
}

@test "the address goes and comes back: its GID has another index, and is found" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 15s --verify
	wait_for flowing
	lab run 0 sh -c 'grep -rl c0a8:6401 /sys/class/infiniband/rxe0/ports/1/gids' >before
	lab run 0 sh -c 'ip addr del 192.168.100.1/24 dev nic0 && ip addr add 192.168.100.1/24 dev nic0'
	ends "$client" 0
	lab run 0 sh -c 'grep -rl c0a8:6401 /sys/class/infiniband/rxe0/ports/1/gids' >after
	cat before after
	document
	client "${TWO[@]}" -D 1s
	[ "$status" -eq 0 ]
	document
}

@test "the control network lost: the run goes on" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 15s
	wait_for flowing
	lab link 0 ctl0 down
	ends "$client" 0
	document
	holds "$share/c.json" '.events | any(.kind == "control" and (.text | startswith("lost")))'
	holds "$share/c.json" '.events | any(.kind == "control" and (.text | startswith("resumed")))'
	holds "$share/c.json" '.bandwidth | length == 8 and all(.bytes > 0)'
}

@test "a second fault during the switch: nothing is lost, and the run ends" {
	start_server "${TWO[@]}"
	start_client "${TWO[@]}" -D 15s --verify
	wait_for flowing
	lab link 0 nic0 down
	lab link 1 nic1 down
	lab link 0 nic0 up
	lab link 1 nic1 up
	rc=0
	wait "$client" || rc=$?
	# Without a path for 1.5 s a channel ends: emulated guests may take longer to build one.
	[ "$rc" -eq 0 ] || [ "$rc" -eq 4 ]
	clean "$share/c.json"
	holds "$share/c.json" ".exit_code == $rc"
	client "${TWO[@]}" -D 1s
	[ "$status" -eq 0 ]
}

@test "1 % loss and 10 ms of delay: no switch" {
	for n in 0 1; do
		lab run 0 tc qdisc add dev nic$n root netem delay 10ms loss 1%
		lab run 1 tc qdisc add dev nic$n root netem loss 1%
	done
	start_server "${TWO[@]}"
	client "${TWO[@]}" -D 8s --verify
	for n in 0 1; do
		lab run both tc qdisc del dev nic$n root
	done
	[ "$status" -eq 0 ]
	document
	no_switch
}

@test "after each fault the primary carries data again" {
	campaign 3 --fault qp-error:path=0,for=500ms,repeat=3,every=5s
	holds "$share/c.json" '.failover.faults | all(.failback_us != null and .bandwidth_after_gbps > 0)'
}

@test "ten flaps leave no queue pair and no memory region behind" {
	start_server "${TWO[@]}" --allow-faults
	client "${TWO[@]}" -D 1s
	for g in 0 1; do resources $g >resources.$g; done
	client "${TWO[@]}" --test failover --allow-faults --hold-down 100ms \
		--fault qp-error:path=0,for=100ms,repeat=10,every=2s
	[ "$status" -eq 0 ]
	clean "$share/c.json"
	for g in 0 1; do wait_for as_before $g; done
}
