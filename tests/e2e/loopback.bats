#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Whole runs over the loopback: needs no privilege.
# check.sh: thread

load usual

@test "bandwidth and latency: a whole document, both ends' figures agree" {
	start_server -1 --json=s.json -v
	gives 0 client --test bw,lat -D 400ms -i 100ms --verify --json=c.json
	# The head has what was given and what the figures depend on; -v has the rest.
	[[ $(tr -s '\n ' ' ' <<<"$output") == *" test=bw,lat gpus=0-1 memory=auto channels=2 chunk=128KiB size=1MiB duration=400ms interval=100ms verify=on transport=tcp json=c.json port=$port GPU 0 "* ]]
	ends "$server" 0
	whole c.json
	whole s.json
	holds c.json '.status == "pass" and .exit_code == 0'
	# Lines of the server: time of day, and the id of the run, which is the client's.
	holds s.json '.run_id == "'"$(jq -r .run_id c.json)"'"'
	grep -Eq "^[0-9-]{10}T[0-9:.]{12}Z listening on port $port, " server.err
	local id
	id=$(jq -r .run_id c.json | sed 's/.*-//')
	grep -Eq "^[0-9-]{10}T[0-9:.]{12}Z $id client .*: done, status 0" server.err
	grep -q " info $id/server: client .*: 2 GPUs" server.err
	holds c.json '.bandwidth | length == 2 and all(.gbps > 0 and .bytes > 0 and .direction == "to-server")'
	judge 100 holds c.json '.bandwidth | all(.sender_gbps / .gbps > 0.5 and .sender_gbps / .gbps < 2)'
	holds c.json '.latency | length == 2 and all(.samples > 0 and .rtt_us.p50 > 0 and .rtt_us.max >= .rtt_us.p50)'
	holds c.json '.intervals | length >= 1'
	holds c.json '.integrity.chunks > 0'
	clean c.json
	holds c.json '(.bandwidth | map(.bytes) | add) == '"$(jq '.bandwidth | map(.bytes) | add' s.json)"
}

@test "both directions at once, and reverse" {
	start_server
	gives 0 client -D 300ms --bidir --json=b.json
	holds b.json '[.bandwidth[].direction] | unique == ["to-client", "to-server"]'
	gives 0 client -D 300ms -R --json=r.json
	holds r.json '[.bandwidth[].direction] | unique == ["to-client"]'
	holds r.json '.bandwidth | all(.bytes > 0)'
}

@test "iterations: exactly as many messages as asked for" {
	start_server
	gives 0 client -n 7 -w 2 --json=c.json
	holds c.json '.bandwidth | map(.messages) == [14, 14]'
}

@test "a sweep of sizes; one worker for all GPUs" {
	start_server --workers 1
	client -s 1M --workers 1 -D 100ms 2>/dev/null
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0-1 -N 2 -b 4K -e 64K -f 4 \
		-D 100ms -w 50ms --workers 1 --json=c.json
	[ "$status" -eq 0 ]
	holds c.json '[.bandwidth[].message_bytes] | unique == [4096, 16384, 65536]'
}

@test "closed connections: the other path takes over, nothing is lost" {
	start_server
	client --test failover --allow-faults --hold-down 100ms --json=c.json \
		--fault close:path=0,at=200ms,for=100ms,repeat=3,every=200ms
	judge_status 100 0
	whole c.json
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 3 and all(.verdict == "PASS" and .channels_affected == 4 and .gap_us > 0)'
	# The parts add up to the gap.
	holds c.json '.failover.faults | all((.detect_us + .fence_us + .handshake_us + .replay_us + .first_delivery_us - .gap_us) | fabs < 1)'
	judge 100 holds c.json '.failover.false_failovers == 0'
	holds c.json '.failover.faults | all(.failback_us != null)'
}

@test "closed connections while both directions run" {
	start_server
	client --test failover --bidir --allow-faults --hold-down 100ms --json=c.json \
		--fault close:path=0,at=200ms,for=100ms,repeat=2,every=200ms
	judge_status 100 0
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .channels_affected == 8)'
}

@test "failback off: the campaign switches back by itself between trials" {
	start_server
	client --test failover --failback off --allow-faults --hold-down 100ms --json=c.json \
		--fault close:path=0,at=200ms,for=100ms,repeat=2,every=200ms
	judge_status 100 0
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .channels_affected == 4)'
}

@test "a fault at the server needs its leave and a key, and then works" {
	local spec=close:path=0,side=server,at=100ms,for=100ms
	new_key key
	start_server --key-file key
	gives 2 client --key-file key --test failover --fault "$spec" -q
	[[ $output == *"start it as root with --allow-faults --key-file FILE, and this end with the same key"* ]]
	kill "$server"
	start_server --allow-faults
	gives 2 client --test failover --fault "$spec" -q
	[[ $output == *"start it as root with --allow-faults --key-file FILE"* ]]
	kill "$server"
	start_server --allow-faults --key-file key
	client --key-file key --hold-down 100ms --test failover --fault "$spec" --json=c.json
	judge_status 100 0
	judge 100 holds c.json '.failover.faults | length == 1 and all(.verdict == "PASS" and .side == "server")'
}

@test "another key, or none: status 3, and the server serves on" {
	new_key key other
	start_server --key-file key
	gives 3 client --key-file other -D 100ms -q
	gives 3 client --connect-timeout 2s -D 100ms -q
	gives 0 client --key-file key -D 100ms -q
}

# old_end listen|PORT: an end that speaks protocol version 2, the one before handles of the process. listen: a server, its
# port in the file "port". Writes what it received.
old_end() {
	python3 - "$1" <<'P'
import socket, struct, sys
hello = b"DUALRAIL" + struct.pack(">HHB", 2, 5 + 60, 4) + b"0.9a" + bytes(60)
if sys.argv[1] == "listen":
    s = socket.create_server(("127.0.0.1", 0))
    with open("port", "w") as f:
        print(s.getsockname()[1], file=f)
    c = s.accept()[0]
else:
    c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(hello)
c.shutdown(socket.SHUT_WR)
while got := c.recv(4096):
    sys.stdout.buffer.write(got)
P
}

@test "another protocol version: one message with both at either end, status 3, and the server serves on" {
	local own other="peer 2 (dualrail 0.9a)" old
	start_server
	wait_for old_end "$port"
	old_end "$port" >hello
	own="this end $((16#$(od -An -tx1 -j 8 -N 2 hello | tr -d ' '))) (dualrail "
	[[ $own != *" 2 "* ]]
	grep -F "protocol versions differ: $own" server.err | grep -F "$other"
	gives 0 client -D 100ms -q

	old_end listen >hello &
	old=$!
	wait_for test -s port
	port=$(<port)
	client -D 100ms -q --connect-timeout 10s --json=c.json
	wait "$old"
	[ "$status" -eq 3 ]
	[[ $output == *"protocol versions differ: $own"*"$other"* ]]
	[ "$(grep -c '^dualrail: .*protocol versions differ' <<<"$output")" -eq 1 ]
	[[ $output != *handles* ]]
}

@test "SIGTERM in the middle: 143, a whole document with what was measured so far" {
	start_server --json=s.json
	under_way start_client -D 60s --json=c.json
	stop client
	whole c.json
	holds c.json '.exit_code == 143 and (.errors | length >= 1)'
	holds c.json '.bandwidth | length == 2 and all(.sender_bytes > 0)'
	# The server wrote its own and serves the next.
	wait_for test -s s.json
	whole s.json
	gives 0 client -D 100ms -q
	stop server
}

@test "SIGKILL of the server: the client ends with 3 and a whole document" {
	start_server
	under_way start_client -D 60s --json=c.json
	kill -9 "$server"
	ends "$client" 3
	whole c.json
	holds c.json '.exit_code == 3'
}

@test "SIGKILL of the client: the server says so, and serves the next" {
	start_server --json=s.json
	under_way start_client -D 60s
	kill -9 "$client"
	wait_for test -s s.json
	whole s.json
	holds s.json '.exit_code == 3'
	gives 0 client -D 100ms -q
}

@test "a second client is told that the server is busy, or waits until it is not" {
	start_server
	under_way start_client -D 60s
	gives 3 client -D 100ms --connect-timeout 300ms -q
	start second "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -D 100ms
	second=$pid
	wait_for grep -q '^server busy: serving client .*; waiting up to 30s (--connect-timeout)$' second.err
	stop client
	ends "$second" 0
	grep -q '^PASS' second.out
}

# bats test_tags=nightly
@test "demo without privileges: closed connections, passes, says what it does not show" {
	local as=() program=$DUALRAIL
	if [[ $(id -u) == 0 ]]; then
		command -v setpriv >/dev/null || skip "needs setpriv to give up root"
		install -m 755 "$DUALRAIL" ./dualrail
		chmod 711 . .. ../.. 2>/dev/null || :
		as=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all)
		program=$PWD/dualrail
		"${as[@]}" "$program" --version >/dev/null || skip "the test folder is closed to others"
	fi
	run "${as[@]}" timeout "$WAIT_S" "$program" demo -D 300ms
	[[ $output == *"not shown"* ]]
	judge_status 100 0
}
