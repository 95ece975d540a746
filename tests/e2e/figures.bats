#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a run says about itself: figures, marks, verdicts, outputs. Two namespaces with two rails and a control link.
# shellcheck disable=SC2016,SC2013 # awk's variables; one word a line

load usual

@test "a switch that nobody planned is named, its figures are marked, and thresholds and baselines refuse them" {
	two_rails
	server_in_b --rails rail0,rail1
	under_way start_client_in_a -v --rails rail0,rail1 -D 4s --json=cut.json \
		--min-bw 0.001 --save-baseline base.json
	ip -n "$A" link set rail0 down
	ends "$client" 7
	judge 100 holds cut.json '.unexpected_switches == 2 and .failover.false_failovers == null'
	judge 100 holds cut.json '[.bandwidth[] | select(.switched == 2)] | length == 1'
	# Named between the intervals, with the same zero of time as they have; an interval that ends while the other end's
	# part of the record is on its way comes first. The channels share a line unless their switches are reported
	# far apart, as on a loaded machine.
	awk '/^switch at [0-9.]+ s: GPU 0, rail0 -> rail1, gap [0-9.]+ ms, (1 channel|2 channels) \(.+\)$/ {
			at = $3
			n += / 2 channels / ? 2 : 1
		}
		/^ *[0-9.]+ - [0-9.]+ +s / {
			begin = rows++ ? begin : $1
			end = $3
			after += n > 0
		}
		/^FAIL / { same = match($0, /first at [0-9.]+ s: /) && substr($0, RSTART + 9) + 0 <= at + 0.1 }
		END { exit !(n == 2 && after && begin <= at && at <= end && same) }' client.out
	grep -q '^FAIL (exit status 7); 2 unexpected switches of channels, the first at ' client.out
	judge 100 holds cut.json '[.failover.switches[] | select(.receiver and .gap_us > 0)] | length == 2'
	grep -Eq '^ +0  to-server .* !$' client.out
	grep -q '2 channels were not on their own rail all the time' client.out
	[[ ! -e base.json ]]
}

@test "trials: a fault that hits nothing is missed, a gap above --max-gap fails its trial, every at= counts" {
	two_rails
	server_in_b
	client_in_a -v -g 0 -D 200ms --test bw,failover --allow-faults --hold-down 100ms --max-gap 1us --json=c.json \
		--fault close:path=0,at=100ms,for=100ms --fault link-down:path=0,nic=rail1,at=2500ms,for=100ms
	judge_status 100 8
	judge 100 holds c.json '[.failover.faults[].verdict] == ["FAIL", "MISSED_FAULT"]'
	judge 100 holds c.json '.failover.faults | .[1].at_monotonic_ns - .[0].at_monotonic_ns > 1.5e9'
	[[ $output == *"fault 0: close, client"*": FAIL: the gap is above --max-gap"*"cause: "* ]]
	[[ $output == *"fault 1: link-down, client rail1"*": MISSED_FAULT: no path of the channels was hit"* ]]
	# Each table ends with what it is read for.
	[[ $output == *"Result: 1 GPU x 2 NICs: "*"Result: "*" NICs carried "*"Result: 0 of 2 trials passed; longest gap "*" (fault 0, close, GPU 0 over rail0)"* ]]
	# What was checked is told for each test as it was done.
	holds c.json '[.integrity.phases[] | [.test, .verified]] == [["bw", false], ["failover", true]]'
	[[ $output == *$'\nData: '*" chunks, "*" GB: lost 0, duplicated 0, "* ]]
}

shaped() {
	local ns
	for ns in "$A" "$B"; do
		tc -n "$ns" qdisc add dev rail0 root tbf rate "$1" burst 64k latency 200ms
		tc -n "$ns" qdisc add dev rail1 root tbf rate "$1" burst 64k latency 200ms
	done
}

# The mean of the rows that are not omitted, weighted by duration, and the bandwidth, both of one direction.
mean_is_total() {
	jq -c --arg d "$1" '([.intervals[] | select(.direction == $d and .omitted == false)] |
		(map(.bytes) | add) * 8 / (map(.duration_us) | add) / 1000), ([.bandwidth[] | select(.direction == $d).gbps] | add)' c.json
	holds c.json "$(printf '"%s" as $d | ([.intervals[] | select(.direction == $d and .omitted == false)] |
		(map(.bytes) | add) * 8 / (map(.duration_us) | add) / 1000) /
		([.bandwidth[] | select(.direction == $d).gbps] | add) | . > 0.9 and . < 1.1' "$1")"
}

@test "-D ends the measurement: little is in flight on slow rails; the intervals of both directions add up to it" {
	local direction seconds
	two_rails
	shaped 50mbit || skip "no tbf here"
	server_in_b
	gives 0 client_in_a -N 8 -s 8M -D 1 -i 250ms --bidir --json=c.json
	clean c.json
	judge 100 holds c.json '.unexpected_switches == 0 and (.bandwidth | map(.bytes) | add) > 12e6'
	# The settings of both ends that the figure depends on.
	holds c.json '[.environment.ends[] | .side] | sort == ["client", "server"]'
	holds c.json '.environment.ends | all(.kernel != null and .congestion_control != null and (.tcp_wmem | split(" ") | length) == 3)'
	holds c.json '.environment.nics | length == 4 and all(.qdisc == "tbf" and .mtu_bytes == 1500 and .driver == "veth" and .gso != null)'
	# 0.3 s of warm-up and 1 s; the windows alone would hold 10 s.
	judge 100 holds c.json '([.nics[] | select(.side == "client") | .tx_bytes + .rx_bytes] | add) < 2.2 * (.bandwidth | map(.bytes) | add)'
	for direction in to-server to-client; do
		# A busy machine may notice the end late.
		seconds=$(jq --arg d "$direction" '[.bandwidth[] | select(.direction == $d).seconds, 1] | max' c.json)
		judge 100 mean_is_total "$direction"
		# The warm-up is shorter than two intervals, and there is none after the measurement.
		judge 100 holds c.json "[.intervals[] | select(.direction == \"$direction\" and .omitted)] | length >= 1"
		judge 100 holds c.json "[.intervals[] | select(.direction == \"$direction\" and .omitted == false)] |
			length >= 1 and (map(.duration_us) | add) < 1.5e6 * $seconds"
	done
	[[ $output == *"chunks  omitted (warm-up)"* ]]
}

# Data connections of the namespace that use this congestion control.
using() {
	ip netns exec "$1" ss -Htin state established "( sport = :$port or dport = :$port )" | grep -qw "$2" && return 1
	(($(ip netns exec "$1" ss -Htin state established | grep -cw "$2") >= 4))
}

@test "-D ends the measurement under --rate: messages that have begun are not sent to their end" {
	two_rails
	server_in_b
	gives 0 client_in_a -N 8 -s 64M --rate 200M -D 1 --json=c.json
	clean c.json
	# One message of each of the 16 channels takes 21 s at this rate.
	judge 100 holds c.json '([.nics[] | select(.side == "client") | .tx_bytes] | add) < 3 * (.bandwidth | map(.bytes) | add)'
}

@test "--cc: the data connections of both ends have it, control has not; one that is not there is an error" {
	local other='' cc
	two_rails
	for cc in $(cat /proc/sys/net/ipv4/tcp_allowed_congestion_control); do
		[[ $cc == "$(ip netns exec "$A" cat /proc/sys/net/ipv4/tcp_congestion_control)" ]] || other=$cc
	done
	[[ $other ]] || skip "this kernel allows one congestion control only"
	free_port
	server_in_b --port "$port"
	under_way start_client_in_a --port "$port" -D 60s --cc "$other"
	wait_for using "$A" "$other"
	wait_for using "$B" "$other"
	stop client INT
	gives 2 client_in_a --port "$port" --cc nosuchthing -D 100ms --json=c.json
	holds c.json '.errors[0].text | contains("--cc nosuchthing") and contains("tcp_available_congestion_control")'
}

@test "demo: the settings say that it allows faults" {
	run timeout "$WAIT_S" "$DUALRAIL" demo -g 0 -N 1 -s 1M -D 50ms -w 50ms --test bw --json=d.json
	[ "$status" -eq 0 ]
	holds d.json '.options["allow-faults"]'
	[[ $output != *allow-faults=off* ]]
}
