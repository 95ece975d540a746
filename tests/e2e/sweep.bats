#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail sweep between network namespaces on a fabric of bridges: what is bad is named, what is missing is told, and a
# healthy fabric is exonerated. Rates are limited, so that a busy machine does not decide.
# shellcheck disable=SC2030,SC2031,SC2154 # set by lib.bash and by run

setup() {
	load fabric
	common_setup
}

teardown() {
	fabric_teardown
	validated
}

# Two rails of 50 Mb/s per GPU and direction; low means less than half.
RUN=(-g 0 -N 1 -s 32K --window 4 -D 400ms -w 50ms --rate 50M --min-pair 50 --detect conservative)

# slow I NIC: the NIC of node I to a tenth, both ways.
slow() {
	tc -n "${NODES[$1]}" qdisc replace dev "$2" root tbf rate 5mbit burst 16k latency 400ms || skip "no tbf in this kernel"
	tc -n "$SW" qdisc replace dev "$2-$1" root tbf rate 5mbit burst 16k latency 400ms
}

# drops I NIC: the host firewall of node I.
drops() {
	ip netns exec "${NODES[$1]}" nft -f - <<-END || skip "no nftables here"
		add table inet f
		add chain inet f i { type filter hook input priority 0; }
		add rule inet f i iifname $2 drop
	END
}

# sweep_on I OPTIONS...: a node, its process id in $pid. WITH are variables for it.
sweep_on() {
	local i=$1
	shift
	start "n$i" ip netns exec "${NODES[$i]}" env "${WITH[@]}" "$DUALRAIL" sweep "${RUN[@]}" "$@"
}

# sweep_all OPTIONS...: all nodes by host file; the status of rank 0 in $status, its output in $output.
sweep_all() {
	local i pids_of=()
	WITH=()
	for ((i = ${#NODES[@]} - 1; i >= 0; i--)); do
		WITH=("${EXTRA[$i]:-X=1}")
		[[ -z ${PRELOAD[$i]-} ]] || WITH+=("LD_PRELOAD=${PRELOAD[$i]}")
		sweep_on "$i" --hostfile hosts "$@" -v
		pids_of[i]=$pid
	done
	status=0
	wait "${pids_of[0]}" || status=$?
	for ((i = 1; i < ${#NODES[@]}; i++)); do
		ends "${pids_of[$i]}" 0
	done
	output=$(<n0.out)
	printf '%s\n' "$output"
}

# finding KIND RANK NIC: the document has it.
finding() {
	holds s.json "[.findings[] | select(.kind == \"$1\" and .rank == $2 and .nic == $3)] | length == 1"
}

# bats test_tags=release
@test "all pairs of six nodes: a slow NIC, one without carrier and one that corrupts are named, and nothing else" {
	watch
	local library=${DUALRAIL%/*}/tests/plugins/badnic_plugin.so
	[[ -e $library ]] || skip "the library that corrupts data is not built"
	fabric 6
	declare -A EXTRA=([4]=DR_BAD_NIC=10.96.0.14) PRELOAD=([4]=$library)
	slow 1 rail1
	ip -n "$SW" link set rail0-3 down
	COLUMNS=100 sweep_all --verify --json=s.json
	judge_status 100 6
	judge 100 finding bad-nic 1 '"rail1"'
	judge 100 finding bad-cable 3 '"rail0"'
	judge 100 finding corrupts 4 '"rail0"'
	judge 100 holds s.json '.findings | length == 3'
	holds s.json '.schema == "dualrail-sweep/1" and .exit_code == 6 and .status == "fail" and .nodes_expected == 6'
	judge 100 holds s.json '(.pairs | length) == 15 and all(.pairs[]; .state == "ok") and .measured.ok == 15'
	# Node 3 has one rail: 5 pairs over one, 10 over two, both directions.
	judge 100 holds s.json '.measured.figures == 50 and [.pairs[].lanes[]] == [.pairs[].lanes[] | select(.gbps > 0)]'
	judge 100 holds s.json '.findings[] | select(.kind == "bad-nic") | .percent < 50 and .low == .of and .low >= 8'
	judge 100 holds s.json '.findings[] | select(.kind == "corrupts") | .wrong_chunks > 0'
	[[ $output == *"bad-nic: rank 1 "*" NIC rail1: lowest "* ]]
	[[ $output == *"bad-cable: rank 3 "*" NIC rail0 carries nothing: no carrier"* ]]
	[[ $output == *"corrupts: rank 4 "*" NIC rail0 corrupts data that it receives: "* ]]
	[[ $(tail -n 1 <<<"$output") == "sweep: FAIL (exit status 6): BAD: 3 findings: "* ]]
	[ "$(awk 'length > 100 && !/^sweep:/' n0.out | wc -l)" -eq 0 ]
}

# Data of one direction and acknowledgements of the other share the slow queue, so both are low at the same time.
# bats test_tags=release,nightly
@test "a NIC that is slow in one direction is told, though both are low while data flow both ways" {
	watch
	fabric 3
	tc -n "${NODES[1]}" qdisc replace dev rail1 root tbf rate 5mbit burst 16k latency 400ms || skip "no tbf in this kernel"
	sweep_all --repeat 1 -D 200ms --json=s.json
	judge_status 100 7
	judge 100 finding asymmetric 1 '"rail1"'
	judge 100 holds s.json '.findings | length == 1'
	[[ $output == *"asymmetric: rank 1 "*" NIC rail1 sends slowly: "*"alone, receiving is good"* ]]
	grep -q '^round 1, 0 of 3 pairs measured' n0.err
	judge 100 grep -q '^round .*3 of 3 pairs measured, 0 failed, 2 low; 2 to be measured again; after' n0.err
	grep -q '2 to be measured to the client alone; after' n0.err
}

# bats test_tags=release
@test "a NIC over which no peer is answered is named, and it alone; a firewall with what it has to admit" {
	watch
	command -v nft >/dev/null || skip "needs nft"
	fabric 3
	drops 2 rail1
	sweep_all --repeat 0 -D 200ms --json=s.json
	judge_status 100 7
	judge 100 finding bad-nic 2 '"rail1"'
	judge 100 holds s.json '.findings | length == 1'
	says "sweep: a NIC over which no peer is answered"
	# The control port alone is open.
	drops 2 rail0
	sweep_all --repeat 0 -D 200ms --json=s.json
	judge_status 100 7
	[[ $(tr -s '\n ' ' ' <<<"$output") == *"rank 2 "*": 2 of 2 pairs failed: "*"no answer from 10.96.0.1"*"--data-ports"* ]]
}

# bats test_tags=release
@test "a node that is killed: the others finish, the document tells what is missing, --resume measures only that" {
	watch
	local i killed first last
	fabric 4
	for i in 3 2 1; do
		WITH=(X=1)
		sweep_on "$i" --hostfile hosts
		[[ $i != 2 ]] || killed=$pid
		[[ $i != 1 ]] || last=$pid
	done
	sweep_on 0 --hostfile hosts -v --json=s.json
	first=$pid
	wait_for grep -q 'pair 0, .*exit status 0' n0.err
	# The program itself, not `ip netns exec`, which has become it.
	kill -KILL "$killed"
	judge_status 100 3 "$first"
	ends "$last" 0
	holds s.json '.exit_code == 3 and (.nodes | map(.presence)) == ["present", "present", "lost", "present"]'
	holds s.json '.findings | length == 1 and .[0].kind == "node-missing" and .[0].rank == 2'
	holds s.json '.measured.missing >= 1 and all(.pairs[] | select(.state == "missing"); .client == 2 or .server == 2)'
	holds s.json 'all(.pairs[] | select(.client != 2 and .server != 2); .state == "ok")'
	[[ $(tail -n 1 n0.out) == "sweep: FAIL (exit status 3): INCOMPLETE: "*" of 6 pairs measured; 1 node missing: rank 2 ("*")" ]]
	cp s.json before.json
	sweep_all --resume before.json --json=s.json
	judge_status 100 0
	[[ $output == *"network exonerated: 6 of 6 pairs of 4 nodes, 24 figures, the lowest "* ]]
	holds s.json '.findings == [] and .measured.ok == 6'
	# What was there was not measured again: figures are the same.
	jq -ne '[inputs] | .[0].pairs as $b | .[1].pairs as $a |
		all($b[] | select(.state == "ok"); . as $p | any($a[]; .client == $p.client and .server == $p.server and
			(.lanes | map(.gbps)) == ($p.lanes | map(.gbps)) and .attempts == $p.attempts))' before.json s.json
}

# sends_over I NIC: data of a measurement.
sends_over() {
	(($(ip netns exec "${NODES[$1]}" cat "/sys/class/net/$2/statistics/tx_bytes") > 200000))
}

# No process ends, so it takes ten seconds until the node is known to be dead.
# bats test_tags=release
@test "a node that loses power during a measurement accuses nobody, and the last line names it" {
	local i first others=()
	fabric 4
	for i in 3 1 2 0; do
		WITH=(X=1)
		# A low figure of a busy machine is no matter here; a failed run is.
		sweep_on "$i" --hostfile hosts --min-pair 1 -D 2s --json=s.json
		[[ $i == 2 ]] || others+=("$pid")
	done
	first=$pid
	wait_for sends_over 2 rail0
	for i in ctl0 rail0 rail1; do
		ip -n "$SW" link set "$i-2" down
	done
	ends "$first" 3
	ends "${others[0]}" 0
	ends "${others[1]}" 0
	holds s.json '.findings | map([.kind, .rank]) == [["node-missing", 2]]'
	holds s.json '.measured.failed == 0 and all(.pairs[] | select(.client != 2 and .server != 2); .state == "ok")'
	[[ $(tail -n 1 n0.out) == "sweep: FAIL (exit status 3): INCOMPLETE: 3 of 6 pairs measured; 1 node missing: rank 2 ("*")" ]]
}

# rank I NAME=VALUE...: a node of two, started with these variables alone.
rank() {
	local i=$1
	shift
	WITH=("$@")
	sweep_on "$i"
}

# two NAME: both ended; rank 0 exonerates the network, and names the scheduler.
two() {
	ends "$r1" 0
	ends "$r0" 0
	[[ $(tail -n 1 n0.out) == "sweep: PASS (exit status 0): network exonerated: 1 of 1 pairs of 2 nodes, 4 figures"* ]]
	holds s.json ".source == \"$1\""
}

# bats test_tags=release
@test "started with the variables of Slurm, Kubernetes, torchrun, Open MPI and MPICH; a contradiction is an error" {
	local v r0 r1
	fabric 2
	RUN+=(-D 200ms --json=s.json)
	rank 1 RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.96.255.10 MASTER_PORT=21000
	r1=$pid
	rank 0 RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.96.255.10 MASTER_PORT=21000
	r0=$pid
	two torchrun
	rank 1 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NODELIST=10.96.255.10,10.96.255.11
	r1=$pid
	rank 0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=10.96.255.10,10.96.255.11
	r0=$pid
	two Slurm
	v=(DUALRAIL_NODES=2 DUALRAIL_COORDINATOR=10.96.255.10)
	rank 1 JOB_COMPLETION_INDEX=1 "${v[@]}"
	r1=$pid
	rank 0 JOB_COMPLETION_INDEX=0 "${v[@]}"
	r0=$pid
	two Kubernetes
	v=(DUALRAIL_COORDINATOR=10.96.255.10:21001)
	rank 1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 "${v[@]}"
	r1=$pid
	rank 0 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 "${v[@]}"
	r0=$pid
	two "Open MPI, MPICH"
	# With latency, which is reported.
	RUN+=(--test "bw,lat")
	rank 1 RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.96.255.10 MASTER_PORT=21002
	r1=$pid
	rank 0 RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.96.255.10 MASTER_PORT=21002
	r0=$pid
	two torchrun
	holds s.json '.measured | .rtt_pairs == 1 and .rtt_us > 0 and .rtt_max_us == .rtt_us and .rtt_max_p99_us >= .rtt_us'
	holds s.json '.pairs[0] | .rtt_us > 0 and .rtt_p99_us >= .rtt_us'
	grep -q '^Round trip of 1 pairs: median .* us; slowest .* (p99 .*), rank [01] ' n0.out
	run env RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 "$DUALRAIL" sweep
	[ "$status" -eq 1 ]
	[[ $output == *"RANK=0"*"contradict"* ]]
}

# Nodes are namespaces of one host in these tests, so that is another node.
# bats test_tags=release
@test "a second rank on a host is refused, with how to start one per node; in another network namespace it is a node" {
	local zero WITH=(X=1) options=(--nodes 3 --coordinator 10.96.255.10 --join-timeout 3s --json=s.json)
	fabric 2
	sweep_on 0 --rank 0 "${options[@]}" -v
	zero=$pid
	wait_for grep -q 'rank 0 joined' n0.err
	refuses 3 "rank 1: refused by the coordinator at 10.96.255.10 port 20000: its host has rank 0 already; start one rank per node: srun -N NODES -n NODES, mpirun -N 1, mpiexec -ppn 1" \
		ip netns exec "${NODES[0]}" "$DUALRAIL" sweep --rank 1 "${options[@]}"
	says "sweep: several ranks on a host"
	sweep_on 1 --rank 1 "${options[@]}"
	wait_for grep -q 'rank 1 joined' n0.err
	gives 3 ip netns exec "${NODES[1]}" "$DUALRAIL" sweep --rank 2 "${options[@]}"
	judge_status 100 3 "$zero"
	ends "$pid" 0
	holds s.json '.measured.ok == 1 and (.findings | map([.kind, .rank])) == [["node-missing", 2]]'
	grep -q 'node-missing: rank 2 never joined: its host has rank 1 already; start one rank per node: srun' n0.out
}

# scale NODES: of a coordinator with so many nodes, $per_node is its memory in bytes.
scale() {
	run "${DUALRAIL%/*}/tests/sweep/scale_main" "$1" ring
	[ "$status" -ne 77 ] || skip "$output"
	[ "$status" -eq 0 ]
	tail -n 1 <<<"$output"
	[[ $output == *"nodes $1 pairs $1 ok $1 rounds 2 "* ]]
	per_node=$(sed -n 's/.* bytes_per_node \([0-9]*\) .*/\1/p' <<<"$output")
}

# bats test_tags=release,nightly
@test "a coordinator with 4000 nodes: every pair is measured, and memory is linear in the nodes" {
	local few
	[[ -x ${DUALRAIL%/*}/tests/sweep/scale_main ]] || skip "scale_main is not built"
	scale 1000
	few=$per_node
	scale 4000
	((per_node < 8192 && per_node < few + few / 2)) || {
		echo "$per_node bytes for each of 4000 nodes, $few for each of 1000"
		return 1
	}
}

@test "standard error is closed: what starts runs ends with its sweep" {
	local starter
	free_port
	start one bash -c 'exec "$@" 2>&-' sh "$DUALRAIL" sweep --rank 1 --nodes 2 --coordinator 127.0.0.1:"$port" --join-timeout 60s
	wait_for pgrep -P "$pid" -x dualrail-runs
	starter=$(pgrep -P "$pid" -x dualrail-runs)
	kill -KILL "$pid"
	wait_for test ! -e /proc/"$starter"
}

@test "nodes have the names of the host file, those that are missing too" {
	local zero WITH=(X=1)
	fabric 2
	printf '%s\n' first.example "second.example # a comment" third.example >hosts
	sweep_on 0 --rank 0 --hostfile hosts --join-timeout 2s --json=s.json
	zero=$pid
	sweep_on 1 --rank 1 --hostfile hosts --coordinator 10.96.255.10
	ends "$zero" 3
	ends "$pid" 0
	holds s.json '[.nodes[].host] == ["first.example", "second.example", "third.example"]'
	holds s.json '.findings | map(.text) | any(contains("rank 2 (third.example)"))'
	says "sweep: the nodes' kernels have other names than the host file, or all the same one" s.json
}

@test "what a document of --resume names acts on no terminal" {
	fabric 2
	cat >old <<-'END'
		{"schema": "dualrail-sweep/1", "pattern": "all-pairs", "nodes_expected": 2, "pairs": [{"client": 1, "server": 0,
		 "state": "ok", "counters": "client \u001b[2Jeth8: \u001b[31mlost", "unused_nics": [["client", "\u001b[2Jeth9"]], "lanes": [
		 {"client_nic": "\u001b[2Jeth8", "server_nic": "eth0", "direction": "to-server", "gbps": 1, "runs_gbps": [1]},
		 {"client_nic": "\u001b[2Jeth8", "server_nic": "eth1", "direction": "to-server", "gbps": 1, "runs_gbps": [1]},
		 {"client_nic": "eth7", "server_nic": "eth0", "direction": "to-server", "gbps": 9, "runs_gbps": [9]},
		 {"client_nic": "eth7", "server_nic": "eth1", "direction": "to-server", "gbps": 9, "runs_gbps": [9]},
		 {"client_nic": "eth7", "server_nic": "eth2", "direction": "to-server", "gbps": 9, "runs_gbps": [9]}]}]}
	END
	sweep_all --resume old
	rm old
	[ "$status" -eq 7 ]
	[[ $output == *"NIC ?[2Jeth9"*"NIC ?[2Jeth8 sends slowly: "*"?[31mlost"* && $output != *$'\e'* ]]
}

@test "what cannot work is refused: no scheduler, a wrong key, another number of nodes, no coordinator" {
	free_port
	run "$DUALRAIL" sweep
	[ "$status" -eq 1 ]
	[[ $output == *"no scheduler set it"* ]]
	run "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1 --test failover
	[ "$status" -eq 1 ]
	run "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1 --test lat
	[ "$status" -eq 1 ]
	run "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1 --key-file /dev/stdin <<<"0123456789abcdef"
	[ "$status" -eq 1 ]
	[[ $output == *"--key-file /dev/stdin: each run of a sweep reads it anew"* ]]
	run "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1:"$port" --resume /dev/null
	[ "$status" -ne 0 ]
	run "$DUALRAIL" sweep --rank 1 --nodes 2 --coordinator 127.0.0.1:"$port" --join-timeout 300ms
	[ "$status" -eq 3 ]
	[[ $output == *"cannot join the coordinator at 127.0.0.1 port $port"* ]]
	# The name of a node in its own /etc/hosts.
	tells 3 "this is an address of this node itself, which is not rank 0: look for the name in /etc/hosts, or give --coordinator" \
		"$DUALRAIL" sweep --rank 1 --nodes 2 --coordinator 127.0.1.1:"$port" --join-timeout 300ms
	says "sweep: the name of rank 0 is a loopback address (127.0.1.1) on another node"
	start zero "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1:"$port" --allow-from 192.0.2.0/24
	run "$DUALRAIL" sweep --rank 1 --nodes 2 --coordinator 127.0.0.1:"$port" --join-timeout 300ms
	[ "$status" -eq 3 ]
	wait_for grep -q "not in the networks of --allow-from" zero.err
	kill -TERM "$pid"
	ends "$pid" 143
	head -c 32 /dev/urandom | base64 >key
	head -c 32 /dev/urandom | base64 >other
	chmod 600 key other
	start zero "$DUALRAIL" sweep --rank 0 --nodes 2 --coordinator 127.0.0.1:"$port" --key-file key --json=s.json
	run "$DUALRAIL" sweep --rank 1 --nodes 2 --coordinator 127.0.0.1:"$port" --key-file other
	[ "$status" -eq 3 ]
	[[ $output == *"refused by the coordinator"* ]]
	run "$DUALRAIL" sweep --rank 1 --nodes 3 --coordinator 127.0.0.1:"$port" --key-file key
	[ "$status" -eq 3 ]
	[[ $output == *"rank 1 of 3 nodes, but this sweep has 2 nodes"* ]]
	# Ended before anybody came: the document says so.
	kill -TERM "$pid"
	ends "$pid" 143
	holds s.json '.exit_code == 143 and (.findings | map(.kind)) == ["node-missing"] and .pairs == []'
}

# bats test_tags=release,nightly
@test "--pattern random names a slow NIC from four rounds" {
	watch
	fabric 6
	slow 4 rail1
	sweep_all --pattern random --json=s.json
	judge_status 100 7
	judge 100 finding bad-nic 4 '"rail1"'
	judge 100 holds s.json '.findings | length == 1'
	holds s.json '.pattern == "random" and (.pairs | length) == 12'
}
