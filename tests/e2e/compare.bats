#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `dualrail compare`: what it finds, and what it refuses. On made-up documents, and on runs
# over loopback.

# bats file_tags=one-thread
load usual

# bats test_tags=release,nightly
@test "compare: 20 pairs without a difference give at most one false alarm, 5 % less bandwidth is found in at least 19 of 20" {
	"$BATS_TEST_DIRNAME/../compare/pairs.py" --dualrail "$DUALRAIL" --out pairs --seed 1 synthetic
}

# runs PREFIX FACTOR: ten documents whose bandwidth and latency are those of a.json times the factor and some noise.
runs() {
	local i
	for i in {0..9}; do
		jq --arg id "$1$i" --argjson f "$2" --argjson n "1.00$((i * 7 % 10))" '.run_id = $id
			| .bandwidth[].gbps *= ($f * $n) | .latency[].rtt_us[] *= (2 - $f) * $n' a.json >"$1$i.json"
	done
}

made_up() {
	start_server
	gives 0 client -n 20 --test bw,lat --json=a.json
}

@test "compare: worse, better and no change have their exit status, and the table fits 100 columns" {
	made_up
	runs old 1
	runs same 1
	runs slow 0.95
	run -0 "$DUALRAIL" compare --json=c.json old*.json -- same*.json
	holds c.json '.status == "pass" and ([.figures[].result] | unique) == ["no-change"]'
	run -7 "$DUALRAIL" compare -v --json=c.json old*.json -- slow*.json
	[[ $output == *"WORSE"*"FAIL (exit status 7)" ]]
	[ "$(wc -L <<<"$output")" -le 100 ]
	holds c.json '.status == "fail" and .old.runs == 10 and .new.runs == 10
		and ([.figures[] | select(.group == "gpu" or .group == "latency") | .result] | unique) == ["worse"]
		and all(.figures[] | select(.group == "gpu"); .ratio > 0.945 and .ratio < 0.955 and .ratio_low < .ratio_high)'
	run -0 "$DUALRAIL" compare --json=c.json slow*.json -- old*.json
	holds c.json '[.figures[] | select(.group == "gpu") | .result] | unique == ["better"]'
	run -0 "$DUALRAIL" compare --tolerance 6 old*.json -- slow*.json
}

@test "compare: too few runs, one run alone, and runs that count once" {
	made_up
	runs old 1
	runs slow 0.9
	tells 2 "runs of each side are needed" "$DUALRAIL" compare old0.json -- slow0.json
	run -2 "$DUALRAIL" compare --json=c.json old*.json -- slow0.json slow0.json
	holds c.json '.new.runs == 1 and .notes[0].file == "slow0.json" and ([.figures[].result] | unique) == ["too-few-runs"]'
	jq '.status = "error" | .exit_code = 4 | .errors = [{"time": .start_time, "exit_code": 4, "errno": null, "reason": null, "text": "both rails lost"}]' slow1.json >broken.json
	run -7 "$DUALRAIL" compare --json=c.json old*.json -- broken.json slow*.json
	holds c.json '.new.runs == 10 and (.notes | length) == 1
		and (.notes[0].text | endswith("did not complete: both rails lost"))'
	run "$DUALRAIL" compare old0.json -- slow0.json --json=c.json
	[ "$status" -ne 0 ]
	[[ $output == *"--json=c.json behind -- is taken for a file; options go before the --"* ]]
}

@test "compare: the trials of one run on each side are enough for gaps" {
	local kind
	made_up
	mkdir made
	for kind in old new; do
		jq --arg k "$kind" '.run_id = $k | .failover.faults = [range(20) | {trial: ., kind: "close", side: "server", dir: null,
			verdict: "PASS", in_flight_chunks: 5, gap_us: ((if $k == "old" then 900 else 1300 end) + . * 7 % 20)}]' a.json >"made/$kind.json"
	done
	run -7 "$DUALRAIL" compare --json=c.json made/old.json -- made/new.json
	holds c.json '[.figures[] | select(.result == "worse") | [.group, .kind, .old.runs]] == [["gap", "close", 20]]'
}

@test "compare: other options or environments are refused with a list, unless they are allowed" {
	made_up
	runs old 1
	runs new 1
	jq '.run_id = "x" | .options.channels = 3 | .options.size = 2097152 | .host.kernel = "0.1"' a.json >new9.json
	run -2 "$DUALRAIL" compare --json=c.json old*.json -- new*.json
	[[ $output == *"--channels 2  ->  --channels 3   (new9.json)"* ]]
	holds c.json '.status == "error" and (.differences | length) == 3 and .figures == []'
	run -0 "$DUALRAIL" compare --allow-differences --json=c.json old*.json -- new*.json
	holds c.json '(.differences | length) == 3 and (.figures | length) > 0'
}

@test "compare: wrong arguments, missing files and hostile documents" {
	local words
	made_up
	for words in "" "a.json" "a.json --" "-- a.json"; do
		# shellcheck disable=SC2086 # words
		run -1 "$DUALRAIL" compare $words
		one_line
	done
	mkdir made
	echo '{"schema": "dualrail/2"}' >made/two.json
	echo '{"schema": "dualrail/1", "status": "pass", "bandwidth": [{"gpu": "x"}]}' >made/type.json
	echo '[1,' >made/half.json
	for words in no.json made/two.json made/type.json made/half.json .; do
		run -2 "$DUALRAIL" compare a.json -- "$words"
		one_line
	done
	# A name that is not UTF-8.
	jq '.run_id = "b"' a.json >made/b.json
	cp a.json made/$'\xff.json'
	run -2 "$DUALRAIL" compare made/$'\xff.json' -- made/b.json
	[[ $output == *"new: 1 run"* ]]
	jq '.run_id = "e" | .versions.local = "\u001b[31m" | .topology.rails[0].ifname = "\u001b]0;x\u0007" | .options.channels = "\u001b[2J"' a.json >escape.json
	run -2 "$DUALRAIL" compare --allow-differences a.json -- escape.json
	[ -z "$(tr -d '\n' <<<"$output" | tr -cd '\000-\037')" ]
}
