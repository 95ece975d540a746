#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Peers whose process is stopped while its kernel answers. Two namespaces with two rails and a control link.

# bats file_tags=release,nightly
load usual

setup() {
	common_setup
	watch
	two_rails
}

# pair NAME OPTIONS...: a server and a client of one channel, whose data do not fit into the peer's window. Their
# process ids in servers and clients, the result in NAME.json.
servers=() clients=()
pair() {
	local name=$1
	shift
	free_port
	start "$name.server" ip netns exec "$B" "$DUALRAIL" server -g 0 -1 --port "$port"
	servers+=("$pid")
	start "$name.client" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 --port "$port" -g 0 -N 1 -s 4M -w 16 \
		--sockbuf 256K --test bw -i 100ms --json="$name.json" "$@"
	clients+=("$pid")
	wait_for grep -q 'Gb/s' "$name.client.out"
}

# The client's kernel sends probes of a shut window.
probes() {
	ip netns exec "$A" ss -Htnoi >ss.out
	grep -q 'timer:(persist' ss.out
}

# Waits for that, or prints what the connections did instead.
shut() {
	wait_for probes || {
		cat ss.out
		return 1
	}
}

rest() {
	read -rt "$1" <> <(:) || : # the time is what is tested
}

@test "a stopped peer with its window shut is waited for: one rail, and two of which one is down" {
	pair one --rails rail0 -D 13s
	pair two --rails rail0,rail1 -D 13s
	ip -n "$A" link set rail1 down
	kill -STOP "${servers[@]}"
	shut
	rest 11
	kill -CONT "${servers[@]}"
	judge_status 100 0 "${clients[0]}"
	judge_status 100 0 "${clients[1]}"
	for one in one two; do
		clean "$one.json"
		# One each second.
		judge 1000 holds "$one.json" '[.events[] | select(.kind == "silence")] | length >= 9'
	done
}

# blink DEV: its link is down for 100 ms.
blink() {
	ip -n "$A" link set "$1" down
	rest 0.1
	ip -n "$A" link set "$1" up
}

@test "a stopped peer is waited for while the links blink one after the other: two rails, and one" {
	pair one --rails rail0 -D 8s
	pair two --rails rail0,rail1 -D 8s
	kill -STOP "${servers[@]}"
	for ((i = 0; i < 10; i++)); do
		blink rail0
		blink rail1
		rest 0.3
	done
	kill -CONT "${servers[@]}"
	judge_status 1000 0 "${clients[0]}"
	judge_status 1000 0 "${clients[1]}"
	whole one.json
	whole two.json
	holds two.json '.bandwidth | all(.bytes > 0)'
}

@test "both rails lost while the peer is stopped with its window shut: found" {
	pair lost -D 60s
	kill -STOP "${servers[@]}"
	shut
	rest 4
	for dev in rail0 rail1; do
		ip netns exec "$B" nft "add table inet hole; add chain inet hole in { type filter hook input priority 0; }
			add rule inet hole in iifname $dev drop" || skip "no nftables here"
	done
	# The bound is tested in virtual time (channel/manager_test.c); a loaded machine or an older kernel takes longer.
	wait_for grep -q 'nothing is heard or acknowledged' lost.client.err
	kill -CONT "${servers[@]}"
	ends "${clients[0]}" 4
}
