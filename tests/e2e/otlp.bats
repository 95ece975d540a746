#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Spans that are sent to a collector of OpenTelemetry (--trace-endpoint, OTEL_EXPORTER_OTLP_*). The collector is tests/collector.py.
# shellcheck disable=SC2154,SC2034,SC2030,SC2031 # set by lib.bash

# bats file_tags=nightly
setup() {
	load lib
	common_setup
	"$DUALRAIL" --version -v | grep -q '^traces: .*sent by libcurl' || skip "built without the headers of libcurl"
	# Those of whoever runs the tests.
	unset "${!OTEL_@}" http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
}

teardown() {
	common_teardown
	validated
}

RUN=(-D 50ms)

# collector NAME ANSWER...: starts one, which writes into the folder NAME; its address is in $url.
collector() {
	start "collector-$1" "$BATS_TEST_DIRNAME/../collector.py" "$@"
	wait_for test -s "$1/port"
	url=http://127.0.0.1:$(<"$1/port")
}

# sends OPTIONS...: a run of a client, which passes; its server sends nothing.
sends() {
	OTEL_SDK_DISABLED=true start_server -1
	client "${RUN[@]}" "$@"
	((status == 0))
	ends "$server" 0
}

# warned N: lines of the client about the collector.
warned() {
	local n
	n=$(grep -c ' otlp: ' <<<"$output") || :
	((n == $1)) || {
		echo "$n warnings, not $1"
		return 1
	}
}

@test "--trace-endpoint: the collector gets the text that --trace writes, from both ends, by the rules of OTLP" {
	watch
	collector c 200
	collector s 200
	start_server -1 --trace s.trace --trace-endpoint "${url}/any/path?x=1"
	url=http://127.0.0.1:$(<c/port)
	client "${RUN[@]}" --test bw,failover --fault close:path=0,at=20ms --allow-faults --hold-down 50ms --trace c.trace \
		--trace-endpoint "$url"
	judge_status 100 0
	ends "$server" 0
	warned 0
	cmp c.trace c/0.body
	cmp s.trace s/0.body
	"$BATS_TEST_DIRNAME/../otlp.py" c/0.body
	"$BATS_TEST_DIRNAME/../otlp.py" c/0.body s/0.body
	holds c/0.json '.method == "POST" and .path == "/v1/traces" and .headers["content-type"] == "application/json" and
		(.headers["user-agent"] | test("^OTel-OTLP-Exporter-dualrail/")) and (.headers | has("expect") | not)'
	holds s/0.json '.path == "/any/path?x=1"'
	[[ ! -e c/1.body && ! -e s/1.body ]]
}

@test "OTEL_EXPORTER_OTLP_*: the base gets /v1/traces, the address for traces is taken as it is, headers are decoded; the option wins" {
	collector c 200
	OTEL_EXPORTER_OTLP_ENDPOINT=$url/base/ OTEL_EXPORTER_OTLP_HEADERS='x-key=a%20b%3D, authorization = Bearer t' sends
	warned 0
	holds c/0.json '.path == "/base/v1/traces" and .headers["x-key"] == "a b=" and .headers.authorization == "Bearer t"'
	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=$url \
		OTEL_EXPORTER_OTLP_HEADERS=x-key=a OTEL_EXPORTER_OTLP_TRACES_HEADERS=x-other=b sends
	holds c/1.json '.path == "/" and .headers["x-other"] == "b" and (.headers | has("x-key") | not)'
	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_HEADERS=nothing sends --trace-endpoint "$url/"
	holds c/2.json '.path == "/v1/traces"'
	warned 1
	grep -q 'OTEL_EXPORTER_OTLP_HEADERS: entry 1 is ignored' <<<"$output"
	[[ $(grep ' otlp: ' <<<"$output") != *nothing* ]]
	OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=$url sends
	warned 0
	OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_ENDPOINT=$url sends
	warned 1
	[[ ! -e c/3.body ]]
}

@test "status 503, then 200: the same bytes are sent again, after Retry-After; without a warning" {
	collector c 503 429,retry=1 200
	sends --trace-endpoint "$url" --trace c.trace
	warned 0
	for k in 0 1 2; do
		cmp c.trace "c/$k.body"
	done
	[[ ! -e c/3.body ]]
}

@test "a collector that refuses, hangs, answers with an error or takes a part: the result is as without it, and one warning says why" {
	local why
	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 sends --json=c.json
	holds c.json '.status == "pass" and .exit_code == 0 and .errors == []'
	warned 1
	grep -qE 'warn otlp: run [^ ]+: spans to http://127.0.0.1:1/v1/traces \(OTEL_EXPORTER_OTLP_ENDPOINT\): .*: Connection refused$' <<<"$output"
	collector hang hang
	OTEL_EXPORTER_OTLP_TIMEOUT=300 sends --trace-endpoint "$url"
	warned 1
	grep -qE '\(--trace-endpoint\): .*timed out' <<<"$output"
	[[ ! -e hang/1.body ]]
	# Never good again: repeated within the timeout, no longer.
	collector busy 503
	OTEL_EXPORTER_OTLP_TIMEOUT=5000 sends --trace-endpoint "$url"
	warned 1
	grep -q 'HTTP status 503 ([2-9] attempts)' <<<"$output"
	[[ -e busy/1.body ]]
	# Not before the time that it asks for, which is too late.
	collector later 503,retry=3600
	sends --trace-endpoint "$url"
	warned 1
	[[ ! -e later/1.body ]]
	for why in '500,message=disk full:HTTP status 500: disk full' '400:HTTP status 400$' '301:HTTP status 301$' \
		'partial:3 spans were rejected: too .\[31mold$'; do
		collector "c${why%%[,:]*}" "${why%%:*}"
		sends --trace-endpoint "$url"
		warned 1
		grep -q "${why#*:}" <<<"$output"
		[[ -e c${why%%[,:]*}/0.body && ! -e c${why%%[,:]*}/1.body ]]
	done
}

@test "a collector that hangs does not delay the server's next client" {
	collector c hang
	OTEL_EXPORTER_OTLP_TIMEOUT=600000 start_server --trace-endpoint "$url"
	client "${RUN[@]}"
	((status == 0))
	wait_for test -e c/0.body
	client "${RUN[@]}"
	((status == 0))
	kill -0 "$server"
	[[ ! -e c/1.body ]]
}

# The demo forks beside the thread that sends, which ThreadSanitizer does not support.
# bats test_tags=release
@test "the demo sends from the network of its caller" {
	collector c 200
	run timeout "$WAIT_S" "$DUALRAIL" demo -g 0 -N 1 -s 64K -D 50ms --test bw --trace-endpoint "$url"
	tail -n 12 <<<"$output"
	((status == 0))
	warned 0
	"$BATS_TEST_DIRNAME/../otlp.py" c/0.body
	[[ ! -e c/1.body ]]
}

# A sanitizer may have a thread of its own.
# bats test_tags=release
@test "the thread that sends gives up what the others do" {
	local task
	collector c 200
	start_server --transport tcp --trace-endpoint "$url"
	wait_for grep -q 'listening on port' server.err
	grep -qx dr-otlp /proc/"$server"/task/*/comm
	for task in /proc/"$server"/task/*/status; do
		grep -q '^NoNewPrivs:.1$' "$task"
		grep -q '^Seccomp:.2$' "$task"
		grep -qE '^CapPrm:.0+$' "$task"
	done
}

@test "wrong addresses and a missing library: status 1 and 2 for the option, a warning for the environment" {
	local one
	for one in collector:4318 ftp://host http:// http://:4318 'http://a b'; do
		run "$DUALRAIL" client 127.0.0.1 --port 1 --connect-timeout 50ms --trace-endpoint "$one"
		((status == 1))
		[[ $output == *"--trace-endpoint=$one: "* ]]
	done
	run "$DUALRAIL" client 127.0.0.1 --port 1 --trace-endpoint http://user:secret@host
	((status == 1))
	[[ $output == *OTEL_EXPORTER_OTLP_HEADERS* && $output != *secret* ]]
	collector c 200
	export DR_LIBCURL=$PWD/none.so
	run "$DUALRAIL" client 127.0.0.1 --port 1 --connect-timeout 50ms --trace-endpoint "$url" --json=c.json
	((status == 2))
	[[ $output == *"none.so"*"install libcurl4"* ]]
	holds c.json '.exit_code == 2'
	OTEL_EXPORTER_OTLP_ENDPOINT=$url sends
	[[ $output == *"no spans are sent (OTEL_EXPORTER_OTLP_ENDPOINT): "*"none.so"* ]]
	unset DR_LIBCURL
	OTEL_EXPORTER_OTLP_ENDPOINT=collector OTEL_EXPORTER_OTLP_TIMEOUT=soon sends
	warned 1
	OTEL_EXPORTER_OTLP_ENDPOINT=$url OTEL_EXPORTER_OTLP_TIMEOUT=soon sends
	warned 1
	grep -q 'OTEL_EXPORTER_OTLP_TIMEOUT=soon is ignored' <<<"$output"
	[[ -e c/0.body && ! -e c/1.body ]]
}
