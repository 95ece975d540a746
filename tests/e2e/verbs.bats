#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The verbs transport where there is no RDMA: what is missing is said once, with what to do.

load usual

no_library() {
	DR_IBVERBS=libnone-of-this-name.so.1 "$@"
}

@test "no libibverbs: status 2, names the packages; tcp does not care" {
	run -2 no_library "$DUALRAIL" client 127.0.0.1 --transport verbs --rails lo@127.0.0.1 -q
	[[ $output == *"apt-get install libibverbs1 ibverbs-providers"* ]]
	run -2 no_library "$DUALRAIL" client 127.0.0.1 --transport verbs -q --json=r.json
	whole r.json
	holds r.json '.exit_code == 2 and (.errors | length) == 1'
	run -0 no_library "$DUALRAIL" client 127.0.0.1 --dry-run
}

@test "a library that is another one: status 2, names the symbol" {
	run -2 env DR_IBVERBS=libm.so.6 "$DUALRAIL" client 127.0.0.1 --transport verbs \
		--rails lo@127.0.0.1 -q
	[[ $output == *"libm.so.6 has no ibv_"* ]]
}

@test "nothing links libibverbs" {
	run ldd "$DUALRAIL"
	[[ $output != *verbs* ]]
	run ldd "${DUALRAIL%/*}/libdualrail.so"
	[[ $output != *verbs* ]]
}

@test "options and faults of another kind: status 1" {
	for bad in "--qps 2" "--transport tcp --gid 3" "--mtu 4096" "--register lazy" \
		"--test failover --fault qp-error:path=0" \
		"--transport verbs --mtu 1500" "--transport verbs --qps 5" "--transport verbs --ib-retry 8"; do
		# shellcheck disable=SC2086
		run -1 "$DUALRAIL" client 127.0.0.1 $bad
		one_line
	done
	run -0 env NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7 NCCL_IB_GID_INDEX=-1 \
		"$DUALRAIL" client 127.0.0.1 --dry-run -v
	[[ $output == *"ib-timeout=20"* && $output == *"gid=-1"* ]]
}

@test "a server told verbs refuses a client of tcp with both names: status 3" {
	start_server --transport verbs
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -D 100ms -q
	[ "$status" -eq 3 ]
	[[ $output == *"client tcp, server verbs"* ]]
}

# Emulated RDMA devices fake0 and fake1 on lo; each process has its own.
fake() {
	local library=${DUALRAIL%/*}/tests/fakeverbs/ibverbs_plugin.so
	[[ -e $library ]] || skip "the fake libibverbs is not built"
	DR_IBVERBS=$library "$@"
}

@test "rails by RDMA name; one that is none: status 2, lists those there are" {
	run -0 fake "$DUALRAIL" client 127.0.0.1 -g 0 --transport verbs --rails fake0 --dry-run
	[[ $output == *"primary lo 127.0.0.1"* ]]
	run -2 fake "$DUALRAIL" client 127.0.0.1 --transport verbs --rails fake9 -q
	[[ $output == *"no RDMA device 'fake9'; there are: fake0 (lo), fake1 (lo)"* ]]
}

@test "a rail without RDMA device, a GID that is not there: status 2 before anybody is called" {
	export DR_FAKE_IBV=fake0:lo:127.0.0.1
	run -2 fake "$DUALRAIL" client 127.0.0.1 --transport verbs --rails lo@127.0.0.2 -q
	[[ $output == *"no GID for 127.0.0.2"* ]]
	run -2 fake "$DUALRAIL" client 127.0.0.1 --transport verbs --rails fake0 --gid 900 -q
	[[ $output == *"--gid 900: the GID table of fake0 port 1 has"*"entries"* ]]
}

@test "a server told tcp refuses a client of verbs with both names: status 3" {
	start_server --transport tcp
	run fake timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0-1 -N 2 -s 1M -q \
		--transport verbs --rails fake0
	[ "$status" -eq 3 ]
	[[ $output == *"client verbs, server tcp"* ]]
}

@test "a server that cannot follow its client says why: status 2" {
	DR_IBVERBS=libnone-of-this-name.so.1 start_server --rails lo@127.0.0.1
	run fake timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0-1 -N 2 -s 1M -q \
		--transport verbs --rails fake0
	[ "$status" -eq 2 ]
	[[ $output == *"libibverbs1"* ]]
}

@test "conservative detection of a NIC that never gives up: status 1" {
	run -1 no_library "$DUALRAIL" client 127.0.0.1 --transport verbs --detect conservative \
		--ib-timeout 0
	[[ $output == *"never gives up"* ]]
}

@test "GPU memory on an RDMA device: reached by the NIC, flushed, every byte right" {
	compgen -G "/sys/class/infiniband/*" >/dev/null ||
		skip "no RDMA device: a NIC that reaches GPU memory was emulated only (tests/fakeverbs/gpu_test.c)"
	compgen -G "/dev/nvidia[0-9]*" >/dev/null ||
		skip "an RDMA device, but no NVIDIA GPU: a NIC that reaches GPU memory was emulated only"
	run "$DUALRAIL" demo --transport verbs --memory cuda -g 0 -N 2 -D 1 --verify --json=r.json
	[ "$status" -eq 0 ]
	holds r.json '.integrity.corrupted == 0 and .integrity.lost == 0'
}
