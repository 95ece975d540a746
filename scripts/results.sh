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
