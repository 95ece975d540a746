#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# NCCL's plugin without NCCL and without a GPU: what it promises beyond the rules for any plugin (`dualrail plugin`, in
# ncclnet.bats), and collectives on host memory while rails fail. tests/plugin/ has the programs. Over loopback, or as root
# between namespaces.
# check.sh: thread

load usual

setup() {
	common_setup
	plugin=$DR_BUILD/libnccl-net-ha.so
	contract=$DR_BUILD/tests/plugin/contract_main
	ring=$DR_BUILD/tests/plugin/ring_main
	exchange=$DR_BUILD/tests/plugin/exchange_main
	unset "${!HA_NCCL_@}" "${!NCCL_@}"
	export HA_NCCL_TRANSPORT=tcp # tests/lab/plugin.bats has verbs
	# A rail is returned to soon.
	export HA_NCCL_HOLD_DOWN_MS=300
	limit=$((WAIT_S * 3 / 2))
	# Both rails lost is an error within 5 s; the rest is for a busy machine and for sanitizers.
	error=$((WAIT_S * 2 / 15))
	cp "$BATS_TEST_DIRNAME/../plugin/act.sh" act
	export WAIT_S
}

# The namespaces' own loopback is up, as on any host.
rails() {
	two_nodes
	ip -n "$A" link set lo up
	ip -n "$B" link set lo up
	link rail0 10.99.0
	link rail1 10.99.1
	export NCCL_SOCKET_IFNAME="=rail0,rail1"
}

# passes COMMAND...: prints its output if it fails. deregMr waits 100 ms for chunks in flight; then the session ends, and all its
# comms: after watch() that is not judged where the machine stood for so long.
passes() {
	run timeout $((WAIT_S * 2)) "$@"
	[[ $status == 0 ]] || {
		printf '%s\n' "${output:0:20000}"
		[[ ! ${watcher-} || ! $output =~ deregistered\ with\ messages\ outstanding|the\ session\ [0-9]+\ is\ over ]] || judge 100 false
		return 1
	}
	tail -n 1 <<<"$output"
}

# value NAME: of the ring's last line.
value() {
	sed -nE "s/^ranks=.* $1=([^ ]*).*/\1/p" <<<"$output"
}

# switched N: each rank saw so many switches of its connections at least.
switched() {
	(($(value switches_least) >= $1)) || {
		printf '%s\n' "$output"
		return 1
	}
}

@test "plugin contract over loopback: all cases" {
	watch
	NCCL_SOCKET_IFNAME=lo passes "$contract" --versions 11 "$plugin"
}

# bats test_tags=one-thread
@test "plugin contract over loopback: each version of the ABI" {
	NCCL_SOCKET_IFNAME=lo passes "$contract" --brief --versions 6-12 "$plugin"
}

@test "plugin contract over two rails between namespaces" {
	watch
	rails
	passes "$contract" --netns "$A,$B" --versions 6 "$plugin" reverse properties both_ways
	passes "$contract" --netns "$A,$B" --versions 12 "$plugin" reverse properties both_ways many \
		strangers any_order completion sender_closes receiver_closes cycles
}

@test "collectives of four ranks over loopback" {
	NCCL_SOCKET_IFNAME=lo passes "$ring" --ranks 4 --bytes 300K --iters 30 "$plugin"
}

# Messages of every way through the plugin, in the order and depth of NCCL's proxy.
@test "messages in the pattern of an all-reduce, 8 bytes to 8 MiB" {
	rails
	passes "$exchange" --netns "$A,$B" --pairs 1 --ms 20 --channels 3 --sizes 8,24K,300K,600K,8M "$plugin"
	[[ $(grep -cE '^[0-9]+ [0-9.]+ [0-9.]+$' <<<"$output") == 5 ]]
}

# record BYTES: the calls of both ranks of exchange_main, in calls.PID.
record() {
	NCCL_SOCKET_IFNAME=lo NET_RECORD=$PWD/calls NET_RECORD_PLUGIN=$plugin passes "$exchange" --pairs 1 --ms 1 \
		--sizes "$1" --only plugin "$DR_BUILD/tests/plugin/record_plugin.so"
}

@test "recorded calls: each rank's own, each request with its end, handles and sizes as at the peer" {
	record 8,1M
	set -- calls.*
	[[ $# == 2 ]]
	diff <(awk '$1 == "send" || $1 == "recv" { print $2 }' "$@" | sort) <(awk '$1 == "done" { print $2 }' "$@" | sort)
	diff <(awk '$1 == "listen" { print $5 }' "$1" | sort) <(awk '$1 == "dial" { print $5 }' "$2" | sort)
	diff <(awk '$1 == "send" { print $6 }' "$1" | sort) <(awk '$1 == "recv" { r[$2] } $1 == "send" { delete r[$2] }
		$1 == "done" && $2 in r { print $3 }' "$2" | sort)
	[[ $(grep -cE '^(connect|accept) ' "$1") == 4 && $(grep -c '^close-' "$1") == 6 && $(head -n 1 "$2") == process ]]
}

# Those of exchange_main, and what real jobs recorded (scripts/gpu/nccl.sh BUILD record).
@test "recorded calls are repeated, in their order and depth, and every byte is right" {
	local file replay=$DR_BUILD/tests/plugin/replay_main
	record 8,24K,1M
	cat calls.* >own.calls
	for file in own.calls "$BATS_TEST_DIRNAME"/../plugin/*.calls; do
		NCCL_SOCKET_IFNAME=lo passes "$replay" "$file" "$plugin"
		[[ $(grep -c 'received and right' <<<"$output") == 2 ]]
	done
	NCCL_SOCKET_IFNAME=lo passes "$replay" --version 6 own.calls "$plugin"
	NCCL_SOCKET_IFNAME=lo passes "$replay" --version 12 "$file" "$plugin"
	# A message of another size, and one that nobody sends.
	awk '$1 == "recv" { r = $2 } $1 == "done" && $2 == r && ++n == 5 { $3++ } { print }' own.calls >wrong.calls
	NCCL_SOCKET_IFNAME=lo run "$replay" wrong.calls "$plugin"
	[[ $status == 1 && $output == *" in the recording"* ]]
	awk '$1 == "send" && ++n == 5 { next } { print }' own.calls >short.calls
	NCCL_SOCKET_IFNAME=lo run "$replay" --limit 5 short.calls "$plugin"
	[[ $status == 1 ]]
	echo nonsense >>own.calls
	NCCL_SOCKET_IFNAME=lo run "$replay" own.calls "$plugin"
	[[ $status == 1 && $output == *"not a line of a recording"* ]]
}

@test "a firewall of each host that admits HA_NCCL_PORTS alone; a range that is too small is named" {
	local node few=HA_NCCL_PORTS=30000-30002
	command -v nft >/dev/null || skip "needs nft"
	rails
	for node in "$A" "$B"; do
		ip netns exec "$node" nft -f - <<-END || skip "no nftables here"
			add table inet filter
			add chain inet filter input { type filter hook input priority 0; policy drop; }
			add rule inet filter input iif lo accept
			add rule inet filter input ct state established accept
			add rule inet filter input meta l4proto { tcp, udp } th dport 30000-30009 counter accept
		END
	done
	export HA_NCCL_NTHREADS=1
	HA_NCCL_PORTS=30000-30009 passes "$ring" --limit "$limit" --netns "$A,$B" "$plugin"
	[[ $(value switches_least) == 0 ]]
	export HA_NCCL_CONNECT_TIMEOUT_MS=1000
	gives 1 "$ring" --limit "$limit" --netns "$A,$B" "$plugin"
	tells 1 "${few/=/=}: no port of these 3 is free; a process needs 1, and with tcp 3 on a NIC for each device of a peer" \
		env "$few" "$ring" --log --limit "$limit" --netns "$A,$B" "$plugin"
	says "NCCL plugin: the range of ports is too small, or its ports are taken"
}

@test "link down under collectives, twice with a return between" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --do "5:bash act cut $A rail0 rail1" \
		--do "5:bash act back $A rail0" --do "5:bash act cut $B rail0 rail1" "$plugin"
	switched 2
}

@test "silent loss under collectives, twice with a return between" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --do "5:bash act drop $A rail0 rail1" \
		--do "5:bash act undrop $A rail0" --do "5:bash act drop $B rail0 rail1" "$plugin"
	switched 2
}

@test "small messages under collectives, a silent rail, and the oldest version of the ABI" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --bytes 12K --version 6 --do "50:bash act drop $A rail0 rail1" \
		--do "50:bash act undrop $A rail0" --do "50:bash act cut $B rail0 rail1" "$plugin"
	switched 2
}

@test "messages that are copied, under collectives, a cut and a silent rail" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --bytes 600K --do "50:bash act cut $A rail0 rail1" \
		--do "50:bash act back $A rail0" --do "50:bash act drop $B rail0 rail1" "$plugin"
	switched 2
}

@test "comms come up while one rail is silent" {
	rails
	bash act silence "$A" rail0
	passes "$ring" --limit "$limit" --netns "$A,$B" --log --do "5:bash act undrop $A rail0" "$plugin"
	# Each rank says so once.
	[ "$(grep -c 'WARN NET/HA session: rail0 to 10.99.[01].[12]:[0-9]* never came up: .*HA_NCCL_PORTS' <<<"$output")" -eq 2 ]
	says "NCCL plugin: a device that no peer answers on"
}

@test "comms come up while a firewall rejects what comes over one rail: the log has address and port" {
	local node
	command -v nft >/dev/null || skip "needs nft"
	rails
	for node in "$A" "$B"; do
		ip netns exec "$node" nft -f - <<-END || skip "no nftables here"
			add table inet f
			add chain inet f i { type filter hook input priority 0; }
			add rule inet f i iifname rail0 meta l4proto udp drop
			add rule inet f i iifname rail0 tcp flags syn / syn,ack reject with tcp reset
		END
	done
	passes "$ring" --limit "$limit" --netns "$A,$B" --log "$plugin"
	grep -q 'WARN NET/HA session: rail0 to .* never came up: 10.99.0.[12] on port [0-9]* is rejected (Connection refused)' <<<"$output"
}

@test "NCCL_SOCKET_IFNAME names an interface that does not exist: the devices there are" {
	rails
	NCCL_SOCKET_IFNAME="=eth7,rail0,rail1" passes "$ring" --limit "$limit" --netns "$A,$B" --log "$plugin"
	says "NCCL plugin: NCCL_SOCKET_IFNAME names an interface that does not exist"
}

# bats test_tags=nightly
@test "eight cuts of a cable: at most ten lines in the log of each rank" {
	rails
	export HA_NCCL_DEBUG=0
	passes "$ring" --log --limit "$limit" --netns "$A,$B" \
		--do "5:bash -c 'for i in {1..8}; do bash act cut $A rail0 rail1 && bash act back $A rail0 && sleep 0.4; done'" "$plugin"
	grep -E "session: rail0: [0-9]+ connections from .* go on over rail1, longest gap [0-9.]+ ms: link down" <<<"$output"
	# The ranks' logs follow each other.
	awk '/NET\/HA plugin: version/ { rank++ } /NET\/HA session: / { n[rank]++ }
		END { print n[1] + 0, n[2] + 0; exit !(n[1] > 0 && n[1] <= 10 && n[2] > 0 && n[2] <= 10) }' <<<"$output"
}

@test "both links down: an error at both ranks" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --do "5:bash act cut-both $A rail0 rail1" --error "$error" "$plugin"
}

@test "both rails silent: an error at both ranks" {
	rails
	passes "$ring" --limit "$limit" --netns "$A,$B" --do "5:bash act drop-both $A rail0 rail1" --error "$error" "$plugin"
}

@test "mesh of three, a subnet for each pair: collectives survive a cut cable" {
	four_nodes
	mesh
	passes "$ring" --log --limit "$limit" --netns "$A,$B,$C" --do "5:bash act cut $A ab ac" --do "5:bash act back $A ab" \
		--do "5:bash act drop $B bc ba" "$plugin"
	switched 1
	# The link to B that A lost is not the first path of A and C, which share a cable, whichever device C was given.
	if grep -E "from 10\.97\.(2\.2|3\.2):[0-9]+: path .*link down" <<<"$output"; then return 1; fi
}
