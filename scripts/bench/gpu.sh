#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Bandwidth from GPU memory to GPU memory against host memory to host memory, over the same two rails,
# four channels, messages of 1 MiB and of 64 MiB.
#
#   scripts/bench/gpu.sh [BUILD]
#
# Each node has a GPU of its own where there are two (GPUS=2), else they share one. The copies' share of
# time in the GPU's runs is that of the last run.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
nvidia-smi -L >/dev/null 2>&1 || {
	echo "SKIP gpu: nvidia-smi finds no GPU"
	exit 77
}

# from KIND: a run from and to memory of that kind.
from() {
	server_port=${port[$1]}
	client "$work/$1.json" --memory "$1" -g 0 -N 4 -s "$size" -D "$BENCH_SECS" || return 1
	get "$work/$1.json" total.gbps
}

host() {
	from host
}

cuda() {
	from cuda
}

# shares DOCUMENT: processors, copy engines, calls of the driver, in words.
shares() {
	python3 - "$1" <<-'PY'
		import json, sys
		d = json.load(open(sys.argv[1]))
		t = d["total"]
		print("processors of the last run: client %.0f %%, server %.0f %%" % (t["cpu_percent_local"], t["cpu_percent_peer"]))
		for m in d["topology"]["memory"]:
		    if m["memory"] == "cuda" and m["copies"]:
		        print("  %s: copy engine busy out %.1f %%, in %.1f %% (%d of %d copies timed), %.2f calls of the driver a copy" %
		              (m["side"], m["copy_out_busy_percent"], m["copy_in_busy_percent"], m["copies_timed"], m["copies"],
		               m["copy_driver_calls"] / m["copies"]))
	PY
}

bench_begin gpu "" 2
client_under=(env CUDA_VISIBLE_DEVICES=0)
server_under=(env "CUDA_VISIBLE_DEVICES=$((${GPUS:-1} > 1))")
declare -A port
for kind in host cuda; do
	start_server --memory "$kind" -g 0
	port[$kind]=$server_port
done
for size in 1M 64M; do
	compare "gpu-$size" "4 channels, $size messages, GPU memory / host memory" Gb/s ">=0.95" host cuda
	note "last runs, host: $(get "$work/host.json" total)"
	note "last runs, GPU: $(get "$work/cuda.json" total)"
	note "$(shares "$work/cuda.json")"
done
bench_end
