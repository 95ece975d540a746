#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail over verbs between two nodes: what goes wrong while it runs.

load usual

teardown() {
	lose_nothing
	common_teardown
}

# campaign N OPTION...: N faults, with leave at both ends.
campaign() {
	local n=$1
	shift
	start_server "${TWO[@]}" --allow-faults --key-file "$DR/key"
	succeeds "${TWO[@]}" --key-file "$DR/key" --test failover --allow-faults --hold-down 200ms "$@"
	clean "$share/c.json"
	judge 500 passed "$n"
	judge 500 holds "$share/c.json" '.failover.false_failovers == 0'
	judge 500 holds "$share/c.json" '.failover.faults | any(.failback_us != null)'
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
	under_way start_client "${TWO[@]}" -D 6s --verify
	# The kernel waits with it for the last user of the device.
	start del 0 rdma link del rxe0
	del=$pid
	ends "$client" 0
	ends "$del" 0
	document
	lab run 0 rdma link add rxe0 type rxe netdev nic0
	succeeds "${TWO[@]}" -D 1s
}

@test "a NIC with infinite retries: heartbeats detect the cut" {
	campaign 1 --ib-retry 7 --fault blackhole:path=0,side=server,dir=in,for=1s
}

@test "carrier lost outside, at the client and at the server: one switch each, no fault announced" {
	start_server "${TWO[@]}"
	for side in 0 1; do
		under_way start_client "${TWO[@]}" -D 12s --verify
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
	under_way start_client "${TWO[@]}" -D 12s --verify
	lab port 1 nic0 off
	flow_on 8
	lab port 1 nic0 on
	ends "$client" 0
	document
	holds "$share/c.json" '[.failover.switches[] | select(.planned | not)] | length > 0'
}

@test "both rails lost: the client ends with 4, the server records 4 and serves the next" {
	start_server "${TWO[@]}" --json="$inside/s.json"
	under_way start_client "${TWO[@]}" -D 100s
	lab link 0 nic0 down
	lab link 0 nic1 down
	ends "$client" 4
	holds "$share/c.json" '.exit_code == 4'
	wait_for test -s "$share/s.json"
	holds "$share/s.json" '.exit_code == 4'
	lab link 0 nic0 up
	lab link 0 nic1 up
	wait_for lab check
	succeeds "${TWO[@]}" -D 1s
}

@test "the receiver's process dies: the client ends with 3, nothing stays in either kernel" {
	for g in 0 1; do resources $g >resources.$g; done
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 100s
	lab run 1 pkill -KILL -x dualrail
	ends "$client" 3
	holds "$share/c.json" '.exit_code == 3'
	for g in 0 1; do wait_for as_before $g; done
}

# One message has been sent when the rail dies, and the next is due in minutes: no send and no receive fails.
@test "a rail falls silent while nothing is in flight: heartbeats move the channels" {
	GPUS=(-g 0)
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 15s -s 32K -w 0 --rate 1k
	flow_on 5
	lab port 1 nic0 off
	ends "$client" 0
	document
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and (.planned | not))]
		| length == 2 and all(.from_path == 0 and .in_flight_chunks == 0)'
	# Either end may be the first. A receiver's record stays open, since nothing is delivered afterwards.
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and (.planned | not))]
		| all(.cause | test("heartbeat|receiver.s end of the path"))'
	holds "$share/c.json" '[.events[] | select(.kind == "rail") | .text] | any(test("^down: no heartbeat received"))'
}

# gid_index GUEST RAIL: where the GID of its IPv4 address stands in the table.
# shellcheck disable=SC2016 # for the guest
gid_index() {
	lab run "$1" sh -c 'cd /sys/class/infiniband/rxe$1/ports/1/gids &&
		grep -l "^0000:0000:0000:0000:0000:ffff:c0a8:$2" *' - "$2" "$(printf %02x%02x $((100 + $2)) $(($1 + 1)))"
}

back_on_primary() {
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and .planned and .to_path == 0)] | length > 0'
}

# The queue pairs hold the old entry while the address is away, so that it comes back as another one.
@test "the address goes and comes back: its GID has another index, is found, and data return to that rail" {
	GPUS=(-g 0)
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 20s --verify
	before=$(gid_index 0 0)
	lab run 0 sh -c 'ip addr del 192.168.100.1/24 dev nic0 && ip addr add 192.168.100.1/24 dev nic0'
	after=$(gid_index 0 0)
	echo "GID index $before, then $after"
	[ "$before" != "$after" ]
	ends "$client" 0
	document
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and (.planned | not)) | .from_path] | index(0)'
	back_on_primary
	succeeds "${TWO[@]}" -D 1s
	document
}

@test "the control network lost: the run goes on" {
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 15s
	lab link 0 ctl0 down
	ends "$client" 0
	document
	holds "$share/c.json" '.events | any(.kind == "control" and (.text | startswith("lost")))'
	holds "$share/c.json" '.events | any(.kind == "control" and (.text | startswith("resumed")))'
	holds "$share/c.json" '.bandwidth | length == 8 and all(.bytes > 0)'
}

# From now on data is lost on rail 0, and acknowledgements of what arrived before are not: what is in flight a moment later has
# not been delivered.
lose_data() {
	lose 1 nic0 "$LARGE"
}

# Each channel switched once, from rail 0 to rail 1; messages were lost with rail 0 and sent again.
repeated() {
	holds "$share/c.json" '[.failover.switches[] | select(.side == "client" and (.planned | not))]
		| length == 2 and all(.from_path == 0 and .to_path == 1) and
			any(.in_flight_chunks > 0 and .replayed_chunks > 0 and .replayed_bytes > 0 and
				.first_delivery_ns > .answer_ns)' || {
		jq -c '.failover.switches[]' "$share/c.json"
		return 1
	}
}

# lose_both: the shadow's rail dies silently, and before heartbeats can tell, the primary's carrier goes: the
# switch begins towards a path that is dead.
lose_both() {
	wait_for flowing
	lab port 1 nic1 off
	lab link 0 nic0 down
	wait_for grep -q 'nic0.* went down' client.err
}

@test "a second fault during the switch, the shadow's, which passes: one switch, nothing lost, status 0" {
	GPUS=(-g 0)
	start_server "${TWO[@]}"
	under_way start_client "${TWO[@]}" -D 8s --verify
	lose_data
	lose_both
	lab port 1 nic1 on
	ends "$client" 0
	hit 1
	document
	repeated
}

@test "a second fault during the switch, the shadow's, which stays: status 4 at both ends, nothing wrong till then" {
	GPUS=(-g 0)
	start_server "${TWO[@]}" --json="$inside/s.json"
	start_client "${TWO[@]}" -D 100s --verify
	lose_both
	ends "$client" 4
	holds "$share/c.json" '.exit_code == 4 and (.errors[0].text | test("both paths lost"))'
	holds "$share/c.json" '.integrity | [.lost, .duplicated, .reordered, .corrupted] | all(. == null or . == 0)'
	wait_for test -s "$share/s.json"
	holds "$share/s.json" '.exit_code == 4'
	lab port 1 nic1 on
	lab link 0 nic0 up
	wait_for lab check
	succeeds "${TWO[@]}" -D 1s
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
	judge 500 holds "$share/c.json" '.failover.faults | all(.failback_us != null and .bandwidth_after_gbps > 0)'
	# Samples of 200 ms scatter by more than half in a guest, so half of it is asked for, and once.
	judge 500 holds "$share/c.json" '.failover | ([.faults[].bandwidth_after_gbps] | max) > 0.5 * .bandwidth_before_gbps'
}

# held GUEST: descriptors of the dualrail there, and queue pairs and memory regions of all devices.
# shellcheck disable=SC2016 # for the guest
held() {
	lab run "$1" sh -c 'ls /proc/$(pgrep -o -x dualrail)/fd | wc -l
		rdma resource show | grep -oE "(qp|mr) [0-9]+" | awk "{ n[\$1] += \$2 } END { print n[\"qp\"], n[\"mr\"] }"' | xargs
}

trials() {
	(($(grep -c '"event":"fault"' client.out) >= $1))
}

# no_more GUEST: than in the file held.GUEST, and three for what begins. While a path is being rebuilt there are more.
no_more() {
	local fds qps mrs fds_were qps_were mrs_were
	read -r fds_were qps_were mrs_were <"held.$1"
	read -r fds qps mrs <<<"$(held "$1")"
	echo "guest $1 has $fds descriptors, $qps queue pairs, $mrs regions; had $(cat "held.$1")"
	((fds > 0 && fds <= fds_were + 3 && qps <= qps_were + 3 && mrs <= mrs_were + 3))
}

# FLAPS=100 makes a longer test of it. The flaps go on for 20 s and more while both guests are looked at.
@test "flaps leave no queue pair, no memory region and no descriptor behind, while they go on and afterwards" {
	flaps=${FLAPS:-20}
	WAIT_S=$((WAIT_S + 5 * flaps))
	GPUS=(-g 0)
	start_server "${TWO[@]}" --allow-faults
	client "${TWO[@]}" -D 1s
	for g in 0 1; do resources $g >resources.$g; done
	idle=$(held 1)
	start_client "${TWO[@]}" --test failover --allow-faults --hold-down 100ms --json-stream \
		--fault "qp-error:path=0,for=100ms,repeat=$flaps,every=1500ms"
	wait_for trials 1
	for g in 0 1; do held $g >held.$g; done
	wait_for trials $((flaps * 3 / 10))
	for g in 0 1; do wait_for no_more $g; done
	ends "$client" 0
	clean "$share/c.json"
	holds "$share/c.json" ".failover.faults | length == $flaps and all(.failback_us != null)"
	for g in 0 1; do wait_for as_before $g; done
	[ "$(held 1)" = "$idle" ]
}
