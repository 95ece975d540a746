#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Two network namespaces with two rails and a control link: links are really cut. Needs root.
# check.sh: thread

load usual

setup() {
	common_setup
	two_rails
}

all_gone() {
	local one
	for one in "$@"; do
		kill -0 "$one" 2>/dev/null && return 1
	done
	return 0
}

@test "link-down and blackhole, at the client and at the server: all pass, counters agree" {
	local opts=for=200ms,at=200ms
	new_key key
	server_in_b --allow-faults --key-file key
	client_in_a -v --key-file key --test failover --allow-faults --hold-down 100ms --json=c.json \
		--fault "link-down:path=0,$opts" --fault "blackhole:path=0,$opts" \
		--fault "link-down:path=0,side=server,$opts" \
		--fault "blackhole:path=0,side=server,dir=in,$opts" --prom c.prom
	judge_status 100 0
	[[ $output == *"p99 of fewer than 100 trials"*"blackhole in  server"* ]]
	grep -q '^dualrail_fault_trials{.*kind="blackhole",side="server",dir="in",verdict="PASS"} 1' c.prom
	holds c.json '.failover.summary | map(.dir) == [null, "both", null, "in"]'
	holds c.json '.failover.faults | all(.fault_to_detect_us - .detect_us + .fault_after_us | fabs < 0.01)'
	whole c.json
	clean c.json
	holds c.json '.failover.faults | map(.kind + "/" + .side) == ["link-down/client",
		"blackhole/client", "link-down/server", "blackhole/server"]'
	judge 100 holds c.json '.failover.faults | all(.verdict == "PASS" and .in_flight_chunks > 0 and .gap_us > 0)'
	holds c.json '.failover.faults | all(.failback_us != null and .clock_error_us != null)'
	judge 100 holds c.json '.failover.false_failovers == 0'
	has_lower_up "$A" rail0
	has_lower_up "$B" rail0
}

@test "exec: a command of the user's cuts and restores, workers pinned" {
	server_in_b --pin 0
	client_in_a --pin 0 --test failover --allow-faults --hold-down 100ms --json=c.json \
		--fault-exec "cut=ip link set rail0 down,ip link set rail0 up" \
		--fault exec=cut:path=0,for=200ms,at=200ms
	judge_status 100 0
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 1 and all(.kind == "exec" and .verdict == "PASS" and .gap_us > 0)'
	holds c.json '.failover.faults | all(.at_monotonic_ns > 0 and .fault_to_detect_us == null)'
	has_lower_up "$A" rail0
}

asked_for() {
	grep -q 'manual: break path 0' client.err client.out
}

# One GPU's data, which began on rail0, moves on rail1 now.
on_other_rail() {
	(($(ip netns exec "$A" cat /sys/class/net/rail1/statistics/tx_bytes) > 20000000))
}

@test "manual: asks, waits for somebody to break the path, measures that" {
	server_in_b
	start_client_in_a -g 0 --test failover --allow-faults --hold-down 100ms --json=c.json \
		--fault manual:path=0,at=100ms,for=200ms
	wait_for asked_for
	ip -n "$B" link set rail0 down
	wait_for on_other_rail
	ip -n "$B" link set rail0 up
	judge_status 100 0 "$client"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 1 and all(.kind == "manual" and .verdict == "PASS" and .gap_us > 0)'
	holds c.json '.failover.faults | all([.at_monotonic_ns, .fault_to_detect_us, .fault_after_us, .undone_monotonic_ns, .failback_us] == [null, null, null, null, null])'
	[[ $(<client.out) != *"detected later than the bound"* ]]
	grep -E '^manual: detected after [0-9.]+ ms, data goes on after [0-9.]+ ms; repair the path now$' client.out
}

# The client's ports of its connections over rail0.
over_rail0() {
	ip netns exec "$A" ss -Htn dst 10.99.0.2 | awk '{ sub(".*:", "", $4); print $4 }' | sort -n
}

reset() {
	ip netns exec "$A" ss -HtK dst 10.99.0.2 sport = "$1" >closed
	[[ -s closed ]] || skip "this kernel cannot close sockets for another process (INET_DIAG_DESTROY)"
}

@test "a channel that misses the deadline of its trial: a hang, and its late switch is no false failover" {
	server_in_b
	start_client_in_a -g 0 --test failover --allow-faults --hold-down 100ms --timeout 5s --json=c.json \
		--fault manual:path=0,at=100ms,for=200ms
	wait_for asked_for
	mapfile -t ports < <(over_rail0)
	[ "${#ports[@]}" -eq 2 ]
	reset "${ports[0]}"
	wait_for grep -q 'a switchover did not finish' client.err
	reset "${ports[1]}"
	ends "$client" 5
	clean c.json
	judge 100 holds c.json '.failover.faults | map(.verdict) == ["HANG"]'
	judge 100 holds c.json '[.failover.switches[] | select(.planned | not)] | length == 4 and all(.trial == 0)'
	judge 100 holds c.json '.failover.false_failovers == 0'
	holds c.json '[.errors[] | select(.text | contains("without a fault"))] == []'
}

@test "manual: nobody does it; the trial is a missed one, not a hang" {
	new_key key
	server_in_b --allow-faults --key-file key
	client_in_a --key-file key --test failover --timeout 2s --json=c.json --fault manual:path=0,side=server,at=100ms,for=100ms
	[ "$status" -eq 8 ]
	[[ $output == *"manual: break path 0, NIC rail0 on the server now"* ]]
	grep -q 'break path 0, NIC rail0 on the server now' server.err server.out
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 1 and all(.verdict == "MISSED_FAULT")'
	[[ $output == *"nobody broke the path in time"* ]]
	[[ $output == *"failover: faults may cut rail0, rail1; not ctl0, over which HOST is reached"* ]]
	judge 100 holds c.json '[.failover.switches[]?] == []'
}

# bats test_tags=release
@test "both rails at once: a clean error, no gap, and the time until it" {
	server_in_b
	client_in_a -g 0 --test failover --allow-faults --json=c.json --fault exec=both:path=0,for=5s,at=100ms \
		--fault-exec 'both=ip link set rail0 down; ip link set rail1 down,ip link set rail0 up; ip link set rail1 up'
	judge_status 100 4
	[[ $output == *"no delivery for "*" s until the error"* && $output != *"longest gap"* ]]
	judge 100 holds c.json '.failover.faults | map(.verdict) == ["CLEAN_ERROR"] and all(.gap_us == null and .error_after_us > 1e6)'
	holds c.json '.failover.summary | all(.hit == 1 and .gap_us.p99 == null)'
	has_lower_up "$A" rail0
}

# held NAME: that process waits in its first allocation of pinned memory, until file `hold` is removed.
held() {
	grep -q 'cuMemHostAlloc is held' "$1.err"
}

# with_held_gpu NAMESPACE COMMAND...: one emulated GPU.
with_held_gpu() {
	local library=${DUALRAIL%/*}/tests/fakecuda/cuda_plugin.so
	ip netns exec "$1" env DR_LIBCUDA="$library" "DR_FAKE_CUDA=devices=1,hold=cuMemHostAlloc:$PWD/hold" "${@:2}"
}

# vanish PORT: packets of the control connection from A's port PORT are lost, both ways.
vanish() {
	local rules="add table inet hole; add chain inet hole in { type filter hook input priority 0; }"
	ip netns exec "$B" nft "$rules; add rule inet hole in tcp sport $1 drop" || skip "no nftables here"
	ip netns exec "$A" nft "$rules; add rule inet hole in tcp dport $1 drop"
}

# The client's port of the control connection.
control_port() {
	ip netns exec "$A" ss -Htn dst 10.99.255.2 | awk '{ sub(".*:", "", $4); print $4; exit }'
}

@test "the server's host vanishes while it opens its GPU: both ends notice before READY" {
	start server with_held_gpu "$B" "$DUALRAIL" server -1 -g 0
	touch hold
	start_client_in_a -g 0 --json=c.json
	wait_for held server
	vanish "$(control_port)"
	ends "$client" 3
	holds c.json '.errors[0].text | test("^server 10.99.255.2:20000: the peer.s host has acknowledged nothing for 2 s")'
	rm hold
	ends "$server" 3
	grep -q "client 10.99.255.1:.*the peer's host has acknowledged nothing for 2 s" server.err
}

@test "a client's host vanishes while it opens its GPU: the server serves the next client" {
	server_in_b -g 0
	touch hold
	start client with_held_gpu "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 -s 1M
	wait_for held client
	vanish "$(control_port)"
	wait_for grep -q "client 10.99.255.1:.*the peer's host has acknowledged nothing for 2 s" server.err
	gives 0 client_in_a -g 0 -D 200ms
	rm hold
	ends "$client" 3
}

@test "pending connections of a server, silent or with half a hello, do not hold up its next client" {
	server_in_b -g 0
	# shellcheck disable=SC2016 # bash in the namespace
	start pending ip netns exec "$A" bash -c 'exec 5<>/dev/tcp/10.99.255.2/20000 6<>/dev/tcp/10.99.255.2/20000
		printf DUALRAIL >&6
		echo open
		exec sleep infinity'
	wait_for grep -q open pending.out
	gives 0 client_in_a -g 0 -D 200ms
}

@test "IPv6 rails: bandwidth, then a cut" {
	local net
	for net in "$A" "$B"; do
		ip netns exec "$net" sysctl -qw net.ipv6.conf.all.disable_ipv6=0 || skip "no IPv6 here"
	done
	for dev in 0 1; do
		ip -n "$A" addr add "fd00:99:$dev::1/64" dev "rail$dev" nodad || skip "no IPv6 here"
		ip -n "$B" addr add "fd00:99:$dev::2/64" dev "rail$dev" nodad
	done
	server_in_b --rails rail0@fd00:99:0::2,rail1@fd00:99:1::2
	client_in_a --rails rail0@fd00:99:0::1,rail1@fd00:99:1::1 --test bw,failover -D 200ms --allow-faults \
		--hold-down 100ms --json=c.json --fault link-down:path=0,for=200ms,at=200ms
	judge_status 100 0
	clean c.json
	judge 100 holds c.json '.failover.faults | all(.verdict == "PASS" and .gap_us > 0)'
	holds c.json '.topology | tostring | contains("fd00:99:")'
}

@test "a fault on the idle path disturbs nothing" {
	server_in_b
	client_in_a -g 0 --test failover --allow-faults --hold-down 100ms --json=c.json \
		--fault link-down:path=1,for=200ms,at=200ms
	judge_status 100 0
	judge 100 holds c.json '.failover.faults | length == 1 and all(.verdict == "PASS" and .channels_affected == 0)'
	judge 100 holds c.json '[.failover.switches[]?] == []'
}

@test "a rail that was named and has no link at the start: status 3 with the cause" {
	ip -n "$A" link set rail0 down
	server_in_b --rails rail0,rail1
	tells 3 "rail rail0 10.99.0.1 -> the server's rail0 10.99.0.2 never came up: rail0 is down" \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --rails rail0,rail1
	says "the link is down"
	ip -n "$A" link set rail0 up
	ip -n "$B" link set rail0 down
	tells 3 "rail rail0 10.99.0.1 -> the server's rail0 10.99.0.2 never came up: rail0 is down" \
		ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --rails rail0,rail1
}

@test "an idle rail that loses a fifth of its heartbeats is kept" {
	local node
	command -v nft >/dev/null || skip "needs nft"
	for node in "$A" "$B"; do
		ip netns exec "$node" nft -f - <<-END || skip "no nftables here"
			table netdev hole {
				chain in {
					type filter hook ingress device rail1 priority 0;
					meta l4proto udp numgen inc mod 5 == 0 drop
				}
			}
		END
	done
	server_in_b -g 0 --one-off --rails rail0,rail1 --json=s.json
	start_client_in_a -g 0 --rails rail0,rail1 -D 2s --json=c.json
	judge_status 100 0 "$client"
	judge_status 100 0 "$server"
	for node in c s; do
		clean $node.json
		judge 100 holds $node.json '[.failover.switches[]?] == [] and ([.events[] | select(.kind == "rail")] == [])'
	done
}

@test "the control NIC is never cut" {
	run -2 timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 --test failover \
		--allow-faults --fault link-down:path=0,nic=ctl0 -q
	[[ $output == *ctl0* ]]
	has_lower_up "$A" ctl0
}

# management: a third network, with the default route of both ends, that automatic rails may use.
management() {
	link mgmt 10.99.9
	ip -n "$A" route add default via 10.99.9.254 dev mgmt
	ip -n "$B" route add default via 10.99.9.254 dev mgmt
	ip -n "$A" link del ctl0
}

@test "the NIC of the default route is cut only where nic= names it, and a NIC without paths never" {
	local fault=(-g 0 --test failover --allow-faults --hold-down 100ms --fault)
	management
	server_in_b
	client_to_rail() { run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.0.2 "${SMALL[@]}" "$@"; }
	gives 2 client_to_rail "${fault[@]}" link-down:path=1
	[[ $output == *"--fault link-down: refused: mgmt has this node's default route; give HOST's management address, so that rail1 and rail0 are rails, or name it: nic=mgmt"* ]]
	has_lower_up "$A" mgmt
	client_to_rail "${fault[@]}" link-down:nic=mgmt,at=0,for=100ms --rails mgmt,rail1 --json=c.json
	judge_status 100 0
	judge 100 holds c.json '.failover.faults | map(.nic + .verdict) == ["mgmtPASS"]'
	gives 2 client_to_rail "${fault[@]}" link-down:nic=mgmt
	[[ $output == *"--fault link-down: refused: mgmt carries no path of this run; rails are rail0, rail1"* ]]
	has_lower_up "$A" mgmt
	# The NIC of the ssh session likewise: by the address of this host in SSH_CONNECTION.
	ip -n "$A" route del default
	export SSH_CONNECTION="10.99.9.254 50022 10.99.9.1 22"
	gives 2 client_to_rail "${fault[@]}" link-down:path=1
	[[ $output == *"--fault link-down: refused: mgmt carries the ssh session; "*"or name it: nic=mgmt"* ]]
	gives 0 client_to_rail "${fault[@]}" link-down:path=1 --dry-run --rails mgmt,rail1
	gives 2 client_to_rail "${fault[@]}" link-down:path=0 --dry-run --rails mgmt,rail1
	[[ $output == *"mgmt carries the ssh session"* ]]
	gives 0 client_to_rail "${fault[@]}" link-down:nic=mgmt --dry-run --rails mgmt,rail1
	unset SSH_CONNECTION
	has_lower_up "$A" mgmt
}

@test "faults at the server are checked before data: rights, device and the rule of the default route" {
	local fault=(-g 0 --key-file key --test failover --fault)
	new_key key
	cp key servers
	chown 65534 servers
	management
	start server ip netns exec "$B" setpriv --reuid 65534 --clear-groups --inh-caps=-all --ambient-caps=-all \
		"$DUALRAIL" server -g 0-1 --allow-faults --key-file /dev/fd/7 7<servers
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.9.2 "${fault[@]}" blackhole:side=server,at=60s
	[ "$status" -eq 2 ]
	[[ $output == *"server 10.99.9.2:20000: --fault blackhole: needs CAP_NET_ADMIN at the server (rail0: Operation not permitted); start the server as root"* ]]
	stop server
	server_in_b --allow-faults --key-file key
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.9.2 "${fault[@]}" blackhole:side=server,nic=eth9,at=60s
	[ "$status" -eq 2 ]
	[[ $output == *"server 10.99.9.2:20000: --fault blackhole: "*eth9* ]]
	# The NIC of the server's own default route, where its rails have it.
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.0.2 "${fault[@]}" link-down:side=server,path=0,at=60s --rails mgmt,rail1
	[ "$status" -eq 2 ]
	[[ $output == *"server 10.99.0.2:20000: --fault link-down: refused: mgmt has this node's default route; "*"name it: nic=mgmt"* ]]
	has_lower_up "$B" mgmt
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.0.2 "${fault[@]}" link-down:side=server,nic=mgmt,at=60s --dry-run
	[ "$status" -eq 0 ]
	[[ $output == *"server: link-down (checked by the server when the run starts)"*"  at 60s, for 1s, repeat 1"* ]]
}

@test "both rails cut: the client ends with 4, the server records 4 and serves the next" {
	server_in_b --json=s.json
	under_way start_client_in_a -D 60s --json=c.json
	ip -n "$A" link set rail0 down
	ip -n "$A" link set rail1 down
	ends "$client" 4
	whole c.json
	holds c.json '.exit_code == 4'
	wait_for test -s s.json
	whole s.json
	holds s.json '.exit_code == 4'
	ip -n "$A" link set rail0 up
	ip -n "$A" link set rail1 up
	gives 0 client_in_a -D 200ms -q
}

@test "the peer stopped for 3 s: the run goes on" {
	server_in_b
	under_way start_client_in_a -D 6s --verify --json=c.json
	kill -STOP "$server"
	read -rt 3 <> <(:) || : # the time is what is tested
	kill -CONT "$server"
	ends "$client" 0
	clean c.json
	holds c.json '.events | any(.kind == "silence")'
}

@test "the control link alone cut: the run goes on, control is resumed over a rail" {
	server_in_b
	under_way start_client_in_a -D 6s --json=c.json
	ip -n "$A" link set ctl0 down
	ends "$client" 0
	clean c.json
	holds c.json '.events | any(.kind == "control" and (.text | startswith("lost")))'
	judge 1000 holds c.json '.events | any(.kind == "control" and (.text | startswith("resumed")))'
	holds c.json '.bandwidth | length == 2 and all(.bytes > 0 and .gbps > 0)'
}

@test "SIGKILL of the server during its fault: undone, the client ends with 3" {
	new_key key
	server_in_b --allow-faults --key-file key
	start_client_in_a --key-file key --test failover --json=c.json \
		--fault link-down:path=0,side=server,at=100ms,for=60s
	wait_for is_down "$B" rail0
	kill -9 "$server"
	wait_for has_lower_up "$B" rail0
	ends "$client" 3
	whole c.json
}

@test "SIGKILL and SIGINT of the client during its fault: undone, the server serves the next" {
	server_in_b
	for signal in KILL INT; do
		start_client_in_a -v --test failover --allow-faults --json=c.json \
			--fault link-down:path=0,at=100ms,for=60s
		wait_for is_down "$A" rail0
		[ "$signal" = KILL ] || wait_for grep -q '^fault 0: rail0 set down' client.out
		kill -"$signal" "$client"
		wait_for has_lower_up "$A" rail0
		[ "$signal" = KILL ] || ends "$client" 130
		wait_for grep -q ' client .*status 3' server.err
		: >server.err
	done
	whole c.json
	holds c.json '.failover.faults | map([.verdict, .note]) == [["INCOMPLETE", "not finished: interrupted (SIGINT)"]]'
	holds c.json '.failover.gap_us.n == 0 and .failover.summary[0].verdicts.PASS == 0'
	grep -q '^Result: 0 of 1 trial finished$' client.out
	grep -q '^failover: 1 trial, first injection after 100.*ms, about ' client.out
	grep -Eq '^fault 0: rail0 set down at [0-9.]+ s$' client.out
	gives 0 client_in_a -D 200ms -q
}

@test "SIGINT of the client before the injection of its fault is complete: the trial is in the document" {
	server_in_b
	start_client_in_a --test failover --allow-faults --json=c.json \
		--fault-exec "slow=touch begun && sleep 60,touch undone" --fault exec=slow:path=0,at=100ms,for=200ms
	wait_for test -e begun
	stop client INT
	whole c.json
	holds c.json '.failover.faults | length == 1 and all(.kind == "exec" and .verdict == "INCOMPLETE")'
	holds c.json '.failover.faults | map([.note, .at_monotonic_ns]) == [["not finished: interrupted (SIGINT)", null]]'
	[ -e undone ]
}

@test "demo: link-down and blackhole pass; nothing stays behind" {
	start demo "$DUALRAIL" demo -v -D 500ms --json=c.json \
		--fault link-down:path=0,at=100ms,for=200ms,repeat=2,every=300ms \
		--fault blackhole:path=0,at=100ms,for=200ms,repeat=2,every=300ms
	wait_for grep -q 'Gb/s' demo.out
	mapfile -t left < <(family "$demo")
	[ "${#left[@]}" -ge 2 ]
	judge_status 100 0 "$demo"
	wait_for all_gone "${left[@]}"
	whole c.json
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 4 and all(.verdict == "PASS")'
	holds c.json '.bandwidth | length >= 1'
	holds c.json '.latency | length >= 2 and all(.samples > 0)'
	holds c.json '[.latency[].nic] | unique == ["rail0", "rail1"]'
	holds c.json '[.nics[] | select(.counter_tx_bytes != null)] | length == 4'
}

@test "demo killed or interrupted: nothing stays behind" {
	for signal in KILL INT; do
		start demo "$DUALRAIL" demo -v --test failover
		wait_for grep -q 'Gb/s' demo.out
		mapfile -t left < <(family "$demo")
		[ "${#left[@]}" -ge 2 ]
		kill -"$signal" "$demo"
		[ "$signal" = KILL ] || ends "$demo" 130
		wait_for all_gone "${left[@]}"
	done
}
