# SPDX-License-Identifier: Apache-2.0
# Helpers of the end-to-end tests. No fixed ports and no fixed sleeps: ports are held, and tests wait for
# conditions.
# shellcheck shell=bash

# The longest wait for one condition, in seconds; builds with sanitizers on busy machines are slow.
WAIT_S=${DR_E2E_WAIT:-60}

# shellcheck source=tests/lib.bash
source "${BASH_SOURCE[0]%/*}/../lib.bash"

# A small run: two GPUs, two channels each.
SMALL=(-g 0-1 -N 2 -s 1M)

common_setup() {
	[[ -d ${DR_ROOT-} ]] || DR_ROOT=$(realpath "${BASH_SOURCE[0]%/*}/../..")
	[[ -d ${DR_BUILD-} ]] || DR_BUILD=$DR_ROOT/build/release
	[[ -x ${DUALRAIL-} ]] || DUALRAIL=$DR_BUILD/dualrail
	cd "$BATS_TEST_TMPDIR" || return 1
	# Sentences are compared, not where their lines break.
	export COLUMNS=200
	# A test that judges a time is watched from its beginning on.
	[[ $(declare -f "$BATS_TEST_NAME") != *judge* ]] || watch
}

common_teardown() {
	local net
	end_background KILL
	for net in "${A-}" "${B-}" "${C-}" "${D-}"; do
		[[ -z $net ]] || ip netns del "$net" 2>/dev/null || :
	done
}

# The first of 16 ports that are this test's, in $port: bound until it ends (ports.py).
free_port() {
	read -r port < <(exec python3 -IS "${BASH_SOURCE[0]%/*}/../ports.py" 3>&-)
	pids+=("$!")
}

start() { background "$@"; }

# start_server OPTIONS...: a server, until it listens.
start_server() {
	free_port
	start server "$DUALRAIL" server -g 0-1 --port "$port" "$@"
	wait_for grep -q listening server.err
}

# stop NAME [SIGNAL]: sends it (TERM) to the process in that variable, which ends with its status.
stop() {
	kill "-${2-TERM}" "${!1}"
	ends "${!1}" $((128 + $(kill -l "${2-TERM}")))
}

# client OPTIONS...: runs a client against that server and waits for its end.
client() {
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" "$@"
}

start_client() {
	start client "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -i 100ms "$@"
}

# one_line: the output is one line.
one_line() {
	[[ $(wc -l <<<"$output") == 1 ]]
}

# refuses STATUS TEXT COMMAND...: as tells, and its output is one line.
refuses() {
	tells "$@"
	one_line
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

# server_in_b OPTIONS...: a server in B, until it listens.
server_in_b() {
	start server ip netns exec "$B" "$DUALRAIL" server -g 0-1 "$@"
	wait_for grep -q listening server.err
}

# client_in_a OPTIONS...: a client in A, until it ends. start_client_in_a: in the background.
client_in_a() {
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" "$@"
}

start_client_in_a() {
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" -i 100ms "$@"
}

# doctor_in_a OPTIONS...: doctor in A, its document in d.json.
doctor_in_a() {
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" doctor --json=d.json -g 0-1 "$@"
}

# has_lower_up NODE NIC: the link is there. is_down NODE NIC: the NIC was set down.
has_lower_up() {
	ip -n "$1" link show "$2" | grep -q LOWER_UP
}

is_down() {
	! ip -n "$1" link show "$2" | grep -q '[<,]UP[,>]'
}

# new_key FILE...: a key of its own in each.
new_key() {
	local file
	for file in "$@"; do
		(umask 077 && head -c 32 /dev/urandom | base64 >"$file")
	done
}

# family PID: what it started and lives, the youngest first.
family() {
	local child
	for child in $(pgrep -P "$1"); do
		family "$child"
		echo "$child"
	done
}

# four_nodes: network namespaces A, B, C and D that forward, for meshes of cables; see two_nodes.
four_nodes() {
	local net
	two_nodes
	C=dr${BASHPID}c D=dr${BASHPID}d
	ip netns add "$C"
	ip netns add "$D"
	for net in "$A" "$B" "$C" "$D"; do
		forwards "$net"
	done
}

# Routes over a cable without carrier are not used, so that what is not bound to a NIC, control, goes
# round too.
forwards() {
	ip -n "$1" link set lo up
	ip netns exec "$1" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
		net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.all.ignore_routes_with_linkdown=1 \
		net.ipv4.conf.default.ignore_routes_with_linkdown=1
}

# cable NODE DEVICE NODE DEVICE NET: NET.1/24 at the one end, NET.2/24 at the other.
cable() {
	ip link add "$2" netns "$1" type veth peer name "$4" netns "$3"
	ip -n "$1" addr add "$5.1/24" dev "$2"
	ip -n "$3" addr add "$5.2/24" dev "$4"
	ip -n "$1" link set "$2" up
	ip -n "$3" link set "$4" up
}

# via NODE NET GATEWAY DEVICE [...]: a route.
via() {
	ip -n "$1" route add "$2.0/24" via "$3" dev "$4" "${@:5}"
}

# mesh: of A, B and C. A-B is 10.97.1, A-C 10.97.2, B-C 10.97.3. To the subnet that a node is not in there is a way by either
# cable: each is the way round for one of the node's pairs.
mesh() {
	cable "$A" ab "$B" ba 10.97.1
	cable "$A" ac "$C" ca 10.97.2
	cable "$B" bc "$C" cb 10.97.3
	via "$A" 10.97.3 10.97.1.2 ab metric 10
	via "$A" 10.97.3 10.97.2.2 ac metric 20
	via "$B" 10.97.2 10.97.1.1 ba metric 10
	via "$B" 10.97.2 10.97.3.2 bc metric 20
	via "$C" 10.97.1 10.97.2.1 ca metric 10
	via "$C" 10.97.1 10.97.3.1 cb metric 20
}
