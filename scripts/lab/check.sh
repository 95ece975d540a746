#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the two-node RDMA lab: boots it, runs tests/lab/*.bats, one line per test, and sums up.
#
#   scripts/lab/check.sh BUILD [FILE.bats...]     (make check-lab)
#
# A lab that runs in LAB_DIR already is used and not stopped. Environment: FILTER, a regular expression of test
# names; LAB_BUSY, not empty: tests that boot a guest again are skipped. The last line is
# `N passed, N failed, N skipped`; exit status 1 when something failed. On a machine that cannot run the lab every test
# is skipped, with the reason.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=$here/lab.sh
passed=0 failed=0 skipped=0

# Reads TAP on standard input; sets seen and planned.
read_tap() {
	local line file=$1
	seen=0 planned=0
	while IFS= read -r line; do
		if [[ $line =~ ^1\.\.([0-9]+) ]]; then
			planned=${BASH_REMATCH[1]}
		elif [[ $line =~ ^ok\ [0-9]+\ (.*)\ \#\ skip\ ?(.*)$ ]]; then
			skipped=$((skipped + 1)) seen=$((seen + 1))
			echo "SKIP  $file: ${BASH_REMATCH[1]}  (${BASH_REMATCH[2]:-no reason given})"
		elif [[ $line =~ ^(not\ )?ok\ [0-9]+\ (.*)$ ]]; then
			seen=$((seen + 1))
			if [[ ${BASH_REMATCH[1]} ]]; then
				failed=$((failed + 1))
				echo "FAIL  $file: ${BASH_REMATCH[2]}"
			else
				passed=$((passed + 1))
				echo "PASS  $file: ${BASH_REMATCH[2]}"
			fi
		elif [[ $line == '#'* ]]; then
			echo "      | ${line#\#}"
		else
			echo "      $line"
		fi
	done
}

skip_all() {
	local file name
	for file in "${files[@]}"; do
		while IFS= read -r name; do
			skipped=$((skipped + 1))
			echo "SKIP  ${file#"$root"/}: $name  ($1)"
		done < <(sed -n 's/^@test "\(.*\)" {$/\1/p' "$file")
	done
}

main() {
	local file why rc
	(($#)) || {
		sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
		exit 1
	}
	DR_BUILD=$(cd "$1" 2>/dev/null && pwd) || {
		echo "$1: no such build tree; run make" >&2
		exit 1
	}
	shift
	files=("$@")
	((${#files[@]})) || files=("$root"/tests/lab/*.bats)
	export DR_BUILD DR_ROOT=$root DUALRAIL=$DR_BUILD/dualrail LAB_DIR=${LAB_DIR:-$root/build/lab/run}
	if ! "$lab" status >/dev/null 2>&1; then
		why=$("$lab" up --owner $$ 2>&1)
		rc=$?
		echo "$why"
		if ((rc == 77)); then
			skip_all "$(tail -n 1 <<<"$why")"
			echo "$passed passed, $failed failed, $skipped skipped"
			exit 0
		elif ((rc)); then
			echo "$passed passed, 1 failed, $skipped skipped"
			exit 1
		fi
		trap '"$lab" down' EXIT
		trap 'exit 130' INT
		trap 'exit 143' TERM
	fi
	for file in "${files[@]}"; do
		read_tap "${file#"$root"/}" < <(BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-400} bats --tap ${FILTER:+--filter "$FILTER"} "$file" 2>&1 </dev/null)
		((seen == planned)) || {
			failed=$((failed + 1))
			echo "FAIL  ${file#"$root"/}: $seen of $planned tests ran"
		}
	done
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}

main "$@"
