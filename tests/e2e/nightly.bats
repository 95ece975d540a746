#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a job that runs every night relies on: metrics and a log line after every kind of end, criteria, files of options.

# bats file_tags=one-thread
load usual

# metric FILE NAME [LABELS]: the value of the sample, whose labels have LABELS.
metric() {
	awk -v n="$2{" -v l="${3-}" 'index($0, n) == 1 && index($0, l) { print $NF; found = 1 } END { exit !found }' "$1"
}

@test "--prom: files of two runs and two peers have no series in common, and none of the live ones" {
	local file
	start_server
	gives 0 client -D 50ms --prom one.prom --metrics-listen 127.0.0.1:0
	gives 0 client -D 50ms --test lat --prom two.prom
	run "$DUALRAIL" client localhost --port "$port" -g 0 -D 50ms --prom three.prom --prom-label rack=b7
	[ "$status" -eq 0 ]
	sort -u one.prom two.prom three.prom | grep '^dualrail' >all.prom
	[ -z "$(sed 's/ [^ ]*$//' one.prom two.prom three.prom | grep '^dualrail' | sort | uniq -d)" ]
	[ "$(grep -cv 'host="[^"]*",test="[^"]*"' all.prom)" -eq 0 ]
	[ "$(grep '^dualrail' three.prom | grep -cv 'host="localhost",test="bw",rack="b7"')" -eq 0 ]
	[ "$(grep -c 'session_active\|gpu_tx_bytes' all.prom)" -eq 0 ]
	# The peer's own name stands in one metric.
	[ "$(grep -v '^dualrail_info' all.prom | grep -c 'peer=')" -eq 0 ]
	grep -q "^dualrail_info{host=\"127.0.0.1\",test=\"bw\",peer=\"$(uname -n)\"" one.prom
	[ "$(metric one.prom dualrail_last_run_duration_seconds | cut -d. -f1)" -lt "$WAIT_S" ]
	for file in one two three; do
		grep -q '^dualrail_last_run_exit_code{.*reason=""} 0$' "$file.prom"
		"$BATS_TEST_DIRNAME/../promtext.py" "$file.prom"
	done
	for label in host=x 9=x x a=1\ --prom-label\ a=2; do
		# shellcheck disable=SC2086 # two words
		run -1 "$DUALRAIL" client localhost --dry-run --prom-label $label
		one_line
	done
}

@test "--prom is written when the run does not begin, with the status, the reason and the host" {
	for how in "2 path --csv no/such/directory" "2 gpu --memory host -g 77"; do
		read -ra word <<<"$how"
		echo 'dualrail_last_run_success{host="node1",test="bw"} 1' >"${word[1]}.prom"
		run "$DUALRAIL" client node1 "${word[@]:2}" --prom "${word[1]}.prom"
		[ "$status" -eq "${word[0]}" ]
		[ "$(metric "${word[1]}.prom" dualrail_last_run_success 'host="node1"')" = 0 ]
		[ "$(metric "${word[1]}.prom" dualrail_last_run_exit_code 'host="node1"')" = "${word[0]}" ]
	done
	run "$DUALRAIL" client 127.0.0.1 --port 1 -g 0 --connect-timeout 50ms --prom e.prom --json=e.json
	[ "$status" -eq 3 ]
	[ "$(metric e.prom dualrail_last_run_exit_code 'host="127.0.0.1",test="bw",reason="refused"')" = 3 ]
	holds e.json '.errors[0].reason == "refused"'
}

@test "exit status 3: the document has the reason" {
	printf '%032d' 1 >key1
	printf '%032d' 2 >key2
	chmod 600 key1 key2
	start_server --key-file key1
	run -3 "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0 --key-file key2 --json=key.json
	holds key.json '.errors[0].reason == "key"'
	run -3 "$DUALRAIL" client no-such-host.invalid -g 0 --connect-timeout 50ms --json=name.json
	holds name.json '.errors[0].reason == "unreachable"'
	under_way start_client --key-file key1 -D 30s --json=died.json
	kill -KILL "$server"
	ends "$client" 3
	holds died.json '.errors[0].reason == "died"'
}

@test "a criterion of a test that does not run: status 1 before the run" {
	local words
	for words in "--min-bw lat --min-bw 5" "--baseline failover --baseline x" "--save-baseline lat --save-baseline x" \
		"--max-lat bw --max-lat 1ms"; do
		read -ra word <<<"$words"
		run -1 "$DUALRAIL" client 127.0.0.1 --port 1 --test "${word[@]:1}"
		one_line
		[[ $output == *"${word[0]} needs --test "*"(it is \"${word[1]}\")" ]]
	done
}

@test "--max-lat: status 7 names GPU and figure; a longer limit passes" {
	start_server
	gives 7 client --test lat -n 50 --max-lat p50=1ns,max=1m --json=slow.json
	holds slow.json '.errors | length == 2 and all(.exit_code == 7)
		and (.[0].text | test("^latency: GPU 0, 1048576 bytes: p50 of the round trip is .* above --max-lat p50=1ns$"))'
	gives 0 client --test lat -n 50 --max-lat 1m
	client --test lat -n 50 --max-lat 1ns
	[[ $status == 7 && $output == *"p99 of the round trip"* ]]
	for limit in p98=1ms 200 p99= =1ms; do
		run -1 "$DUALRAIL" client 127.0.0.1 --test lat --dry-run --max-lat "$limit"
	done
}

# result_line FILE: its only line about the result.
result_line() {
	[ "$(jq -s 'map(select(.component == "result")) | length' "$1")" -eq 1 ]
	jq -c 'select(.component == "result")' "$1"
}

@test "--log-json: one line for the result of each run; -v: one for all options; option errors, too" {
	start_server --log-json
	run_logged() {
		timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" -D 50ms --log-json "$@" >out 2>err
	}
	run_logged
	result_line err | jq -e '.level == "info" and .exit_code == 0 and .text == "PASS" and (.run_id | length > 20)'
	run_logged --min-bw 90000 --json=fail.json || [ "$?" -eq 7 ]
	result_line err | jq -e --arg id "$(jq -r .run_id fail.json)" '.level == "error" and .exit_code == 7 and .run_id == $id
		and (.text | startswith("FAIL (exit status 7): bandwidth: "))'
	grep -q '^FAIL (exit status 7)' out
	run_logged -q -v
	jq -es 'map(select(.options)) | length == 1 and .[0].options.duration == "50ms"' err
	[ "$(wc -l <err)" -le 8 ]
	echo '{"log-json": true}' >c.json
	"$DUALRAIL" client 127.0.0.1 --config c.json -D x >out 2>err || [ "$?" -eq 1 ]
	result_line err | jq -e '.exit_code == 1 and (.text | startswith("ERROR (exit status 1): -D: "))'
	[ "$(jq -s length err)" -eq 2 ]
	stop server
	[ "$(jq -s 'map(select(.component == "result")) | length' server.err)" -ge 3 ]
}

@test "several --config files: all are read, the last one that has an option decides, messages name the file" {
	echo '{"channels": 3, "key-file": "one.key", "fault-exec": ["a=x,y", "b=x,y"]}' >one.json
	echo '{"channels": 4, "fault-exec": ["c=x,y"]}' >two.json
	run -0 "$DUALRAIL" client 127.0.0.1 --config one.json --config two.json --dry-run -v
	[[ $output == *"channels=4"* && $output == *"key-file=one.key"* && $output == *"fault-exec=c=x,y"* ]]
	[[ $output != *"fault-exec=a"* ]]
	echo '{"window": "x"}' >bad.json
	run -1 "$DUALRAIL" client 127.0.0.1 --config one.json --config bad.json --dry-run
	[ "$output" = 'dualrail: --config bad.json: "window": "x" is not a whole number; use e.g. 8' ]
	run -2 "$DUALRAIL" client 127.0.0.1 --config one.json --config none.json --dry-run
	[ "$output" = 'dualrail: --config none.json: No such file or directory' ]
}

@test "the configuration file of OPTIONS.md serves each command; --fault replaces its list" {
	two_rails
	awk '/^```json$/ { on = 1; next } /^```$/ { on = 0 } on' "$BATS_TEST_DIRNAME/../../docs/OPTIONS.md" >c.json
	run -0 ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 --config c.json --dry-run -v
	[[ $output == *"fault=link-down:path=0"*"fault=blackhole:path=0,side=server"*"key-file=/etc/dualrail/key"* ]]
	run ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 --config c.json --dry-run -v --fault close:path=1
	[ "$status" -eq 0 ]
	[[ $output == *"fault=close:path=1"* && $output != *"fault=link-down"* ]]
	# Options of other commands are ignored.
	run -0 "$DUALRAIL" topo --config c.json
	run "$DUALRAIL" server --config c.json --port x
	[[ $status == 1 && $output == *"--port"* ]]
}

@test "-q: no intervals and no options; warnings remain" {
	start_server
	DUALRAIL_CHANELS=3 gives 0 client -D 150ms -i 50ms -q
	[[ $output == *"DUALRAIL_CHANELS has no effect"* && $output != *"test=bw"* && $output != *" gpu all "* ]]
	run env DUALRAIL_CHANELS=3 "$DUALRAIL" client 127.0.0.1 --dry-run -q
	[[ $output == *"DUALRAIL_CHANELS has no effect"* ]]
}

@test "errors before the run: no table, and the next step" {
	local how
	for how in "--json=x.json --frob" "--json=x.json --csv no/such/directory" "--csv no/such/directory" "--frob"; do
		read -ra word <<<"$how"
		! "$DUALRAIL" client node1 "${word[@]}" >out 2>err
		[ ! -s out ]
		[ "$(wc -l <err)" -eq 1 ]
	done
	holds x.json '.status == "error"'
	run "$DUALRAIL" client 127.0.0.1 --json="$PWD"
	[[ $status == 2 && $output == *": Is a directory; name a file in it" ]]
	run "$DUALRAIL" client 127.0.0.1 --key-file ''
	[[ $status == 1 && $output == *"--key-file is empty; "* ]]
	run "$DUALRAIL" client 127.0.0.1 -g 0 --key-file no-key
	[[ $status == 2 && $output == *"no-key: No such file or directory; create one with: head -c 32 /dev/urandom | base64 >K"* ]]
	head -c 32 /dev/urandom | base64 >key
	chmod 640 key
	for how in "server -1" "client 127.0.0.1" "doctor 127.0.0.1"; do
		read -ra word <<<"$how"
		run timeout "$WAIT_S" "$DUALRAIL" "${word[@]}" --port 1 -g 0 --key-file key
		[[ $status == 2 && $output == *"key file key can be read by other users (mode 0640)"*"run: chmod 600 key"* ]]
	done
}

@test "a server logs its version at the start, and a line when a signal ends it" {
	start_server
	wait_for grep -q 'listening on port .* dualrail [0-9]' server.err
	gives 0 client -D 50ms
	stop server
	grep -q 'Z interrupted (SIGTERM) after 1 run, status 143$' server.err
}

# block LANGUAGE N: the N-th block of that language in NIGHTLY.md.
block() {
	awk -v n="$2" "/^\`\`\`$1\$/ { on = ++k == n; next } /^\`\`\`\$/ { on = 0 } on" "$BATS_TEST_DIRNAME/../../docs/NIGHTLY.md"
}

@test "the script of NIGHTLY.md: a run that passes, then a server that is not there" {
	two_rails
	mkdir bin textfiles
	ln -s "$DUALRAIL" bin/dualrail
	block sh 2 >nightly
	block json 1 >example.json
	printf '%032d' 1 >key
	chmod 600 nightly key
	jq --arg key "$PWD/key" '."key-file" = $key | .rails = "rail0,rail1" | .duration = "50ms" | ."min-bw" = "0.01"
		| ."max-lat" = "p99=10s"' example.json >config.json
	nightly() {
		env PATH="$PWD/bin:$PATH" LOGS="$PWD/logs" CONFIG="$PWD/config.json" TEXTFILES="$PWD/textfiles" PATIENCE=1s \
			ip netns exec "$A" sh ./nightly 10.99.255.2
	}
	server_in_b --config config.json --log-json -g 0
	nightly
	whole logs/10.99.255.2/*.json
	[ -s "logs/10.99.255.2/$(date +%F).html" ]
	[ "$(metric textfiles/dualrail-10.99.255.2.prom dualrail_last_run_success 'host="10.99.255.2",test="bw,lat"')" = 1 ]
	result_line logs/10.99.255.2/*.log | jq -e '.exit_code == 0'
	stop pid
	rm logs/10.99.255.2/*.log
	run -3 nightly
	[ "$(metric textfiles/dualrail-10.99.255.2.prom dualrail_last_run_exit_code 'reason="refused"')" = 3 ]
	result_line logs/10.99.255.2/*.log | jq -e '.exit_code == 3'
	[ "$(ls textfiles)" = dualrail-10.99.255.2.prom ]
	# While a run holds the lock, a second one does nothing.
	exec 8>logs/10.99.255.2/lock
	flock 8
	rm textfiles/*
	nightly
	[ -z "$(ls textfiles)" ]
	flock -u 8
	# Old files and the directories of days go, the lock stays.
	mkdir logs/10.99.255.2/2020-01-01
	touch -d 2020-01-01 logs/10.99.255.2/2020-01-01 logs/10.99.255.2/lock
	run nightly
	[ -e logs/10.99.255.2/lock ]
	[ ! -e logs/10.99.255.2/2020-01-01 ]
	grep -q '^SuccessExitStatus=143$' "$BATS_TEST_DIRNAME"/../../scripts/systemd/dualrail-server.service*
}

@test "a run with one rail, or with --max-gap that nothing can judge: warnings also with -q, at both ends, and a metric" {
	two_rails
	server_in_b -g 0 -1
	ip -n "$B" link set rail1 down
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -D 50ms -q --max-gap 50ms --prom one.prom
	[ "$status" -eq 0 ]
	[[ $output == *"one rail only"* && $output == *"--max-gap judges unexpected switches only"* ]]
	ends "$pid" 0
	grep -q 'one rail only' server.err
	# Named, it is missed, and the message says whose NIC is down.
	server_in_b -g 0
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -D 50ms -q --rails rail0,rail1
	[ "$status" -eq 2 ]
	[[ $output == *"down at the server: rail1 (10.99.1.2): a named rail has no partner"* ]]
	stop pid
	[ "$(metric one.prom dualrail_unprotected_gpus 'host="10.99.255.2"')" = 1 ]
	ip -n "$B" link set rail1 up
	server_in_b -g 0 -1
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -D 50ms -q --prom two.prom
	[ "$status" -eq 0 ]
	[[ $output != *"one rail only"* && $output != *"--max-gap"* ]]
	[ "$(metric two.prom dualrail_unprotected_gpus 'host="10.99.255.2"')" = 0 ]
}

@test "one file twice: status 1; a device may be named twice" {
	refuses 1 "--json=x and --prom=x are the same file" \
		"$DUALRAIL" client 127.0.0.1 --json=x --prom x
	run -0 "$DUALRAIL" client 127.0.0.1 --dry-run --csv /dev/null --prom /dev/null
}

# The commands of QUESTIONS.md, one a line.
questions() {
	awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$BATS_TEST_DIRNAME/../../docs/QUESTIONS.md"
}

# bats test_tags=nightly
@test "every command of QUESTIONS.md runs" {
	local line n=0
	[[ $(id -u) == 0 ]] || skip "link-down and blackhole of the demo need root"
	mkdir bin
	ln -s "$DUALRAIL" bin/dualrail
	PATH=$PWD/bin:$PATH
	start_server
	export DUALRAIL_DURATION=50ms DUALRAIL_WARMUP=50ms DUALRAIL_HOLD_DOWN=50ms DUALRAIL_GPUS=0-1
	while IFS= read -r line; do
		echo "$line"
		# shellcheck disable=SC2086 # words
		run timeout "$WAIT_S" bash -c "${line//node1/127.0.0.1:$port}" </dev/null
		if [[ $line == "dualrail doctor"* ]]; then
			[[ $status == [02] ]]
		elif [[ $line == "dualrail compare"* ]]; then
			[[ $status == [07] ]]
		else
			judge_status 100 0
		fi
		n=$((n + 1))
	done < <(questions)
	[ "$n" -ge 14 ]
	[ -s gap.trace ]
}
