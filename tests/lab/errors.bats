#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What verbs runs say when they cannot be: what was tried, with which value, and what to do.

load usual

# refused STATUS WORD...: the client ended so, and its error output has all the words.
refused() {
	local word want=$1
	shift
	[ "$status" -eq "$want" ] || {
		echo "status $status, not $want"
		return 1
	}
	for word; do
		[[ $output == *"$word"* ]] || {
			echo "not said: $word"
			return 1
		}
	done
}

@test "a device that is not there: those that are, are named" {
	start_server
	client --rails rxe0,mlx5_9 -D 1s -q
	refused 2 mlx5_9 rxe0 rxe3
}

@test "a NIC without an RDMA device: named, with the command that makes one" {
	lab run 0 rdma link del rxe3
	start_server
	client --rails nic0,nic3 -D 1s -q
	lab run 0 rdma link add rxe3 type rxe netdev nic3
	refused 2 nic3 "rdma link add"
}

@test "a port that is down: named, with what to do" {
	start_server
	lab link 0 nic1 down
	wait_for port_state 0 rxe1 DOWN
	client "${TWO[@]}" -D 1s -q
	refused 2 nic1 rxe1 "down"
}

@test "too little memory may be locked: the limit is named, and ulimit -l" {
	start_server "${TWO[@]}"
	run lab run -t "$WAIT_S" 0 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536 \
		"$DR/bin/dualrail" client 10.77.0.2 "${OPTS[@]}" "${TWO[@]}" -D 1s -q
	refused 2 "64 KiB" "ulimit -l"
}

@test "MTUs that differ: auto takes the smaller; one above the port's is refused with both" {
	lab run 1 sh -c 'rdma link del rxe1 && ip link set nic1 mtu 1500 && rdma link add rxe1 type rxe netdev nic1'
	start_server "${TWO[@]}"
	client "${TWO[@]}" -D 1s
	rc=$status
	lab run 0 sh -c 'rdma link del rxe1 && ip link set nic1 mtu 1500 && rdma link add rxe1 type rxe netdev nic1'
	client "${TWO[@]}" -D 1s -q --mtu 4096
	lab run both sh -c 'rdma link del rxe1; ip link set nic1 mtu 4200; rdma link add rxe1 type rxe netdev nic1'
	[ "$rc" -eq 0 ]
	refused 2 4096 1024 rxe1
}

@test "verbs at one end and tcp at the other: refused with both" {
	start_server --transport tcp
	client -D 1s -q
	refused 3 verbs tcp
}

# Both limits are those of the guest; its control connection keeps its neighbour.
@test "tcp: no room for the peer in the neighbour table is the cause that is named" {
	start_server --transport tcp
	lab run 0 sh -c "ip neigh flush all; ip neigh replace 10.77.0.2 dev ctl0 nud permanent \
		lladdr $(lab run 1 cat /sys/class/net/ctl0/address)
		sysctl -qw net.ipv4.neigh.default.gc_thresh2=0 net.ipv4.neigh.default.gc_thresh3=0"
	run lab run -t "$WAIT_S" 0 "$RUN" client 10.77.0.2 -g 0 -N 1 --rails nic0,nic1 -D 1s -q
	lab run 0 sh -c 'ip neigh del 10.77.0.2 dev ctl0
		sysctl -qw net.ipv4.neigh.default.gc_thresh2=512 net.ipv4.neigh.default.gc_thresh3=1024'
	refused 3 "rail nic" gc_thresh3
	says "a full neighbour table"
}

@test "a GID index beyond the table: refused with its length; an empty one too" {
	start_server
	client "${TWO[@]}" -D 1s -q --gid 5000
	refused 2 5000 "GID table"
	client "${TWO[@]}" -D 1s -q --gid 900
	refused 2 900 empty
}
