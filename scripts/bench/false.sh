#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# Failovers that nothing called for: traffic with default heartbeats while the machine or the network is
# merely bad. Every one counts; the bar is zero.
#
#   scripts/bench/false.sh [BUILD]
#
#   stress   beside stress-ng --cpu 4
#   loss     1 % of the packets of both rails are dropped, each way (nft numgen: there is no need of netem)
#   stopped  the server's process is stopped (SIGSTOP) for 3 s every 10 s: its kernel goes on answering
#
# An application that posts no receive for 3 s cannot be had from the command line: the receivers of
# dualrail post as soon as they can. That case is a test of the channel, not a benchmark; a stopped
# process is the nearest to it from outside, and harder.
#
# SECS (300) of each; BENCH_KINDS; BENCH_LOSS (1, percent). Exit status 1 when data were wrong.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${SECS:=300}" "${BENCH_KINDS:=stress loss stopped}" "${BENCH_LOSS:=1}"

begin_stress() {
	stress-ng --cpu 4 --quiet &
	disturber=$!
}

begin_loss() {
	local node link
	disturber=
	for node in "$ns_a" "$ns_b"; do
		ip netns exec "$node" nft add table netdev bad || return 1
		for link in rail0 rail1; do
			ip netns exec "$node" nft -f - <<-END || return 1
				table netdev bad {
					chain $link {
						type filter hook ingress device $link priority 0;
						numgen random mod 10000 < $((BENCH_LOSS * 100)) counter drop
					}
				}
			END
		done
	done
}

begin_stopped() {
	(
		while sleep 7 && kill -STOP "$server_pid"; do
			sleep 3
			kill -CONT "$server_pid"
		done
	) 2>/dev/null &
	disturber=$!
}

dropped() {
	local node
	for node in "$ns_a" "$ns_b"; do
		ip netns exec "$node" nft list table netdev bad
	done | awk '/packets/ { for (i = 1; i < NF; i++) if ($i == "packets") n += $(i + 1) } END { print n + 0 }'
}

# Sets did: what the disturbance can show for itself.
end_disturbance() {
	local node
	did=
	if [[ $disturber ]]; then
		kill -0 "$disturber" 2>/dev/null || did=", the disturbance ended early"
		stop "$disturber"
	fi
	kill -CONT "$server_pid" 2>/dev/null
	[[ $kind == loss ]] && did=", $(dropped) packets dropped"
	for node in "$ns_a" "$ns_b"; do
		ip netns exec "$node" nft delete table netdev bad 2>/dev/null
	done
}

# one KIND TITLE
one() {
	local kind=$1 title=$2 doc=$BENCH_OUT/false-$1.json unplanned false broken status causes verdict
	"begin_$kind" || die "cannot set up $kind"
	rm -f "$doc"
	BENCH_LIMIT=$((SECS + 120)) client "$doc" -g 0-1 -N 4 -s 1M -D "$SECS" --interval 10 --verify
	status=$?
	end_disturbance
	[[ -s $doc ]] || {
		figure "false-$kind" "$title" "no document, exit status $status" 0 failed
		return
	}
	read -r unplanned false broken status causes < <("${stats[@]}" switches "$doc")
	verdict=met
	((unplanned)) && verdict="not met"
	[[ $false != - && $false != 0 ]] && verdict="not met"
	((broken || status)) && verdict=failed
	[[ $did == *early* || $did == ", 0 "* ]] && verdict=failed
	figure "false-$kind" "$title" \
		"$unplanned switches ($causes), false_failovers $false, wrong data $broken, exit status $status$did" 0 "$verdict"
}

bench_begin false "stress-ng nft"
start_server -g 0-1
for kind in $BENCH_KINDS; do
	case $kind in
	stress) one stress "false failovers, $SECS s beside stress-ng --cpu 4" ;;
	loss) one loss "false failovers, $SECS s with $BENCH_LOSS % loss" ;;
	stopped) one stopped "false failovers, $SECS s with the server stopped 3 s of 10" ;;
	*) die "BENCH_KINDS: no $kind" ;;
	esac
done
bench_end
