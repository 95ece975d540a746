#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `dualrail plugin`: correct network plugins of NCCL have no violation, and each misbehaviour of tests/plugins is named.
# `--transport nccl:FILE`: runs over such plugins.
# shellcheck disable=SC2054 # commas belong to values

# bats file_tags=one-thread
load usual

setup() {
	common_setup
	ha=$DR_BUILD/libnccl-net-ha.so
	fake=$DR_BUILD/tests/plugins/libnccl-net-fake.so
	unset "${!HA_NCCL_@}" "${!NCCL_@}" "${!FAKENET@}"
	export HA_NCCL_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo FAKENET_IFNAME=lo
}

check() {
	run timeout $((WAIT_S * 2)) "$DUALRAIL" plugin "$@"
}

# lane_gaps FILE...: the gaps of lanes, which carry data, in logs of libnccl-net-ha.so, in ms, ascending.
lane_gaps() {
	sed -n 's/.*session: lane [0-9]* from .*: path [01] -> [01], gap \([0-9.]*\) ms.*/\1/p' "$@" | sort -n
}

# conforms FILE [OPTIONS...]
conforms() {
	check "$@"
	[[ $status == 0 && $output == *"no violation" ]]
	[[ $(grep -c '^ok ' <<<"$output") == 9 ]]
}

# names RULE TEXT: the bug in FAKENET_BUGS is a violation of the rule, and its line has the text.
names() {
	check "$fake" --call-limit "${limit-1s}" -q
	if [[ $status != 4 ]] || ! grep -q "^VIOLATION .* $1 .*$2" <<<"$output"; then
		echo "$FAKENET_BUGS: no violation of $1 with \"$2\", status $status"
		return 1
	fi
}

@test "plugins without a bug have no violation" {
	conforms "$ha"
	[[ $output == *"plugin HA, interface v12 of v6 v7 v8 v9 v10 v11 v12"* ]]
	[[ $output == *"irecv took 32 at once"* ]]
	HA_NCCL_ENABLE_BACKUP=0 conforms "$ha"
	conforms "$fake"
	[[ $output == *"plugin FakeSocket, interface v12 of v6 "* ]]
	# No request for every other call, and memory that is registered without a handle.
	FAKENET_BUGS=busy,mhandle-null conforms "$fake"
	# What NCCL tolerates is a note: accept waits for connect, and test says no sizes.
	FAKENET=fast conforms "$fake"
	[[ $output == *"plugin FakeFast, interface v6 of v6"* ]]
	[[ $(grep -c '^NOTE .* waits  *accept waits until the peer connects' <<<"$output") == 1 ]]
	[[ $(grep -c '^NOTE .* sizes  *test says no sizes' <<<"$output") == 1 ]]
}

# bats test_tags=nightly
@test "each version of the interface can be used" {
	local v
	for v in 6 7 8 9 10 11; do
		conforms "$ha" --net-api "v$v"
		[[ $output == *"interface v$v of v6"* ]]
		conforms "$fake" --net-api "v$v"
	done
}

@test "violations of the contract are named" {
	local rule text
	while read -r FAKENET_BUGS rule text; do
		export FAKENET_BUGS
		names "$rule" "$text"
	done <<-'END'
		null:finalize null finalize
		no-context unset ctx
		devices-unset unset ndev
		name-null null name
		same-name properties same name
		same-port properties same guid
		properties-unset properties vProps.ndevs
		properties-overrun properties behind
		no-host-memory properties host memory
		no-receives properties maxRecvs
		virtual-devices properties vProps.ndevs
		no-bytes properties maxP2pBytes
		listen-null null listenComm
		listen-unset unset listenComm
		handle-long handle byte 128
		connect-unset unset sendComm
		connect-never connect connect
		accept-unset unset recvComm
		accept-early connect before connect
		isend-unset unset request
		test-unset unset done
	END
}

@test "violations of the rules of messages are named" {
	local rule text
	while read -r FAKENET_BUGS rule text; do
		export FAKENET_BUGS
		names "$rule" "$text"
	done <<-'END'
		oversize size for a receive of
		capacity size were sent
		early early before the data
		order order has the data of
		tags order has the data of
		corrupt data is wrong
		bounds bounds behind
		lost-send lost send
		lost-receive lost receive
		lost-empty lost receive
		few-requests requests takes 4
		leak leak none is outstanding
		late late deregMr
		descriptors descriptors descriptors
	END
}

@test "a crash, an exit, an error and a hang are named with their call, and nothing is left" {
	local call what
	for call in dlopen init devices getProperties listen connect accept regMr deregMr isend irecv test closeSend \
		closeRecv closeListen finalize; do
		for what in crash exit hang error; do
			# That is no violation: the plugin says that it cannot be used, or has no way to say so.
			[[ $what:$call == error:init || $what:$call == error:dlopen ]] && continue
			export FAKENET_BUGS=$what:$call
			names "$what" "$call"
		done
	done
	if pgrep -f "plugin $fake --call-limit"; then return 1; fi
}

@test "what a plugin writes into the memory that its process shares with the check does not crash the check" {
	local call
	for call in init getProperties isend; do
		FAKENET_BUGS=smash:$call check "$fake" --call-limit 1s
		[[ $status == [24] ]] || {
			echo "smash:$call: status $status"
			return 1
		}
	done
	# A call that began in the future, and does not return.
	FAKENET_BUGS=future:isend check "$fake" --call-limit 1s
	[[ $status == [24] ]]
}

@test "calls that wait are named" {
	limit=10s
	for call in listen isend irecv test; do
		FAKENET_BUGS=blocks:$call names blocks "$call took"
	done
}

# bats test_tags=nightly
@test "connect and accept may wait, which is noted" {
	for call in connect accept; do
		FAKENET_BUGS=blocks:$call conforms "$fake"
		grep -q "^NOTE .* waits .*$call" <<<"$output"
	done
}

@test "what is no plugin, does not start or has no device ends with status 2 and one line" {
	echo "no object" >text.so
	gives 2 check "$PWD/text.so"
	one_line
	[[ $output == *"text.so cannot be loaded: "* ]]
	gives 2 check "$PWD/missing.so"
	one_line
	gives 2 check "$DR_BUILD/tests/fakecuda/cuda_plugin.so"
	one_line
	[[ $output == *"has no symbol ncclNetPlugin_v6 to v12"* ]]
	FAKENET=pieces gives 2 check "$fake" --net-api v6
	one_line
	[[ $output == *"has no ncclNetPlugin_v6; it has v7"* ]]
	FAKENET_BUGS=init-fails gives 2 check "$fake"
	one_line
	[[ $output == *"init of plugin FakeSocket returned 2, system error"* ]]
	FAKENET_BUGS=no-devices gives 2 check "$fake"
	one_line
	[[ $output == *"offers 0 devices"* ]]
	gives 1 check
	one_line
}

# bats test_tags=nightly
@test "the plugin's log obeys NCCL_DEBUG" {
	check "$fake"
	if grep -q 'misbehaviours:' <<<"$output"; then return 1; fi
	NCCL_DEBUG=INFO check "$fake"
	grep -q 'INFO .*misbehaviours:' <<<"$output"
}

@test "a check that is killed leaves no process of the plugin" {
	export FAKENET_BUGS=hang:connect
	start hung "$DUALRAIL" plugin "$fake" --call-limit 300s
	wait_for pgrep -P "$pid"
	child=$(pgrep -P "$pid")
	kill -KILL "$pid"
	wait_for test ! -e "/proc/$child/exe"
}

# --- The same plugins as a transport ---

# over FILE: this plugin at both ends, host memory, two rails on the loopback interface.
over() {
	SMALL=(-g 0-1 --memory host -N 2 -s 1M -D 300ms --rails lo@127.0.0.1,lo@127.0.0.2 --transport "nccl:$1")
	start_server --memory host --rails lo@127.0.0.1,lo@127.0.0.2 --transport "nccl:$1"
}

@test "transport: bandwidth and latency through plugins, every byte compared" {
	local plugin
	for plugin in "$fake" "$ha"; do
		over "$plugin"
		gives 0 client --test bw,lat --verify --json=c.json
		clean c.json
		holds c.json '.detection.transport == "nccl" and .integrity.chunks > 0'
		holds c.json '.bandwidth | length == 2 and all(.gbps > 0)'
		holds c.json '.latency | length >= 1 and all(.samples > 0)'
		[[ $output == *"runs the plugin in this process"* ]]
		# A plugin with a failover of its own hides failures from the run.
		[[ $(grep -c 'moves to another NIC by itself' <<<"$output") == "$([[ $plugin == "$ha" ]] && echo 1 || echo 0)" ]]
		kill "$server"
	done
}

@test "transport: the version of the interface that is asked for is used" {
	over "$fake"
	gives 0 client --net-api v6 -v
	tells 1 "--net-api means nothing with --transport tcp" client --net-api v7 --transport tcp
}

@test "transport: closed comms are replaced, and nothing is lost" {
	over "$fake"
	client --test failover --allow-faults --verify --hold-down 100ms --json=c.json \
		--fault close:path=0,at=200ms,for=100ms,repeat=2,every=200ms
	judge_status 100 0
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .failback_us != null)'
}

@test "transport: a rail that goes down and one that falls silent are left" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	unset FAKENET_IFNAME
	start demo "$DUALRAIL" demo -g 0 --memory host --transport "nccl:$fake" --test failover -D 500ms --json=c.json \
		--fault link-down:path=0,at=100ms,for=200ms --fault blackhole:path=0,at=100ms,for=200ms
	judge_status 100 0 "$pid"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS")'
}

# The plugin moves its connections to the other NIC, and says so; the channels stay where they are. Without --detect transport
# they move too, at the link event. Gaps are judged by the plugin's log: one that was measured contains that of the data, and is
# not much longer. Silent faults, as they stand out from the time between two deliveries. With a short hold-down the plugin is
# back before the next one.
# bats test_tags=nightly
@test "transport: --detect transport leaves the failover to the plugin" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	unset NCCL_SOCKET_IFNAME
	local over=(demo -g 0 --memory host --transport "nccl:$ha" --test failover -D 500ms --verify)
	local down=link-down:path=0,at=100ms,for=700ms gaps
	export HA_NCCL_HOLD_DOWN_MS=100
	NCCL_DEBUG=INFO HA_NCCL_DEBUG=1 start transport "$DUALRAIL" "${over[@]}" --detect transport --json=transport.json --trace transport.trace \
		--fault blackhole:path=0,at=100ms,for=700ms,repeat=2,every=3s
	judge_status 100 0 "$pid"
	start fast "$DUALRAIL" "${over[@]}" --json=fast.json --fault "$down"
	wait "$pid" || :
	clean transport.json
	judge 100 holds transport.json '.status == "pass" and .failover.false_failovers == 0 and .failover.switches == []'
	judge 100 holds transport.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0)'
	judge 100 holds transport.json '.detection | .mode == "transport" and .bound_ms == null'
	judge 100 holds transport.json 'all(.nics[]; .tx_bytes == null and .counter_check == null)'
	mapfile -t gaps < <(lane_gaps transport.err transport.out)
	echo "gaps of data in the plugin's log, ms: ${gaps[*]}; measured: $(jq -c '[.failover.faults[].gap_us]' transport.json)"
	judge 100 test "${#gaps[@]}" -ge 2
	judge 100 holds transport.json "[.failover.faults[].gap_us / 1000] | min > 0.9 * ${gaps[0]} - 1 and max > 0.9 * ${gaps[-1]} - 1 and
		max < ${gaps[-1]} + 500"
	judge 100 holds transport.json '.failover.faults | all(.gap_us > .cadence_us.p99 and .gap_us >= .gap_us_median_channel)'
	judge 100 holds transport.json '.failover.faults | all(.gap_us > .fault_after_us)' # it ends after the fault
	judge 100 holds transport.json '.failover.faults | all(.detect_us == null and .replay_us == null and .first_delivery_us == null)'
	judge 100 holds transport.json '.failover | (.gap_us.n == 2) and .gap_us.max == (.faults | map(.gap_us) | max) and
		(.delivery_gaps | length == 4 and all(.side == "server" and .gap_us > 0))'
	grep -q '^fault 1: blackhole, client .*: gap [0-9.]* ms.*: PASS$' transport.out
	"$BATS_TEST_DIRNAME/../otlp.py" transport.trace
	[[ $(grep -o '"delivery gap"' transport.trace | wc -l) == 4 ]]
	# A plugin that is still on the other NIC: the fault cuts nothing, and the time between two deliveries is no gap.
	HA_NCCL_HOLD_DOWN_MS=60000 start away "$DUALRAIL" "${over[@]}" --detect transport --json=away.json --fault "$down" \
		--fault link-down:path=0,at=2s,for=200ms
	judge_status 100 8 "$pid"
	judge 100 holds away.json '.failover.switches == [] and (.failover.faults[0] | .verdict == "PASS" and .gap_us > 0)'
	judge 100 holds away.json '.failover.faults[1] | .verdict == "MISSED_FAULT" and .gap_us == null and .note == "the transport used another NIC"'
	judge 100 holds away.json '.failover.gap_us.n == 1 and (.errors[0].text | contains("let it return before the next fault"))'
	if grep -q 'by itself' transport.err; then return 1; fi
	judge 100 holds fast.json '.failover.switches | length > 0'
	grep -q 'plugin HA moves to another NIC by itself' fast.err
	port=1 SMALL=(-g 0 -q)
	gives 1 client --detect transport --transport tcp
	one_line
	[[ $output == *"--detect transport needs a transport that moves to another NIC by itself"* ]]
}

# The interface of GPUDirect-TCPX: one comm for a listener, data in pieces of a bounce buffer, FIFO slots; misuse aborts.
@test "transport: a plugin that leaves data in pieces, every byte compared, through a link that goes down and one that falls silent" {
	export FAKENET=pieces NCCL_DYNAMIC_CHUNK_SIZE=524288 NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo
	over "$fake"
	gives 0 client --test bw,lat --verify --json=c.json
	clean c.json
	holds c.json '.integrity.chunks > 0 and all(.bandwidth[]; .gbps > 0) and all(.latency[]; .samples > 0)'
	# Not unpacked: the data are not there, and a run that compares them says so.
	kill "$server"
	start_server --memory host --rails lo@127.0.0.1,lo@127.0.0.2 --transport "nccl:$fake" --unpack none
	gives 0 client --test bw
	gives 6 client --test bw --verify --json=c.json
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0'
	kill "$server"
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	unset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME
	start demo "$DUALRAIL" demo -g 0 --memory host --transport "nccl:$fake" --test failover -D 500ms --hold-down 200ms --verify \
		--json=c.json --fault link-down:path=0,at=100ms,for=200ms --fault blackhole:path=0,at=100ms,for=200ms
	judge_status 100 0 "$pid"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0 and .failback_us != null)'
}

# As Fast Socket: connect and accept wait, test says no sizes, of the oldest request alone.
@test "transport: a plugin whose calls wait, every byte compared, through a link that goes down and one that falls silent" {
	export FAKENET=fast NCCL_NSOCKS_PERTHREAD=2 NCCL_SOCKET_NTHREADS=2
	over "$fake"
	gives 0 client -s 1000003 --test bw,lat --verify --json=c.json
	clean c.json
	holds c.json '.integrity.chunks > 0 and all(.bandwidth[]; .gbps > 0) and all(.latency[]; .samples > 0)'
	kill "$server"
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	unset FAKENET_IFNAME
	start demo "$DUALRAIL" demo -g 0 --memory host --transport "nccl:$fake" --test failover -D 500ms --hold-down 200ms --verify \
		--json=c.json --fault link-down:path=0,at=100ms,for=500ms --fault blackhole:path=0,at=100ms,for=500ms
	judge_status 100 0 "$pid"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0 and .failback_us != null)'
}

# Whoever connects to a rail without the session's key gets no handle, and keeps nobody who has it waiting.
# bats test_tags=nightly
@test "transport: strangers at a rail get no handle, and paths are built again beside them" {
	over "$fake"
	under_way start_client -D 1s --test failover --allow-faults --verify --hold-down 100ms \
		--json=c.json --fault close:path=0,at=8s,for=100ms,repeat=3,every=500ms
	ss -Htlnp "src 127.0.0.1 or src 127.0.0.2" | grep "pid=$server," | awk '{ print $4 }' | grep -v ":$port$" >ports
	python3 - ports >strangers <<-'END' &
		import os, socket, sys, time
		ends = [line.strip().rsplit(":", 1) for line in open(sys.argv[1], encoding="utf-8")]
		silent, loud, told = [], [], 0
		for host, port in ends:
		    for i in range(80):
		        silent.append(socket.create_connection((host, int(port)), 30))
		    for i in range(20):
		        s = socket.create_connection((host, int(port)), 30)
		        s.sendall(os.urandom(32))
		        loud.append(s)
		for s in loud:
		    try:
		        told += len(s.recv(4096))
		    except ConnectionResetError:
		        pass
		print(len(ends), "rails, strangers were told", told, "bytes", flush=True)
		time.sleep(60)
	END
	strangers=$!
	wait_for grep -q 'rails, strangers were told 0 bytes' strangers
	judge_status 100 0 "$client"
	kill "$strangers"
	[[ $(cut -d ' ' -f 1 strangers) -ge 2 ]]
	grep -q 'a request for a listen handle was refused' server.err
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 3 and all(.verdict == "PASS" and .failback_us != null)'
}

@test "transport: settings of a plugin that leaves data in pieces are checked at both ends" {
	export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo
	SMALL=(-g 0-1 --memory host --rails lo@127.0.0.1,lo@127.0.0.2 -q)
	port=1
	FAKENET=pieces gives 2 client --transport "nccl:$fake"
	[[ $output == *"NCCL_DYNAMIC_CHUNK_SIZE bytes, which is not set"* ]]
	gives 1 client --transport tcp --unpack none
	over "$fake"
	tells 2 "--unpack none means nothing with plugin FakeSocket" client --unpack none
	kill "$server"
	export FAKENET=pieces NCCL_DYNAMIC_CHUNK_SIZE=524288
	over "$fake"
	NCCL_NSOCKS_PERTHREAD=2 gives 4 client
	[[ $output == *"NCCL_NSOCKS_PERTHREAD is "*"needs the same at both ends"* ]]
	gives 0 client
}

@test "transport: what cannot be used ends with its status and one cause" {
	local file
	SMALL=(-g 0-1 --memory host --rails lo@127.0.0.1,lo@127.0.0.2 -q)
	port=1
	for file in "$PWD/missing.so" "$DR_BUILD/tests/fakecuda/cuda_plugin.so"; do
		tells 2 "${file##*/}" client --transport "nccl:$file"
	done
	FAKENET_BUGS=init-fails gives 2 client --transport "nccl:$fake"
	[[ $output == *"init of plugin FakeSocket returned 2, system error"* ]]
	FAKENET_BUGS=no-devices gives 2 client --transport "nccl:$fake"
	[[ $output == *"plugin FakeSocket has no device on lo; it has none"* ]]
	FAKENET_BUGS=null:isend gives 2 client --transport "nccl:$fake"
	[[ $output == *"ncclNetPlugin_v12 lacks isend"* ]]
	FAKENET=pieces gives 2 client --transport "nccl:$fake" --net-api v6
	[[ $output == *"has no ncclNetPlugin_v6; it has v7"* ]]
	gives 1 client --transport nccl
	one_line
	[[ $output == *"use --transport nccl:FILE" ]]
}

@test "transport: the server loads its own file, and none that a client names" {
	SMALL=(-g 0-1 --memory host -D 300ms --rails lo@127.0.0.1,lo@127.0.0.2 -q)
	start_server --memory host --rails lo@127.0.0.1,lo@127.0.0.2
	tells 2 "needs the file of a plugin at each end" client --transport "nccl:$fake"
	kill "$server"
	over "$fake"
	gives 4 client --transport "nccl:$ha"
	[[ $output == *"it is of another plugin; use the same one at both ends"* ]]
}

# ended BUG STATUS TEXT: a client whose plugin has the bug of tests/plugins/net/bugs.h ends with this status and one
# line that has the text, and nothing of it is left.
ended() {
	FAKENET_BUGS=$1 client -q --json="$PWD/$1.json"
	[ "$status" -eq "$2" ]
	[[ $(grep -c '^dualrail: ' <<<"$output") == 1 && $output == *"dualrail: plugin FakeSocket $3"* ]]
	if wait_for nobody "$PWD/$1.json"; then return; fi
	pgrep -af "$PWD/$1.json"
	return 1
}

nobody() {
	! pgrep -f "$1" >/dev/null
}

@test "transport: a plugin that crashes or ends the process in a call ends the run with one message" {
	over "$fake"
	ended crash:isend@200 134 "crashed in isend"
	ended exit:test@2000 4 "called exit in test"
	ended exit:devices 2 "called exit in devices"
	ended crash:connect 134 "crashed in connect"
	gives 0 client
}

# bats test_tags=release,nightly
@test "transport: a plugin that does not return from a call ends the run with one message" {
	over "$fake"
	FAKENET_BUGS=hang:init start init "$DUALRAIL" client 127.0.0.1 --port 1 "${SMALL[@]}" -q
	hung=$pid
	ended hang:listen 2 "has not returned from listen for 10 s"
	ends "$hung" 2
	grep -q 'plugin FakeSocket has not returned from init for 10 s' init.err
	gives 0 client
}

# NCCL calls connect and accept from a thread of its own.
@test "transport: a plugin that does not return from connect has no path, and the log says so" {
	over "$fake"
	FAKENET_BUGS=hang:connect gives 3 client --connect-timeout 3s
	[[ $output == *"plugin FakeSocket has not returned from connect, which was given up"* ]]
	gives 0 client
}

# bats test_tags=nightly
@test "transport: a peer that is stopped is waited for, and nothing is lost" {
	over "$fake"
	under_way start_client -D 9s --verify --json=c.json
	kill -STOP "$server"
	read -rt 6 <> <(:) || : # the time is what is tested
	kill -CONT "$server"
	ends "$client" 0
	clean c.json
	holds c.json '.events | any(.kind == "silence" and (.text | test("taken to be stopped")))'
}
