#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run the tests of a build tree, one line per test, and sum up.
#
#   scripts/check.sh [--unit] BUILD [TEST...]      (make check, make unit)
#
# TEST is a binary BUILD/PATH_test; without any, all whose source PATH_test.c is still there. Then
# the bats files in tests/e2e, unless --unit. The last line is `N passed, N failed, N skipped`; the
# exit status is 1 when something failed. A failed test's output and the line that runs it again
# are printed.
#
# A binary is read as TAP when it speaks it (cmocka does), else by its status: 0, 77 (skipped; its
# last line is the reason), anything else. In front of cmocka's skip(), a test prints
# "SKIP: reason".
#
# Environment: DR_TEST_TIMEOUT, seconds a binary may take (120; three times that with sanitizers).
# Bats tests get DUALRAIL (the program), DR_BUILD (the build tree) and DR_ROOT (this repository).
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
self=$root/scripts/check.sh
cd "$root" || exit 1

passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# result PASS|FAIL|SKIP NAME [REASON]
result() {
	case $1 in
	PASS) passed=$((passed + 1)) ;;
	FAIL) failed=$((failed + 1)) ;;
	SKIP) skipped=$((skipped + 1)) ;;
	esac
	printf '%s  %s%s\n' "$1" "$2" "${3:+  ($3)}"
}

show() {
	sed 's/^/      | /' "$1" | tail -n "${2:-60}"
}

# Reads TAP of $1 (named $2). Sets seen (results found) and bad (failures among them).
read_tap() {
	local line reason=''
	seen=0 bad=0
	while IFS= read -r line; do
		if [[ $line =~ ^SKIP:\ (.*) ]]; then
			reason=${BASH_REMATCH[1]}
		elif [[ $line =~ ^(not\ )?ok\ [0-9]+\ (-\ )?(.*)\ *#\ [Ss][Kk][Ii][Pp]\ ?(.*)$ ]]; then
			# bats: "ok 1 name # skip reason"; cmocka: "not ok 1 # SKIP name".
			seen=$((seen + 1))
			if [[ ${BASH_REMATCH[3]} ]]; then
				result SKIP "$2: ${BASH_REMATCH[3]% }" "${BASH_REMATCH[4]:-no reason given}"
			else
				result SKIP "$2: ${BASH_REMATCH[4]}" "${reason:-no reason given}"
			fi
			reason=
		elif [[ $line =~ ^not\ ok\ [0-9]+\ (-\ )?(.*)$ ]]; then
			seen=$((seen + 1)) bad=$((bad + 1))
			result FAIL "$2: ${BASH_REMATCH[2]}"
		elif [[ $line =~ ^ok\ [0-9]+\ (-\ )?(.*)$ ]]; then
			seen=$((seen + 1))
			result PASS "$2: ${BASH_REMATCH[2]}"
		fi
	done <"$1"
}

run_binary() {
	local binary=$1 name=${1#"$build"/} log=$work/log rc
	timeout -k 10 "$limit" env CMOCKA_MESSAGE_OUTPUT=TAP "$binary" >"$log" 2>&1 </dev/null
	rc=$?
	read_tap "$log" "$name"
	if ((rc == 124 || rc == 137)); then
		result FAIL "$name" "no end within $limit s"
	elif ((seen == 0 && rc == 0)); then
		result PASS "$name"
	elif ((seen == 0 && rc == 77)); then
		result SKIP "$name" "$(tail -n 1 "$log")"
	elif ((rc != 0 && bad == 0)); then
		result FAIL "$name" "exit status $rc"
	elif ((rc == 0)); then
		return
	fi
	((rc == 0 || (rc == 77 && seen == 0))) && return
	show "$log"
	echo "      again: $binary"
}

run_bats() {
	local file=$1 name=${1%.bats} log=$work/log rc
	timeout -k 10 1200 env BATS_TEST_TIMEOUT="$bats_limit" DUALRAIL="$root_build/dualrail" \
		DR_BUILD="$root_build" DR_ROOT="$root" bats --tap "$file" >"$log" 2>&1 </dev/null
	rc=$?
	read_tap "$log" "$name"
	((rc == 0)) && return
	((bad)) || result FAIL "$name" "bats: exit status $rc"
	show "$log" 120
	echo "      again: DUALRAIL=$build/dualrail DR_BUILD=$build DR_ROOT=. bats $file"
}

main() {
	local only_unit='' source file args=("$@")
	[[ ${1-} == --unit ]] && only_unit=1 && shift
	(($#)) || {
		sed -n '3,8s/^# \{0,1\}//p' "$self" >&2
		exit 1
	}
	build=$1
	shift
	limit=${DR_TEST_TIMEOUT:-120} bats_limit=180
	if grep -qs -e -fsanitize= "$build/.flags"; then
		limit=$((limit * 3)) bats_limit=$((bats_limit * 2))
		# The first report ends the program, so that it cannot be overlooked.
		export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1}
		export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
		# With much address space randomisation ThreadSanitizer refuses to start.
		if grep -q -e -fsanitize=thread "$build/.flags" && [[ ! ${DR_SETARCH-} ]] &&
			setarch -R true 2>/dev/null; then
			exec env DR_SETARCH=1 setarch -R "$self" "${args[@]}"
		fi
		export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
	fi
	[[ $build == /* ]] && root_build=$build || root_build=$root/$build
	if (($# == 0)); then
		while IFS= read -r file; do
			source=${file#"$build"/}.c
			[[ -e $source ]] && set -- "$@" "$file"
		done < <(find "$build" -name '*_test' -type f -perm -u+x | sort)
	fi
	for file in "$@"; do
		run_binary "$file"
	done
	if [[ ! $only_unit ]]; then
		for file in tests/e2e/*.bats; do
			[[ -e $file ]] && run_bats "$file"
		done
	fi
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}

main "$@"
