#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes real results, writes their pages, and looks at them in headless Chromium. `make check-report`
#
#   tests/report/check.sh DUALRAIL
#
# Environment: AXE, the npm package of axe-core; SHOTS, a directory for screenshots. The last line is
# `N passed, N failed, N skipped`. Exit status 77: no Chromium.
set -euo pipefail
dualrail=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# page NAME OPTION...: of a run of the demo.
page() {
	"$dualrail" demo -q --hold-down 100ms --json="$1.json" "${@:2}" >"$work/log" 2>&1 || {
		tail -n 20 "$work/log"
		exit 1
	}
	"$dualrail" report "$1.json" -o "$1.html"
}

command -v chromium >/dev/null || {
	echo "SKIP: no Chromium (Debian: chromium)"
	exit 77
}
page bandwidth -g 0-3 --test bw,lat -i 100ms -D 1s
page failover -g 0-1 --test failover -i 50ms --fault link-down:path=0,for=200ms,repeat=2 --fault blackhole:path=0,for=200ms,repeat=2
page matrix -g 0-3 --links 3 --test bw --matrix -D 200ms -s 1M -i 50ms
# Of twelve namespaces: one NIC at a tenth, one without carrier, one node killed.
"$dualrail" report "$here/../fixtures/sweep/twelve_nodes.json" -o sweep.html
"$dualrail" report bandwidth.json matrix.json -o several.html
# Verdicts that the page does not know: of a run, of a trial, none at all, and those of a schema to come. A kind without gaps.
jq '.status = "PASS" | .failover.faults[0].verdict = "LATER" | .failover.faults[1].verdict = "HANG" |
	.failover.summary[0].gap_us = {n: 0, p50: null, p90: null, p99: null, max: null}' failover.json >later.json
jq 'del(.status, .exit_code)' bandwidth.json >begun.json
"$dualrail" report later.json begun.json -o unknown.html
sed 's#"schema":"dualrail/1"#"schema":"dualrail/9"#' bandwidth.html >newer.html
jq -f "$here/hostile.jq" bandwidth.json >hostile.json
"$dualrail" report hostile.json -o hostile.html
"$dualrail" report "$here"/../fixtures/report/odd_{run,sweep}.json -o odd.html
args=(--odd odd.html --odd hostile.html)
# Its digest is checked by npm; without a registry the other checks run.
if npm pack --silent "$AXE" >/dev/null 2>&1 && tar -xzf axe-core-*.tgz package/axe.min.js; then
	args+=(--axe package/axe.min.js)
else
	echo "SKIP  report: axe-core  ($AXE cannot be fetched by npm)"
fi
[[ ! ${SHOTS-} ]] || {
	mkdir -p "$SHOTS"
	args+=(--shots "$SHOTS")
}
"$here/browser.py" "${args[@]}" bandwidth.html failover.html matrix.html sweep.html several.html unknown.html newer.html
