#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the two-node RDMA lab: boots it and has scripts/check.sh run tests/lab/*.bats, one at a time.
#
#   scripts/lab/check.sh BUILD [FILE.bats...]     (make check-lab)
#
# A lab that runs in LAB_DIR already is used and not stopped. Environment: that of scripts/check.sh; LAB_BUSY, not
# empty: tests that boot a guest again are skipped. On a machine that cannot run the lab every test is skipped, with
# the reason.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lab=$root/scripts/lab/lab.sh
(($#)) || {
	sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 1
}
build=$(cd "$1" 2>/dev/null && pwd) || {
	echo "$1: no such build tree; run make" >&2
	exit 1
}
shift
cd "$root" || exit 1
(($#)) || set -- tests/lab/*.bats
export ALL=1 JOBS=1 DR_TEST_TIMEOUT=${DR_TEST_TIMEOUT:-400} LAB_DIR=${LAB_DIR:-$root/build/lab/run}
if ! "$lab" status >/dev/null 2>&1; then
	why=$("$lab" up --owner $$ 2>&1)
	rc=$?
	echo "$why"
	((rc == 0 || rc == 77)) || {
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	}
	export DR_LAB_WHY=${why##*$'\n'}
	trap '"$lab" down' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
fi
scripts/check.sh --unit "$build" "$@"
