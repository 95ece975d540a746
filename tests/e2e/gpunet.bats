#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `--transport nccl:FILE --memory cuda`: plugins that receive into GPU memory, and those that leave data in pieces there.
# On emulated GPUs (tests/fakecuda): a process that leaves memory, a stream or a context behind, or misuses one, ends with status 99.
# shellcheck disable=SC2054 # commas belong to values

# bats file_tags=one-thread
load usual

setup() {
	common_setup
	fake=$DR_BUILD/tests/plugins/libnccl-net-fake.so
	unset "${!NCCL_@}" "${!FAKENET@}"
	export DR_LIBCUDA=$DR_BUILD/tests/fakecuda/cuda_plugin.so DR_FAKE_CUDA=devices=1,memory_mib=4096,delay_us=0
	export FAKENET_MEMORY=cuda FAKENET_PAGES=2048 NCCL_DYNAMIC_CHUNK_SIZE=524288
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
	stop server
}

# passes TEXT: every byte was compared by the GPU and is right, nothing was staged, and the server says how that memory is reached.
passes() {
	[ "$status" -eq 0 ]
	clean c.json
	holds c.json '.integrity.chunks > 0 and all(.bandwidth[]; .gbps > 0) and all(.latency[]; .samples > 0)'
	holds c.json '.topology.memory | length == 2 and all(.memory == "cuda" and .staged == false)'
	holds c.json "[.topology.memory[] | select(.side == \"server\")][0].staged_because == \"$1\""
}

# pieces MODE: the bytes that the server's GPU has put together.
pieces() {
	over pieces --unpack "$1"
	client --test bw,lat --verify --json=c.json
	passes "plugin GPUDirectTCPX_v7, pieces: ${1/auto/kernel}"
	holds c.json '.topology.memory | all(.[] | select(.side == "server"); .unpacked_bytes > 0 and .unpack_busy_percent > 0) and
		all(.[] | select(.side == "client"); .unpacked_bytes == 0)'
	stopped
}

@test "data that is left in pieces in GPU memory: each way of unpacking" {
	local mode
	for mode in auto kernel d2d host; do pieces "$mode"; done
	over pieces --unpack none
	gives 6 client --test bw --verify --json=c.json
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0'
	gives 2 client --memory host --unpack kernel
	[[ $output == *"--unpack kernel needs data buffers in GPU memory; use --memory cuda, or --unpack host"* ]]
	stopped
}

# direct TEXT OPTIONS...
direct() {
	over direct "${@:2}"
	client --test bw,lat --verify --json=c.json
	passes "plugin FakeDirect$1"
	holds c.json '.topology.memory | all(.copied_out_bytes == 0 and .copied_in_bytes == 0 and .unpacked_bytes == 0)'
	stopped
}

# bats test_tags=nightly
@test "a plugin that receives into GPU memory: with a flush, without one, by a dma-buf" {
	direct ''
	direct '' --net-api v7
	DR_FAKE_CUDA+=,ordered=1 FAKENET_ORDERED=1 direct '' --net-api v9
	FAKENET_DMABUF=only direct ', by a dma-buf'
	# The last bytes come with the flush, which a GPU of this kind is said not to need. Version 9 has a property that asks for it.
	DR_FAKE_CUDA+=,ordered=1
	direct ''
	over direct --net-api v7
	gives 6 client --test bw --verify --json=c.json
	holds c.json '.integrity.corrupted > 0 and .integrity.lost == 0'
	stopped
}

cut() {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	watch
	FAKENET=$1 start demo "$DUALRAIL" demo -g 0 --memory cuda --transport "nccl:$fake" --test failover -D 500ms --hold-down 200ms \
		--verify --json=c.json --fault link-down:path=0,at=100ms,for=200ms --fault blackhole:path=0,at=100ms,for=200ms
	judge_status 100 0 "$pid"
	clean c.json
	judge 100 holds c.json '.failover.faults | length == 2 and all(.verdict == "PASS" and .in_flight_chunks > 0)'
	holds c.json '.topology.memory | length == 2 and all(.staged == false)'
}

@test "failover with data in GPU memory, left in pieces" {
	cut pieces
}

@test "failover with data in GPU memory that the plugin receives into" {
	cut direct
}
