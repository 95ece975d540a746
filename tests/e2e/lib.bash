# SPDX-License-Identifier: Apache-2.0
# Helpers of the end-to-end tests. No fixed ports and no fixed sleeps: ports are free ones, and tests wait for
# conditions. The disabled warnings are about variables that tests read or that bats sets.
# shellcheck shell=bash disable=SC2034,SC2154

# The longest wait for one condition, in seconds; builds with sanitizers on busy machines are slow.
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
	local net
	end_background KILL
	for net in "${A-}" "${B-}"; do
		[[ -z $net ]] || ip netns del "$net" 2>/dev/null || :
	done
}

# A port with 16 free ones behind it, in $port; files that run at the same time (DR_LANE) draw from different
# ranges.
free_port() {
	local used base i
	used=$(ss -Htan | awk '{ sub(".*:", "", $4); print $4 }' | sort -un)
	while :; do
		base=$((10000 + ${DR_LANE:-0} * 2400 + RANDOM % 2380))
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

# client OPTIONS...: runs a client against that server and waits for its end.
client() {
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" "$@"
	tail -n 12 <<<"$output"
}

start_client() {
	start client "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -i 100ms "$@"
	client=$pid
}

# one_line: the output is one line.
one_line() {
	[[ $(wc -l <<<"$output") == 1 ]]
}

# whole FILE: the result document has every top-level key of the schema.
whole() {
	holds "$1" '.schema == "dualrail/1" and (["run_id", "status", "exit_code", "argv", "options",
		"versions", "host", "topology", "detection", "bandwidth", "nics", "total", "latency",
		"failover", "integrity", "intervals", "events", "errors"] - keys == [])'
}

# two_nodes: network namespaces A and B, which common_teardown deletes; skips the test where they cannot be made.
two_nodes() {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	A=dr${BASHPID}a B=dr${BASHPID}b
	ip netns add "$A" 2>/dev/null || skip "network namespaces cannot be made here"
	ip netns add "$B"
}

# two_rails: the two nodes with two rails (10.99.0, 10.99.1) and a link for control (10.99.255).
two_rails() {
	two_nodes
	link rail0 10.99.0
	link rail1 10.99.1
	link ctl0 10.99.255
}

# link NAME NET: a cable between namespaces A and B, its NICs NAME with NET.1 and NET.2.
link() {
	ip link add "$1" netns "$A" type veth peer name "$1" netns "$B"
	ip -n "$A" addr add "$2.1/24" dev "$1"
	ip -n "$B" addr add "$2.2/24" dev "$1"
	ip -n "$A" link set "$1" up
	ip -n "$B" link set "$1" up
}
