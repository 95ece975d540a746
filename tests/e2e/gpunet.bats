#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `--transport nccl:FILE --memory cuda`: plugins that receive into GPU memory, and those that leave data in pieces there, in this
# process and in one of their own (--isolate on). On emulated GPUs (tests/fakecuda): a process that leaves memory, a stream or a
# context behind, or misuses one, ends with status 99, and memory that is freed while another process has it mapped is misuse.
# shellcheck disable=SC2154,SC2030,SC2031,SC2034,SC2054 # set and used by lib.bash; tests are subshells; commas belong to values

# bats file_tags=one-thread
setup() {
	load lib
	common_setup
	fake=$DR_BUILD/tests/plugins/libnccl-net-fake.so
	unset "${!NCCL_@}" "${!FAKENET@}"
	export DR_LIBCUDA=$DR_BUILD/tests/fakecuda/cuda_plugin.so DR_FAKE_CUDA=devices=1,memory_mib=4096,delay_us=0
	export FAKENET_MEMORY=cuda FAKENET_PAGES=2048 NCCL_DYNAMIC_CHUNK_SIZE=524288
}

teardown() {
	common_teardown
}

# over PERSONALITY OPTIONS...: this plugin at both ends, GPU memory, two rails on the loopback interface.
over() {
	local rails=(--rails lo@127.0.0.1,lo@127.0.0.2 --transport "nccl:$fake")
	export FAKENET=$1 NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo FAKENET_IFNAME=lo
	SMALL=(-g 0 --memory cuda -N 1 -s 64K -n 64 "${rails[@]}" "${@:2}")
	start_server --memory cuda "${rails[@]}" -g 0 "${@:2}"
}

# Its own check for what is left behind is in the status.
stopped() {
	kill "$server"
	ends "$server" 143
}

# passes TEXT: every byte was compared by the GPU and is right, nothing was staged, and the server says how that memory is reached.
passes() {
	[ "$status" -eq 0 ]
	clean c.json
	holds c.json '.integrity.chunks > 0 and all(.bandwidth[]; .gbps > 0) and all(.latency[]; .samples > 0)'
	holds c.json '.topology.memory | length == 2 and all(.memory == "cuda" and .staged == false)'
	holds c.json "[.topology.memory[] | select(.side == \"server\")][0].staged_because == \"$1\""
}

# pieces ISOLATE MODE: the bytes that the server's GPU has put together.
pieces() {
	over pieces --isolate "$1" --unpack "$2"
	client --test bw,lat --verify --json=c.json
	passes "plugin GPUDirectTCPX_v7, pieces: ${2/auto/kernel}"
	holds c.json '.topology.memory | all(.[] | select(.side == "server"); .unpacked_bytes > 0 and .unpack_busy_percent > 0) and
		all(.[] | select(.side == "client"); .unpacked_bytes == 0)'
	stopped
}

@test "data that is left in pieces in GPU memory: each way of unpacking" {
	local mode
	for mode in auto kernel d2d host; do pieces off "$mode"; done
	over pieces --unpack none
	client --test bw --verify --json=c.json
	[ "$status" -eq 6 ]
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0'
	client --memory host --unpack kernel
	[ "$status" -eq 2 ]
	[[ $output == *"--unpack kernel needs data buffers in GPU memory; use --memory cuda, or --unpack host"* ]]
	stopped
}

@test "the same by a process of the plugin's, which has the buffers mapped" {
	local mode
	for mode in auto d2d host; do pieces on "$mode"; done
}

# direct ISOLATE TEXT OPTIONS...
direct() {
	over direct --isolate "$1" "${@:3}"
	client --test bw,lat --verify --json=c.json
	passes "plugin FakeDirect$2"
	holds c.json '.topology.memory | all(.copied_out_bytes == 0 and .copied_in_bytes == 0 and .unpacked_bytes == 0)'
	stopped
}

# bats test_tags=nightly
@test "a plugin that receives into GPU memory: with a flush, without one, by a dma-buf" {
	local way
	for way in off on; do
		direct "$way" ''
		direct "$way" '' --net-api v7
		DR_FAKE_CUDA+=,ordered=1 FAKENET_ORDERED=1 direct "$way" '' --net-api v9
		FAKENET_DMABUF=only direct "$way" ', by a dma-buf'
	done
	# The last bytes come with the flush, which a GPU of this kind is said not to need. Version 9 has a property that asks for it.
	DR_FAKE_CUDA+=,ordered=1
	direct off ''
	over direct --net-api v7
	client --test bw --verify --json=c.json
	[ "$status" -eq 6 ]
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0'
	stopped
}

@test "memory that cannot be shared with the plugin's process is staged, unless data are in pieces there" {
	DR_FAKE_CUDA+=,ipc=0
	over direct --isolate on
	client --test bw --verify --json=c.json
	[ "$status" -eq 0 ]
	clean c.json
	holds c.json '.topology.memory | all(.staged and (.staged_because | contains("(CUDA IPC): CUDA_ERROR_NOT_SUPPORTED")))'
	stopped
	over pieces --isolate on
	client --test bw
	[ "$status" -eq 2 ]
	[[ $output == *"share memory of GPU 0 with another process (CUDA IPC): CUDA_ERROR_NOT_SUPPORTED"* ]]
	stopped
	# The program has the GPU alone (compute mode EXCLUSIVE_PROCESS).
	DR_FAKE_CUDA=devices=1,memory_mib=4096,delay_us=0,refuse=dualrail-plugin
	over direct --isolate on
	client --test bw --verify --json=c.json
	[ "$status" -eq 0 ]
	holds c.json '.topology.memory | all(.staged and (.staged_because | contains("CUDA_ERROR_DEVICE_UNAVAILABLE")))'
	stopped
	over pieces --isolate on
	client --test bw
	[ "$status" -eq 2 ]
	[[ $output == *"CUDA_ERROR_DEVICE_UNAVAILABLE"* ]]
	stopped
	DR_FAKE_CUDA=devices=1,memory_mib=4096,delay_us=0,fail=cuIpcOpenMemHandle_v2:1
	over direct --isolate on
	client --test bw --verify --json=c.json
	[ "$status" -eq 0 ]
	holds c.json '.topology.memory | all(.staged and (.staged_because | contains("does not map GPU memory: map memory of GPU 0 of another process")))'
	stopped
}

@test "preflight, whose checks use CUDA before the run, has GPU memory in the plugin's process too" {
	watch
	over direct --isolate on
	run timeout "$WAIT_S" "$DUALRAIL" preflight 127.0.0.1 --port "$port" "${SMALL[@]}" -w 8 --json=c.json
	echo "$output"
	# A channel that has left its rail for a moment is refused by the matrix.
	judge_status 100 0
	holds c.json '[.. | .staged? | booleans] | length > 0 and all(. == false)'
	stopped
}

cut() {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	watch
	FAKENET=$1 start demo "$DUALRAIL" demo -g 0 --memory cuda --transport "nccl:$fake" --isolate "$2" --test failover -D 500ms --hold-down 200ms \
		--verify --json=c.json --fault link-down:path=0,at=100ms,for=200ms --fault blackhole:path=0,at=100ms,for=200ms
	judge_status 100 0 "$pid"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0)'
	holds c.json '.topology.memory | length == 2 and all(.staged == false)'
}

@test "failover with data in GPU memory, left in pieces" {
	cut pieces off
}

@test "failover with data in GPU memory, left in pieces by a process of the plugin's" {
	cut pieces on
}

@test "failover with data in GPU memory that the plugin receives into" {
	cut direct off
}

@test "failover with data in GPU memory that the plugin's process receives into" {
	cut direct on
}

# of NAME: the processes of this test with that name. They are forked, so that their command line is the program's.
of() {
	local p
	for p in $(pgrep -f "json=$PWD/c.json"); do
		[[ $(cat "/proc/$p/comm" 2>/dev/null) != "$1" ]] || echo "$p"
	done
}

kill_one() {
	kill -KILL "$(of dualrail-plugin | head -n 1)"
}

all_four_or_end() {
	[[ $(of dualrail-plugin | wc -l) == 4 ]] || ! kill -0 "$demo" 2>/dev/null
}

nobody() {
	! pgrep -f "json=$PWD/c.json" >/dev/null
}

@test "a plugin's process that is killed maps the memory again, and every byte is right" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	FAKENET=direct start client "$DUALRAIL" demo -g 0 -N 2 -s 1M -w 0 --memory cuda --transport "nccl:$fake" --isolate on --verify --test bw -D 5s \
		-i 100ms --json="$PWD/c.json"
	demo=$pid
	wait_for flowing
	wait_for kill_one
	wait_for all_four_or_end
	ends "$demo" 0
	clean c.json
	holds c.json '.status == "pass" and (.topology.memory | all(.staged == false))'
	grep -q 'it ended by signal 9 (Killed); it is started again' client.err
	wait_for nobody
}
