#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `dualrail report`: the frame of the page, the embedded documents, the verdict without script, and that a hostile document does
# nothing in it. Without a browser; what the page's script draws is checked by `make check-report`.

# bats file_tags=one-thread
load usual
fixtures=$BATS_TEST_DIRNAME/../fixtures/report

page() {
	"$BATS_TEST_DIRNAME/../report/page.py" "$@"
}

@test "report: the page of a run with all tests has the document, and the verdict without script" {
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
	grep -q '<td>ERROR</td>' e.html
	mkdir made
	echo '{"schema": "dualrail/1"}' >made/least.json
	"$DUALRAIL" report made/least.json -o least.html
	page least.html made/least.json
	echo '{"schema": "dualrail/1", "status": "later"}' >made/later.json
	"$DUALRAIL" report made/later.json -o later.html
	page later.html made/later.json
	grep -q '<title>dualrail: UNKNOWN: ' later.html
	"$DUALRAIL" report "$fixtures/odd_run.json" -o odd.html
	[ "$(sed '/<script/,$d' odd.html | grep -c '<tr>')" -eq 2 ] # status, and the one error that is text
	grep -q '<td>an error</td>' odd.html
}

@test "report: markup in a document is text" {
	start_server
	gives 0 client -D 50ms --test bw,lat --json=a.json
	jq -f "$BATS_TEST_DIRNAME/../report/hostile.jq" a.json >evil.txt
	"$DUALRAIL" report evil.txt -o evil.html
	page evil.html evil.txt
	# Neither as markup nor in the embedded document, which ends at the first "</script"; nor does a text end <noscript>.
	[ "$(grep -c '<img\|<b>' evil.html)" -eq 0 ]
	[ "$(grep -o '</script' evil.html | wc -l)" -eq 3 ]
	[ "$(grep -o '</noscript' evil.html | wc -l)" -eq 1 ]
	rm evil.txt
}

@test "report: the page of a sweep has the document, and its verdict and findings without script" {
	local sweep=$BATS_TEST_DIRNAME/../fixtures/sweep/twelve_nodes.json
	"$DUALRAIL" report "$sweep" -o s.html
	page s.html "$sweep"
	grep -q '<title>dualrail: FAIL: sweep of 12 nodes</title>' s.html
	mkdir made
	echo '{"schema": "dualrail-sweep/1"}' >made/least.json
	"$DUALRAIL" report made/least.json -o least.html
	page least.html made/least.json
	[ "$(sed '/<script/,$d' least.html | grep -cw 'nan')" -eq 0 ]
	"$DUALRAIL" report "$fixtures/odd_sweep.json" "$sweep" -o odd.html
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
