#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Line coverage of the core by unit tests and the simulator (make coverage).
#
#   scripts/coverage.sh [FOLDER...]           window detect channel bootstrap
#
# Builds the tests with gcov's counters, runs them and prints, for each folder and file, the percentage of
# lines that ran and the lines that did not run. The exit status is 1 when a folder is below GOAL or a test
# failed.
#
# Environment: B, the build tree (build/coverage); GOAL, per cent (90); SCHEDULES, number of simulated
# schedules (400); JOBS, compilers at a time (one per CPU).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=${B:-build/coverage}
goal=${GOAL:-90}
schedules=${SCHEDULES:-400}

# Without the folders whose tests kill the program or make its calls fail.
build_tests() {
	local dirs
	dirs=$(find base detect window bootstrap transport topology gpu channel library orchestrator tests/conformance \
		tests/sim tests/exhaustive tests/fuzz -name '*.c' -printf '%h\n' | sort -u | grep -v /lib$ | tr '\n' ' ')
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -j"${JOBS:-$(nproc)}" tests B="$build" CC="${CC:-cc} --coverage" \
		CFLAGS='-O0 -g' DIRS="$dirs"
}

# The simulator's child processes exit without writing their counters, so each schedule is a process here.
simulate() {
	local seed
	for ((seed = 1; seed <= schedules; seed++)); do
		SEED=$seed SHRINK=0 "$build/tests/sim/sim_test" >/dev/null || {
			echo "FAIL  make sim SEED=$seed"
			return 1
		}
	done
	echo "PASS  tests/sim/sim_test: $schedules schedules"
}

report() {
	gcovr "$build" --root . --filter "$1/" --exclude '.*_test\.c' --exclude '.*testkit\.h' "${@:2}"
}

main() {
	local folders=("$@") folder percent failed=0
	((${#folders[@]})) || folders=(window detect channel bootstrap)
	command -v gcovr >/dev/null || {
		echo "gcovr is not installed: scripts/setup.sh cover"
		exit 77
	}
	build_tests || exit 1
	find "$build" -name '*.gcda' -delete
	scripts/check.sh --unit "$build" || failed=1
	simulate || failed=1
	for folder in "${folders[@]}"; do
		report "$folder"
		percent=$(report "$folder" --json-summary - | jq .line_percent)
		if jq -en "${percent:-0} >= $goal" >/dev/null; then
			echo "PASS  $folder: $percent % of its lines ran"
		else
			echo "FAIL  $folder: $percent % of its lines ran, $goal % is the goal"
			failed=1
		fi
	done
	((failed == 0))
}

main "$@"
