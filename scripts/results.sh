# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Results of a test script: one line each, and a sum as the last line; sourced.
passed=0 failed=0 skipped=0

# result PASS|FAIL|SKIP NAME [REASON]
result() {
	case $1 in
	PASS) passed=$((passed + 1)) ;;
	FAIL) failed=$((failed + 1)) ;;
	SKIP) skipped=$((skipped + 1)) ;;
	esac
	printf '%s  %s%s\n' "$1" "$2" "${3:+  ($3)}"
}

# The sum. Status 1 when something failed.
sum_up() {
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}

# show FILE [LINES]: the end of a log (60), indented.
show() {
	sed 's/^/      | /' "$1" | tail -n "${2:-60}"
}
