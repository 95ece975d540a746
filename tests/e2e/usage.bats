#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input: a status that says whose mistake it is, and one line that says what to do.
# check.sh: address

# bats file_tags=one-thread
load usual

@test "no command, unknown command: status 1" {
	run -1 "$DUALRAIL"
	one_line
	refuses 1 '"serve" is not a command; did you mean "server"?' "$DUALRAIL" serve
	refuses 1 '"nonsense" is not a command; use one of: server, client' "$DUALRAIL" nonsense
}

@test "unknown option, missing host: status 1" {
	run -1 "$DUALRAIL" client 127.0.0.1 --chanels 8
	one_line
	[[ $output == *--chanels*'did you mean "--channels"?'* ]]
	refuses 1 HOST "$DUALRAIL" client
}

@test "a long option with one dash, a value that needs its =: status 1, names what was meant" {
	local try
	for try in test:bw gpus:0 bidir: json=x.json: warmup:1 tests:bw; do
		# shellcheck disable=SC2086 # a value, or none
		run -1 "$DUALRAIL" client 127.0.0.1 --dry-run "-${try%:*}" ${try#*:}
		one_line
		try=${try%%[=:]*}
		[[ $output == *"did you mean \"--${try%s}"*'"?'* ]]
	done
	for try in "client 127.0.0.1 --json r.json" "client --json r.json 127.0.0.1" "demo --json r.json" "server --json r.json"; do
		# shellcheck disable=SC2086 # a command line
		run -1 "$DUALRAIL" $try
		[[ $output == *'"r.json" is not expected here; did you mean --json=r.json?'* ]]
	done
	run -1 "$DUALRAIL" client 127.0.0.1 127.0.0.2
	[[ $output == *'"127.0.0.2" is not expected here; see --help'* ]]
}

@test "a bare number for a short time: status 1, asks for the unit; seconds stay seconds for long ones" {
	local name
	for name in heartbeat hold-down max-gap; do
		refuses 1 "--$name: \"0.5\" has no unit; use 0.5ms or 0.5s" \
			"$DUALRAIL" client 127.0.0.1 --dry-run --test failover "--$name" 0.5
		echo "{\"$name\": 2}" >c.json
		run -1 "$DUALRAIL" client 127.0.0.1 --dry-run --config c.json
		[[ $output == *"\"2\" has no unit; use 2ms or 2s"* ]]
	done
	run "$DUALRAIL" client 127.0.0.1 --dry-run -v -D 7 -i 2 -w 1 --timeout 9 --connect-timeout 8 --heartbeat 20ms
	[ "$status" -eq 0 ]
	[[ $output == *"duration=7s"*"interval=2s"*"heartbeat=20ms"*"connect-timeout=8s"*"timeout=9s"* ]]
}

@test "zero channels, window 0 and 257: status 1" {
	for bad in "-N 0" "--window 0" "--window 257" "-s 0"; do
		# shellcheck disable=SC2086
		refuses 1 "out of range" "$DUALRAIL" client 127.0.0.1 $bad
	done
}

@test "an explicit chunk above the smallest size: status 1; the default adapts" {
	refuses 1 --chunk "$DUALRAIL" client 127.0.0.1 -s 4K --chunk 8K
	run -1 "$DUALRAIL" client 127.0.0.1 -b 1K -e 64K --chunk 2K
	run -0 "$DUALRAIL" client 127.0.0.1 -s 4K --dry-run
}

@test "options that exclude each other: status 1" {
	for bad in "--bidir -R" "-n 5 -D 1" "-s 1M -b 1K -e 1M" \
		"--fault close:path=0"; do
		# shellcheck disable=SC2086
		run -1 "$DUALRAIL" client 127.0.0.1 $bad
		one_line
	done
	"$DUALRAIL" client 127.0.0.1 --json --json-stream >doc.json 2>err || [ "$?" -eq 1 ]
	[ "$(wc -l <err)" -eq 1 ]
	holds doc.json '.exit_code == 1'
}

@test "a transport that is not built in: status 2, names those that are" {
	for kind in rfc1149 tcp:/no/such/file; do
		run -2 "$DUALRAIL" client 127.0.0.1 --transport "$kind"
		one_line
		[[ $output == *"not in this build"*tcp* ]]
	done
}

# bats test_tags=nightly
@test "a server that is not there: status 3 within the connect timeout" {
	free_port
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" --connect-timeout 300ms -q
	[ "$status" -eq 3 ]
	[[ $output == *"Connection refused; this is an address of this machine: start 'dualrail server' here with the same --port, or name the other node"* ]]
	run -3 timeout "$WAIT_S" "$DUALRAIL" client no.such.host.invalid --connect-timeout 300ms -q
}

@test "a port in use: status 2, names it" {
	start_server
	run -2 timeout "$WAIT_S" "$DUALRAIL" server -g 0-1 --port "$port"
	[[ $output == *"TCP port $port: in use; \`ss -ltnp sport = :$port\` names the process"*"--port"* ]]
}

# Names are in a file of hosts of its own, and its name server refuses every query.
@test "a name that does not resolve for the moment is tried again within --connect-timeout" {
	unshare -m true 2>/dev/null || skip "needs root for files of its own"
	: >hosts
	printf 'nameserver 127.0.0.99\noptions timeout:1 attempts:1\n' >resolv
	with_names() {
		# shellcheck disable=SC2016 # expanded by sh
		unshare -m sh -c 'mount --bind hosts /etc/hosts && mount --bind resolv /etc/resolv.conf && exec "$@"' sh "$@"
	}
	[[ $(with_names python3 -c 'import socket
try: socket.getaddrinfo("node7.test", 1)
except socket.gaierror as e: print(e.errno == socket.EAI_AGAIN)') == True ]] || skip "this resolver does not call it temporary"
	run with_names timeout "$WAIT_S" "$DUALRAIL" client node7.test --memory host --connect-timeout 300ms -q
	[ "$status" -eq 3 ]
	[[ $output == *'host "node7.test": Temporary failure in name resolution; check the name server'* ]]
	start_server -1
	start client with_names timeout "$WAIT_S" "$DUALRAIL" client node7.test --port "$port" "${SMALL[@]}" -D 100ms
	wait_for grep -q 'Temporary failure in name resolution.*trying again for up to 30s (--connect-timeout)' client.err
	echo 127.0.0.1 node7.test >hosts
	ends "$pid" 0
}

@test "--control that this host does not have: status 2 at once, lists the addresses there are" {
	local command what
	for command in "client 127.0.0.1" server doctor; do
		for what in 203.0.113.7 2001:db8::7 no-such-nic; do
			# shellcheck disable=SC2086 # a command and its host
			run timeout "$WAIT_S" "$DUALRAIL" $command --control "$what" --memory host
			[ "$status" -eq 2 ]
			[[ $output == *"--control $what"*"this host"*"lo 127.0.0.1"* ]]
		done
	done
	run timeout "$WAIT_S" "$DUALRAIL" client ::1 --rails lo@127.0.0.1 --control 127.0.0.1 --memory host -q
	[ "$status" -eq 2 ]
	[[ $output == *"no IPv6 address to reach the server ::1"* ]]
	# A name, too, and before anything waits.
	run timeout "$WAIT_S" "$DUALRAIL" client localhost --control ::1 --memory host -q
	if [[ -e /proc/sys/net/ipv6 && $(getent ahostsv6 localhost) != ::1* ]]; then
		[ "$status" -eq 2 ]
		[[ $output == *"--control ::1"*"IPv4 address to reach the server localhost"* ]]
	fi
	# Link-local addresses need their interface.
	run -2 timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --control fe80::7 --memory host -q
	[[ $output == *"--control fe80::7: a link-local address needs its interface"* ]]
	run timeout "$WAIT_S" "$DUALRAIL" client fe80::7 --memory host -q
	[[ $output == *"fe80::7"*"needs its interface: ADDRESS%INTERFACE"* ]]
}

@test "a server with a NIC that does not exist: status 2 at once, lists those there are" {
	refuses 2 "--rails: 'nosuch0' is neither a device nor an address of this host; devices: lo" \
		timeout "$WAIT_S" "$DUALRAIL" server -g 0 --rails lo@127.0.0.2,nosuch0
	says "server --rails names a NIC that does not exist"
	refuses 2 "192.0.2.77" timeout "$WAIT_S" "$DUALRAIL" server -g 0 --rails 192.0.2.77
}

@test "too few --data-ports: status 2 before the run, at the end that has them, with the number needed" {
	start_server --control 127.0.0.1
	tells 2 "the run needs 4 ports at the client, where --data-ports has 3; name more" client --data-ports 31000-31002
	tells 0 PASS client --data-ports 31000-31003 -D 0.1 -w 0
	start_server --control 127.0.0.1 --data-ports 31000-31002
	tells 2 "the run needs 4 ports at the server, where --data-ports has 3; name more" client
}

@test "the --data-ports of an end are others': status 2 before the run, with how many it needs" {
	start_server
	local taken
	start taker python3 -IS "$BATS_TEST_DIRNAME/../ports.py" listen
	wait_for test -s taker.out
	read -r taken <taker.out
	tells 2 "client: --data-ports $taken-$((taken + 15)): none of them is free; this run needs 4 on each NIC" \
		client --data-ports "$taken-$((taken + 15))"
	says "others have taken the ports of --data-ports"
}

@test "--pin beyond the CPUs: status 2, names how many there are" {
	local cpus command
	cpus=$(nproc)
	for command in "client 127.0.0.1 --dry-run" server; do
		# shellcheck disable=SC2086 # a command and its options
		run -2 timeout "$WAIT_S" "$DUALRAIL" $command --memory host --pin 0,9999
		[[ $output == *"--pin: no CPU 9999; this process may use $cpus CPU"* ]]
	done
	local last
	last=$(taskset -cp $$ | sed 's/.*[ ,-]//')
	run -0 "$DUALRAIL" client 127.0.0.1 --dry-run --memory host --pin "$last"
	# A mask that was inherited is no limit.
	if ((cpus > 1)); then
		run taskset -c "$last" "$DUALRAIL" client 127.0.0.1 --dry-run --memory host --pin 0
		[ "$status" -eq 0 ]
		run taskset -c "$last" "$DUALRAIL" client 127.0.0.1 --dry-run --memory host --pin 9999
		[[ $output == *"no CPU 9999; this process may use 1 CPU: $last;"* ]]
	fi
}

@test "an unwritable result file: status 2 before anything runs" {
	refuses 2 /no/such/folder "$DUALRAIL" client 127.0.0.1 --json=/no/such/folder/x.json
}

@test "a fault without --allow-faults: status 2, names the option" {
	tells 2 --allow-faults "$DUALRAIL" client 127.0.0.1 --test failover --fault close:path=0 -q
	run -2 "$DUALRAIL" client 127.0.0.1 --test failover -q
	[[ $output == *"the failover test injects faults: add --allow-faults at this end"* ]]
	[[ $output != *link-down* ]]
}

@test "a fault on the loopback is refused" {
	run "$DUALRAIL" client 127.0.0.1 --test failover --fault link-down:path=0 --allow-faults -q
	[ "$status" -eq 2 ]
	[[ $output == *"lo refused"* ]]
}

@test "a bad command line still leaves a whole document when --json names a file" {
	run -2 "$DUALRAIL" client 127.0.0.1 --json=r.json --rails no-such-device
	whole r.json
	holds r.json '.exit_code == 2 and .status == "error"'
}

@test "options that are refused make and change no file, whatever is wrong with them" {
	local out=(--json=f.json --csv f.csv --prom f.prom --trace f.trace)
	echo '{"json": "f.json", "prom": "f.prom", "trace": "f.trace"}' >files.json
	echo '{"json": "f.json", "bogus": 1}' >bogus.json
	refused() {
		rm -f f.*
		run "$@"
		((status == 1 || status == 2))
		[[ ! $(compgen -G 'f.*') ]]
		tee f.json f.csv f.prom f.trace f.base <<<kept >/dev/null
		run "$@"
		[[ $(cat f.*) == $'kept\nkept\nkept\nkept\nkept' ]]
	}
	refused "$DUALRAIL" client "${out[@]}" # HOST is missing
	refused "$DUALRAIL" client --prom=f.prom
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" --bogus
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" --save-baseline f.base -D x
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" --config no-such-file
	refused "$DUALRAIL" client 127.0.0.1 --config bogus.json --prom f.prom
	refused "$DUALRAIL" client 127.0.0.1 --config files.json -N 0
	refused "$DUALRAIL" client 127.0.0.1 --json=f.json --prom f.json
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" --user no-such-user
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" -g 0 --rails lo,lo
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" -g 0 --map x
	refused "$DUALRAIL" client 127.0.0.1 "${out[@]}" -g 0,0
	refused env DUALRAIL_JSON=f.json DUALRAIL_PROM=f.prom "$DUALRAIL" server --bogus
	refused "$DUALRAIL" preflight 127.0.0.1 "${out[@]}" --test bw,failover
	refused "$DUALRAIL" demo "${out[@]}" --bogus
	refused "$DUALRAIL" preflight 127.0.0.1 "${out[@]}" -g 0 --rails lo,lo
	refused "$DUALRAIL" doctor --json=f.json --bogus
	refused "$DUALRAIL" doctor --json=f.json --rails lo,lo
	refused "$DUALRAIL" topo --json=f.json --rails lo,lo
	refused "$DUALRAIL" sweep --json=f.json --bogus
}

@test "a bad argument before --json, a dry run, the begin of a stream: a valid document" {
	"$DUALRAIL" client 127.0.0.1 --bogus --json >r.json 2>/dev/null || [ "$?" -eq 1 ]
	whole r.json
	holds r.json '.exit_code == 1 and (.errors[0].text | contains("--bogus"))'
	"$DUALRAIL" client 127.0.0.1 -N 0 --json >s.json 2>/dev/null || [ "$?" -eq 1 ]
	whole s.json
	"$DUALRAIL" client 127.0.0.1 -g 0 --rails lo@127.0.0.2 --dry-run --min-bw 1 --json >d.json 2>plan
	whole d.json
	holds d.json '.exit_code == 0 and .status == "pass"'
	grep -q '^GPU 0 <-> 0: primary lo' plan
	"$DUALRAIL" client 127.0.0.1 --port 1 -g 0 --rails lo@127.0.0.2 --connect-timeout 50ms --json-stream >run.jsonl \
		2>/dev/null || [ "$?" -eq 3 ]
	jq -es '.[0].event == "start" and .[0].data.status == null and .[0].data.exit_code == null' run.jsonl
	jq -es '.[-1].event == "end" and .[-1].data.status == "error" and .[-1].data.exit_code == 3' run.jsonl
}

@test "a configuration file, the environment and the command line, in this order" {
	echo '{"channels": 3, "window": 4}' >c.json
	run -0 env DUALRAIL_WINDOW=5 "$DUALRAIL" client 127.0.0.1 --config c.json --dry-run -v
	[[ $output == *"channels=3"* && $output == *"window=5"* ]]
	run env DUALRAIL_WINDOW=5 "$DUALRAIL" client 127.0.0.1 --config c.json --dry-run -v --window 6
	[[ $output == *"window=6"* ]]
	run env UCCL_TCPX_NUM_CHANNELS=7 UCCL_TCPX_BOOTSTRAP_PORT_BASE=20100 \
		"$DUALRAIL" client 127.0.0.1 --dry-run -v
	[[ $output == *"channels=7"* && $output == *"port=20100"* ]]
	run -2 "$DUALRAIL" client 127.0.0.1 --config /no/such.json
	one_line
}

@test "an unknown variable DUALRAIL_...: a warning with the similar one; known ones: none" {
	run env DUALRAIL_CHANELS=3 DUALRAIL_WINDOW=5 DUALRAIL_SIZE= "$DUALRAIL" client 127.0.0.1 --dry-run
	[ "$status" -eq 0 ]
	[[ $output == *"DUALRAIL_CHANELS has no effect"*"did you mean DUALRAIL_CHANNELS?"* ]]
	[[ $(grep -c 'has no effect' <<<"$output") == 1 ]]
	# Of another command's option: both ends may share their variables.
	run env DUALRAIL_HOLD_DOWN=1s DUALRAIL_ONE_OFF=on "$DUALRAIL" topo
	[[ $output != *"has no effect"* ]]
	run env DUALRAIL_CONFIG=c.json "$DUALRAIL" client 127.0.0.1 --dry-run
	[[ $output == *"DUALRAIL_CONFIG has no effect: --config works on the command line only"* ]]
	run env DUALRAIL_COMPLETELY_DIFFERENT=1 "$DUALRAIL" client 127.0.0.1 --dry-run
	[[ $output == *"DUALRAIL_COMPLETELY_DIFFERENT has no effect: no option has this name; see"* ]]
	# What Kubernetes sets for a Service "dualrail-server".
	run env DUALRAIL_SERVER_SERVICE_HOST=10.0.0.1 DUALRAIL_SERVER_SERVICE_PORT=20000 DUALRAIL_SERVER_PORT=tcp://10.0.0.1:20000 \
		DUALRAIL_SERVER_PORT_20000_TCP_ADDR=10.0.0.1 "$DUALRAIL" client 127.0.0.1 --dry-run
	[ "$status" -eq 0 ]
	[[ $output != *"has no effect"* ]]
	# And for one "dualrail": the name of an option, but no value of it.
	run env DUALRAIL_PORT=tcp://10.0.0.1:20000 DUALRAIL_PORT_20000_TCP=tcp://10.0.0.1:20000 "$DUALRAIL" client 127.0.0.1 \
		--dry-run -v
	[ "$status" -eq 0 ]
	[[ $output == *$'\n'"port=20000"$'\n'* && $output != *"has no effect"* ]]
}

@test "run_p2p.sh: one line and status 2 for what it cannot do; a node list skips this node" {
	local script=$BATS_TEST_DIRNAME/../../scripts/run_p2p.sh
	run -2 "$script" nonsense
	one_line
	run -2 "$script" client
	one_line
	run -2 "$script" client nowhere.txt
	one_line
	printf '# comment\n127.0.0.1\n 192.0.2.99 # the other\n' >nodes.txt
	run -0 env DUALRAIL="$(type -P echo)" "$script" client nodes.txt -D 1
	[ "$output" = "client 192.0.2.99 -D 1" ]
}

# unchanged COMMAND...: it is refused as one that would replace a file that it reads, and all files are as before.
unchanged() {
	tells 1 " are the same file; choose another one to write" "$DUALRAIL" "$@"
	sha256sum -c --quiet sums
}

@test "no output replaces an input, whatever its name is" {
	local run=(--test bw -g 0 -D 100ms -q)
	gives 0 "$DUALRAIL" demo "${run[@]}" --json=r.json
	cp r.json b.json
	ln r.json hard.json
	ln -s r.json soft.json
	head -c 32 /dev/urandom | base64 >key
	chmod 600 key
	echo '{"channels": 2}' >c.json
	echo "127.0.0.1" >hosts
	sha256sum ./*.json key hosts >sums
	unchanged report r.json -o r.json
	unchanged report b.json r.json -o ./soft.json
	unchanged report r.json -o hard.json
	unchanged compare --json=b.json r.json -- b.json
	unchanged demo "${run[@]}" --config c.json --json=c.json
	unchanged demo "${run[@]}" --baseline r.json --csv hard.json
	DUALRAIL_JSON=r.json unchanged demo "${run[@]}" --baseline r.json
	unchanged client 127.0.0.1 "${run[@]}" --key-file key --prom key
	unchanged sweep --hostfile hosts --json=hosts
	unchanged sweep --resume r.json --json=hard.json
	unchanged demo "${run[@]}" --json=new.json --csv new.json
	[[ ! -e new.json ]]
	# A device is no file, and a baseline may be judged by and added to.
	gives 0 "$DUALRAIL" demo "${run[@]}" --json=/dev/null --csv /dev/null
	gives 0 "$DUALRAIL" demo "${run[@]}" --baseline b.json --min-bw 1% --save-baseline b.json
}

@test "standard output that takes no more: status 2 with the reason, whatever the command prints" {
	local command
	for command in topo --help schema "demo --test bw -g 0 -D 100ms"; do
		# shellcheck disable=SC2086
		run -2 sh -c '"$@" >/dev/full' - "$DUALRAIL" $command
		[[ $output == *"cannot write to standard output: No space left on device"* ]]
	done
}

@test "a plugin is found by its plain name in the current folder" {
	[[ -e ${DUALRAIL%/*}/libnccl-net-ha.so ]] || skip "this build has no plugin"
	cp "${DUALRAIL%/*}/libnccl-net-ha.so" own.so
	NCCL_SOCKET_IFNAME=lo run -0 "$DUALRAIL" plugin own.so
	tells 2 "other.so cannot be loaded" "$DUALRAIL" plugin other.so
}
