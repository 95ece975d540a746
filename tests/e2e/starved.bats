#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Both ends starved of processors: busy loops on each of them at nice 0, dualrail at nice 19. No rail may be
# left for it, and one that is really silent has to be. Two namespaces with two rails and a control link.
# shellcheck disable=SC2016 # jq's variables

HOGS_S=8

# check.sh: alone
# bats file_tags=release,nightly
load usual

setup() {
	common_setup
	[[ -r /proc/self/schedstat ]] || skip "this kernel does not tell how long a task waited for a processor"
	watch
	two_rails
}

# Data flow over four GPUs' channels, both rails the primary of some.
flow() {
	start server nice -n 19 ip netns exec "$B" "$DUALRAIL" server -g 0-3 -1
	start client nice -n 19 ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0-3 -N 4 -s 1M --verify \
		-D $((HOGS_S + 2)) -i 100ms --json=c.json
	wait_for flowing
}

# Two busy loops a processor, which end by themselves.
hogs_on() {
	local i
	hogs=()
	for ((i = 0; i < 2 * $(nproc); i++)); do
		start hog timeout "$HOGS_S" bash -c 'while :; do :; done'
		hogs+=("$pid")
	done
}

# ns that the threads of process $1 have waited for a processor in all.
waited_ns() {
	cat /proc/"$1"/task/*/schedstat 2>/dev/null | awk '{ n += $2 } END { printf "%.0f\n", n }'
}

# To the end of the loops: meanwhile each end waited for a processor longer than half of the time.
hogs_end() {
	local before=("$(waited_ns "$client")" "$(waited_ns "$server")") pid after
	for pid in "${hogs[@]}"; do
		wait "$pid" || :
	done
	after=("$(waited_ns "$client")" "$(waited_ns "$server")")
	echo "waited for a processor, ns: client ${before[0]} to ${after[0]}, server ${before[1]} to ${after[1]}"
	((after[0] - before[0] > HOGS_S * 500000000 && after[1] - before[1] > HOGS_S * 500000000))
}

@test "busy loops on every processor: no switch without a fault" {
	flow
	hogs_on
	hogs_end
	judge_status 100 0 "$client"
	judge_status 100 0 "$server"
	judge 100 holds c.json '.failover.switches | map(select(.planned | not)) == []'
	clean c.json
}

@test "busy loops on every processor: a rail that is silent is left, the other is not" {
	local node
	command -v nft >/dev/null || skip "needs nft"
	flow
	hogs_on
	for node in "$A" "$B"; do
		ip netns exec "$node" nft -f - <<-END
			table netdev hole {
				chain in {
					type filter hook ingress device rail0 priority 0; policy drop;
				}
			}
		END
	done
	hogs_end
	judge_status 100 0 "$client"
	judge_status 100 0 "$server"
	judge 100 holds c.json '[.topology.gpus[] | select(.primary_rail == 0).gpu] as $on_it | .failover.switches |
		length > 0 and all(.[]; .from_path == 0 and (.gpu | IN($on_it[])))'
	clean c.json
}
