# SPDX-License-Identifier: Apache-2.0
# Helpers of the end-to-end tests. No fixed ports and no fixed sleeps: ports are free ones, and what
# has to happen first is waited for.
# Variables that the tests read, and those that bats sets.
# shellcheck shell=bash disable=SC2034,SC2154

# What a test may take for any one wait; builds with sanitizers on busy machines are slow.
WAIT_S=${DR_E2E_WAIT:-60}

# A small run: two GPUs, two channels each.
SMALL=(-g 0-1 -N 2 -s 1M)

common_setup() {
	[[ -x ${DUALRAIL-} ]] || DUALRAIL=$BATS_TEST_DIRNAME/../../build/release/dualrail
	cd "$BATS_TEST_TMPDIR" || return 1
	pids=()
}

common_teardown() {
	local pid
	for pid in "${pids[@]}"; do
		kill -CONT "$pid" 2>/dev/null
		kill -9 "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done 2>/dev/null
	return 0
}

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

# A port with 16 free ones behind it, in $port.
free_port() {
	local used base i
	used=$(ss -Htan | awk '{ sub(".*:", "", $4); print $4 }' | sort -un)
	while :; do
		base=$((10000 + RANDOM % 20000))
		for ((i = 0; i < 16; i++)); do
			grep -qx $((base + i)) <<<"$used" && continue 2
		done
		port=$base
		return
	done
}

# start NAME COMMAND...: in the background, output in NAME.out and NAME.err, process id in $pid.
start() {
	local name=$1
	shift
	: >"$name.err"
	"$@" >"$name.out" 2>>"$name.err" </dev/null 3>&- &
	pid=$!
	pids+=("$pid")
}

# ends PID STATUS: it does, with that status.
ends() {
	local rc=0
	wait "$1" 2>/dev/null || rc=$?
	((rc == $2)) || {
		echo "process $1 ended with $rc, not $2"
		tail -n 20 ./*.err
		return 1
	}
}

start_server() {
	free_port
	start server "$DUALRAIL" server -g 0-1 --port "$port" "$@"
	server=$pid
}

# client OPTIONS...: against that server, to its end.
client() {
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" "$@"
	tail -n 12 <<<"$output"
}

start_client() {
	start client "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -i 100ms "$@"
	client=$pid
}

# Data flow: an interval has been printed.
flowing() {
	grep -q 'Gb/s' client.out
}

# one_line: the error is one line that names what matters.
one_line() {
	[[ $(wc -l <<<"$output") == 1 ]]
}

# holds FILE FILTER: jq finds the filter true.
holds() {
	jq -e "$2" "$1" >/dev/null || {
		echo "not so: $2"
		jq -c '{status, exit_code, errors, integrity, failover: .failover.summary?}' "$1"
		return 1
	}
}

# The result document is whole: every top-level key of the schema is there.
whole() {
	holds "$1" '.schema == "dualrail/1" and (["run_id", "status", "exit_code", "argv", "options",
		"versions", "host", "topology", "detection", "bandwidth", "nics", "total", "latency",
		"failover", "integrity", "intervals", "events", "errors"] - keys == [])'
}

clean() {
	holds "$1" '.integrity | .lost == 0 and .duplicated == 0 and .reordered == 0 and .corrupted == 0'
}
