#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# GPU memory, on emulated GPUs (tests/fakecuda). A process that leaves memory, a stream or a context
# behind, or misuses one, ends with status 99 there, so every status below says that too.
# check.sh: thread

load usual

setup() {
	common_setup
	library=${DUALRAIL%/*}/tests/fakecuda/cuda_plugin.so
	[[ -e $library ]] || skip "the fake libcuda is not built"
	export DR_FAKE_CUDA=devices=2,memory_mib=512,delay_us=5
}

fake() {
	DR_LIBCUDA=$library "$@"
}

# gpus_server OPTIONS...: a server whose GPUs are the fake's.
gpus_server() {
	free_port
	start server env DR_LIBCUDA="$library" "$DUALRAIL" server --port "$port" "$@"
	wait_for grep -q listening server.err
}

gpus_client() {
	run fake timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" -N 2 -s 1M "$@"
}

# Of what both ends have, in the document.
staged_at_both_ends() {
	holds "$1" '.topology.memory | length == 4 and ([.[].side] | unique == ["client", "server"]) and
		all(.[]; .memory == "cuda" and .staged and .staged_because == "tcp supports host memory only")'
}

@test "all GPUs that CUDA shows are used, from their own memory; every byte is checked" {
	gpus_server -1
	gives 0 gpus_client -D 300ms -w 50ms --verify --json=c.json
	[[ $output == *"GPU memory: staged through pinned host memory: tcp supports host memory only"* ]]
	ends "$server" 0
	whole c.json
	clean c.json
	staged_at_both_ends c.json
	holds c.json '.integrity.verified and .integrity.chunks > 0'
	holds c.json '.bandwidth | length == 2'
	holds c.json '[.topology.memory[].bus_id] | unique == ["0000:1b:00.0", "0000:2b:00.0"]'
	holds c.json '.topology.memory | all(.[]; if .side == "client"
		then .copied_out_bytes > 0 and .copied_in_bytes == 0 and .copy_out_busy_percent > 0
		else .copied_in_bytes > 0 and .copied_out_bytes == 0 and .copy_in_busy_percent > 0 end)'
	# One copy in 16 is timed; a copy costs three calls of the driver and little more.
	holds c.json '.topology.memory | all(.[]; .copies > 0 and .copies_timed >= (.copies / 16 | floor) - 1 and
		.copies_timed <= .copies / 16 + 2 and .copy_driver_calls / .copies < 3)'
}

@test "both ways at once, the other way round, and latency" {
	gpus_server
	for way in --bidir -R; do
		gives 0 gpus_client --test bw,lat -D 200ms -w 50ms --verify --json=c.json "$way"
		clean c.json
		holds c.json '.latency | length == 2 and all(.[]; .samples > 0)'
	done
	stop server
}

@test "many short phases, each to its last chunk without waiting for anything" {
	gpus_server
	for delay in 0 30 300; do
		DR_FAKE_CUDA=devices=2,memory_mib=512,delay_us=$delay run fake timeout "$WAIT_S" "$DUALRAIL" \
			client 127.0.0.1 --port "$port" -N 3 -b 1K -e 2M -f 2 -n 3 -w 1 --bidir --verify \
			--json=c.json
		[ "$status" -eq 0 ]
		clean c.json
		judge 100 holds c.json '.failover.switches == [] and (.bandwidth | length) == 48'
	done
}

@test "GPUs by PCI bus id, in the order given; a window of one and chunks with a tail" {
	gpus_server -1 -g 2B:00.0,0000:1b:00.0
	gpus_client -g 0,0000:2b:00.0 -N 1 --window 1 -s 100001 --chunk 30001 -n 20 -w 1 --verify --json=c.json
	[ "$status" -eq 0 ]
	ends "$server" 0
	clean c.json
	holds c.json '[.topology.memory[] | select(.side == "server") | .bus_id] == ["0000:2b:00.0", "0000:1b:00.0"]'
	holds c.json '[.topology.memory[] | select(.side == "client") | .bus_id] == ["0000:1b:00.0", "0000:2b:00.0"]'
}

@test "a client in host memory, a server in GPU memory, and the other way round" {
	gpus_server -1 -g 0
	gives 0 gpus_client -g 0 --memory host -D 200ms --verify --json=c.json
	ends "$server" 0
	clean c.json
	holds c.json '.topology.memory | map([.side, .memory]) | sort == [["client", "host"], ["server", "cuda"]]'
	gpus_server -1 -g 0 --memory host
	gives 0 gpus_client -g 0 -D 200ms --verify --json=c.json
	ends "$server" 0
	clean c.json
	holds c.json '.topology.memory | map([.side, .memory]) | sort == [["client", "cuda"], ["server", "host"]]'
}

@test "failover and failback from GPU memory: every trial passes, nothing lost, doubled or wrong" {
	gpus_server -1 --allow-faults
	gpus_client -s 256K --chunk 64K --test failover --allow-faults --hold-down 50ms --json=c.json \
		--fault close:path=0,at=100ms,for=50ms,repeat=5,every=200ms
	judge_status 100 0
	ends "$server" 0
	clean c.json
	staged_at_both_ends c.json
	judge 100 holds c.json '.failover.faults | length == 5 and all(.[]; .verdict == "PASS")'
}

@test "demo makes no use of CUDA before it forks" {
	run fake timeout "$WAIT_S" "$DUALRAIL" demo --memory cuda --test bw -D 200ms --json=c.json
	[ "$status" -eq 0 ]
	staged_at_both_ends c.json
}

# refused STATUS WORDS OPTIONS...: a client says so at once, in one line; of status 1, refused options, there is no document.
refused() {
	local want=$1 words=$2
	shift 2
	rm -f r.json
	run fake "$DUALRAIL" client 127.0.0.1 -q --json=r.json "$@"
	[ "$status" -eq "$want" ]
	[[ $(grep -c '^dualrail: ' <<<"$output") == 1 ]]
	[[ $output == *"$words"* ]]
	if ((want == 1)); then
		[ ! -e r.json ]
	else
		holds r.json ".exit_code == $want and (.errors | length) == 1"
	fi
}

@test "GPUs that are not there, names that are none: status 2 and 1, with those there are" {
	export DR_FAKE_CUDA=devices=1
	refused 2 "no such GPU: 1; available: 1 GPU: 0 (0000:1b:00.0)" -g 0-1
	refused 2 "no such GPU: 0000:99:00.0" -g 0000:99:00.0
	refused 1 "not a number, a range or a PCI bus id" -g 0-x
	refused 1 "named twice" -g 0,0
	refused 1 "which is named twice" -g 0,1b:00.0
	refused 1 "PCI bus ids need GPU memory" -g 1b:00.0 --memory host
}

@test "no GPU, a driver that does not start or is too old: status 2 and what to do" {
	DR_FAKE_CUDA=devices=0 refused 2 "--memory host" --memory cuda
	DR_FAKE_CUDA=init=999 refused 2 "nvidia-smi" --memory cuda
	DR_FAKE_CUDA=version=10000 refused 2 "too old" --memory cuda
	DR_FAKE_CUDA=version=10000 refused 2 "too old" -g 1b:00.0
	library=libnone-of-this-name.so.1 refused 2 "install the NVIDIA driver" --memory cuda
}

@test "without --memory a machine without GPUs uses host memory, and says so when that may surprise" {
	export DR_FAKE_CUDA=devices=0
	run -0 fake "$DUALRAIL" client 127.0.0.1 --dry-run
	[[ $output == *"GPU 4-7 <-> 4-7"* && $output != *warn* ]]
	DR_FAKE_CUDA=version=10000 run -0 fake "$DUALRAIL" client 127.0.0.1 --dry-run
	[[ $output == *"using host memory: the NVIDIA driver is too old"* ]]
}

@test "out of GPU memory, of pinned memory: status 2, with what was asked for, at either end" {
	gpus_server -g 0
	DR_FAKE_CUDA=devices=1,memory_mib=4 gives 2 gpus_client -g 0 -q --json=c.json
	[[ $output == *"is out of memory: "*" bytes requested"*"--window"* ]]
	whole c.json
	DR_FAKE_CUDA=devices=1,fail=cuMemHostAlloc:4 gives 2 gpus_client -g 0 -q
	[[ $output == *"bytes of pinned host memory"* ]]
	stop server
	DR_FAKE_CUDA=devices=1,memory_mib=4 gpus_server -g 0
	tells 2 "is out of memory: " gpus_client -g 0 -q
	stop server
}

@test "a server that finds late that it cannot run: both ends say why, and end with its status" {
	# 1: it opens its GPUs; 9: with the handles of both, it makes their buffers
	for fail in memory_mib=4 fail=cuMemHostAlloc:1 fail=cuMemHostAlloc:9; do
		DR_FAKE_CUDA=devices=2,$fail gpus_server -1 -g 0-1 --json=s.json
		gives 2 gpus_client -g 0-1 -q --json=c.json
		ends "$server" 2
		holds s.json '.exit_code == 2 and (.errors[0].text | test("memory: [0-9]+ bytes requested|bytes of pinned host memory"))'
		holds c.json ".exit_code == 2 and (.errors[0].text | endswith($(jq '.errors[0].text' s.json)))"
	done
}

# A client that waits in its first allocation of pinned memory, until file `hold` is removed; $first.
start_held() {
	touch hold
	start first env DR_LIBCUDA="$library" "DR_FAKE_CUDA=devices=1,hold=cuMemHostAlloc:$PWD/hold" "$DUALRAIL" client 127.0.0.1 \
		--port "$port" -g 0 -N 2 -s 1M -D 200ms
	first=$pid
	wait_for grep -q 'cuMemHostAlloc is held' first.err
}

told_busy() {
	(($(grep -c 'server busy: serving' server.err) >= $1))
}

# bats test_tags=nightly
@test "a client that opens its GPUs for long keeps its place while another one waits" {
	gpus_server -g 0 --verbose=0
	start_held
	start second env DR_LIBCUDA="$library" "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0 -N 2 -s 1M -D 200ms
	second=$pid
	wait_for told_busy 6 # each 500 ms
	rm hold
	ends "$first" 0
	ends "$second" 0
	run -1 grep 'another client waits' server.err
}

@test "a client that is stopped while it opens its GPUs gives way, and is not the one client of --one-off" {
	gpus_server -g 0 -1 --json=s.json
	start_held
	kill -STOP "$first"
	gives 0 gpus_client -g 0 -D 200ms
	ends "$server" 0
	holds s.json '.exit_code == 0'
	grep -q 'before the run began, and another client waits' server.err
	kill -CONT "$first"
	rm hold
	ends "$first" 3
	grep -q 'before the run began, and another client waits' first.err
}

@test "a GPU that fails in the middle: status 4 and its error, from either end, nothing left behind" {
	for call in cuMemcpyDtoHAsync_v2:9 cuLaunchKernel:9; do
		gpus_server -1 -g 0
		DR_FAKE_CUDA=devices=1,fail=$call gpus_client -g 0 -D 5s --verify --json=c.json
		[ "$status" -eq 4 ]
		holds c.json '.errors[0].text | test("on GPU 0: CUDA_ERROR_")'
		ends "$server" 4
	done
	DR_FAKE_CUDA=devices=1,fail=cuMemcpyHtoDAsync_v2:9 gpus_server -1 -g 0
	gives 4 gpus_client -g 0 -D 5s --json=c.json
	holds c.json '.errors[0].text | test("server: .*on GPU 0: CUDA_ERROR_")'
	ends "$server" 4
}

@test "nothing links libcuda" {
	run ldd "$DUALRAIL"
	[[ $output != *cuda* ]]
	run ldd "${DUALRAIL%/*}/libdualrail.so"
	[[ $output != *cuda* ]]
}
