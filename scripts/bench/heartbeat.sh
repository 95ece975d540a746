#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# What heartbeats cost: system calls per byte with one every 10 ms against one every 10 s (the longest
# there is), both ends together.
#
#   scripts/bench/heartbeat.sh [BUILD]
#
# Counted, not timed: `perf stat -e raw_syscalls:sys_enter`, else `strace -c -f` (slower, so that it
# measures a slower run). Same number of messages at the same --rate, so that both move the same bytes
# in the same time; whole processes, set-up included. Then the same bytes without a limit, where a worker
# hardly sleeps. Calls of a worker that waits depend on the scheduler: this wants a quiet machine.
# BENCH_RATE (2G), BENCH_SECS; BENCH_GIB (4) at full speed.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_RATE:=2G}" "${BENCH_GIB:=4}"

# Sets counter: a command that writes what counted NAME made to $work/NAME.
choose_counter() {
	if perf stat -x, -o "$work/try" -e raw_syscalls:sys_enter true 2>/dev/null &&
		grep -q '^[0-9]' "$work/try"; then
		counter=perf
	elif command -v strace >/dev/null; then
		counter=strace
	else
		skip "neither perf with raw_syscalls nor strace is there"
	fi
	said "counted by $counter"
}

under() {
	if [[ $counter == perf ]]; then
		echo perf stat -x, -o "$work/$1" -e raw_syscalls:sys_enter
	else
		echo strace -f -c -o "$work/$1"
	fi
}

calls() {
	if [[ $counter == perf ]]; then
		awk -F, '/^[0-9]/ { n += $1 } END { print n }' "$work/$1"
	else
		awk '$1 ~ /^[0-9.]+$/ && $NF != "total" { n += $4 } END { print n }' "$work/$1"
	fi
}

# counted [OPTION...]: system calls of both ends over one run.
counted() {
	read -ra server_under <<<"$(under server)"
	read -ra client_under <<<"$(under client)"
	start_server -g 0 --one-off
	client "$work/doc.json" -g 0 -N 4 "$@" || return 1
	wait "$server_pid" || return 1
	echo $(($(calls server) + $(calls client)))
}

# run HEARTBEAT: system calls per MiB, both ends; rate is empty or "--rate RATE", mib what moves.
run() {
	local per_channel=$((mib / 4)) n
	n=$(counted -s 1M "${rate[@]}" --iters "$per_channel" --warmup 0 --heartbeat "$1") || return 1
	awk -v n="$n" -v mib="$((per_channel * 4))" 'BEGIN { print n / mib }'
}

# MiB that the rate moves in BENCH_SECS.
rate_mib() {
	echo "$BENCH_RATE" | awk -v s="$BENCH_SECS" '{ f = /G$/ ? 1e9 : /M$/ ? 1e6 : 1
		print int($1 * f * s / 8 / 1048576) }'
}

often() { run 10ms; }
never() { run 10s; }

bench_begin heartbeat ""
choose_counter
mib=$(rate_mib)
rate=(--rate "$BENCH_RATE")
compare heartbeat "system calls per byte, heartbeats every 10 ms / every 10 s, at $BENCH_RATE" "calls/MiB" \
	"<=1.005" never often
mib=$((BENCH_GIB * 1024))
rate=()
compare heartbeat-full "the same, $BENCH_GIB GiB at full speed" "calls/MiB" "<=1.005" never often
bench_end
