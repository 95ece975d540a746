# SPDX-License-Identifier: Apache-2.0
# Helpers of the end-to-end tests. No fixed ports and no fixed sleeps: ports are free ones, and what
# has to happen first is waited for.
# Variables that the tests read, and those that bats sets.
# shellcheck shell=bash disable=SC2034,SC2154

# What a test may take for any one wait; builds with sanitizers on busy machines are slow.
WAIT_S=${DR_E2E_WAIT:-60}

# shellcheck source=tests/lib.bash
source "${BASH_SOURCE[0]%/*}/../lib.bash"

# A small run: two GPUs, two channels each.
SMALL=(-g 0-1 -N 2 -s 1M)

common_setup() {
	[[ -x ${DUALRAIL-} ]] || DUALRAIL=$BATS_TEST_DIRNAME/../../build/release/dualrail
	cd "$BATS_TEST_TMPDIR" || return 1
}

common_teardown() {
	end_background KILL
}

# A port with 16 free ones behind it, in $port.
free_port() {
	local used base i
	used=$(ss -Htan | awk '{ sub(".*:", "", $4); print $4 }' | sort -un)
	while :; do
		base=$((10000 + RANDOM % 20000))
		for ((i = 0; i < 16; i++)); do
			grep -qx $((base + i)) <<<"$used" && continue 2
		done
		port=$base
		return
	done
}

start() {
	background "$@"
}

start_server() {
	free_port
	start server "$DUALRAIL" server -g 0-1 --port "$port" "$@"
	server=$pid
}

# client OPTIONS...: against that server, to its end.
client() {
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" "$@"
	tail -n 12 <<<"$output"
}

start_client() {
	start client "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -i 100ms "$@"
	client=$pid
}

# one_line: the error is one line that names what matters.
one_line() {
	[[ $(wc -l <<<"$output") == 1 ]]
}

# The result document is whole: every top-level key of the schema is there.
whole() {
	holds "$1" '.schema == "dualrail/1" and (["run_id", "status", "exit_code", "argv", "options",
		"versions", "host", "topology", "detection", "bandwidth", "nics", "total", "latency",
		"failover", "integrity", "intervals", "events", "errors"] - keys == [])'
}

# link NAME NET: a cable between namespaces A and B, its NICs NAME with NET.1 and NET.2.
link() {
	ip link add "$1" netns "$A" type veth peer name "$1" netns "$B"
	ip -n "$A" addr add "$2.1/24" dev "$1"
	ip -n "$B" addr add "$2.2/24" dev "$1"
	ip -n "$A" link set "$1" up
	ip -n "$B" link set "$1" up
}
