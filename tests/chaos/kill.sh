#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill.sh DUALRAIL [TRIALS]: a fault of a NIC is held, and processes are killed with SIGKILL: an end of the run, its guard,
# both, its process group, its PID namespace, its cgroup. A trial is passed when the NIC is up with its address and no fault is
# recorded, after the survivor noticed or, where none is left, after `dualrail doctor --repair`. Prints a line for
# each kind of victim, and the time from the kill (a survivor), or from the start of doctor (none), until the NIC is up.
# Exit status: 0 all passed, 1, 77 without root. Without cgroups of version 2 that can be written, with cgroup.kill (Linux 5.14),
# no cgroup is killed.
# shellcheck disable=SC2034,SC2154,SC2317 # variables and functions of and for lib.bash
set -u
DUALRAIL=$(realpath "$1")
TRIALS=${2:-100}
WAIT_S=60
# shellcheck source=tests/e2e/lib.bash
source "${BASH_SOURCE[0]%/*}/../e2e/lib.bash"
VICTIMS=(client client-guard client-both client-group client-namespace client-cgroup server server-guard server-both
	server-group server-namespace server-cgroup)
KINDS=(link-down addr-del)
declare -A passed failed longest
cgroup='' # of the victim, if that is one

skip() {
	echo "SKIP kill campaign: $*"
	exit 77
}

whole_nic() {
	ip -n "$1" link show rail0 | grep -q LOWER_UP && ip -n "$1" addr show rail0 | grep -q 'inet 10\.99\.0\.'
}

broken_nic() {
	! whole_nic "$1"
}

in_net() {
	timeout "$WAIT_S" ip netns exec "$1" "$DUALRAIL" "${@:2}"
}

nothing_held() {
	[[ $(in_net "$1" doctor --repair --dry-run) == *"ok    leftover"*"1 ok (exit status 0)"* ]]
}

# Only faults of dead guards: nobody is about to undo them.
only_leftovers() {
	local out
	out=$(in_net "$1" doctor --repair --dry-run)
	[[ $out != *"held by"* ]]
}

# running NET NAME COMMAND...: in a process group of its own; as the first process of a PID namespace if the victim is
# that.
running() {
	local ns=() group=()
	[[ $victim != "$2-namespace" ]] || ns=(unshare --pid --fork --kill-child)
	# shellcheck disable=SC2016 # for that shell
	[[ $victim != "$2-cgroup" ]] || group=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cgroup")
	start "$2" "${group[@]}" setsid ip netns exec "$1" "${ns[@]}" "$DUALRAIL" "${@:3}"
}

# A group of this test's own, in $cgroup.
make_cgroup() {
	local root
	root=$(findmnt -rn -t cgroup2 -o TARGET | head -n 1)
	[[ $root ]] || { echo "no cgroup2 file system is mounted" && return 1; }
	cgroup=$root/dualrail-kill.$$
	mkdir "$cgroup" 2>/dev/null || { echo "$root cannot be written" && return 1; }
	[[ -e $cgroup/cgroup.kill ]] || { rmdir "$cgroup" && echo "no cgroup.kill (Linux 5.14)" && return 1; }
}

# All that is in the group is dead.
cgroup_is_empty() {
	grep -q '^populated 0' "$cgroup/cgroup.events"
}

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# The fault is held now: kill the victim, whose program is PID in namespace NET.
strike() {
	local guard
	guard=$(pgrep -P "$1" -x dualrail-guard)
	case ${victim#*-} in
	guard) kill -9 "$guard" ;;
	both)
		kill -STOP "$1" # it must not repair
		kill -9 "$guard" "$1"
		;;
	group) kill -9 -- "-$1" ;;
	namespace) # unshare, with which the first process of the namespace dies; the guard would see that before it dies
		kill -STOP "$(pgrep -P "$(pgrep -P "$1")" -x dualrail-guard)"
		kill -9 "$1"
		;;
	cgroup) echo 1 >"$cgroup/cgroup.kill" ;;
	*) kill -9 "$1" ;;
	esac
	begin_ms=$(now_ms)
	[[ ${victim#*-} != @(both|namespace|cgroup) ]] || {
		wait "$1"
		[[ $victim != *-cgroup ]] || wait_for cgroup_is_empty || return 1
		wait_for only_leftovers "$2" && broken_nic "$2" || return 1
		begin_ms=$(now_ms)
		in_net "$2" doctor --repair
	}
}

trial() {
	local side=${victim%%-*} net=$A target begin_ms
	took_ms=''
	[[ $side == client ]] || net=$B
	pids=()
	running "$B" server server -g 0 --allow-faults --key-file key
	local server=$pid
	wait_for grep -q 'listening on port' server.err || return 1
	running "$A" client client 10.99.255.2 -g 0 -N 1 -s 64K --key-file key --test failover --allow-faults \
		--warmup 0 --fault "$kind:path=0,side=$side,at=0,for=60s"
	target=$pid
	[[ $side == client ]] || target=$server
	wait_for broken_nic "$net" || return 1
	strike "$target" "$net"
	wait_for whole_nic "$net" && took_ms=$(($(now_ms) - begin_ms)) && wait_for nothing_held "$net"
}

cd "$(mktemp -d)" || exit 1
trap 'common_teardown >/dev/null 2>&1; [[ ! $cgroup ]] || rmdir "$cgroup"; rm -rf "$PWD"' EXIT
two_rails
if ! make_cgroup >cgroup.out; then
	echo "SKIP kills of a cgroup: $(<cgroup.out)"
	cgroup=''
	mapfile -t VICTIMS < <(printf '%s\n' "${VICTIMS[@]}" | grep -v cgroup)
fi
new_key key
bad=0
for ((i = 0; i < TRIALS; i++)); do
	victim=${VICTIMS[i % ${#VICTIMS[@]}]} kind=${KINDS[i / ${#VICTIMS[@]} % ${#KINDS[@]}]}
	if trial >trial.out 2>&1; then
		passed[$victim]=$((${passed[$victim]:-0} + 1))
		longest[$victim]=$((took_ms > ${longest[$victim]:-0} ? took_ms : ${longest[$victim]:-0}))
	else
		failed[$victim]=$((${failed[$victim]:-0} + 1)) bad=1
		echo "trial $i: $victim, $kind: FAIL"
		tail -n 20 trial.out client.err server.err
		in_net "$A" doctor --repair
		in_net "$B" doctor --repair
	fi >&2
	end_background KILL
	wait_for nothing_held "$A" && wait_for nothing_held "$B"
done
for victim in "${VICTIMS[@]}"; do
	printf '%-18s %3d passed, %d failed; up again after %d ms at most\n' "$victim" "${passed[$victim]:-0}" \
		"${failed[$victim]:-0}" "${longest[$victim]:-0}"
done
exit $bad
