#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What heartbeats cost in instructions of ours (the kernel's are not in it), both ends together: those of a
# message, those of a heartbeat, and the rate from which on an idle rail's heartbeats are less than 1 %.
#
#   scripts/bench/instructions.sh [BUILD]
#
# Counted by callgrind (valgrind), which needs no counters of the processor and is exact. Messages of 64 KiB
# over TCP; a run of BENCH_MESSAGES (4000) less one of 64, which is set-up for the greater part. A heartbeat:
# made, sent, received and judged, with all ticks, over BENCH_SECS seconds of a run with little data.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${BENCH_MESSAGES:=4000}"

# counted OPTION...: one run, both ends under callgrind; leaves $work/*.cg, one for each end.
counted() {
	rm -f "$work"/*.cg*
	start_server -g 0 --one-off
	client "$work/doc.json" -g 0 -N 1 -s 64K --test bw --warmup 0 "$@" && wait "$server_pid"
}

# callgrind NAME: the words in front of a command that is counted.
callgrind() {
	echo "valgrind -q --tool=callgrind --trace-children=yes --trace-children-skip=*/ip --compress-strings=no" \
		"--callgrind-out-file=$work/$1.cg"
}

total() {
	awk '/^totals:/ { n += $2 } END { print n }' "$work"/*.cg
}

# "INSTRUCTIONS HEARTBEATS": of what only heartbeats need; a call's inclusive cost stands in the line below it.
of_heartbeats() {
	awk '/^cfn=/ { callee = substr($0, 5) }
		/^calls=/ {
			split($1, calls, "=")
			getline
			if (callee == "dr_manager_beat" || callee == "dr_hb_receive") cost += $NF
			if (callee == "dr_hb_make") made += calls[2]
		}
		END { print cost, made }' "$work"/*.cg
}

bench_begin instructions valgrind
read -ra server_under <<<"$(callgrind server)"
read -ra client_under <<<"$(callgrind client)"
counted --heartbeat 10s --iters 64 || die "a run failed"
short=$(total)
counted --heartbeat 10s --iters "$BENCH_MESSAGES" || die "a run failed"
message=$((($(total) - short) / (BENCH_MESSAGES - 64)))
counted --heartbeat 10ms --rate 100M -D "$BENCH_SECS" || die "a run failed"
read -r cost made <<<"$(of_heartbeats)"
((made > 0)) || die "no heartbeat was seen: is the program stripped?"
beat=$((cost / made))
figure instructions-message "of a message of 64 KiB, both ends" "$message" - -
figure instructions-heartbeat "of a heartbeat, both ends ($made of them)" "$beat" - -
# An idle rail has one each 10 ms in each direction.
figure instructions-rate "an idle rail's heartbeats every 10 ms are 1 % from" \
	"$(awk -v r="$((beat * 200 * 100 / message))" 'BEGIN { printf "%d messages/s, %.1f Gb/s", r, r * 65536 * 8 / 1e9 }')" - -
bench_end
