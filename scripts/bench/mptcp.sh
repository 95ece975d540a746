#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gap of a failover by the kernel: one MPTCP stream over the same two veth pairs, the second subflow
# a backup; the link of the first is cut (at the sender) or goes silent (both ways).
#
#   scripts/bench/mptcp.sh [BUILD]
#
# Nothing here is judged; it stands beside failover.sh. TRIALS (20) of each kind, a connection each.
# The gap is the longest time between two reads of the receiver that the fault falls into or precedes by
# less than 100 ms, on the receiver's clock. A trial without data again in 30 s counts as 30 s.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${TRIALS:=20}" "${BENCH_KINDS:=link-down blackhole}"

set_up() {
	local node
	for node in "$ns_a" "$ns_b"; do
		ip netns exec "$node" sysctl -qw net.mptcp.enabled=1 || skip "this kernel has no MPTCP"
		ip -n "$node" mptcp limits set subflows 2 add_addr_accepted 2 || skip "ip cannot set up MPTCP"
	done
	ip -n "$ns_a" mptcp endpoint add 10.88.1.1 dev rail1 subflow backup
	# The second subflow's addresses are given by the endpoint of the client and by this signal.
	ip -n "$ns_b" mptcp endpoint add 10.88.1.2 dev rail1 signal
}

bench_begin mptcp nft
set_up
for kind in $BENCH_KINDS; do
	said "mptcp_gap.py run $kind $TRIALS"
	if python3 "$bench_dir/mptcp_gap.py" run "$kind" "$TRIALS" "${rail[0]}" "$ns_a" "$ns_b" >"$work/gaps"; then
		"${stats[@]}" gap-list "$rows" "mptcp-$kind" "MPTCP, $kind" "-" <"$work/gaps"
	else
		figure "mptcp-$kind" "MPTCP, $kind" "did not run" "-" failed
	fi
done
bench_end
