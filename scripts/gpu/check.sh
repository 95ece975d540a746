#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What needs an NVIDIA GPU, or CUDA's tools: one line per test, and a sum.
#
#   scripts/gpu/check.sh BUILD     (make check-gpu)
#
# PARTS="code device sanitizer e2e matrix campaign ratio unpack direct nccl left": only these parts.
#   code       our declarations against cuda.h, the kernels through ptxas
#   device     gpu/ on the driver (tests/gpu/device_test), with completion flags and with events
#   sanitizer  the same, and server and client with a few small messages, under compute-sanitizer
#   e2e        the program with --memory cuda between two namespaces, as root
#   matrix     --matrix from GPU and from host memory, over two links; its tables are shown
#   campaign   at least 50 faults under load from GPU memory
#   ratio      bandwidth from GPU memory / from host memory, alternating (scripts/bench/gpu.sh), with the
#              processors' and copy engines' shares of time and the driver's calls per copy
#   unpack     data in pieces in GPU memory (the emulated GPUDirect-TCPX of tests/plugins): each way of unpacking, its
#              share of time, TCP beside it, and a failover
#   direct     a plugin that takes GPU memory directly (tests/plugins), with a flush, by a dma-buf
#   nccl       NCCL and PyTorch over libnccl-net-ha.so (scripts/gpu/nccl.sh without its measurement)
#   left       no process and no memory stays on the GPUs
# Environment: GPU_OUT (build/gpu), logs and result documents; GPU_TRIALS (60); BENCH_PAIRS (15),
# BENCH_SECS (2). BUILD may be what scripts/gpu/pack.sh made. The last line is `N passed, N failed, N
# skipped`; exit status 1 when something failed. What cannot run here is skipped, with the reason.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin
# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"

# file NAME: where its log and document are, without their ending.
file() {
	echo "$out/${1//[^a-zA-Z0-9]/-}"
}

# run SECONDS NAME COMMAND...: by its exit status, 77 a skip with the last line as the reason.
run() {
	local limit=$1 name=$2 log rc
	log=$(file "$name").log
	shift 2
	timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	case $rc in
	0) result PASS "$name" ;;
	77) result SKIP "$name" "$(tail -n 1 "$log")" ;;
	124 | 137) result FAIL "$name" "no end within $limit s" && show "$log" ;;
	*) result FAIL "$name" "exit status $rc" && show "$log" ;;
	esac
	return "$rc"
}

# run_tests NAME BINARY: its tests one by one; what it measured is shown.
run_tests() {
	local name=$1 log rc
	log=$(file "$name").log
	timeout -k 10 200 env CMOCKA_MESSAGE_OUTPUT=TAP "$2" >"$log" 2>&1 </dev/null
	rc=$?
	((rc == 77)) && result SKIP "$name" "$(tail -n 1 "$log")" && return
	grep -vE '^(1\.\.|SKIP:|(# )?(not )?ok )' "$log" | sed 's/^/      | /'
	read_tap "$log" "$name"
	((rc == 0 || bad)) || result FAIL "$name" "exit status $rc"
}

# Every test of a part is skipped for one reason.
skip_all() {
	local reason=$1 name
	shift
	for name; do result SKIP "$name" "$reason"; done
}

get() {
	python3 "$root/scripts/bench/stats.py" get "$1" "$2"
}

# ---- parts ----

part_code() {
	local arch what
	run 30 "cuda.h" "$build/tests/gpu/cuda_abi_test"
	command -v nvcc ptxas >/dev/null || {
		skip_all "nvcc and ptxas are not installed (CUDA toolkit)" "ptxas"
		return
	}
	for what in pattern unpack; do
		"$build/tests/gpu/gpu_main" ptx "$what" >"$out/$what.ptx"
		for arch in $(nvcc --list-gpu-code); do
			run 60 "ptxas $what $arch" ptxas -arch="$arch" -o "$out/$what.cubin" "$out/$what.ptx"
		done
	done
}

part_device() {
	run_tests "gpu/" "$build/tests/gpu/device_test"
	DR_GPU_COMPLETION=events run_tests "gpu/ by events" "$build/tests/gpu/device_test"
}

sanitize=(compute-sanitizer --tool memcheck --leak-check full --report-api-errors no
	--error-exitcode 86)

part_sanitizer() {
	local why=$no_gpu
	command -v compute-sanitizer >/dev/null || why=${why:-compute-sanitizer is not installed (CUDA toolkit)}
	[[ $why ]] && skip_all "$why" "sanitizer: gpu/" "sanitizer: program" && return
	run 250 "sanitizer: gpu/" env DR_GPU_SMALL=1 "${sanitize[@]}" "$build/tests/gpu/device_test"
	[[ $no_cuda ]] && skip_all "$no_cuda" "sanitizer: program" && return
	run 100 "sanitizer: program" "$root/scripts/gpu/sanitize.sh" "$dualrail" "${sanitize[@]}"
}

# demo NAME OPTION...: both ends in namespaces; passes when nothing was lost and data flowed.
demo() {
	local name=$1 doc wrong
	doc=$(file "$name").json
	shift
	run 150 "$name" "$dualrail" demo --memory cuda --json="$doc" -q "$@" || return
	if /usr/bin/python3 -c 'import jsonschema' 2>/dev/null; then
		run 60 "$name: document" "$root/tests/validate.py" "$dualrail" "$doc"
	fi
	wrong=$(get "$doc" integrity | tr -d "{}' ")
	[[ $wrong == *lost:0,duplicated:0,reordered:0,corrupted:0* ]] || {
		passed=$((passed - 1))
		result FAIL "$name" "integrity $wrong"
	}
}

# refused NAME STATUS WORDS OPTION...: one message and that status.
refused() {
	local name=$1 status=$2 words=$3 log rc
	log=$(file "$name").log
	shift 3
	timeout 60 "$dualrail" demo --memory cuda -q "$@" >"$log" 2>&1 </dev/null
	rc=$?
	if ((rc == status)) && grep -qF -- "$words" "$log"; then
		result PASS "$name"
	else
		result FAIL "$name" "status $rc" && show "$log"
	fi
}

part_e2e() {
	local all="0-$((gpus - 1))" names=("e2e: bandwidth" "e2e: all GPUs" "e2e: both ways"
		"e2e: latency" "e2e: no such GPU" "e2e: no such address" "e2e: out of memory"
		"e2e: all hidden")
	[[ $no_cuda ]] && skip_all "$no_cuda" "${names[@]}" && return
	demo "${names[0]}" --test bw -g 0 -N 4 -s 1M -D 2 --verify
	demo "${names[1]}" --test bw -g "$all" -N 4 -s 4M -D 2 --verify
	demo "${names[2]}" --test bw -g "$all" -N 2 -s 1M -D 2 --verify --bidir
	demo "${names[3]}" -g 0 --test lat -D 1
	refused "${names[4]}" 2 "no such GPU" -g "0,$gpus"
	refused "${names[5]}" 2 "no such GPU" -g ffff:ff:1f.7
	refused "${names[6]}" 2 "out of memory" -g 0 -N 32 --window 256 --chunk 64M -s 64M
	CUDA_VISIBLE_DEVICES='' refused "${names[7]}" 2 "CUDA_ERROR_NO_DEVICE" -g 0
}

# From GPU memory and from host memory; the tables are the answer.
part_matrix() {
	local kind name all="0-$((gpus - 1))"
	[[ $no_cuda ]] && skip_all "$no_cuda" "matrix: cuda" "matrix: host" && return
	for kind in cuda host; do
		name="matrix: $kind"
		run 150 "$name" "$dualrail" demo --memory "$kind" -g "$all" -N 2 --test bw -s 1M -D 1 --matrix \
			--json="$(file "$name").json" || continue
		show "$(file "$name").log" 60
	done
}

part_campaign() {
	local name="campaign: $trials faults" each=$(((trials + 1) / 2)) verdicts
	[[ $no_nodes ]] && skip_all "$no_nodes" "$name" && return
	demo "$name" -g 0 -N 4 -s 1M --test failover \
		--fault "link-down:path=0,at=500ms,for=300ms,repeat=$each,every=1500ms" \
		--fault "blackhole:path=0,at=1200ms,for=300ms,repeat=$each,every=1500ms" || return
	verdicts=$(python3 - "$(file "$name").json" <<-'PY'
		import collections, json, sys
		f = json.load(open(sys.argv[1]))["failover"]
		print(dict(collections.Counter(x["verdict"] for x in f["faults"])), "false", f["false_failovers"], "gap_us", f["gap_us"])
	PY
	)
	echo "      | $verdicts"
}

part_ratio() {
	local name size verdict
	local name_of=("ratio: 1 MiB messages" "ratio: 64 MiB messages")
	[[ $no_nodes ]] && skip_all "$no_nodes" "${name_of[@]}" && return
	BENCH_OUT=$out BENCH_SECS=${BENCH_SECS:-2} GPUS=$gpus run 590 "ratio: runs" \
		"$root/scripts/bench/gpu.sh" "$build" || return
	show "$(file "ratio: runs").log" 16
	for size in 0 1; do
		name=${name_of[$size]} verdict=$(get "$out/gpu.json" "rows.$size.verdict")
		result "$([[ $verdict == met ]] && echo PASS || echo FAIL)" "$name" \
			"$(get "$out/gpu.json" "rows.$size.ratio"), bar $(get "$out/gpu.json" "rows.$size.bar"): $verdict"
	done
}

free_now() {
	"$build/tests/gpu/gpu_main" list
}

on_gpus() {
	nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader 2>&1
}

# within SECONDS COMMAND...: until it succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS > end)) && return 1
		sleep 0.2
	done
}

busy() {
	[[ $(on_gpus) ]]
}

idle() {
	[[ ! $(on_gpus) ]]
}

# A run that is killed in the middle takes its memory along.
killed() {
	local name=$1 pid
	"$dualrail" demo --memory cuda --test bw -g 0 -D 60 -q >"$(file "$name").log" 2>&1 </dev/null &
	pid=$!
	disown
	if ! within 30 busy; then
		result FAIL "$name" "no process came up on the GPUs"
	elif kill -9 "$pid" && within 20 idle; then
		result PASS "$name"
	else
		result FAIL "$name" "$(on_gpus)"
	fi
	kill -9 "$pid" 2>/dev/null || :
}

# shares NAME: of its document: bandwidth, and the share of time in which the server's GPU unpacked and copied.
shares() {
	echo "      | $1: $(python3 - "$(file "$1").json" <<-'PY'
		import json, sys
		doc = json.load(open(sys.argv[1]))
		gbps = sum(x["gbps"] for x in doc["bandwidth"])
		m = next(x for x in doc["topology"]["memory"] if x["side"] == "server")
		print(f"{gbps:.2f} Gb/s; unpacked {m['unpacked_bytes'] / 1e9:.3f} GB in {m['unpack_busy_percent']:.1f} % of the time,",
		      f"copied in {m['copied_in_bytes'] / 1e9:.3f} GB in {m['copy_in_busy_percent']:.1f} %")
		PY
	)"
}

# Two faults of a failover.
cuts=(--fault "link-down:path=0,at=100ms,for=300ms" --fault "blackhole:path=0,at=100ms,for=300ms")

part_unpack() {
	local mode why=$no_nodes fake=$build/tests/plugins/libnccl-net-fake.so names=()
	for mode in kernel d2d host none tcp failover; do names+=("unpack: $mode"); done
	[[ -e $fake ]] || why=${why:-$fake is not built}
	[[ $why ]] && skip_all "$why" "unpack: plugin" "${names[@]}" && return
	[[ ${DR_LIBCUDA-} ]] || run 100 "unpack: plugin" env FAKENET=pieces DR_LIBCUDA=libcuda.so.1 "$build/tests/plugins/gpu_test"
	export FAKENET=pieces FAKENET_MEMORY=cuda NCCL_DYNAMIC_CHUNK_SIZE=524288
	for mode in kernel d2d host; do
		demo "unpack: $mode" --transport "nccl:$fake" --unpack "$mode" --test bw,lat -g 0 -N 2 -s 1M -D 2 --verify &&
			shares "unpack: $mode"
	done
	demo "unpack: none" --transport "nccl:$fake" --unpack none --test bw -g 0 -N 2 -s 1M -D 2 && shares "unpack: none"
	demo "unpack: tcp" --test bw,lat -g 0 -N 2 -s 1M -D 2 --verify && shares "unpack: tcp"
	demo "unpack: failover" --transport "nccl:$fake" --test failover -g 0 -N 2 -s 1M -D 500ms --verify "${cuts[@]}"
	unset FAKENET FAKENET_MEMORY NCCL_DYNAMIC_CHUNK_SIZE
}

part_direct() {
	local way why=$no_nodes fake=$build/tests/plugins/libnccl-net-fake.so names=() over
	for way in flush dma-buf failover; do names+=("direct: $way"); done
	[[ -e $fake ]] || why=${why:-$fake is not built}
	[[ $why ]] && skip_all "$why" "direct: plugin" "${names[@]}" && return
	[[ ${DR_LIBCUDA-} ]] || FAKENET=direct DR_LIBCUDA=libcuda.so.1 run_tests "direct: plugin" "$build/tests/plugins/gpu_test"
	export FAKENET=direct FAKENET_MEMORY=cuda
	over=(--transport "nccl:$fake" --test "bw,lat" -g 0 -N 2 -s 1M -D 2 --verify)
	demo "direct: flush" "${over[@]}" && shares "direct: flush"
	FAKENET_DMABUF=only demo "direct: dma-buf" "${over[@]}"
	demo "direct: failover" "${over[@]}" --test failover -D 500ms "${cuts[@]}"
	unset FAKENET FAKENET_MEMORY
}

# Its results are counted as ours.
part_nccl() {
	local log sum
	log=$(file nccl).log
	[[ $no_gpu ]] && skip_all "$no_gpu" "nccl" && return
	[[ -e $build/libnccl-net-ha.so ]] || { skip_all "$build has no libnccl-net-ha.so" "nccl" && return; }
	GPU_OUT=$out timeout -k 10 1200 "$root/scripts/gpu/nccl.sh" "$build" check soak cuts life both torch >"$log" 2>&1 </dev/null
	sum=$(tail -n 1 "$log")
	if [[ ! $sum =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
		result FAIL "nccl" "no end" && show "$log"
		return
	fi
	sed '$d' "$log"
	passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
}

part_left() {
	local names=("left: processes" "left: memory" "left: after SIGKILL") before after
	[[ $no_gpu ]] && skip_all "$no_gpu" "${names[@]}" && return
	result "$(idle && echo PASS || echo FAIL)" "${names[0]}"
	before=$(awk '{ n += $3 } END { printf "%d", n }' <<<"$free_before")
	after=$(free_now | awk '{ n += $3 } END { printf "%d", n }')
	if ((before - after < 64 * 1024 * 1024 && after - before < 64 * 1024 * 1024)); then
		result PASS "${names[1]}"
	else
		result FAIL "${names[1]}" "$((before - after)) bytes less are free than before"
	fi
	killed "${names[2]}"
}

main() {
	local part
	(($#)) || {
		sed -n '3,25s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
		exit 1
	}
	build=$(cd "$1" 2>/dev/null && pwd) || {
		echo "$1: no such build tree; run make" >&2
		exit 1
	}
	dualrail=$build/dualrail trials=${GPU_TRIALS:-60} out=${GPU_OUT:-$root/build/gpu}
	mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
	no_gpu='' no_cuda='' gpus=0
	if free_before=$(free_now 2>&1); then
		gpus=$(wc -l <<<"$free_before")
	else
		no_gpu=$(tail -n 1 <<<"$free_before") no_cuda=$no_gpu
	fi
	no_nodes=$no_cuda
	((EUID == 0)) || no_nodes=${no_nodes:-needs root, for network namespaces}
	for part in ${PARTS:-code device sanitizer e2e matrix campaign ratio unpack direct nccl left}; do
		"part_$part"
	done
	sum_up
}

main "$@"
