#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# preflight: one line with the verdict, which names what is bad, and the status. As root between two network namespaces
# with shaped rails.

load usual

# As in matrix.bats: the rails queue more than the windows hold and nothing is dropped, so that their rates alone decide,
# on a busy machine too. A rail that is shaped to a twentieth is far below the share that is asked for.
RUN=(-g 0-1 -N 1 -s 32K --window 4 -D 500ms -w 50ms --detect conservative)
SHARE=(--min-bw 30%)

# shape NET NIC RATE
shape() {
	tc -n "$1" qdisc replace dev "$2" root tbf rate "$3" burst 64k latency 200ms
}

# fabric: a link for control, two rails of one rate, a server.
fabric() {
	local i
	two_nodes
	link ctl0 10.98.255
	for i in 0 1; do
		link "rail$i" "10.98.$i"
		shape "$A" "rail$i" 100mbit || skip "no tbf in this kernel"
		shape "$B" "rail$i" 100mbit
	done
	server_in_b
}

# errors_to_err COMMAND...: for run, which would take standard error too.
errors_to_err() {
	"$@" 2>err
}

# preflight OPTIONS...: its standard output in $output, standard error in err.
preflight() {
	run errors_to_err ip netns exec "$A" timeout "$WAIT_S" "$DUALRAIL" preflight 10.98.255.2 "${RUN[@]}" "$@"
	cat err
}

@test "one line: a healthy fabric passes; a slow NIC and one without link are named, status 7" {
	fabric
	preflight --save-baseline good.json
	judge_status 100 0
	one_line
	[[ $output == "preflight 10.98.255.2: PASS (exit status 0): 2 GPUs x 2 NICs (rail0, rail1), "*"; compared with no baseline, the NICs with each other; ctl0 was not measured: HOST is reached over it; saved, the baseline now has 1 run" ]]
	preflight --baseline good.json "${SHARE[@]}" --json=p.json --prom p.prom
	judge_status 100 0
	one_line
	[[ $output == *"PASS (exit status 0): 2 GPUs x 2 NICs (rail0, rail1), "*"; 16 figures, the lowest "*" % of the baseline ("* ]]
	holds p.json '.schema == "dualrail-preflight/1" and .status == "pass" and .exit_code == 0 and .bad == [] and .measurements >= 1'
	holds p.json '.checks.schema == "dualrail-doctor/1" and .result.schema == "dualrail/1" and .result.exit_code == 0'
	holds p.json '.result.comparison | length == 16 and all(.result == "ok")'
	holds p.json '.verdict | startswith("2 GPUs x 2 NICs")'
	grep -q '^dualrail_last_run_success.* 1$' p.prom
	# What the server sends is slow: a node that receives slowly is bad, too.
	shape "$B" rail1 5mbit
	preflight
	judge_status 100 7
	[[ $output == *"FAIL (exit status 7): NIC rail1, to-"*": "*" Gb/s is "*" % of the other NICs' "*"; measured twice" ]]
	preflight --baseline good.json "${SHARE[@]}" --json=slow.json
	judge_status 100 7
	one_line
	[[ $output == "preflight 10.98.255.2: FAIL (exit status 7): NIC rail1, to-"*": 0.00"*" Gb/s is "*" % of the baseline's 0."*"; measured twice" ]]
	[[ $output == *"NIC rail1, to-client: "* ]]
	# Its acknowledgements are late, too, so GPUs may be low in the other direction.
	[[ $output != *rail0* ]]
	holds slow.json '.result.errors | any(.text | startswith("gpu 0 over rail1 to-client"))'
	judge 100 holds slow.json '.exit_code == 7 and .measurements == 2 and all(.bad[]; .nic == "rail1" and (.direction == "to-server" or .kind == "nic" and .percent < 30))'
	shape "$B" rail1 100mbit
	ip -n "$B" link set rail1 down
	# The document alone on standard output; the line is elsewhere then.
	preflight --baseline good.json "${SHARE[@]}" --json
	judge_status 100 7
	grep -q 'FAIL (exit status 7): NIC rail1: not in this run: its link is down$' err
	printf '%s' "$output" >down.json
	holds down.json '.bad == [{kind: "nic", gpu: null, nic: "rail1", direction: null, gbps: null, mean_gbps: null,
		percent: null, reason: "not in this run: its link is down"}]'
	gives 2 preflight --baseline good.json --channels 2 --json=o.json
	one_line
	[[ $output == *"FAIL (exit status 2): baseline good.json: written with --channels 1, this run has --channels 2; "* ]]
	holds o.json '.checks.exit_code == 0 and .result.exit_code == 2'
	# Without the matrix it is another measurement.
	gives 2 preflight --baseline good.json --matrix=off
	[[ $output == *"written with --matrix, this run has no --matrix"* ]]
}

@test "at a terminal a line shows what runs and how long it will take, and is gone at the end" {
	fabric
	python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' ip netns exec "$A" timeout "$WAIT_S" "$DUALRAIL" preflight 10.98.255.2 \
		"${RUN[@]}" >seen </dev/null
	grep -aqE $'\rbandwidth.* Gb/s, [0-9]+ s left' seen
	tr '\r' '\n' <seen | grep -a . | tail -n 1 | grep -aE '^(.\[K)?preflight 10'
}

@test "a direction that is not measured is named in the line" {
	start_server
	run errors_to_err "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --min-nic 1% -D 20ms -w 10ms --bidir=off
	judge_status 100 0
	[[ $output == *"; to-client not measured (--bidir)"* ]]
	run errors_to_err "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --min-nic 1% -D 20ms -w 10ms -R
	judge_status 100 0
	[[ $output == *"; to-server not measured (--bidir)"* ]]
	run -1 "$DUALRAIL" preflight 127.0.0.1 --port "$port" -R --bidir
}

@test "no server: status 3; a stopped one: within the time that is given; one that refuses: its reason" {
	free_port
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --connect-timeout 300ms --json=p.json
	[ "$status" -eq 3 ]
	[[ $output == *"preflight 127.0.0.1: FAIL (exit status 3): peer: "* ]]
	holds p.json '.exit_code == 3 and .checks.exit_code == 3 and .result == null and .bad == []'
	start_server
	kill -STOP "$server"
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --connect-timeout 300ms
	[ "$status" -eq 3 ]
	kill -CONT "$server"
	new_key key
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --key-file key
	[ "$status" -eq 3 ]
	[[ $output == *"FAIL (exit status 3): "*key* ]]
}

@test "a server that dies during the run: status 3" {
	start_server
	start pre "$DUALRAIL" preflight 127.0.0.1 --port "$port" -g 0-1 --rails lo@127.0.0.2,lo@127.0.0.3 -D 60 -v
	wait_for grep -q '^matrix: ' pre.err
	kill -KILL "$server"
	ends "$pid" 3
	[ "$(wc -l <pre.out)" -eq 1 ]
	grep -q '^preflight 127.0.0.1: FAIL (exit status 3): ' pre.out
}

@test "no such baseline, a finding of doctor: status 2 before anything is measured" {
	run -2 errors_to_err "$DUALRAIL" preflight 127.0.0.1 --baseline none.json --json=p.json
	one_line
	[[ $output == "preflight 127.0.0.1: FAIL (exit status 2): cannot read --baseline=none.json: "*"--save-baseline none.json" ]]
	holds p.json '.exit_code == 2 and .checks == null and .result == null'
	run -2 errors_to_err "$DUALRAIL" preflight 127.0.0.1 --rails no-such-device --json=q.json
	one_line
	[[ $output == *"FAIL (exit status 2): rails: "*no-such-device* ]]
	holds q.json '.checks.exit_code == 2 and .result == null'
}

@test "wrong options: status 1 and the reason; nothing that breaks a path" {
	local bad
	refuses 1 "HOST is missing: dualrail preflight HOST" "$DUALRAIL" preflight
	for bad in "--fault link-down" "--allow-faults" "--json-stream" "--dry-run"; do
		# shellcheck disable=SC2086
		run -1 "$DUALRAIL" preflight 127.0.0.1 $bad
	done
	refuses 1 "--test failover injects faults" \
		"$DUALRAIL" preflight 127.0.0.1 --test bw,failover
	"$DUALRAIL" preflight 127.0.0.1 --test bw,failover --json >p.json || [ "$?" -eq 1 ]
	holds p.json '.exit_code == 1 and .status == "fail" and (.verdict | contains("--test failover"))'
}

@test "prolog.sh with SLURM_* alone: fails with the statuses 6 and 7 only, logs the verdict, and needs its settings" {
	local code prolog=(env -i SLURM_JOB_ID=1 SLURMD_NODENAME=n1 "$DR_ROOT/scripts/slurm/prolog.sh" "$PWD/settings")
	mkdir bin
	# shellcheck disable=SC2016 # of that shell
	printf '#!/bin/sh\necho more >&2; echo "$DUALRAIL_GPUS $*"; exit "$(cat code)"\n' >bin/dualrail
	printf '#!/bin/sh\necho "$@" >>log\n' >bin/logger
	chmod +x bin/*
	printf '%s\n' "PATH=$PWD/bin:\$PATH" DUALRAIL_GPUS=0 >settings
	gives 0 "${prolog[@]}"
	grep -q "PEER is not set in $PWD/settings: not checked" log
	echo PEER=node2 >>settings
	for code in 0 2 3 4 6 7; do
		echo "$code" >code
		gives $((code == 6 || code == 7)) "${prolog[@]}"
		grep -qx -- "-t dualrail-prolog status $code: 0 preflight node2" log
	done
}
