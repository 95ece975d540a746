#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# One process with 8 GPUs against eight processes with one GPU each: the same binary, the same options
# but --gpus, the same two rails.
#
#   scripts/bench/multiprocess.sh [BUILD]
#
# Counted on the interfaces of node b over BENCH_SECS in the middle of each run, when all GPUs move data
# (headers included, the same share in both), so that eight processes that do not start at once are not
# credited with time that they had for themselves. BENCH_GPUS (8), BENCH_CHANNELS (2, per GPU).
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_GPUS:=8}" "${BENCH_CHANNELS:=2}"

received() {
	"${b[@]}" cat /sys/class/net/rail{0,1}/statistics/rx_bytes | awk '{ n += $1 } END { printf "%.0f\n", n }'
}

# measured GPUS...: starts one client for each list and measures once all of them are in their phase.
# Server i is at --port server_port + 16 i: with a common one, a server that starts before that of GPU 0
# listens on the base port as well, and takes it away.
measured() {
	local gpus pids=() i=0 t0 t1 n0 n1
	for gpus; do
		"${a[@]}" "$dualrail" client "$control" -g "$gpus" --port $((server_port + 16 * i)) -N "$BENCH_CHANNELS" \
			-s 1M -D $((BENCH_SECS + 60)) -i 0 --json-stream -q >"$work/stream.$i" 2>"$work/client.$i" &
		pids+=($!)
		i=$((i + 1))
	done
	said dualrail client HOST -g LIST -N "$BENCH_CHANNELS" -s 1M
	while ((i-- > 0)); do
		await 60 "${pids[i]}" grep -q '"phase"' "$work/stream.$i" || {
			cat "$work/client.$i" >&2
			stop "${pids[@]}"
			return 1
		}
	done
	sleep 0.5 # warm-up
	n0=$(received) t0=$EPOCHREALTIME
	sleep "$BENCH_SECS"
	n1=$(received) t1=$EPOCHREALTIME
	for i in "${!pids[@]}"; do
		kill -0 "${pids[i]}" 2>/dev/null || {
			wait "${pids[i]}"
			echo "$bench_name: a client ended early with status $?:" >&2
			tail -n 5 "$work/client.$i" >&2
			tail -n 1 "$work/stream.$i" | cut -c 1-300 >&2
			stop "${pids[@]}"
			return 1
		}
	done
	stop "${pids[@]}"
	echo "$n0 $n1 $t0 $t1" | awk '{ printf "%.6f\n", ($2 - $1) * 8 / ($4 - $3) / 1e9 }'
}

single() {
	local rc
	start_server -g "0-$((BENCH_GPUS - 1))"
	measured "0-$((BENCH_GPUS - 1))"
	rc=$?
	stop "$server_pid"
	return "$rc"
}

multi() {
	local k rc port pids=() lists=()
	port=$(free_port $((16 * BENCH_GPUS + BENCH_GPUS)))
	for ((k = 0; k < BENCH_GPUS; k++)); do
		"${b[@]}" "$dualrail" server -g "$k" --port $((port + 16 * k)) >"$work/server.$k" 2>&1 &
		pids+=($!)
		lists+=("$k")
	done
	for ((k = 0; k < BENCH_GPUS; k++)); do
		await 20 "${pids[k]}" listening $((port + 16 * k + k)) || {
			stop "${pids[@]}"
			return 1
		}
	done
	server_port=$port
	measured "${lists[@]}"
	rc=$?
	stop "${pids[@]}"
	return "$rc"
}

bench_begin multiprocess ""
compare multiprocess "one process, $BENCH_GPUS GPUs / $BENCH_GPUS processes, one GPU each" Gb/s ">=1.0" multi single
bench_end
