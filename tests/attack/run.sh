#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--long] BUILD [NAME...]: attacks on the programs of a build tree (make check-attack, check-attack-long).
#
# NAME: only the attacks whose names begin so. Each attack is one line with what is expected and what happened, with a key and
# without one; then the table of all, and as the last line `N passed, N failed, N skipped`. Exit status 1 when one failed.
# --long: every value of every byte, more runs of both programs, longer floods, and altered-frames, which make check runs too.
# As many attacks as there are processors run at a time.
# shellcheck disable=SC2030,SC2031,SC2154 # subshells; set by lib.bash
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/tests/attack
PATH=$PATH:/usr/sbin:/sbin
long=
[[ ${1-} != --long ]] || { long=1 && shift; }
build=$(realpath "${1:?run.sh [--long] BUILD [NAME...]}")
shift
only=("$@")
export DUALRAIL=$build/dualrail DR_BUILD=$build DR_ROOT=$root
: "${WAIT_S:=60}"
# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"
work=$(mktemp -d)
export ATTACK_TMP=$work
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
names=()

# row STATUS ATTACK EXPECTED KEYED UNKEYED
row() {
	local IFS=$'\t'
	echo "${*//$'\n'/; }" >>"$work/rows"
}

# results: of all attacks, in their order, with what they printed.
results() {
	local name status attack expected keyed unkeyed
	for name in "${names[@]}"; do
		cat "$work/$name/out"
		[[ -e $work/$name/ended ]] || result FAIL "$name" "it did not come to its end"
		while IFS=$'\t' read -r status attack expected keyed unkeyed; do
			result "$status" "$attack: expected: $expected; with a key: $keyed; without: $unkeyed" \
				"$(grep -om1 'not judged: .*' <<<"$keyed"$'\n'"$unkeyed")"
		done < <(cat "$work/$name/rows" 2>/dev/null)
	done
}

wanted() {
	local name
	((${#only[@]})) || return 0
	for name in "${only[@]}"; do [[ $1 == "$name"* ]] && return; done
	return 1
}

# In memory, every byte or message of the conversation in both directions.
conversation() {
	local op keyed unkeyed status
	for op in alter drop repeat swap truncate drop-message repeat-message swap-messages reflect-message insert replay; do
		status=PASS
		keyed=$("$build/tests/attack/conversation_main" keyed "$op" ${long:+all}) || status=FAIL
		unkeyed=$("$build/tests/attack/conversation_main" unkeyed "$op" ${long:+all}) || status=FAIL
		[[ $keyed == [1-9]*" changes, 0 unnoticed" && $unkeyed == [1-9]*" changes, 0 unnoticed" ]] || status=FAIL
		row $status "conversation: $op" "0 unnoticed" "$keyed" "$unkeyed"
	done
}

# What crosses a rail, in memory. The token comes from the handshake, with a key and without.
rail() {
	local text status=PASS
	text=$("$build/tests/attack/rail_main" "$2" ${long:+all}) || status=FAIL
	[[ $text == [1-9]*" changes, 0 unnoticed" ]] || status=FAIL
	row $status "$1" "0 unnoticed" "$text" "the same"
}

# Both programs: some bytes, in the long form many.
programs() {
	local keyed unkeyed status=PASS n=${long:+400}
	python3 "$here/mitm.py" "$DUALRAIL" keyed "${n:-6}" >"$work/keyed" 2>&1 &
	unkeyed=$(python3 "$here/mitm.py" "$DUALRAIL" unkeyed "${n:-6}" 2>&1) || status=FAIL
	wait $! || status=FAIL
	keyed=$(<"$work/keyed")
	[[ $keyed == [1-9]*" changes, 0 unnoticed"* && $unkeyed == [1-9]*" changes, 0 unnoticed"* ]] || status=FAIL
	row $status "$1" "0 unnoticed" "$keyed" "$unkeyed"
}

# A client that ended for an altered message; --timeout is 60 s.
last() {
	local keyed unkeyed status=PASS
	python3 "$here/last.py" "$DUALRAIL" keyed >"$work/last" 2>&1 &
	unkeyed=$(python3 "$here/last.py" "$DUALRAIL" unkeyed 2>&1) || status=FAIL
	wait $! || status=FAIL
	keyed=$(<"$work/last")
	row $status "$1" "the next client is served within 5 s and its own time" "$keyed" "$unkeyed"
}

# A coordinator of a sweep whose orders are options.
orders() {
	local keyed unkeyed status=PASS
	keyed=$(python3 "$here/coordinator.py" "$DUALRAIL" keyed) || status=FAIL
	unkeyed=$(python3 "$here/coordinator.py" "$DUALRAIL" unkeyed) || status=FAIL
	row $status "$1" "addresses alone start a run, no file is made, changed or read" "$keyed" "$unkeyed"
}

# against_stranger ATTACK [keyed]: its last line; all of it goes to the standard error when it failed.
against_stranger() {
	local rc=0
	python3 "$here/stranger.py" "$1" "$DUALRAIL" "${@:2}" >"$work/stranger" 2>&1 || rc=$?
	((rc == 0 || rc == 77)) || show "$work/stranger" 120 >&2
	tail -n 1 "$work/stranger"
	return $rc
}

# A peer that keeps to no rule. keyed: also one that has the key, or another one.
stranger() {
	local keyed=- unkeyed status=PASS
	unkeyed=$(against_stranger "$2") || status=$?
	[[ ! ${4-} || $status == 1 ]] || keyed=$(against_stranger "$2" keyed) || status=$?
	status=${status/77/SKIP}
	row "${status/#[0-9]*/FAIL}" "$1" "$3" "$keyed" "$unkeyed"
}

# Results that are made to exhaust who reads them.
results_of() {
	local keyed=- unkeyed status=PASS
	python3 "$here/results.py" "$2" "$DUALRAIL" >"$work/unkeyed" 2>&1 || status=FAIL
	unkeyed=$(tail -n 1 "$work/unkeyed")
	if [[ ${4-} ]]; then
		python3 "$here/results.py" "$2" "$DUALRAIL" keyed >"$work/keyed" 2>&1 || status=FAIL
		keyed=$(tail -n 1 "$work/keyed")
	fi
	[[ $status == PASS ]] || cat "$work"/{un,}keyed 2>/dev/null >&2
	row $status "$1" "$3" "$keyed" "$unkeyed"
}

# As stranger, in network namespaces, its server in another one.
outsider() {
	local text
	text=$(
		# shellcheck source=tests/e2e/lib.bash
		source "$root/tests/e2e/lib.bash"
		skip() { echo "SKIP $*" && exit; }
		trap common_teardown EXIT
		cd "$work" && two_rails && ip -n "$A" link set lo up && ip -n "$B" link set lo up &&
			ip netns exec "$A" python3 "$here/stranger.py" "$2" "$DUALRAIL" "$B" 2>&1 || echo FAIL
	)
	case $text in
	SKIP*) row SKIP "$1" "$3" - "${text#SKIP }" ;;
	*FAIL) row FAIL "$1" "$3" - "$(tail -n 2 <<<"$text" | head -n 1)" ;;
	*) row PASS "$1" "$3" - "$(tail -n 1 <<<"$text")" ;;
	esac
}

# suite ATTACK EXPECTED FILE [FILTER]: an end-to-end file as an attack. Skipped if all that is left was skipped.
suite() {
	local log=$work/suite status=PASS n
	bats --tap ${4:+-f "$4"} "$root/tests/e2e/$3.bats" >"$log" 2>&1 </dev/null || status=FAIL
	n=$(grep -c '^ok' "$log")
	if [[ $status == FAIL ]]; then
		show "$log"
	elif ((n == $(grep -c '^ok .* # skip' "$log"))); then
		status=SKIP
	fi
	row $status "$1" "$2" "$n of $(grep -cE '^(not )?ok' "$log") cases of $3.bats" "the same"
}

# unit ATTACK EXPECTED TEST: a unit test as an attack.
unit() {
	local text status=PASS
	text=$("$root/scripts/check.sh" --unit "$build" "$build/$3" 2>&1) || { status=FAIL && echo "$text"; }
	[[ $text != *$'\n0 passed, 0 failed,'* ]] || status=SKIP
	row $status "$1" "$2" "$(tail -n 1 <<<"$text") in $3" "the same"
}

# What a bandwidth test reports while nobody, and while a stranger opens connections with garbage as fast as he can; the most
# descriptors of the server meanwhile. The figure is no criterion: the stranger uses a processor of the same machine.
garbage() {
	local seconds=${long:+30} text
	text=$(
		# shellcheck source=tests/e2e/lib.bash
		source "$root/tests/e2e/lib.bash"
		trap common_teardown EXIT
		cd "$work" || exit
		: "${seconds:=5}"
		free_port
		start server "$DUALRAIL" server -g 0-1 --port "$port" --verbose=0
		server=$pid
		wait_for grep -q listening server.err || exit
		measure() {
			"$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -D "${seconds}s" --json="$1" >"$1.out" 2>&1 && jq -r .total.gbps "$1"
		}
		alone=$(measure alone.json) || exit
		base=$(find "/proc/$server/fd" | wc -l)
		mkfifo hold
		"$build/tests/flood/flood_main" garbage 1000000 $((seconds + 3)) 127.0.0.2 127.0.0.1 "$port" <>hold >flood.out 2>&1 &
		pids+=("$!")
		wait_for grep -q flooding flood.out || exit
		measure beside.json >beside &
		run=$!
		most=0
		while kill -0 "$run" 2>/dev/null; do
			n=$(find "/proc/$server/fd" 2>/dev/null | wc -l)
			most=$((n > most ? n : most))
		done
		wait "$run" || exit
		wait_for grep -q opened flood.out || exit
		"$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -D 100ms -q >after 2>&1 || exit
		# 64 of one address that wait, some between accept and close, and those of the run.
		((most <= base + 64 + 64)) || exit
		awk -v a="$alone" -v b="$(<beside)" -v n="$(sed -nE 's/^opened ([0-9]*).*/\1/p' flood.out)" -v s=$((seconds + 3)) -v base="$base" -v most="$most" \
			'BEGIN { printf "%d connections a second; %.1f Gb/s beside %.1f alone; descriptors %d, at most %d", n / s, b, a, base, most }'
	)
	if [[ $text ]]; then
		row PASS "$1" "served on, descriptors bounded" - "$text"
	else
		row FAIL "$1" "served on, descriptors bounded" - "$(tail -n 1 "$work/beside.json.out" "$work/after" 2>/dev/null | tr '\n' ' ')"
	fi
}

# The part of the server in that, beside the flood of a program that does the least. Only in the long form: it takes minutes.
share() {
	local text status=PASS
	[[ $long ]] || return 0
	text=$(python3 "$here/beside.py" "$DUALRAIL" "$build" 15 3 2>&1) || status=FAIL
	row $status "$1" "a hello is answered within 10 s; the figures are printed" - "$text"
}

# What a server that has read its key leaves of it.
keys() {
	local text status=PASS
	text=$(python3 "$here/keys.py" "$DUALRAIL" 2>&1 | tail -n 1) || status=$?
	status=${status/77/SKIP}
	row "${status/#[0-9]*/FAIL}" "$1" "one copy in memory, no core file" "$text" -
}

print_table() {
	(
		echo $'\nresult\tattack\texpected\twith a key\twithout a key'
		for name in "${names[@]}"; do cat "$work/$name/rows" 2>/dev/null; done
		echo
	) | awk -F '\t' '{ for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > w[i]) w[i] = length($i) } n[NR] = NF }
			END { for (r = 1; r <= NR; r++) { for (i = 1; i < n[r]; i++) printf "%-" w[i] "s | ", cell[r, i]; print cell[r, n[r]] } }'
}

attack() {
	wanted "$1" || return 0
	while (($(jobs -pr | wc -l) >= $(nproc))); do wait -n || :; done
	names+=("$1")
	mkdir "$work/$1"
	(
		work=$work/$1
		ATTACK_TMP=$work
		"$2" "$1" "${@:3}"
		touch "$work/ended"
	) >"$work/$1/out" 2>&1 &
}

attack conversation conversation
attack data-handshake rail handshake
attack heartbeats rail heartbeats
attack control-datagrams rail control
attack programs programs
attack last-message last
attack wrong-time stranger wrong "the connection ends, the server serves on" keyed
attack stops-midway stranger stops "the next client is served within 2 s and its own time" keyed
attack middle stranger middle "keyed: nothing is read" keyed
attack steady-garbage stranger steady "a hello is answered within 4 s"
attack sweep-orders orders
attack fault-request stranger faults "refused, no command runs"
attack peer-rows results_of rows "the client ends by itself within 15 s of CPU and 120 MB" keyed
attack documents results_of documents "read or refused within 15 s of CPU and 1000 MB"
attack third-host outsider reflect "no datagram leaves to it"
attack silent-client outsider silent "no datagram leaves"
attack planted-files suite "not written, not read, status 2" planted
attack killed-guards suite "the fault is undone" undo
attack guard-requests unit "the guard keeps to the options of its start" orchestrator/fault/guard_hostile_test
attack rights suite "no capability, a filter of system calls" privileges
attack reflection unit "no datagram before the address is proven" topology/mtu_rail_test
attack silent-nodes unit "a node joins beside 300 of them" orchestrator/fleet/hub_test
attack pods suite "bounded, without escape sequences" k8s "what a pod prints"
attack key-left keys
attack flood suite "served on, descriptors bounded" flood
attack garbage garbage
attack garbage-share share
[[ ! $long ]] || attack altered-frames suite "--verify finds payload, status 6; credits, headers: the run ends, no crash" altered
wait
results
print_table
sum_up
