#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dualrail sweep started by Debian's Open MPI and Debian's Slurm: one machine, a network namespace for each node. Run by
# scripts/schedulers.sh in a system of its own, for daemons have fixed ports and directories there.
# shellcheck disable=SC2030,SC2031,SC2154 # set by lib.bash and by run

setup() {
	load ../e2e/lib
	common_setup
	[[ ${DR_SCHEDULERS-} ]] || skip "run by scripts/schedulers.sh (make check-schedulers)"
	NODES=()
}

teardown() {
	local net file
	for file in slurmctld.pid munged.pid d*.pid; do
		[[ ! -e $file ]] || kill "$(<"$file")" 2>/dev/null || :
	done
	end_background KILL
	for net in "${NODES[@]}" "${SW-}"; do
		[[ -z $net ]] || ip netns del "$net" 2>/dev/null || :
	done
	validated
}

# Two rails of 50 Mb/s per direction; low means less than half.
RUN=(-g 0 -N 1 -s 32K --window 4 -D 400ms -w 50ms --rate 50M --min-pair 50 --detect conservative)

# fabric N: nodes n0 to nN-1 with a NIC for control and two rails, on three switches; the namespace of the switches has
# 10.96.255.1.
fabric() {
	local i k
	SW=sw
	ip netns add "$SW"
	for k in ctl0 rail0 rail1; do
		ip -n "$SW" link add "$k" type bridge
		ip -n "$SW" link set "$k" up
	done
	ip -n "$SW" addr add 10.96.255.1/24 dev ctl0
	ip -n "$SW" link set lo up
	printf '%s\n' "127.0.0.1 localhost" "10.96.255.1 sw" >/etc/hosts
	for ((i = 0; i < $1; i++)); do
		ip netns add "n$i"
		NODES+=("n$i")
		echo "10.96.255.$((10 + i)) n$i" >>/etc/hosts
		ip -n "n$i" link set lo up
		port_of "$i" ctl0 255
		port_of "$i" rail0 0
		port_of "$i" rail1 1
	done
}

port_of() {
	ip -n "$SW" link add "$2-$1" type veth peer name "$2" netns "n$1"
	ip -n "$SW" link set "$2-$1" master "$2" up
	ip -n "n$1" addr add "10.96.$3.$((10 + $1))/24" dev "$2"
	ip -n "n$1" link set "$2" up
}

# slow I NIC: to a tenth, both ways.
slow() {
	tc -n "n$1" qdisc replace dev "$2" root tbf rate 5mbit burst 16k latency 400ms
	tc -n "$SW" qdisc replace dev "$2-$1" root tbf rate 5mbit burst 16k latency 400ms
}

@test "Open MPI: mpirun -np 6, a slow NIC is named" {
	fabric 6
	slow 2 rail1
	# shellcheck disable=SC2016 # of the shell of each rank
	run ip netns exec "$SW" mpirun --allow-run-as-root --oversubscribe -np 6 sh -c \
		'exec ip netns exec "n$OMPI_COMM_WORLD_RANK" "$@"' node "$DUALRAIL" sweep "${RUN[@]}" \
		--coordinator n0 --json=s.json
	echo "$output"
	# mpirun ends with the status of the rank that failed.
	[ "$status" -eq 7 ]
	[[ $output == *"BAD: 1 finding: bad-nic rank 2 rail1; 15 of 15 pairs measured"* ]]
	holds s.json '.source == "Open MPI" and .nodes_expected == 6 and .measured.ok == 15'
	holds s.json '[.findings[] | [.kind, .rank, .nic]] == [["bad-nic", 2, "rail1"]]'
}

@test "Open MPI: a clean fabric is exonerated, status 0" {
	fabric 3
	# shellcheck disable=SC2016 # of the shell of each rank
	run ip netns exec "$SW" mpirun --allow-run-as-root --oversubscribe -np 3 sh -c \
		'exec ip netns exec "n$OMPI_COMM_WORLD_RANK" "$@"' node "$DUALRAIL" sweep "${RUN[@]}" \
		--coordinator n0 --json=s.json
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"network exonerated: 3 of 3 pairs of 3 nodes, 12 figures"* ]]
}

@test "Open MPI: several ranks on a host are told how to start one per node" {
	run mpirun --allow-run-as-root --oversubscribe -np 3 "$DUALRAIL" sweep "${RUN[@]}" --coordinator 127.0.0.1
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"its host has rank 0 already; start one rank per node: srun -N NODES -n NODES, mpirun -N 1,"* ]]
	[[ $output != *exonerated* ]]
}

# slurm N [LINE]: slurmctld in the namespace of the switches, a slurmd in that of each node, with its host name. LINE: of slurm.conf.
slurm() {
	local i
	fabric "$1"
	dd if=/dev/urandom of=munge.key bs=1 count=1024 status=none
	chmod 400 munge.key
	mkdir -p /run/munge state spool
	munged --force --key-file="$PWD/munge.key" --pid-file="$PWD/munged.pid" --log-file="$PWD/munged.log" \
		--seed-file="$PWD/munged.seed"
	cat >slurm.conf <<-EOF
		ClusterName=test
		SlurmctldHost=sw(10.96.255.1)
		SlurmUser=root
		AuthType=auth/munge
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		MpiDefault=none
		SelectType=select/cons_tres
		StateSaveLocation=$PWD/state
		SlurmdSpoolDir=$PWD/spool/%n
		SlurmctldPidFile=$PWD/slurmctld.pid
		SlurmdPidFile=$PWD/d%n.pid
		SlurmctldLogFile=$PWD/slurmctld.log
		SlurmdLogFile=$PWD/d%n.log
		ReturnToService=2
		SlurmdTimeout=60
		AccountingStorageType=accounting_storage/none
		JobAcctGatherType=jobacct_gather/none
		${2-}
	EOF
	for ((i = 0; i < $1; i++)); do
		mkdir -p "spool/n$i"
		echo "NodeName=n$i NodeAddr=10.96.255.$((10 + i)) CPUs=1 State=UNKNOWN"
	done >>slurm.conf
	echo "PartitionName=all Nodes=n[0-$(($1 - 1))] Default=YES State=UP OverSubscribe=YES" >>slurm.conf
	# Nothing is limited by control groups; this plugin needs none of them.
	echo "CgroupPlugin=cgroup/v1" >cgroup.conf
	export SLURM_CONF=$PWD/slurm.conf
	# shellcheck disable=SC2016 # of that shell
	start ctld ip netns exec "$SW" unshare --uts sh -c 'hostname sw; exec slurmctld -D'
	for ((i = 0; i < $1; i++)); do
		# shellcheck disable=SC2016
		start "slurmd$i" ip netns exec "n$i" unshare --uts sh -c 'hostname "$1"; exec slurmd -D -N "$1"' sh "n$i"
	done
	wait_for idle "$1"
}

idle() {
	[[ $(ip netns exec "$SW" sinfo -h -t idle -o %D) == "$1" ]]
}

@test "Slurm: sbatch dualrail.sbatch on six nodes, a slow NIC is named" {
	slurm 6
	slow 4 rail0
	cd "$BATS_TEST_TMPDIR" || return 1
	run ip netns exec "$SW" env DUALRAIL="$DUALRAIL" sbatch --wait --nodes=6 "$DR_ROOT/scripts/slurm/dualrail.sbatch" "${RUN[@]}"
	echo "$output"
	cat dualrail-*.out
	[ "$status" -eq 7 ]
	grep -q 'BAD: 1 finding: bad-nic rank 4 rail0; 15 of 15 pairs measured' dualrail-1.out
	holds dualrail-1.json '.source == "Slurm" and .nodes_expected == 6 and .measured.ok == 15'
	holds dualrail-1.json '[.nodes[].host] == ["n0", "n1", "n2", "n3", "n4", "n5"]'
	holds dualrail-1.json '[.findings[] | [.kind, .rank, .nic]] == [["bad-nic", 4, "rail0"]]'
}

@test "Slurm: a node that is killed is missing, the others finish" {
	slurm 4
	start srun ip netns exec "$SW" srun -N 4 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 "$DUALRAIL" sweep "${RUN[@]}" -v \
		--json="$PWD/s.json"
	srun=$pid
	wait_for grep -q 'pair 0, .*exit status 0' srun.err
	# slurmd's step of the node, and what it started.
	kill -KILL "$(pgrep -f "dualrail sweep" | while read -r p; do
		[[ $(nsenter -t "$p" -u hostname) != n2 ]] || echo "$p"
	done | head -n 1)"
	wait "$srun" || status=$?
	cat srun.out
	holds s.json '.exit_code == 3 and (.nodes | map(.presence)) == ["present", "present", "lost", "present"]'
	holds s.json 'all(.pairs[] | select(.client != 2 and .server != 2); .state == "ok")'
}

reports() {
	[[ $(ip netns exec "$SW" "${@:2}") == "$1" ]]
}

@test "Slurm: the prolog drains a node with a slow NIC and requeues its job; a good node runs its job" {
	slurm 3 "Prolog=$DR_ROOT/scripts/slurm/prolog.sh"
	slow 1 rail1
	cat >/etc/default/dualrail-prolog <<-EOF
		PEER=10.96.255.12
		PATH=${DUALRAIL%/*}:\$PATH
		DUALRAIL_CHANNELS=1 DUALRAIL_SIZE=32K DUALRAIL_WINDOW=4 DUALRAIL_RATE=50M DUALRAIL_DETECT=conservative DUALRAIL_GPUS=0
	EOF
	start server ip netns exec n2 "$DUALRAIL" server -g 0
	wait_for grep -q listening server.err
	gives 0 ip netns exec "$SW" srun -w n0 -o n0.out hostname
	[ "$(<n0.out)" = n0 ]
	wait_for grep -q 'client 10.96.255.10:.*done, status 0' server.err
	gives 0 ip netns exec "$SW" sbatch -w n1 -o n1.out --wrap hostname
	wait_for reports "n1 drained Prolog error" sinfo -h -n n1 -o "%n %T %E"
	wait_for reports "2 PENDING launch failed requeued held" squeue -h -o "%A %T %r"
	! grep -qx n1 n1.out || false
}
