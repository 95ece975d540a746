#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All benchmarks, one after the other, and one table of them all. `make bench`
#
#   scripts/bench/run.sh [BUILD [NAME...]]
#
# BUILD: the build tree (build/release). NAMEs: bw1 defaults lat cpu instructions multiprocess failover mptcp
# false secure hosted (all of them, hours with the defaults; BENCH_PAIRS, TRIALS and SECS make them shorter). Each is a
# script beside this one. Results: BENCH_OUT (build/bench)/NAME.json and summary.md.
#
# Exit status: 0 all ran, whatever the figures; 1 one did not run or found wrong data.
set -uo pipefail

dir=$(cd "$(dirname "$0")" && pwd)
: "${BENCH_OUT:=$(cd "$dir/../.." && pwd)/build/bench}"
export BENCH_OUT

main() {
	local build=${1:-$dir/../../build/release} name rc failed=0 done=()
	shift
	local names=("$@")
	((${#names[@]})) || names=(bw1 defaults lat cpu instructions multiprocess failover mptcp false secure hosted)
	mkdir -p "$BENCH_OUT"
	for name in "${names[@]}"; do
		[[ -x $dir/$name.sh && $name != run && $name != lib ]] || {
			echo "no benchmark $name" >&2
			return 1
		}
	done
	for name in "${names[@]}"; do
		rm -f "$BENCH_OUT/$name.json"
		"$dir/$name.sh" "$build"
		rc=$?
		((rc >= 128)) && return "$rc"
		((rc == 0 || rc == 77)) || {
			echo "FAIL $name (exit status $rc)"
			failed=1
		}
		[[ -s $BENCH_OUT/$name.json ]] && done+=("$BENCH_OUT/$name.json")
	done
	((${#done[@]})) && {
		python3 "$dir/stats.py" table "${done[@]}" >"$BENCH_OUT/summary.md"
		echo "== all ($BENCH_OUT/summary.md)"
		cat "$BENCH_OUT/summary.md"
	}
	return "$failed"
}

main "$@"
