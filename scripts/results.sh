# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Results of a test script: one line each, and a sum as the last line; sourced. unjudged: skipped by judge() of tests/lib.bash.
passed=0 failed=0 skipped=0 unjudged=0

# result PASS|FAIL|SKIP NAME [REASON]
result() {
	case $1 in
	PASS) passed=$((passed + 1)) ;;
	FAIL) failed=$((failed + 1)) ;;
	SKIP) skipped=$((skipped + 1)) ;;
	esac
	[[ ${3-} != 'not judged: '* ]] || unjudged=$((unjudged + 1))
	printf '%s  %s%s\n' "$1" "$2" "${3:+  ($3)}"
}

# The sum. Status 1 when something failed.
sum_up() {
	((unjudged == 0)) || echo "$unjudged of the skipped were not judged: the machine stood"
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}

# show FILE [LINES]: the end of a log (60), indented.
show() {
	sed 's/^/      | /' "$1" | tail -n "${2:-60}"
}
