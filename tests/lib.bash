# SPDX-License-Identifier: Apache-2.0
# What the bats tests here share; tests/e2e/lib.bash and tests/lab/lib.bash source it. Nothing is slept for: what
# has to happen first is waited for, WAIT_S at most.
# shellcheck shell=bash disable=SC2034 # variables that tests read
pids=()

# wait_for COMMAND...: until it succeeds.
wait_for() {
	local end=$((SECONDS + WAIT_S))
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS > end)); then
			echo "waited in vain for: $*"
			return 1
		fi
		read -rt 0.05 <> <(:) || :
	done
}

# background NAME COMMAND...: output in NAME.out and NAME.err, process id in $pid.
background() {
	local name=$1
	shift
	: >"$name.err"
	: >"$name.out"
	"$@" >"$name.out" 2>>"$name.err" </dev/null 3>&- &
	pid=$!
	pids+=("$pid")
}

# end_background SIGNAL: to all of it that is left.
end_background() {
	local one
	for one in "${pids[@]}"; do
		kill -CONT "$one" 2>/dev/null
		kill "-$1" "$one" 2>/dev/null
		wait "$one" 2>/dev/null
	done 2>/dev/null
	return 0
}

# ends PID STATUS: it does, with that status.
ends() {
	local rc=0
	wait "$1" 2>/dev/null || rc=$?
	((rc == $2)) || {
		echo "process $1 ended with $rc, not $2"
		tail -n 30 ./*.err ./*.out
		return 1
	}
}

# Data flow: the client has printed an interval.
flowing() {
	grep -q 'Gb/s' client.out
}

# holds FILE FILTER: jq finds the filter true.
holds() {
	jq -e "$2" "$1" >/dev/null || {
		echo "not so: $2"
		jq -c '{status, exit_code, errors, integrity, summary: .failover.summary?,
			faults: [.failover.faults[]? | {kind, side, verdict, gap_us, in_flight_messages, failback_us, failback_gap_us, channels_affected}],
			unplanned: [.failover.switches[]? | select(.planned | not) | {gpu, channel, trial, from_path, cause}] | .[:8]}' "$1"
		return 1
	}
}

clean() {
	holds "$1" '.integrity | .lost == 0 and .duplicated == 0 and .reordered == 0 and .corrupted == 0'
}
