#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Line coverage of the core by the tests that need neither root nor the command line (make coverage).
#
#   scripts/coverage.sh [FOLDER...]           window channel bootstrap
#
# Builds the tests with gcov's counters, runs them and prints, for each folder, the share of its lines
# that ran, file by file, and the lines that did not. The exit status is 1 when a folder is below GOAL
# or a test failed.
#
# Environment: B, the build tree (build/coverage); GOAL, per cent (90); SCHEDULES, of the simulation
# (400); JOBS, compilers at work (one a CPU).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=${B:-build/coverage}
goal=${GOAL:-90}
schedules=${SCHEDULES:-400}

# Not the programs that the tests run, whose calls are made to fail or that are killed.
build_tests() {
	local dirs
	dirs=$(find base window bootstrap transport topology gpu channel orchestrator tests/conformance \
		tests/sim tests/exhaustive tests/fuzz -name '*.c' -printf '%h\n' | sort -u | grep -v /lib$ | tr '\n' ' ')
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -j"${JOBS:-$(nproc)}" tests B="$build" CC="${CC:-cc} --coverage" \
		CFLAGS='-O0 -g' DIRS="$dirs"
}

# The simulation's children leave without writing their counters: here each schedule is a process.
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
	gcovr "$build" --root . --filter "$1/" --exclude '.*_test\.c' --exclude '.*_harness\.h' "${@:2}"
}

main() {
	local folders=("$@") folder percent failed=0
	((${#folders[@]})) || folders=(window channel bootstrap)
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
