#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run libFuzzer targets, one for each processor at a time. `make fuzz` builds them and calls this.
#
#   tests/fuzz/run.sh BUILD SECONDS [TARGET...]
#   tests/fuzz/run.sh --merge BUILD TARGET      new inputs that reach more go to tests/fuzz/corpus
#
# Each starts from tests/fuzz/corpus/TARGET and what earlier runs left in BUILD/corpus/TARGET. Ends
# with 1 when something was found; the input is named, and the line that replays it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}

# Options of libFuzzer: no more bytes than make sense, a bound for one input.
max_len() {
	case $1 in
	baseline | part | options | plan | statefile) echo 8192 ;;
	conv | netlink | tcppath) echo 4096 ;;
	*) echo 1024 ;;
	esac
}

fuzz_one() {
	local build=$1 seconds=$2 name=$3 own seed log dict=()
	own=$build/corpus/$name seed=tests/fuzz/corpus/$name log=$build/fuzz-$name.log
	mkdir -p "$own" "$build/found"
	[[ -d $seed ]] || seed=
	[[ -e tests/fuzz/dict/$name ]] && dict=("-dict=tests/fuzz/dict/$name")
	if nice -n 10 "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=20 \
		-rss_limit_mb=2048 -max_len="$(max_len "$name")" -print_final_stats=1 \
		-artifact_prefix="$build/found/$name-" "${dict[@]}" "$own" ${seed:+"$seed"} >"$log" 2>&1; then
		printf 'PASS  fuzz %s  (%s inputs, %s)\n' "$name" \
			"$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
			"$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)"
		return 0
	fi
	printf 'FAIL  fuzz %s\n' "$name"
	grep -E 'ERROR|runtime error|assertion failed|SUMMARY|Test unit written' "$log" |
		sort -u | head -n 8 | sed 's/^/      | /'
	echo "      log: $log"
	echo "      again: $build/tests/fuzz/${name}_fuzz $(sed -n 's/.*Test unit written to //p' "$log" | head -n 1)"
	return 1
}

merge() {
	local build=$1 name=$2 new
	new=$(mktemp -d)
	"$build/tests/fuzz/${name}_fuzz" -merge=1 -max_len="$(max_len "$name")" "$new" \
		"tests/fuzz/corpus/$name" "$build/corpus/$name" 2>&1 | tail -n 1
	mkdir -p "tests/fuzz/corpus/$name"
	cp "$new"/* "tests/fuzz/corpus/$name/"
	rm -rf "$new"
}

main() {
	if [[ ${1-} == --merge ]]; then
		merge "$2" "$3"
		return
	fi
	local build=$1 seconds=$2 names=() source failed=0
	shift 2
	names=("$@")
	if ((${#names[@]} == 0)); then
		for source in tests/fuzz/*_fuzz.c; do
			source=${source##*/}
			names+=("${source%_fuzz.c}")
		done
	fi
	for source in "${names[@]}"; do
		while (($(jobs -pr | wc -l) >= ${FUZZ_JOBS:-$(nproc)})); do
			wait -n || failed=$((failed + 1))
		done
		fuzz_one "$build" "$seconds" "$source" &
	done
	while (($(jobs -p | wc -l) > 0)); do
		wait -n || failed=$((failed + 1))
	done
	echo "$((${#names[@]} - failed)) passed, $failed failed, 0 skipped"
	((failed == 0))
}

main "$@"
