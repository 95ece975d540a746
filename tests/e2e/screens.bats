#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a user reads: each screen of docs/screens is printed again, at its three widths, and has the same shape. SCREENS=DIR writes
# them there instead.

setup() {
	load fabric
	common_setup
	watch
	# Rails of one rate: what decides is not the machine.
	RAILS=(-g 0-3 -N 2 -D 400ms -w 100ms)
}

teardown() {
	fabric_teardown
	common_teardown
	validated
}

# rails RATE: two nodes with two rails of that rate, a link for control and a server.
rails() {
	local net nic
	two_rails
	for net in "$A" "$B"; do
		for nic in rail0 rail1; do
			tc -n "$net" qdisc replace dev "$nic" root tbf rate "$1" burst 256k latency 100ms ||
				skip "no tbf in this kernel"
		done
	done
	server_in_b -g 0-7 --allow-faults
}

in_a() {
	timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" "$@"
}

# screens NAME COMMAND...: what the command prints at 60, 80 and 120 columns, beside docs/screens/NAME.txt. No sentence is wider
# than the screen, no row of a table wider than 110.
screens() {
	local name=$1 width rc=0
	shift
	for width in 60 80 120; do
		COLUMNS=$width "$@" >"w$width" 2>err || {
			rc=$?
			cat "w$width" err
		}
		judge 100 test "$rc" == 0
		"$BATS_TEST_DIRNAME/../screens.py" fits "$width" "w$width"
	done
	"$BATS_TEST_DIRNAME/../screens.py" join >"$name.txt"
	if [[ ${SCREENS-} ]]; then
		cp "$name.txt" "$SCREENS"
	else
		judge 100 "$BATS_TEST_DIRNAME/../screens.py" same "$DR_ROOT/docs/screens/$name.txt" "$name.txt"
	fi
}

@test "bandwidth" {
	rails 1gbit
	screens bandwidth in_a client 10.99.255.2 "${RAILS[@]}"
	[[ $(wc -l <w80) -le 12 ]]
}

@test "failover" {
	rails 1gbit
	screens failover in_a client 10.99.255.2 "${RAILS[@]}" --test bw,failover --allow-faults --hold-down 100ms \
		--fault blackhole:path=0,at=300ms,for=200ms,repeat=3,every=1s
}

@test "matrix" {
	rails 1gbit
	screens matrix in_a client 10.99.255.2 "${RAILS[@]}" --matrix
}

@test "preflight" {
	rails 1gbit
	screens preflight in_a preflight 10.99.255.2 "${RAILS[@]}"
}

# All three nodes; rank 0 prints.
sweep_nodes() {
	local i rc=0 others=()
	for i in 1 2; do
		start "n$i" ip netns exec "${NODES[$i]}" "$DUALRAIL" sweep --hostfile hosts "$@"
		others+=("$pid")
	done
	timeout "$WAIT_S" ip netns exec "${NODES[0]}" "$DUALRAIL" sweep --hostfile hosts "$@" || rc=$?
	for i in "${others[@]}"; do
		ends "$i" "$rc"
	done
	return "$rc"
}

@test "sweep" {
	fabric 3
	screens sweep sweep_nodes -g 0 -N 1 -s 32K --window 4 -D 400ms -w 50ms --rate 50M --min-pair 50
}

# bats test_tags=nightly
@test "demo" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	screens demo timeout "$WAIT_S" "$DUALRAIL" demo -D 300ms
	[[ $(wc -l <w80) -le 45 ]]
}
