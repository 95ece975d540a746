#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run the tests of a build tree, one line per test, and sum up.
#
#   scripts/check.sh [--unit] BUILD [TEST...]      (make check, make unit)
#
# TEST is a binary BUILD/PATH_test or a bats file; without any, all binaries whose source PATH_test.c exists. Then
# the bats files in tests/e2e, unless --unit. The last line is `N passed, N failed, N skipped`; the exit status
# is 1 when something failed. A failed test's output and the line that runs it again are printed.
#
# Several files run at a time, since most of them wait for timers; the results of a file are printed when it
# ends. A file with the line "check.sh: alone" in its source runs after the others, by itself.
#
# A binary's output is read as TAP if it has that form (cmocka's has); otherwise the exit status decides:
# 0 passed, 77 skipped (the last line is the reason), anything else failed. Before cmocka's skip(), a test
# prints "SKIP: reason".
#
# Bats tests with the tag "nightly" are left out: they are slow and guard what an ordinary change hardly breaks, or they
# need a quiet machine. With AddressSanitizer or ThreadSanitizer, so are bats files without a line "check.sh: address" or
# "check.sh: thread". ALL=1 runs these, too, but never tests with the tag "release" with a sanitizer (they test time
# alone) and with the tag "one-thread" with ThreadSanitizer (they cannot show a race).
#
# Environment: ALL; FILTER, a regular expression of the names of bats tests;
# JOBS, files at a time (processors + 4, since most wait; with a sanitizer + 2, ThreadSanitizer + 1; at most 8);
# DR_TEST_TIMEOUT, seconds until a binary counts as hanging (600); DR_TEST_TIMES, a file that
# gets the seconds that each file took; DR_E2E_WAIT, the longest wait of a bats test for one condition, in
# seconds (60; 120 with sanitizers).
# Bats tests get DUALRAIL (the program), DR_BUILD (the build tree) and DR_ROOT (this repository).
#
# A process that a file leaves behind is a failure: it has DR_TEST_FILE of that file in its environment.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
self=$root/scripts/check.sh
cd "$root" || exit 1

# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

run_binary() {
	local binary=$1 name=${1#"$build"/} log=$work/log.$lane rc
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
	grep -A 3 '^not ok [0-9]' "$log" | head -n 40 | sed 's/^/      > /'
	show "$log"
	echo "      again: $binary"
}

run_bats() {
	local file=$1 name=${1%.bats} log=$work/log.$lane rc
	timeout -k 10 3600 env BATS_TEST_TIMEOUT="$limit" DUALRAIL="$root_build/dualrail" \
		DR_BUILD="$root_build" DR_ROOT="$root" \
		bats --tap "${bats_args[@]}" "$file" >"$log" 2>&1 </dev/null
	rc=$?
	read_tap "$log" "$name"
	((rc == 0)) && return
	((bad)) || result FAIL "$name" "bats: exit status $rc"
	show "$log" 120
	echo "      again: DUALRAIL=$build/dualrail DR_BUILD=$build DR_ROOT=. bats $file"
}

left_processes() {
	grep -lszxF "DR_TEST_FILE=$1" /proc/[0-9]*/environ | cut -d / -f 3
}

# Names the processes that file $1 has left behind, and ends them. One that is about to end has 5 s.
no_process_left() {
	local end=$((SECONDS + 5)) one
	while [[ $(left_processes "$work/$1") ]] && ((SECONDS < end)); do
		read -rt 0.1 <> <(:) || :
	done
	for one in $(left_processes "$work/$1"); do
		result FAIL "$1" "left behind: $one $(tr '\0' ' ' <"/proc/$one/cmdline" | cut -c 1-200)"
		kill -KILL "$one"
	done 2>/dev/null
}

# Runs one file; its results go to the standard output, its counts to $work/counts.
run_file() {
	local start=$EPOCHREALTIME
	passed=0 failed=0 skipped=0 unjudged=0
	if [[ $1 == *.bats ]]; then DR_TEST_FILE=$work/$1 run_bats "$1"; else DR_TEST_FILE=$work/$1 run_binary "$1"; fi
	no_process_left "$1"
	echo "$passed $failed $skipped $unjudged" >>"$work/counts"
	[[ ! ${DR_TEST_TIMES-} ]] ||
		echo "$(((${EPOCHREALTIME/./} - ${start/./}) / 1000000)) $1" >>"$DR_TEST_TIMES"
}

# worker LANE FILE...: runs the files that no other worker has taken.
worker() {
	local lane=$1 file
	shift
	for file in "$@"; do
		mkdir "$work/taken.${file//\//:}" 2>/dev/null || continue
		run_file "$file" >"$work/out.$lane"
		flock "$work" cat "$work/out.$lane"
	done
}

source_of() {
	if [[ $1 == *.bats ]]; then echo "$1"; else echo "${1#"$build"/}.c"; fi
}

runs_alone() {
	grep -qs 'check.sh: alone' "$(source_of "$1")"
}

# Files in the order in which they start: the longest first, so that no worker is left with one at the end.
# End-to-end tests take longest, the larger the longer; then the tests of tests/.
in_order() {
	local file
	for file in "$@"; do
		case $file in
		*.bats) echo "2 $(stat -c %s "$file") $file" ;;
		*/tests/*) echo "1 $(stat -c %s "$(source_of "$file")") $file" ;;
		*) echo "0 $(stat -c %s "$(source_of "$file")") $file" ;;
		esac
	done | sort -k1,1nr -k2,2nr | cut -d ' ' -f 3-
}

# run_all FILE...
run_all() {
	local file together=() alone=() lane=0 ended=0 i one
	: >"$work/counts"
	while IFS= read -r file; do
		if runs_alone "$file"; then alone+=("$file"); else together+=("$file"); fi
	done < <(in_order "$@")
	for ((i = 0; i < jobs; i++)); do worker "$i" "${together[@]}" & done
	wait
	for file in "${alone[@]}"; do
		run_file "$file"
	done
	passed=0 failed=0 skipped=0 unjudged=0
	while read -r -a one; do
		((passed += one[0], failed += one[1], skipped += one[2], unjudged += one[3], ended++))
	done <"$work/counts"
	((ended == $#)) || result FAIL "scripts/check.sh" "$ended of $# files came to an end"
}

main() {
	local only_unit='' source file spare files=() args=("$@")
	[[ ${1-} == --unit ]] && only_unit=1 && shift
	(($#)) || {
		sed -n '3,7s/^# \{0,1\}//p' "$self" >&2
		exit 1
	}
	build=$1
	shift
	limit=${DR_TEST_TIMEOUT:-600} bats_args=() mark=. tags='!nightly,'
	[[ ! ${ALL-} ]] || tags=
	jobs=$(nproc 2>/dev/null || echo 1) spare=4
	if grep -qs -e -fsanitize= "$build/.flags"; then
		export DR_E2E_WAIT=${DR_E2E_WAIT:-120}
		spare=2
		# The first report ends the program, so that it cannot be overlooked.
		export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1}
		# LeakSanitizer crashes over the thread-local storage of libraries that plugins of hwloc load (OpenCL, GPUs).
		export HWLOC_PLUGINS_PATH=$work
		export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
		# With much address space randomisation ThreadSanitizer refuses to start.
		if grep -q -e -fsanitize=thread "$build/.flags" && [[ ! ${DR_SETARCH-} ]] &&
			setarch -R true 2>/dev/null; then
			exec env DR_SETARCH=1 setarch -R "$self" "${args[@]}"
		fi
		export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
		tags+='!release,' mark='check.sh:.* address'
		if grep -q -e -fsanitize=thread "$build/.flags"; then
			tags+='!one-thread,' mark='check.sh:.* thread' spare=1
		fi
		[[ ! ${ALL-} ]] || mark=.
	fi
	[[ ! $tags ]] || bats_args=(--filter-tags "${tags%,}")
	[[ ! ${FILTER-} ]] || bats_args+=(--filter "$FILTER")
	jobs=${JOBS:-$((jobs + spare))}
	((jobs <= 8)) || jobs=8
	[[ $build == /* ]] && root_build=$build || root_build=$root/$build
	if (($# == 0)); then
		while IFS= read -r file; do
			source=${file#"$build"/}.c
			[[ -e $source ]] && set -- "$@" "$file"
		done < <(find "$build" -name '*_test' -xtype f -perm -u+x | sort)
	fi
	files=("$@")
	if [[ ! $only_unit ]]; then
		mapfile -t -O "${#files[@]}" files < <(grep -l "$mark" tests/e2e/*.bats)
	fi
	run_all "${files[@]}"
	sum_up
}

main "$@"
