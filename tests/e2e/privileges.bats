#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What server, client, keeper and guard may still do while a run goes on, read from /proc by another process; --user.
# The sanitizers have threads and system calls of their own.
# bats file_tags=release
load usual
load fabric

teardown() {
	fabric_teardown
	common_teardown
	validated
}

# As root with every capability of a usual root process.
as_root() {
	[[ $EUID == 0 ]] || skip "needs root"
	getent passwd nobody >/dev/null || skip "needs the user nobody"
	nobody=$(id -u nobody)
	# Nobody writes results here, and runs the program.
	mkdir results
	chown nobody results
	chmod 755 "$BATS_TEST_TMPDIR" 2>/dev/null || :
}

# field PID NAME: the values of a field of the status of all its threads, each once.
field() {
	cat /proc/"$1"/task/*/status | awk -v name="$2:" '$1 == name { print $2 }' | sort -u
}

# has PID NAME VALUE: every thread.
has() {
	[[ $(field "$1" "$2") == "$3" ]] || {
		echo "process $1 ($(cat /proc/"$1"/comm)): $2 is $(field "$1" "$2" | tr '\n' ' '), not $3"
		return 1
	}
}

none=0000000000000000
net_admin=0000000000001000

# confined PID UID CAPABILITIES: no thread has more, nor can it get more.
confined() {
	local set
	has "$1" Uid "$2"
	for set in CapEff CapPrm CapBnd; do has "$1" "$set" "$3"; done
	for set in CapInh CapAmb; do has "$1" "$set" "$none"; done
	has "$1" NoNewPrivs 1
	has "$1" Seccomp 2
}

# running: both ends have their workers.
working() {
	[[ $(cat /proc/"$1"/task/*/comm | grep -c dr-worker) == 2 ]]
}

running() {
	wait_for working "$server"
	wait_for working "$client"
}

@test "server and client of root keep no capability, guards CAP_NET_ADMIN alone, none may gain any" {
	local pid end
	as_root
	start_server --allow-faults --transport tcp -v
	start_client -D 60s --allow-faults -v
	running
	for end in "$server" "$client"; do
		confined "$end" 0 "$none"
		for pid in $(pgrep -P "$end" -x dualrail-guard) $(pgrep -P "$end" -x dualrail-keeper); do
			confined "$pid" 0 "$net_admin"
		done
		[[ $(pgrep -P "$end" | wc -l) == 2 ]]
	done
	stop client INT
	grep 'privileges: user 0, capabilities none, no_new_privs, system call filter' server.err
	grep 'privileges: user 0, capabilities none, no_new_privs, system call filter' client.err
}

@test "with --fault-exec the guard keeps root's rights, server and client do not" {
	as_root
	start_server --allow-faults --fault-exec "x=true,true" --transport tcp
	start_client -D 60s
	running
	confined "$server" 0 "$none"
	confined "$client" 0 "$none"
	has "$(pgrep -P "$server" -x dualrail-guard)" NoNewPrivs 0
	has "$(pgrep -P "$server" -x dualrail-guard)" Seccomp 0
	[[ $(field "$(pgrep -P "$server" -x dualrail-guard)" CapEff) == "$(awk '/CapEff/ { print $2 }' /proc/self/status)" ]]
}

@test "a server that may be asked for verbs keeps ipc_lock where locked memory is limited, and says why" {
	as_root
	ulimit -l 64
	start_server -v
	wait_for grep -q 'privileges: user' server.err
	confined "$server" 0 0000000000004000
	grep 'privileges: keeps ipc_lock: .*ulimit -l' server.err
	stop server
	ulimit -l unlimited || skip "the limit cannot be raised again"
	start_server -v
	wait_for grep -q 'privileges: user' server.err
	confined "$server" 0 "$none"
}

@test "a port below 1024 and a directory of another user: what they need is kept, and the reason told" {
	as_root
	free_port
	start server "$DUALRAIL" server -g 0-1 --port "$port" --data-ports 900-920 --transport tcp -v --control 127.0.0.9 \
		--json=results/s.json
	wait_for grep -q 'privileges: user' server.err
	grep 'keeps net_bind_service: a port is below' server.err
	grep 'dac_override: the directory of a result file is not root' server.err
	confined "$pid" 0 0000000000000402
}

@test "--user: all threads of both ends are that user's, and so are their files; faults are injected and undone" {
	as_root
	two_rails
	new_key key
	server_in_b --user nobody --allow-faults --key-file key --transport tcp --json=results/s.json
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --user nobody --key-file key \
		--test failover --allow-faults --json=results/c.json --metrics-listen 10.99.255.1:0 \
		--fault link-down:path=0,at=100ms,for=300ms,repeat=2,every=500ms \
		--fault link-down:path=0,side=server,at=1s,for=300ms,repeat=2,every=500ms
	running
	confined "$server" "$nobody" "$none"
	confined "$client" "$nobody" "$none"
	[[ $(awk '/^Groups:/ { print NF }' /proc/"$server"/status) -le 2 ]]
	confined "$(pgrep -P "$client" -x dualrail-guard)" 0 "$net_admin"
	judge_status 100 0 "$client"
	judge 100 holds results/c.json '[.failover.faults[] | select(.verdict == "PASS")] | length == 4'
	wait_for test -s results/s.json
	[[ $(stat -c %u results/c.json results/s.json | sort -u) == "$nobody" ]]
	has_lower_up "$A" rail0
	has_lower_up "$B" rail0
}

@test "--user: the guard is killed: its fault is undone, and the next run has another guard" {
	as_root
	two_rails
	new_key key
	server_in_b --user nobody --allow-faults --key-file key --transport tcp
	for status in 2 0; do
		start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --key-file key \
			--test failover --fault link-down:path=0,side=server,at=100ms,for=$((status ? 60 : 1))s
		wait_for is_down "$B" rail0
		((status == 0)) || kill -9 "$(pgrep -P "$server" -x dualrail-guard)"
		wait_for has_lower_up "$B" rail0
		ends "$client" "$status"
	done
	confined "$server" "$nobody" "$none"
}

@test "--user: a wrong name, files that the user may not write and a start without root end with status 2" {
	run -2 "$DUALRAIL" server --user no-such-user
	[[ $output == *'--user: "no-such-user" is no user of this host'* ]]
	[[ $EUID == 0 ]] || {
		tells 2 'only root can become another user' "$DUALRAIL" client 127.0.0.1 --user root
		return
	}
	as_root
	free_port
	mkdir -m 700 private
	run -2 "$DUALRAIL" server --port "$port" --user nobody --json=private/s.json
	[[ $output == *"--user nobody: cannot write --json=private/s.json"* ]]
	cp "$DUALRAIL" results/program
	chmod 755 results/program
	run setpriv --reuid "$nobody" --regid "$nobody" --clear-groups results/program client 127.0.0.1 --user root
	((status == 2))
	[[ $output == *'--user root: only root can become another user'* ]]
}

@test "an ordinary user's run: no capability before or after, and it passes" {
	as_root
	cp "$DUALRAIL" results/program
	chmod 755 results/program
	free_port
	cd results
	start server setpriv --reuid "$nobody" --regid "$nobody" --clear-groups ./program server -g 0-1 --port "$port" -v
	wait_for grep -q 'listening on port' server.err
	run timeout "$WAIT_S" setpriv --reuid "$nobody" --regid "$nobody" --clear-groups ./program client 127.0.0.1 \
		--port "$port" "${SMALL[@]}" -D 200ms --json=c.json
	((status == 0))
	has "$server" NoNewPrivs 1
	has "$server" Seccomp 2
	has "$server" CapEff "$none"
	[[ $(stat -c %u c.json) == "$nobody" ]]
}

# bats test_tags=nightly
@test "demo --user: both ends are that user's; it passes and leaves nothing" {
	as_root
	start demo "$DUALRAIL" demo --user nobody --transport tcp -g 0-1 -N 2 -s 1M -D 2s --json=results/d.json
	wait_for demo_runs
	confined "$demo" "$nobody" "$none"
	confined "$(pgrep -P "$demo" -x dualrail)" "$nobody" "$none"
	ends "$demo" 0
	[[ $(stat -c %u results/d.json) == "$nobody" ]]
}

@test "demo --user: a client that fails before it is that user ends, and its server with it" {
	as_root
	run timeout "$WAIT_S" "$DUALRAIL" demo --user nobody -g 0 --test failover --json=results/d.json \
		--fault link-down:path=0,nic=nosuchnic
	((status == 2))
	[[ $output == *nosuchnic* ]]
}

demo_runs() {
	server=$(pgrep -P "$demo" -x dualrail) || return
	working "$demo" && working "$server"
}

@test "metrics are answered by a thread that has no rights either" {
	as_root
	start_server --metrics-listen 127.0.0.1:0 --transport tcp -v
	(($(find /proc/"$server"/task -mindepth 1 -maxdepth 1 | wc -l) >= 2))
	confined "$server" 0 "$none"
}

# rank I: a node of the sweep, named as its output; $words are its other options.
rank() {
	start "$1" ip netns exec "${NODES[$1]}" "$DUALRAIL" sweep --rank "$1" "${words[@]}"
}

# two_of_three OPTIONS...: coordinator and a member of a sweep, who talk and wait for a third node:
# $zero and $one.
two_of_three() {
	fabric 3
	words=(--nodes 3 --coordinator 10.96.255.10 -g 0 -v "$@")
	rank 0
	zero=$pid
	rank 1
	one=$pid
	wait_for grep -q 'joined the sweep' 1.err
}

# starter PID: of this sweep; it has root's rights and no connection.
starter() {
	starter=$(pgrep -P "$1" -x dualrail-runs)
	[[ $(pgrep -P "$1" | wc -l) == 1 ]]
	has "$starter" Uid 0
	has "$starter" Seccomp 0
	has "$starter" CapEff "$(awk '/CapEff/ { print $2 }' /proc/self/status)"
	[[ $(readlink /proc/"$starter"/fd/* | grep -c socket:) == 1 ]]
}

@test "a sweep of root keeps no capability; what starts its runs has no connection" {
	local end
	as_root
	two_of_three
	# A stranger in the middle of a hello.
	start stranger ip netns exec "${NODES[2]}" bash -c \
		'exec 9<>/dev/tcp/10.96.255.10/20000 && printf DUALRAIL >&9 && echo said && cat <&9'
	wait_for grep -q said stranger.out
	for end in "$zero" "$one"; do
		confined "$end" 0 "$none"
		starter "$end"
	done
	grep 'privileges: user 0, capabilities none, no_new_privs, system call filter' 0.err
	kill -KILL "$one"
	# shellcheck disable=SC2154 # set by starter
	wait_for gone "$starter"
}

gone() {
	[[ ! -e /proc/$1 ]]
}

@test "sweep: --user, a port below 1024, a directory of another user; pairs are measured" {
	as_root
	# No figure of a busy machine is low.
	two_of_three "${SMALL[@]}" -D 300ms --min-pair 1 --user nobody --json=results/s.json
	for end in "$zero" "$one"; do
		confined "$end" "$nobody" "$none"
		starter "$end"
	done
	rank 2
	ends "$zero" 0
	ends "$one" 0
	holds results/s.json '.measured.ok == 3'
	[[ $(stat -c %u results/s.json) == "$nobody" ]]
	start low unshare -n "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1:999 \
		--port 20000 -g 0 -v --json=results/low.json
	wait_for grep -q 'privileges: user' low.err
	grep 'keeps dac_override: the directory of a result file is not root' low.err
	confined "$pid" 0 0000000000000002
	# A file of root in a directory of another user.
	chmod 700 results
	echo '{"schema": "dualrail-sweep/1", "nodes_expected": 2, "pattern": "all-pairs"}' >results/earlier
	start again unshare -n "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1:20000 -g 0 -v --resume results/earlier
	wait_for grep -q 'privileges: user' again.err
	confined "$pid" 0 "$none"
	rm results/earlier
	free_port
	run -2 "$DUALRAIL" sweep --rank 0 --nodes 2 --port "$port" --user nobody --json=s.json
	[[ $output == *"--user nobody: cannot write --json=s.json"* ]]
}

# It accepts, and never answers; its port is in silent.out.
silent_server() {
	start silent python3 -u -c 'import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1])
c = s.accept()[0]
print(c.recv(8))
c.recv(1 << 20, socket.MSG_WAITALL)'
	wait_for test -s silent.out
}

@test "doctor and preflight of root keep no capability while they read the server's answer" {
	local command
	as_root
	for command in doctor preflight; do
		silent_server
		start asks "$DUALRAIL" "$command" 127.0.0.1 --port "$(<silent.out)" -g 0 --rails lo@127.0.0.2
		wait_for grep -q DUALRAIL silent.out
		kill -STOP "$pid" # it waits for 5 s only
		confined "$pid" 0 "$none"
	done
}

@test "preflight --user is that user while it reads the server's answer; key and run are as ever" {
	as_root
	head -c 32 /dev/urandom | base64 >key
	chmod 600 key
	silent_server
	start asks "$DUALRAIL" preflight 127.0.0.1 --port "$(<silent.out)" -g 0 --rails lo@127.0.0.2 --user nobody --key-file key
	wait_for grep -q DUALRAIL silent.out
	kill -STOP "$pid" # it waits for 5 s only
	confined "$pid" "$nobody" "$none"
	kill -KILL "$pid"
	start_server -g 0 --transport tcp --key-file key
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0 -D 50ms -w 0 -N 1 -s 64K \
		--matrix=off --rails lo@127.0.0.2,lo@127.0.0.3 --user nobody --key-file key --json=results/p.json
	holds results/p.json '.exit_code != 2 and .measurements == 1'
	[[ $(stat -c %u results/p.json) == "$nobody" ]]
}

@test "preflight of root writes its document into a directory of another user" {
	as_root
	start_server -g 0 --transport tcp
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0 -D 50ms -w 0 -N 1 -s 64K \
		--matrix=off --rails lo@127.0.0.2,lo@127.0.0.3 --json=results/p.json
	holds results/p.json '.exit_code != 2'
}
