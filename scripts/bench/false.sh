#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions are called by name
#
# False failovers: switches under default heartbeats while no path is dead. The bar is zero.
#
#   scripts/bench/false.sh [BUILD]
#
#   stress   beside stress-ng with twice as many busy loops as there are processors
#   loss     BENCH_LOSS percent (1) of the packets of both rails are dropped in each direction by nft
#   stopped  the server is stopped (SIGSTOP) for 3 s of every 10; its kernel goes on to acknowledge
#   slow     both rails are shaped (tbf at both ends) to each of BENCH_RATES (1 10 100 1000, Mb/s), with
#            each of BENCH_CHANNELS (1 4 16 64) and each of BENCH_CHUNKS (4K 64K 512K 4M); the window is 16, or
#            what the rail carries in 20 s; runs in which one chunk of each channel is more are left out
#
# SECS (300) of each, SLOW_SECS (4) of each run of `slow`; BENCH_KINDS. Exit status 1 when data were wrong.
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build_tree "${1-}"
: "${SECS:=300}" "${SLOW_SECS:=4}" "${BENCH_KINDS:=stress loss stopped slow}" "${BENCH_LOSS:=1}"
: "${BENCH_RATES:=1 10 100 1000}" "${BENCH_CHANNELS:=1 4 16 64}" "${BENCH_CHUNKS:=4K 64K 512K 4M}"

begin_stress() {
	stress-ng --cpu $((2 * $(nproc))) --quiet &
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

# shape MBIT: all rails, at both ends; a queue of 50 ms or of 20 packets.
shape() {
	local node link rate=$1 queue=$((BENCH_MTU * 20))
	((rate * 125 * 50 > queue)) && queue=$((rate * 125 * 50))
	for node in "$ns_a" "$ns_b"; do
		for link in rail0 rail1; do
			ip netns exec "$node" tc qdisc replace dev "$link" root tbf rate "${rate}mbit" \
				burst $((BENCH_MTU * 4)) limit "$queue" || return 1
		done
	done
}

# slow RATE: one run for each number of channels and each chunk; one line of the results.
slow() {
	local rate=$1 n chunk doc=$BENCH_OUT/false-slow.json unplanned false broken status causes
	local window runs=0 all=0 bad=0 worst="" verdict=met
	shape "$rate" || die "cannot shape the rails: tc is missing, or the kernel has no tbf"
	for n in $BENCH_CHANNELS; do
		for chunk in $BENCH_CHUNKS; do
			rm -f "$doc"
			window=$((rate * 2500000 / n / $(numfmt --from=iec "$chunk")))
			((window >= 1)) || continue
			((window <= 16)) || window=16
			BENCH_LIMIT=$((SLOW_SECS + 240)) client "$doc" -g 0 -N "$n" --chunk "$chunk" -s "$chunk" \
				--window "$window" -D "$SLOW_SECS" --warmup 0 --verify
			status=$?
			runs=$((runs + 1))
			[[ -s $doc ]] || {
				bad=$((bad + 1)) worst+=" $n x $chunk: exit status $status;"
				continue
			}
			read -r unplanned false broken status causes < <("${stats[@]}" switches "$doc")
			all=$((all + unplanned))
			((broken || status)) && bad=$((bad + 1))
			((unplanned || broken || status)) &&
				worst+=" $n x $chunk: $unplanned ($causes), wrong data $broken, exit status $status;"
		done
	done
	((all)) && verdict="not met"
	((bad)) && verdict=failed
	figure "false-slow-$rate" "false failovers at $rate Mb/s, $runs runs of $SLOW_SECS s" \
		"$all switches, $bad runs failed;$worst" 0 "$verdict"
}

bench_begin false "stress-ng nft tc"
start_server -g 0-1
for kind in $BENCH_KINDS; do
	case $kind in
	stress) one stress "false failovers, $SECS s beside stress-ng --cpu $((2 * $(nproc)))" ;;
	loss) one loss "false failovers, $SECS s with $BENCH_LOSS % loss" ;;
	stopped) one stopped "false failovers, $SECS s with the server stopped 3 s of 10" ;;
	slow)
		stop "$server_pid"
		start_server -g 0
		for rate in $BENCH_RATES; do slow "$rate"; done
		;;
	*) die "BENCH_KINDS: no $kind" ;;
	esac
done
bench_end
