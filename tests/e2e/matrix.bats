#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --matrix: two GPUs and three rails, over the loopback and, as root, over shaped links between two
# network namespaces.

RAILS=lo@127.0.0.2,lo@127.0.0.3,lo@127.0.0.4
# Counted messages, so that a busy machine changes no cell's content.
TINY=(-N 1 -s 64K --window 4 -n 40 -w 2 -i 0)

load usual

matrix() {
	client --rails "$RAILS" --matrix "${TINY[@]}" "$@"
}

@test "every GPU over every NIC, all GPUs over each, all over all: from one run" {
	start_server -1 --rails "$RAILS" --json=s.json
	matrix --verify --json=c.json --csv c.csv
	judge_status 100 0
	ends "$server" 0
	[[ $output == *"matrix: 2 GPUs x 3 NICs = 6 cells, each NIC with all GPUs, then all GPUs over all NICs: 10"*" measurements of 40 messages a channel"* ]]
	whole c.json
	clean c.json
	holds c.json '[.matrix.cells[] | [.rail, .gpu]] == [[0,0],[0,1],[0,null],[1,0],[1,1],[1,null],[2,0],[2,1],[2,null]]'
	judge 100 holds c.json '.matrix.cells | all(.gbps > 0 and .bytes > 0 and .seconds > 0 and .sender_bytes > 0 and .switched == 0)'
	holds c.json '.matrix.cells | all(.channels == (if .gpu == null then 2 else 1 end) and .messages == 40 * .channels)'
	# The receiver's clock and bytes: both ends tell the same.
	holds s.json "[.matrix.cells[] | .bytes, .seconds] == $(jq -c '[.matrix.cells[] | .bytes, .seconds]' c.json)"
	# The bandwidth of the run is that of all GPUs over all NICs, not of a cell.
	holds c.json '(.bandwidth | length) == 2 and .matrix.total.gbps == .total.gbps and .total.phase == 9'
	# The loopback has no counters to tell idle NICs by.
	holds c.json '.matrix.nics | length == 3 and all(.total_gbps == null and .finding != "idle" and .finding != "left")'
	[ "$(grep -c ^matrix-cell, c.csv)" -eq 9 ]
	[ "$(grep -c ^matrix-nic, c.csv)" -eq 3 ]
}

@test "--verify: a NIC that corrupts data is found in its cells, with the bytes and the place, and in no other" {
	library=${DUALRAIL%/*}/tests/plugins/badnic_plugin.so
	[[ -e $library ]] || skip "the library that corrupts data is not built"
	! ldd "$DUALRAIL" | grep -q 'lib[at]san' || skip "the sanitizer's library has to be the first one"
	free_port
	start server env LD_PRELOAD="$library" DR_BAD_NIC=127.0.0.3 "$DUALRAIL" server -g 0-1 --port "$port" -1 --rails "$RAILS"
	gives 6 matrix -v --verify --json=c.json
	ends "$server" 6
	holds c.json '.matrix.cells | map(select(.rail == 1)) | length == 3 and all(.wrong_chunks > 0 and
		.wrong_bytes >= .wrong_chunks and (.first_wrong | test("channel [0-9]+ seq [0-9]+: corrupted, first wrong byte at offset [0-9]+ is")))'
	holds c.json '.matrix.cells | map(select(.rail != 1)) | length == 6 and all(.wrong_chunks == 0 and .wrong_bytes == 0 and .first_wrong == null)'
	[[ $output == *"data wrong: gpu 1 over lo, to-server: "*" chunks, "*" bytes; first: gpu 1 channel "* ]]
	[ "$(grep -c '^cell: .* over rail 1 .*WRONG DATA: ' <<<"$output")" -eq 3 ]
	if grep '^cell: .* over rail [02] .*WRONG' <<<"$output"; then return 1; fi
}

@test "both directions, reverse, iterations, a stream of cells" {
	start_server --rails "$RAILS"
	matrix --bidir --json=b.json
	judge_status 100 0
	holds b.json '[.matrix.cells[] | [.rail, .gpu, .direction]] | length == 18 and (unique | length) == 18'
	holds b.json '.matrix.cells | all(.gbps > 0 and .channels == (if .gpu == null then 2 else 1 end))'
	client --rails "$RAILS" --matrix -N 2 -s 64K -n 7 -w 2 -R --json-stream 2>/dev/null
	judge_status 100 0
	sed -n '/^{/p' <<<"$output" >r.jsonl
	jq -es '[.[] | select(.event == "matrix-cell").data] | length == 9 and all(.direction == "to-client" and
		.messages == (if .gpu == null then 28 else 14 end))' r.jsonl
	jq -es '[.[] | select(.event == "end").data.matrix.cells[] | .gbps > 0] | length == 9 and all' r.jsonl
}

@test "--min-bw judges the phase of all GPUs over all NICs" {
	start_server --rails "$RAILS"
	matrix --min-bw 0.000001 -q
	judge_status 100 0
	gives 7 matrix --min-bw 900000 --json=c.json -q
	holds c.json '.errors | any(.text | contains("in total"))'
}

@test "what a matrix is not: status 1 and the reason" {
	run -1 "$DUALRAIL" client 127.0.0.1 -q --min-nic 80%
	[[ $output == *"--min-nic compares the NICs of --matrix; add --matrix"* ]]
	for bad in "-b 64K -e 1M" "--test lat" "--map 0=0" "--spread all" "-N 22" "-N 11 --bidir"; do
		# shellcheck disable=SC2086
		tells 1 --matrix "$DUALRAIL" client 127.0.0.1 -q --rails "$RAILS" --matrix $bad
	done
	run -0 "$DUALRAIL" client 127.0.0.1 -q --rails "$RAILS" --matrix -N 21 --dry-run
	[[ $output == *"21 channels a direction on each of 3 rails"*"= 24 cells"*"28 x 5.30 s"*"about 148 s"* ]]
}

# Two namespaces, a control link and three rails of the given rates, which queue more than the windows
# hold: nothing is dropped, so that the rates alone decide, on a busy machine too.
links() {
	local i=0 rate ns
	two_nodes
	link ctl0 10.98.255
	for rate in "$@"; do
		link "rail$i" "10.98.$i"
		for ns in "$A" "$B"; do
			tc -n "$ns" qdisc add dev "rail$i" root tbf rate "$rate" burst 64k latency 200ms ||
				skip "no tbf in this kernel"
		done
		i=$((i + 1))
	done
}

start_in_namespaces() {
	server_in_b -1 --json=s.json
	start client ip netns exec "$A" "$DUALRAIL" client 10.98.255.2 -g 0-1 --matrix -N 1 -s 32K --window 4 \
		-i 0 --json=c.json "$@"
}

# bats test_tags=nightly
@test "a slow NIC is named, with its figure, and no other one" {
	links 100mbit 20mbit 100mbit
	start_in_namespaces --detect conservative -D 500ms -w 50ms --min-nic 70%
	judge_status 100 7 "$client"
	judge 100 grep -q '^rail1 <-> rail1 (rail 1, 10.98.1.1 -> 10.98.1.2) is slow, client to server:$' client.out
	judge 100 grep -q '^  0\.0[0-9]* Gb/s, others 0\..*, both GPUs; server to client not measured (--bidir)$' client.out
	judge 100 grep -q '^  rail1 (rail 1), client to server: 0.0.* of the other NICs, below --min-nic=70%$' client.out
	tr -s '\n ' '  ' <client.out | grep -q 'slowest GPU [01] (over all 3 NICs): '
	judge 100 holds c.json '[.matrix.nics[] | .finding] == ["ok", "slow", "ok"]'
	judge 100 holds c.json '.matrix.nics[1] | .nic == "rail1" and .alone_gbps < 0.03 and (.cause | contains("median"))'
	judge 100 grep -q '^  slow: rail 1 (rail1 <-> rail1): 0.0' client.out
	[ "$(grep -c '^  \(slow\|idle\|left\): rail' client.out)" -eq 1 ]
	# The NICs' own counters: not below the payload, not far above it.
	judge 100 holds c.json '.matrix.cells | all(.client_counter_bytes / .sender_bytes > 0.5 and .client_counter_bytes / .sender_bytes < 2)'
	judge 100 holds c.json '[.matrix.nics[].share_percent] | add > 99.9 and add < 100.1 and .[1] < 20'
	holds c.json '.matrix.total.counters | length == 6 and all(.counter_tx_bytes + .counter_rx_bytes > 0)'
	judge 100 holds s.json '[.matrix.nics[] | .finding] == ["ok", "slow", "ok"]'
}

@test "a NIC whose link is down is named: by the run, by doctor, and first by a baseline" {
	links 200mbit 200mbit 200mbit
	server_in_b
	local run=(ip netns exec "$A" "$DUALRAIL" client 10.98.255.2 -g 0-1 -N 1 -s 32K -D 100ms -w 50ms -i 0)
	run "${run[@]}" --save-baseline good.json
	judge_status 100 0
	[[ $output != *"not used"* && $output == *$'\nPASS (exit status 0); ctl0 was not measured: HOST is reached over it\n'* ]]
	run -0 "${run[@]}" -v
	says "control connection"
	ip -n "$B" link set rail1 down
	# More than fits into a line.
	ip -n "$A" link add management-nic0 up type veth peer name unused0
	ip -n "$A" link set unused0 up
	ip -n "$A" addr add 10.98.77.1/24 dev management-nic0
	COLUMNS=100 run -7 "${run[@]}" --baseline good.json --json=c.json
	[[ $output == *$'\n'"not used: rail1 (10.98.1.1): no carrier"* ]]
	says "no carrier"
	[[ $output == *$'\n'"not used at the server: rail1 (10.98.1.2): down"* ]]
	says "down"
	[[ ${output//$'\n'  / } == *"(10.98.77.1): tunnel or another virtual device"* ]]
	awk '/^not used/ { on = 1 } /^Bandwidth: / { exit } on && length > 100 { print; bad = 1 } END { exit bad }' <<<"$output"
	holds c.json '.errors[0].text == "rail1 is in the baseline, not in this run: its link is down"'
	holds c.json '[.topology.unused_nics[] | [.side, .nic, .reason]] | contains([["client", "rail1", "no carrier"], ["server", "rail1", "down"]])'
	run ip netns exec "$A" "$DUALRAIL" doctor --json=d.json
	holds d.json '.findings | any(.check == "link" and .severity == "warn" and (tojson | contains("rail1") and contains("no rail uses it")))'
}

@test "a NIC that carries nothing is named idle; what moved to another is no figure for it" {
	links 100mbit 100mbit 100mbit
	start_in_namespaces -v -n 200 -w 2
	wait_for grep -q '^cell: GPU 0 over rail 0' client.out
	ip -n "$B" link set rail2 down
	judge_status 100 7 "$client"
	clean c.json
	judge 100 holds c.json '.matrix.nics[2].finding == "idle" and .matrix.nics[2].alone_gbps == null'
	judge 100 holds c.json '.matrix.cells | map(select(.rail == 2)) | length == 3 and all(.switched == .channels and .bytes > 0)'
	judge 100 holds c.json '.matrix.nics[0, 1].finding != "idle"'
	judge 100 grep -q '^  idle: rail 2 (rail2 <-> rail2): its own counters' client.out
	grep -q '^cell: GPU 0 over rail 2 (rail2), to-server: .*, but 1 of 1 channels left that NIC' client.out
	grep -q '^ *0 .* left  *|' client.out
}

# A NIC that dr_netdev_refused refuses: the rule stands once, and acts everywhere. The example is built without sanitizers.
# bats test_tags=release
@test "a NIC that the rules leave out is no rail of client, doctor, sweep, plugin and library" {
	two_rails
	for net in "$A" "$B"; do
		ip -n "$net" link add out0 type bridge
		ip -n "$net" link add inner0 type veth peer name inner1
		ip -n "$net" link set inner0 master out0
		for nic in lo out0 inner0 inner1; do ip -n "$net" link set "$nic" up; done
	done
	ip -n "$A" addr add 10.77.7.1/24 dev out0
	ip -n "$B" addr add 10.77.7.2/24 dev out0
	server_in_b --json=s.json
	client_in_a --json=c.json
	holds c.json '[.topology.rails[].ifname] == ["rail0", "rail1"]'
	doctor_in_a 10.99.255.2
	[[ $output == *"2 rails: rail0, rail1"* ]]
	start peer ip netns exec "$B" "$DUALRAIL" sweep --nodes 2 --rank 1 --coordinator 10.99.255.1 -g 0 -D 200ms
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" sweep --nodes 2 --rank 0 -g 0 -D 200ms --json=w.json
	holds w.json '[.pairs[].lanes[].client_nic] | unique == ["rail0", "rail1"]'
	run "$DR_BUILD/tests/plugin/ring_main" --log --netns "$A,$B" --bytes 8K "$DR_BUILD/libnccl-net-ha.so"
	[[ $status == 0 && $output == *"out0 is not used: bridge without a physical port"* ]]
	says "bridge without a physical port"
	cc -D_POSIX_C_SOURCE=200809L -I"$DR_ROOT/library" "$DR_ROOT/docs/examples/kvblocks/blocks.c" -L"$DR_BUILD" -ldualrail -o blocks
	start receive ip netns exec "$A" env LD_LIBRARY_PATH="$DR_BUILD" ./blocks receive --nics auto --handle handle
	wait_for test -e handle
	handle=$(od -An -v -tx1 handle | tr -d ' \n')
	[[ $handle == *0a630001* && $handle != *0a4d0701* ]] # 10.99.0.1 and not 10.77.7.1
}
