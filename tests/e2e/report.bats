#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `dualrail report`: what the page has, and that a hostile document does nothing in it. Without a browser; see
# `make check-report`.

# bats file_tags=one-thread
load usual

page() {
	"$BATS_TEST_DIRNAME/../report/page.py" "$@"
}

@test "report: the page of a run with all tests has its figures in tables, and the document" {
	start_server --allow-faults
	client -D 200ms -i 50ms --test bw,lat,failover --allow-faults --fault close:path=0,at=50ms,for=50ms,repeat=2 \
		--hold-down 50ms --json=a.json
	[ "$status" -eq 0 ]
	"$DUALRAIL" report a.json -o page.html
	page page.html a.json
	[ "$(stat -c %s page.html)" -lt 1048576 ]
	gives 0 client -D 50ms --matrix --json=m.json
	"$DUALRAIL" report a.json m.json -o two.html
	page two.html a.json m.json
}

@test "report: pages of runs that failed, and of documents with next to nothing in them" {
	run "$DUALRAIL" client 127.0.0.1 --port 1 -g 0 --connect-timeout 50ms --json=e.json
	[ "$status" -eq 3 ]
	"$DUALRAIL" report e.json -o e.html
	page e.html e.json
	grep -q '<strong>ERROR</strong>' e.html
	mkdir made
	echo '{"schema": "dualrail/1"}' >made/least.json
	"$DUALRAIL" report made/least.json -o least.html
	grep -q '<strong>NOT OVER</strong>' least.html
	echo '{"schema": "dualrail/1", "status": 5, "bandwidth": {"a": 1}, "latency": [1, null, "x", []], "failover": [], "total": 3,
		"matrix": {"cells": "x"}, "options": [], "argv": [1, {}], "errors": [{}, 3]}' >made/odd.json
	"$DUALRAIL" report made/odd.json -o odd.html
}

@test "report: markup in a document is text" {
	local evil='</script><script>alert(1)</script><img src=x onerror=alert(1)>"\u0027 onload=\"x\" <!--'
	start_server
	gives 0 client -D 50ms --test bw,lat --json=a.json
	jq --arg e "$evil" '.nics[0].name = ($e | .[0:60]) | .run_id = $e | .host.name = $e | .argv = [$e] | .command = $e
		| .options = {($e): $e, test: $e} | .errors = [{exit_code: 7, errno: null, reason: null, time: null, text: $e}]
		| .latency[0].nic = "\u202e\u001b[31m<b>"' a.json >evil.txt
	"$DUALRAIL" report evil.txt -o evil.html
	page evil.html evil.txt
	# Neither as markup nor in the embedded document, which ends at the first "</script".
	[ "$(grep -c '<img\|<b>' evil.html)" -eq 0 ]
	[ "$(grep -o '</script' evil.html | wc -l)" -eq 3 ]
	rm evil.txt
}

@test "report: the page of a sweep has findings, what is missing, and the lowest figures" {
	local sweep=$BATS_TEST_DIRNAME/../fixtures/sweep/twelve_nodes.json
	"$DUALRAIL" report "$sweep" -o s.html
	page s.html "$sweep"
	grep -q '<title>dualrail: FAIL: sweep of 12 nodes</title>' s.html
	mkdir made
	echo '{"schema": "dualrail-sweep/1"}' >made/least.json
	"$DUALRAIL" report made/least.json -o least.html
	grep -q '<strong>NOT OVER</strong>' least.html
	[ "$(sed '/<script/,$d' least.html | grep -cw 'nan')" -eq 0 ]
	echo '{"schema": "dualrail-sweep/1", "status": 5, "nodes": [{"rank": "x"}, 3, {"rank": 9, "nics": [1, {"name": "<b>"}]}], "measured": 1,
		"pairs": [{"client": -1, "server": 9, "lanes": [1, {"percent": "x"}]}, {"state": "ok", "client": 1e9, "lanes": {}}, 7],
		"findings": {"a": 1}, "options": [], "verdict": "<script>"}' >made/odd.json
	"$DUALRAIL" report made/odd.json "$sweep" -o odd.html
	[ "$(grep -c '<b>\|<script>[^(/]' odd.html)" -eq "$(grep -c '<b>\|<script>[^(/]' s.html)" ]
}

@test "report: wrong arguments and files" {
	local words
	echo '{"schema": "dualrail/2"}' >two.txt
	for words in "" "a.json" "-o p.html" "a.json -o"; do
		# shellcheck disable=SC2086 # words
		run -1 "$DUALRAIL" report $words
		one_line
	done
	for words in "no.json -o p.html" "two.txt -o p.html" "two.txt -o no/such/p.html"; do
		# shellcheck disable=SC2086 # words
		run -2 "$DUALRAIL" report $words
		one_line
		[ ! -e p.html ]
	done
	run "$DUALRAIL" report two.txt -o p.html
	[[ $output == *'its schema is "dualrail/2", not "dualrail/1" or "dualrail-sweep/1"; only documents of client, demo and sweep are read: --json=FILE' ]]
	rm two.txt
}
