#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# NCCL's plugin over verbs between two nodes, without NCCL and without a GPU: rank 0 in guest 0, rank 1 in guest 1.
# The programs are those of tests/e2e/plugin.bats.

load usual

PLUGIN=/opt/dualrail/plugin # in the guests

install_plugin() {
	local stage f
	lab status >/dev/null 2>&1 || return 0
	stage=$(mktemp -d)
	for f in libnccl-net-ha.so tests/plugin/contract_main tests/plugin/ring_main; do
		strip -o "$stage/${f##*/}" "$DR_BUILD/$f" || return 1
	done
	lab put both "$stage"/* "$PLUGIN"
	rm -rf "$stage"
}

setup_file() {
	install_dualrail
	install_plugin
}

setup() {
	verbs_setup
	lab run both test -e $PLUGIN/ring_main || install_plugin
	write_act
}

# What ring_main does to a rail of guest 0 while data flow over it; afterwards they flow over the other one.
write_act() {
	cat >"$share/act" <<-'END'
		set -eu
		flows() {
			local start at=/sys/class/net/$1/statistics/tx_bytes end=$((SECONDS + WAIT_S))
			start=$(cat $at)
			until (($(cat $at) > start + 500000)); do
				((SECONDS < end)) || { echo "# nothing flows over $1"; exit 1; }
				sleep 0.02
			done
		}
		case $1 in
		down) flows nic0; ip link set nic0 down; flows nic1 ;;
		up) ip link set nic0 up; flows nic0 ;;
		silence) flows nic0; touch "$2"; flows nic1 ;; # the test cuts it
		esac
	END
}

# start_ranks PROGRAM ARGUMENT...: on both guests.
start_ranks() {
	local id env=(env "NCCL_IB_HCA==rxe0,rxe1" NCCL_IB_RETRY_CNT=6 HA_NCCL_HEARTBEAT_MS=100 HA_NCCL_HOLD_DOWN_MS=300
		HA_NCCL_NTHREADS=1 WAIT_S="$WAIT_S" LIMIT="$WAIT_S" SEED="${SEED:-$RANDOM}") program=$1
	shift
	rank=()
	for id in 1 0; do
		start rank$id $id "${env[@]}" $PLUGIN/"$program" --remote $id,10.77.0.1:7777 "$@"
		rank[id]=$pid
	done
}

# Both end well.
ranks_end() {
	ends "${rank[0]}" 0
	ends "${rank[1]}" 0
}

@test "plugin contract over verbs: oldest and newest version of the ABI" {
	start_ranks contract_main --versions 6 $PLUGIN/libnccl-net-ha.so properties both_ways any_order
	ranks_end
	start_ranks contract_main --versions 12 $PLUGIN/libnccl-net-ha.so reverse completion registrations
	ranks_end
	[ "$(grep -c '^ok' rank0.out)" -eq 3 ]
}

@test "collectives over verbs while the active rail goes down, returns, and falls silent" {
	start_ranks ring_main --log --limit "$WAIT_S" --bytes 1200K --iters 5 --do "3:bash $inside/act down" \
		--do "3:bash $inside/act up" --do "3:bash $inside/act silence $inside/now" $PLUGIN/libnccl-net-ha.so
	wait_for test -e "$share/now"
	lab port 1 nic0 off
	ranks_end
	grep '^ranks=' rank0.out
	grep -q 'transport verbs, devices rxe0,rxe1,' rank0.out
	(($(sed -nE 's/^ranks=.* switches_least=([^ ]*).*/\1/p' rank0.out) >= 2))
}
