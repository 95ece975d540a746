#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Server and client on loopback, from GPU memory, both under a checker that makes them 20 to 100 times slower.
#
#   scripts/gpu/sanitize.sh DUALRAIL CHECKER [ARGUMENT...]
#
# Few messages, small ones, every byte checked, and nothing that runs out of time for being slow. Exit status: the first
# that is not 0 of client and server, 0 when both passed; says how far it is.
set -uo pipefail

dualrail=$1
shift
options=(--memory cuda -g 0 --timeout 80s)
slow=(--heartbeat 2s --detect conservative --connect-timeout 80s)

say() {
	echo "== $SECONDS s: $*"
}

taken() {
	[[ $(ss -Hltn "sport = :$port") ]]
}

port=$((20000 + RANDOM % 12000))
while taken; do port=$((20000 + RANDOM % 12000)); done
"$@" "$dualrail" server -1 --port "$port" "${options[@]}" &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT
until taken; do
	kill -0 "$server" 2>/dev/null || { wait "$server"; exit; }
	sleep 0.2
done
say "the server listens"
"$@" "$dualrail" client 127.0.0.1 --port "$port" "${options[@]}" "${slow[@]}" --test bw -N 1 --window 2 --chunk 16K \
	-s 32K -n 8 -w 1 -i 0 --verify
rc=$?
say "the client ended with status $rc"
wait "$server"
server_rc=$?
trap - EXIT
say "the server ended with status $server_rc"
exit $((rc ? rc : server_rc))
