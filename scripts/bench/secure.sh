#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# What a key and the hardened build cost: BUILD with --key-file at both ends, beside a build without hardening and no key.
#
#   scripts/bench/secure.sh [BUILD]
#
#   bandwidth  -g 0 -N 4 -s 1M
#   latency    --test lat -s 64 --poll adaptive, median round trip
#   gap        close and link-down at the client, one channel: median gap of TRIALS (6) faults per run
#   handshake  from the dialling until the server's first answer under the session's keys, with and without a key: medians of
#              BENCH_HANDSHAKES (200) connections; and what reading a passphrase costs each end at its start
#
# The other build: BENCH_PLAIN (build/plain), from `make HARDEN=no B=build/plain`. BENCH_PARTS ("bandwidth latency gap handshake").
# The key is 32 random bytes in hex, so that it is not stretched.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${TRIALS:=6}" "${BENCH_PLAIN:=$bench_root/build/plain}" "${BENCH_HANDSHAKES:=200}"
: "${BENCH_PARTS:=bandwidth latency gap handshake}"
handshake=$bench_build/tests/handshake/handshake_main

# start_both [OPTION...]: a server of each build; sets plain_port, keyed_port and the processes.
start_both() {
	dualrail=$plain start_server "$@"
	plain_port=$server_port plain_pid=$server_pid
	start_server --key-file "$work/key" "$@"
	keyed_port=$server_port keyed_pid=$server_pid
}

stop_both() {
	stop "$plain_pid" "$keyed_pid"
}

# The two sides of a comparison: run WITH the program, the port and the key of each.
without() {
	dualrail=$plain server_port=$plain_port "$run"
}

with() {
	server_port=$keyed_port "$run" --key-file "$work/key"
}

run_bandwidth() {
	client "$work/doc.json" -g 0 -N 4 -s 1M -D "$BENCH_SECS" "$@" && get "$work/doc.json" total.gbps
}

run_latency() {
	client "$work/doc.json" -g 0 -N 1 --test lat -s 64 -D "$BENCH_SECS" "$@" &&
		get "$work/doc.json" latency.0.rtt_us.p50
}

run_gap() {
	client "$work/doc.json" -g 0 -N 1 -s 64K --chunk 64K --test failover --allow-faults --hold-down 100ms \
		--fault "$kind:path=0,side=client,at=1s,for=200ms,repeat=$TRIALS,every=600ms" "$@" &&
		"${stats[@]}" gap-median "$work/doc.json"
}

# beside RUN ID TITLE UNIT BAR
beside() {
	run=$1
	compare "secure-$2" "$3, hardened and with a key / neither" "$4" "$5" without with
}

bandwidth() {
	start_both -g 0
	beside run_bandwidth bandwidth "4 channels, 1 MiB messages" Gb/s ">=1.0"
	stop_both
}

latency() {
	start_both -g 0 --poll adaptive
	beside run_latency latency "64 B round trip, median, --poll adaptive" us "<=1.0"
	stop_both
}

gap() {
	start_both -g 0
	for kind in close link-down; do
		beside run_gap "gap-$kind" "median gap, $kind at the client" us "<=1.0"
	done
	stop_both
}

# shakes PORT [KEYFILE]: the median; both figures are kept for the lines below.
shakes() {
	"${a[@]}" "$handshake" "$control" "$1" "$BENCH_HANDSHAKES" "${@:2}" >"$work/shakes" || return 1
	awk -v k="${2:+key}" '{ print k, $1, $2 }' "$work/shakes" >>"$work/handshakes"
	awk '{ print $1 }' "$work/shakes"
}

open_without() {
	shakes "$plain_port"
}

open_with() {
	shakes "$keyed_port" "$work/key"
}

handshake() {
	local largest worst p50 slowest
	start_both -g 0
	compare secure-handshake "handshake, hardened and with a key / neither" us - open_without open_with && {
		read -r worst largest < <(awk '$1 == "key" { if ($2 > m) m = $2; if ($3 > x) x = $3 }
			END { printf "%.2f %.2f\n", m / 1e3, x / 1e3 }' "$work/handshakes")
		figure secure-handshake-ms "handshake with a key, largest median of a run" "$worst ms" "<= 5 ms" \
			"$(awk -v w="$worst" 'BEGIN { print w <= 5 ? "met" : "not met" }')"
		figure secure-handshake-max "handshake with a key, the longest of all" "$largest ms" - -
	}
	stop_both
	read -r p50 slowest _ < <("$handshake" key "$work/passphrase" 21) || die "cannot read a passphrase"
	figure secure-passphrase "reading a passphrase (Argon2id, 64 MiB), at each start of an end" \
		"$(awk -v p="$p50" -v s="$slowest" 'BEGIN { printf "%.0f ms, at most %.0f", p / 1e3, s / 1e3 }')" - -
}

bench_begin secure nft
plain=$BENCH_PLAIN/dualrail
[[ -x $plain ]] || skip "$plain is not there: make HARDEN=no B=build/plain build/plain/dualrail"
((TRIALS > 1)) || die "TRIALS is less than 2"
[[ -x $handshake ]] || skip "$handshake is not there: make tests"
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/key")
(umask 077 && echo "a passphrase of a benchmark" >"$work/passphrase")
for part in $BENCH_PARTS; do
	case $part in
	bandwidth | latency | gap | handshake) "$part" ;;
	*) die "BENCH_PARTS: no part $part" ;;
	esac
done
bench_end
