# SPDX-License-Identifier: Apache-2.0
# Functions shared by tests/e2e/lib.bash and tests/lab/lib.bash. Tests do not sleep: they wait for a condition,
# at most WAIT_S seconds.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that tests read, and those of bats
pids=()

# Under bats (scripts use this file, too): `run -STATUS`, and a failed test shows the output of its last command.
[[ ! ${BATS_VERSION-} ]] || bats_require_minimum_version 1.5.0
BATS_PRINT_OUTPUT_ON_FAILURE=1

# wait_for COMMAND...: repeats it until it succeeds.
wait_for() {
	local end=$((SECONDS + WAIT_S))
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS > end)); then
			echo "did not succeed within $WAIT_S s: $*"
			return 1
		fi
		read -rt 0.05 <> <(:) || :
	done
}

# background NAME COMMAND...: output in NAME.out and NAME.err, process id in $pid; that of a server, client or demo also in the
# variable of that name.
background() {
	local name=$1
	shift
	: >"$name.err"
	: >"$name.out"
	"$@" >"$name.out" 2>>"$name.err" </dev/null 3>&- &
	pid=$!
	pids+=("$pid")
	[[ $name != @(server|client|demo) ]] || printf -v "$name" %s "$pid"
}

# end_background SIGNAL: sends it to all background processes that still run.
end_background() {
	local one
	for one in "${pids[@]}"; do
		kill -CONT "$one" 2>/dev/null
		kill "-$1" "$one" 2>/dev/null
		wait "$one" 2>/dev/null
	done 2>/dev/null
	return 0
}

# gives STATUS COMMAND...: a program, or a function that uses `run` such as client, ends with this exit status.
gives() {
	if [[ $(type -t "$2") == function ]]; then "${@:2}"; else run "${@:2}"; fi
	((status == $1)) || {
		echo "exit status $status, not $1: ${*:2}"
		return 1
	}
}

# says CONDITION [FILE...]: the output, or the files, have the sentence of that row of docs/QUESTIONS.md.
says() {
	if (($# > 1)); then cat "${@:2}"; else echo "$output"; fi | "${BASH_SOURCE[0]%/*}/questions.py" said "$1" || {
		echo "$output"
		return 1
	}
}

# tells STATUS TEXT COMMAND...: as gives, and its output has the text.
tells() {
	gives "$1" "${@:3}"
	[[ $output == *"$2"* ]] || {
		echo "not in its output: $2"
		return 1
	}
}

# ends PID STATUS...: waits for the process and checks that its exit status is one of these.
ends() {
	local rc=0
	wait "$1" 2>/dev/null || rc=$?
	[[ " ${*:2} " == *" $rc "* ]] || {
		echo "process $1 ended with $rc, not ${*:2}"
		tail -n 30 ./*.err ./*.out
		return 1
	}
}

# watch: from here on it is measured how long the machine keeps the processes of this test, or below $watched, from running (stood.py).
# common_setup calls it for a test whose own text has `judge`. A test that judges in a helper function calls it first.
watch() {
	[[ ! ${watcher-} ]] || return 0
	background stood python3 -IS "${BASH_SOURCE[0]%/*}/stood.py" "${watched:-$BASHPID}"
	watcher=$pid
}

# judge MS COMMAND...: a check of a time, or of what happens only in time. It is not judged, and the test skipped, when it fails
# and the machine stood for MS or longer since watch. Wrong data in a document here is never excused.
judge() {
	local least=$1 stood
	shift
	"$@" && return
	[[ ! $(jq '.integrity? // empty | .duplicated, .reordered, .corrupted | select(. != null and . != 0)' ./*.json ${share:+"$share"/*.json} 2>/dev/null) ]] || {
		echo "a document here has wrong data"
		return 1
	}
	kill "$watcher"
	wait "$watcher" || :
	stood=$(<stood.out)
	((${stood:-0} < least)) || skip "not judged: the machine stood for $stood ms"
	echo "the machine stood for ${stood:-0} ms, less than $least"
	return 1
}

# judge_status MS STATUS [PID]: a check of the exit status of that process, or of the last `run`, that is judged likewise. Only a
# run that was late may be excused: rails lost, hang, threshold, failover, or none of these. Wrong data and crashes are not.
judge_status() {
	[[ ! ${3-} ]] || {
		status=0
		wait "$3" 2>/dev/null || status=$?
	}
	((status != $2)) || return 0
	echo "exit status $status, not $2"
	[[ ! ${3-} ]] || tail -n 30 ./*.err ./*.out
	[[ $status == [4578] || $status$2 == 0[4578] ]] && judge "$1" false
}

# validated [DIRECTORY]: every document here and there, and the last command's output, fits its schema. Last in
# every teardown, for only the last command's status counts there.
validated() {
	printf '%s' "${output-}" >last-output
	"${BASH_SOURCE[0]%/*}/validate.py" "$DUALRAIL" . "$@"
}

# True once the client has printed an interval: data flow.
flowing() {
	grep -q 'Gb/s' client.out
}

# under_way START...: starts a client by this function, and waits until data flow.
under_way() {
	"$@"
	wait_for flowing
}

# holds FILE FILTER: the jq filter is true for the file.
holds() {
	jq -e "$2" "$1" >/dev/null || {
		echo "false: $2"
		jq -c '{status, exit_code, errors, integrity, summary: .failover.summary?,
			faults: [.failover.faults[]? | {kind, side, verdict, gap_us, in_flight_chunks, failback_us, failback_gap_us, channels_affected}],
			unplanned: [.failover.switches[]? | select(.planned | not) | {gpu, channel, trial, from_path, cause}] | .[:8]}' "$1"
		return 1
	}
}

clean() {
	holds "$1" '.integrity | .lost == 0 and .duplicated == 0 and .reordered == 0 and .corrupted == 0'
}
