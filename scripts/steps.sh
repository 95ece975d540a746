# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Steps of a long check (.ci/run, scripts/nightly.sh): each is one command with a time limit; sourced.
#
# steps_dir is a folder for results. A step leaves NAME.log and NAME.result there, the latter a line of
# "PASSED FAILED SKIPPED SECONDS STATUS". Its output is printed when it ends, in one piece, so steps may run
# at the same time. A command that closes with `N passed, N failed, N skipped` gives these counts; any other
# counts as one. Skipped: status 77, or success with a last line that begins with SKIP; it says why.

# shellcheck disable=SC2154 # steps_dir is set by the user

# step NAME MINUTES COMMAND...: runs it. False when something failed in it.
step() {
	local name=$1 limit=$(($2 * 60)) log=$steps_dir/$1.log rc=0 start=$SECONDS p=0 f=0 s=0 last
	shift 2
	timeout -k 30 "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
	((rc != 124 && rc != 137)) || echo "did not finish within $limit s" >>"$log"
	last=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
	if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+) ]]; then
		p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
		((rc == 0 && p + f + s > 0 || f > 0)) || f=1 # no test ran: a failure, too
	elif ((rc == 77)) || { ((rc == 0)) && [[ $(tail -n 1 "$log") == SKIP* ]]; }; then
		s=1
	else
		p=$((rc == 0)) f=$((rc != 0))
	fi
	echo "$p $f $s $((SECONDS - start)) $rc" >"$steps_dir/$name.result"
	flock "$steps_dir" sh -c "echo '=== $name'; cat '$log'; echo '=== $name: status $rc after $((SECONDS - start)) s'"
	((f == 0))
}

# Prints the lines of LOG that name a failed test, or the last lines when none does; then what the failed tests printed.
failures() {
	grep -E '^(FAIL|not ok|BROKEN|SURVIVED|\[  FAILED  \] [^ ]+$)|assertion failed: ' "$1" | grep -v '^killed' | head -n 20 |
		grep . || tail -n 20 "$1"
	grep -E '^ +\| |^# ' "$1" | grep -vE '^ +\| (ok |1\.\.)' | cut -c 1-1000 | tail -n 60
}

# table NAME...: a line for each of these steps, what failed in them, and the sum. Status 1 when a step failed or has no
# result. shows NAME, if there is such a function, prints what a step shows.
table() {
	local name p f s seconds rc P=0 F=0 S=0 logs=("${@/#/$steps_dir/}")
	printf '\n%8s %8s %8s %8s  %s\n' seconds passed failed skipped step
	for name in "$@"; do
		p=0 f=1 s=0 seconds=- rc=-
		[[ ! -e $steps_dir/$name.result ]] || read -r p f s seconds rc <"$steps_dir/$name.result"
		printf '%8s %8s %8s %8s  %-12s %s\n' "$seconds" "$p" "$f" "$s" "$name" \
			"$(! declare -F shows >/dev/null || shows "$name")"
		P=$((P + p)) F=$((F + f)) S=$((S + s))
	done
	for name in "$@"; do
		if [[ ! -e $steps_dir/$name.result ]]; then
			printf '\n--- %s: no result\n' "$name"
		elif read -r p f s seconds rc <"$steps_dir/$name.result" && ((f > 0)); then
			printf '\n--- %s: status %s\n' "$name" "$rc"
			failures "$steps_dir/$name.log"
		fi
	done
	printf '\n%d of the skipped were not judged: the machine stood\n' "$(cat "${logs[@]/%/.log}" 2>/dev/null | grep -c '^SKIP .*(not judged: ')"
	printf '%d passed, %d failed, %d skipped\n' "$P" "$F" "$S"
	((F == 0))
}
