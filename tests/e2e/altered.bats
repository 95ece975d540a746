#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bats file_tags=release
# Bytes of TCP data connections are altered on a rail from outside, by nftables in the server's or the client's namespace. veth
# leaves checksums to the receiver's kernel, which takes them for right: nobody on the way notices. See SECURITY.md, "What
# altered frames can do".

load usual

setup() {
	common_setup
	watch
	two_rails
	seed=${SEED:-$RANDOM}
	echo "seed $seed (SEED=$seed draws the same)"
	RANDOM=$seed
}

# alter NET BYTE VALUE MATCH: sets this byte behind the TCP header of packets that arrive at rail0 there, ten times a second.
alter() {
	ip netns exec "$1" nft "table inet altered { chain in { type filter hook prerouting priority 0;
		iifname \"rail0\" meta l4proto tcp $4 limit rate 10/second @th,$(((32 + $2) * 8)),8 set $3 counter; }; }" 2>&1 ||
		skip "nftables cannot set bytes of a packet here"
}

# Prints how many packets were altered.
altered() {
	ip netns exec "$1" nft list table inet altered | sed -nE 's/.*counter packets ([0-9]+).*/\1/p'
}

unaltered() {
	ip netns exec "$1" nft delete table inet altered
}

in_a() {
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 -s 256K --timeout 5s -q "$@"
}

@test "altered payload: --verify finds it, status 6; without it nobody does" {
	server_in_b -g 0 --timeout 5s
	alter "$B" 3000 $((RANDOM % 256)) "meta length > 8000"
	in_a -D 2s --verify --json=c.json
	echo "altered $(altered "$B"): $output"
	[ "$(altered "$B")" -gt 0 ]
	[ "$status" -eq 6 ]
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0 and .integrity.duplicated == 0 and .integrity.reordered == 0'
	in_a -D 500ms
	judge_status 100 0
	unaltered "$B"
	in_a -D 200ms --verify
	judge_status 100 0
}

# altered_run NET BYTE MATCH: a run beside it ends by itself, with a status of its own, and the server serves the next.
altered_run() {
	local value=$((RANDOM % 256)) n
	alter "$1" "$2" "$value" "$3"
	in_a -D 1s --verify
	n=$(altered "$1")
	unaltered "$1"
	echo "byte $2 set to $value in $n packets: status $status: ${lines[-1]-}"
	# 0 to 6: no signal, no abort, and not the limit of `timeout`.
	((status <= 6)) || return 1
	kill -0 "$server" || return 1
	hits=$((hits + n))
	in_a -D 100ms --verify --connect-timeout 40s
	judge_status 100 0
}

@test "altered credits and acknowledgements: each run ends, nothing crashes, the server serves on" {
	server_in_b -g 0 --timeout 5s
	hits=0
	for ((i = 0; i < 4; i++)); do
		altered_run "$A" $((RANDOM % 48)) "meta length 60-1500"
	done
	[ "$hits" -gt 0 ]
}

@test "altered headers of data frames: each run ends, nothing crashes, the server serves on" {
	server_in_b -g 0 --timeout 5s
	hits=0
	for ((i = 0; i < 4; i++)); do
		altered_run "$B" $((RANDOM % 32)) "meta length > 8000"
	done
	[ "$hits" -gt 0 ]
}
