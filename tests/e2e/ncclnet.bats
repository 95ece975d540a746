#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `dualrail plugin`: correct network plugins of NCCL have no violation, and each bug of tests/badplug is named.
# `--transport nccl:FILE`: runs over such plugins.
# shellcheck disable=SC2154,SC2030,SC2031,SC2034,SC2054 # set and used by lib.bash; tests are subshells; commas belong to values

# bats file_tags=one-thread
setup() {
	load lib
	common_setup
	bad=$DR_BUILD/tests/badplug/bad_plugin.so
	ha=$DR_BUILD/libnccl-net-ha.so
	min=$DR_BUILD/tests/minplug/libnccl-net-min.so
	unset "${!HA_NCCL_@}" "${!NCCL_@}" BADPLUG
	export HA_NCCL_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo MINNET_IFNAME=lo
}

teardown() {
	common_teardown
}

check() {
	run timeout $((WAIT_S * 2)) "$DUALRAIL" plugin "$@"
	printf '%s\n' "${output:0:4000}"
}

# conforms FILE [OPTIONS...]
conforms() {
	check "$@"
	[[ $status == 0 && $output == *"no violation" ]]
	[[ $(grep -c '^ok ' <<<"$output") == 9 ]]
}

# names RULE TEXT: the bug in BADPLUG is a violation of the rule, and its line has the text.
names() {
	check "$bad" --call-limit "${limit-1s}" -q
	if [[ $status != 4 ]] || ! grep -q "^VIOLATION .* $1 .*$2" <<<"$output"; then
		echo "$BADPLUG: no violation of $1 with \"$2\", status $status"
		return 1
	fi
}

@test "plugins without a bug have no violation" {
	conforms "$bad"
	[[ $output == *"plugin bad, interface v11 of v11"* ]]
	conforms "$ha"
	[[ $output == *"plugin HA, interface v12 of v6 v7 v8 v9 v10 v11 v12"* ]]
	[[ $output == *"irecv took 32 at once"* ]]
	HA_NCCL_ENABLE_BACKUP=0 conforms "$ha"
	conforms "$min"
	[[ $output == *"plugin Min, interface v12 of v6 "* ]]
}

@test "each version of the interface can be used" {
	local v
	for v in 6 7 8 9 10 11; do
		conforms "$ha" --net-api "v$v"
		[[ $output == *"interface v$v of v6"* ]]
		conforms "$min" --net-api "v$v"
	done
}

@test "violations of the contract are named" {
	local rule text
	while read -r BADPLUG rule text; do
		export BADPLUG
		names "$rule" "$text"
	done <<-'END'
		finalize-null null finalize
		no-context unset ctx
		devices-unset unset ndev
		name-null null name
		same-name properties same name
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
	while read -r BADPLUG rule text; do
		export BADPLUG
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
			export BADPLUG=$what:$call
			names "$what" "$call"
		done
	done
	if pgrep -f "plugin $bad --call-limit"; then return 1; fi
}

@test "calls that wait are named" {
	limit=10s
	for call in listen connect accept isend irecv test; do
		BADPLUG=blocks:$call names blocks "$call took"
	done
}

@test "what is no plugin, does not start or has no device ends with status 2 and one line" {
	echo "no object" >text.so
	check "$PWD/text.so"
	[ "$status" -eq 2 ]
	one_line
	[[ $output == *"text.so cannot be loaded: "* ]]
	check "$PWD/missing.so"
	[ "$status" -eq 2 ]
	one_line
	check "$DR_BUILD/tests/fakecuda/cuda_plugin.so"
	[ "$status" -eq 2 ]
	one_line
	[[ $output == *"has no symbol ncclNetPlugin_v6 to v12"* ]]
	check "$bad" --net-api v6
	[ "$status" -eq 2 ]
	one_line
	[[ $output == *"has no ncclNetPlugin_v6; it has v11"* ]]
	BADPLUG=init-fails check "$bad"
	[ "$status" -eq 2 ]
	one_line
	[[ $output == *"init of plugin bad returned 2, system error"* ]]
	BADPLUG=no-devices check "$bad"
	[ "$status" -eq 2 ]
	one_line
	[[ $output == *"offers 0 devices"* ]]
	check
	[ "$status" -eq 1 ]
	one_line
}

@test "the plugin's log obeys NCCL_DEBUG and NCCL_DEBUG_SUBSYS" {
	check "$bad"
	if grep -q 'plugin with bug' <<<"$output"; then return 1; fi
	NCCL_DEBUG=INFO check "$bad"
	grep -q 'INFO .*plugin with bug' <<<"$output"
	NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET check "$bad"
	if grep -q 'plugin with bug' <<<"$output"; then return 1; fi
}

@test "a check that is killed leaves no process of the plugin" {
	export BADPLUG=hang:connect
	start hung "$DUALRAIL" plugin "$bad" --call-limit 300s
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
	for plugin in "$min" "$ha"; do
		over "$plugin"
		client --test bw,lat --verify --json=c.json
		[ "$status" -eq 0 ]
		clean c.json
		holds c.json '.detection.transport == "nccl" and .integrity.chunks > 0'
		holds c.json '.bandwidth | length == 2 and all(.gbps > 0)'
		holds c.json '.latency | length >= 1 and all(.samples > 0)'
		[[ $output == *"only as good as the plugin's close"* ]]
		kill "$server"
	done
}

@test "transport: the version of the interface that is asked for is used" {
	over "$min"
	client --net-api v6 -v
	[ "$status" -eq 0 ]
	client --net-api v7 --transport tcp
	[ "$status" -eq 1 ]
	[[ $output == *"--net-api means nothing with --transport tcp"* ]]
}

@test "transport: closed comms are replaced, and nothing is lost" {
	over "$min"
	client --test failover --allow-faults --verify --hold-down 100ms --json=c.json \
		--fault close:path=0,at=200ms,for=100ms,repeat=2,every=200ms
	[ "$status" -eq 0 ]
	clean c.json
	holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .failback_us != null)'
}

@test "transport: a rail that goes down and one that falls silent are left" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	unset MINNET_IFNAME
	start demo "$DUALRAIL" demo -g 0 --memory host --transport "nccl:$min" --test failover -D 500ms --json=c.json \
		--fault link-down:path=0,at=100ms,for=200ms --fault blackhole:path=0,at=100ms,for=200ms
	ends "$pid" 0
	clean c.json
	holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS")'
}

@test "transport: what cannot be used ends with its status and one cause" {
	local file
	SMALL=(-g 0-1 --memory host --rails lo@127.0.0.1,lo@127.0.0.2 -q)
	port=1
	for file in "$PWD/missing.so" "$DR_BUILD/tests/fakecuda/cuda_plugin.so"; do
		client --transport "nccl:$file"
		[ "$status" -eq 2 ]
		[[ $output == *"${file##*/}"* ]]
	done
	BADPLUG=init-fails client --transport "nccl:$bad"
	[ "$status" -eq 2 ]
	[[ $output == *"init of plugin bad returned 2, system error"* ]]
	client --transport "nccl:$bad" --net-api v6
	[ "$status" -eq 2 ]
	[[ $output == *"has no ncclNetPlugin_v6; it has v11"* ]]
	client --transport nccl
	[ "$status" -eq 1 ]
	one_line
	[[ $output == *"use --transport nccl:FILE" ]]
}

@test "transport: the server loads its own file, and none that a client names" {
	SMALL=(-g 0-1 --memory host -D 300ms --rails lo@127.0.0.1,lo@127.0.0.2 -q)
	start_server --memory host --rails lo@127.0.0.1,lo@127.0.0.2
	client --transport "nccl:$min"
	[ "$status" -eq 2 ]
	[[ $output == *"needs the file of a plugin at each end"* ]]
	kill "$server"
	over "$min"
	client --transport "nccl:$ha"
	[ "$status" -eq 4 ]
	[[ $output == *"it is of another plugin; use the same one at both ends"* ]]
}
