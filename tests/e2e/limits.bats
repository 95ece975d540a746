#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Limits of the process and its host: what a run needs is taken, or refused before it begins, with both numbers.

load usual

MANY=(-g 0-3 -N 16 -s 64K -D 100ms -q)

# Then SOFT HARD COMMAND...: with these limits of open files.
# shellcheck disable=SC2016 # for that bash
UNDER=(bash -c 'ulimit -Sn "$1" && ulimit -Hn "$2" && exec "${@:3}"' -)

@test "the soft limit of open files is raised, at both ends" {
	free_port
	start server "${UNDER[@]}" 100 1000 "$DUALRAIL" server -g 0-3 --port "$port" -q
	gives 0 "${UNDER[@]}" 100 1000 "$DUALRAIL" client 127.0.0.1 --port "$port" "${MANY[@]}"
	[[ $(awk '/Max open files/ { print ($4 > 100 ? "raised" : $4) }' "/proc/$server/limits") == raised ]]
}

@test "a hard limit of open files that is too low: status 2 before the run, at either end" {
	start_server
	tells 2 "needs about 106 open files at the client, whose hard limit is 100; raise it (ulimit -Hn" \
		"${UNDER[@]}" 100 100 "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0-1 -N 16
	says "hard limit of open files; the soft one is raised by itself"
	free_port
	start server "${UNDER[@]}" 100 100 "$DUALRAIL" server -g 0-1 --port "$port"
	wait_for grep -q listening server.err
	tells 2 "needs about 106 open files at the server, whose hard limit is 100; raise it (ulimit -Hn" client -N 16
	gives 0 client -N 1 -D 100ms -q
	tells 2 "hard limit of open files is too low" "${UNDER[@]}" 100 100 "$DUALRAIL" doctor -g 0-1 -N 16 --memory host
}

@test "more memory than is free: status 2 before the run" {
	start_server --max-memory 9T
	tells 2 "MiB for channels at the server, which has free, in the host and its cgroup," \
		client -N 64 --window 256 --chunk 64M -s 64M
	says "memory of the host, or of the cgroup (memory.max, also of groups above it)"
}

@test "too few ports: status 2 before the run names the setting" {
	two_rails
	server_in_b
	tells 2 "needs 4 ports at the client, where --data-ports has 3" client_in_a --data-ports 30000-30002
	says "--data-ports has too few ports"
	gives 0 client_in_a --data-ports 30000-30003 -D 100ms -q
	ip netns exec "$A" sysctl -qw net.ipv4.ip_local_port_range="40000 40007"
	tells 2 "ports at the client, where net.ipv4.ip_local_port_range has 8" client_in_a
	says "the range of ephemeral ports is small"
	# Taken by others.
	ip netns exec "$A" sysctl -qw net.ipv4.ip_local_port_range="41000 41019"
	start taker ip netns exec "$A" python3 -c '
import socket, time
taken = [socket.socket() for i in range(20)]
for i, s in enumerate(taken): s.bind(("0.0.0.0", 41000 + i))
print("taken", flush=True)
time.sleep(600)'
	wait_for grep -q taken taker.out
	tells 3 "widen net.ipv4.ip_local_port_range" client_in_a --connect-timeout 1s
	says "others have taken the ephemeral ports"
}

@test "counters of a NIC that grew during the run are in the result" {
	two_rails
	server_in_b
	start_client_in_a -D 1s --json=c.json --csv c.csv --prom c.prom
	wait_for grep -q Gb/s client.out
	ip -n "$A" link set rail0 down
	ip -n "$A" link set rail0 up
	ends "$client" 0
	holds c.json '.nics | map(select(.name == "rail0")) | length == 2 and
		all(.link_changes >= 2 and .errors == 0 and (.grown | test("carrier_changes \\+[0-9]+")))'
	holds c.json '.nics | map(select(.name == "rail1")) | all(.link_changes == 0)'
	grep -q '^dualrail_nic_link_changes{.*nic="rail0"' c.prom
	grep -q 'carrier_changes +' c.csv
	grep -q 'COUNTERS: server rail0: .*carrier_changes +' client.out
	says "a NIC counts errors, drops or link changes" client.out
}

@test "whether each end got the processor is in the result" {
	start_server
	gives 0 client -D 100ms -q --json=c.json --csv c.csv --prom c.prom
	holds c.json '.environment.ends | map(.side) | sort == ["client", "server"]'
	holds c.json '.environment.ends | all(.stall_us >= 0 and has("cpu_quota") and has("throttled") and has("throttled_us"))'
	grep -q '^environment,' c.csv
	grep -q '^dualrail_stall_longest_seconds{' c.prom
}

# A cgroup of the client's own, whose files the test writes.
# shellcheck disable=SC2016 # for that shell
@test "a quota that stopped the processes of an end is in the result" {
	[[ $(id -u) == 0 ]] || skip "needs root for a mount namespace"
	start_server
	mkdir group
	echo 200000 100000 >group/cpu.max
	printf 'nr_throttled 3\nthrottled_usec 5000\n' >group/cpu.stat
	start client unshare -m sh -c 'mount --bind group /sys/fs/cgroup && exec "$@"' - \
		"$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -i 100ms -D 500ms --json=c.json
	wait_for flowing
	printf 'nr_throttled 15\nthrottled_usec 345000\n' >group/cpu.stat
	ends "$client" 0
	holds c.json '.environment.ends[] | select(.side == "client") |
		.cpu_quota == 2 and .throttled == 12 and .throttled_us == 340000'
	says "a quota of processor time (cpu.max)" client.out
}

later_than() { ((${EPOCHREALTIME/./} > $1)); }

@test "an end that was stopped says how late its workers were" {
	local until
	start_server
	under_way start_client --test failover --allow-faults --fault close:path=0,at=300ms,for=300ms
	kill -STOP "$client"
	until=$((${EPOCHREALTIME/./} + 100000))
	wait_for later_than "$until"
	kill -CONT "$client"
	ends "$client" 0 8
	says "a worker did not get the processor" client.out
}
