#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The outputs of a run. On loopback, but for the counters of NICs.
# shellcheck disable=SC2016 # jq's variables

load usual

# prom_rules FILE...: the rules of Prometheus text; prom_tool FILE...: the same by promtool.
prom_rules() {
	"$BATS_TEST_DIRNAME/../promtext.py" "$@"
}

prom_tool() {
	local one
	for one in "$@"; do
		promtool check metrics <"$one" || return 1
	done
}

@test "three levels: the answers by default, tables with -v, the verdict alone with -q" {
	start_server
	gives 0 client -D 200ms --test bw,lat
	(($(wc -l <<<"$output") <= 12))
	[[ $output == *$'\nBandwidth: 2 GPUs x '*" Gb/s ("*$'\nLatency, round trip of 1 MiB: median '*$'\nData: '*$'\nPASS (exit status 0)' ]]
	[[ $output != *"sender Gb/s"* && $output != *" chunks  "* ]]
	gives 0 client -D 200ms --test bw,lat -v
	[[ $output == *"sender Gb/s"* && $output == *$'\nResult: 2 GPUs x '* && $output == *"p99.9"* ]]
	gives 0 client -D 200ms --test bw,lat -q
	[ "$output" = "PASS (exit status 0)" ]
	gives 0 client -D 200ms -i 50ms
	(($(grep -c ' Gb/s .* chunks' <<<"$output") >= 3))
	gives 7 client -D 200ms -q --min-bw 900
	[[ $output == "FAIL (exit status 7)"$'\n  '* ]]
}

# bats test_tags=one-thread
@test "a demo with three tests and twenty faults fits on one screen, at 60 columns each line does" {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	run -0 "$DUALRAIL" demo -D 300ms
	(($(wc -l <<<"$output") <= 45))
	(($(grep -c '^fault [0-9]*: ' <<<"$output") == 20))
	COLUMNS=60 run -0 "$DUALRAIL" demo -D 200ms --test bw,lat
	if grep -nE '^.{61,}' <<<"$output"; then return 1; fi
}

# Both ends of a run between two namespaces, so that there are counters of NICs, with all tests.
prom_of_a_run() {
	watch
	two_rails
	server_in_b -g 0 -1 --prom server.prom
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 -s 64K -D 150ms \
		--test bw,lat,failover --fault close:path=0,at=50ms --allow-faults --hold-down 50ms --prom client.prom
	judge_status 100 0
	ends "$server" 0
	grep -q '^dualrail_nic_interface_tx_bytes{' client.prom
	grep -q '^dualrail_nic_interface_tx_bytes{' server.prom
	grep -q '^dualrail_fault_trials{' client.prom
}

@test "--prom: the text of both ends follows the rules of the format and of metric names" {
	prom_of_a_run
	prom_rules client.prom server.prom
}

# bats test_tags=release
@test "--prom: promtool accepts the text of both ends" {
	command -v promtool >/dev/null || skip "promtool is not installed (Debian: prometheus)"
	prom_of_a_run
	prom_tool client.prom server.prom
}

# spans FILE JQ: how many spans of the trace the condition holds for.
spans() {
	jq "[.resourceSpans[].scopeSpans[].spans[] | select($2)] | length" "$1"
}

@test "--trace: the spans of both ends are one trace by the rules of OTLP JSON, and are those of the document" {
	start_server -1 --trace server.trace
	client --test bw,lat,failover -D 100ms --fault close:path=0,at=50ms --allow-faults --hold-down 50ms \
		--json=c.json --trace client.trace
	judge_status 100 0
	ends "$server" 0
	"$BATS_TEST_DIRNAME/../otlp.py" client.trace
	"$BATS_TEST_DIRNAME/../otlp.py" client.trace server.trace
	[ "$(spans client.trace '.name | startswith("phase ")')" -eq "$(jq '.phases | length' c.json)" ]
	[ "$(spans client.trace '.name | startswith("fault ")')" -eq "$(jq '.failover.faults | length' c.json)" ]
	[ "$(spans client.trace '.name == "failover" or .name == "failback"')" -eq "$(jq '.failover.switches | length' c.json)" ]
	holds c.json '(.phases | group_by(.phase) | all(map(.side) == ["client", "server"] and all(.begin_monotonic_ns < .end_monotonic_ns)))'
	# Two GPUs with two channels and two of the latency test, at each end.
	[ "$(spans client.trace '.name == "channel"')" -eq 16 ]
	[ "$(spans server.trace '.name == "channel"')" -eq 8 ]
	# The fault is in its phase, and what it caused at both ends refers to it.
	[ "$(spans client.trace '.name == "failover" and (.links | length) == 1')" -ge 8 ]
	jq -e '[.resourceSpans[].scopeSpans[].spans[]] | (map({(.spanId): .name}) | add) as $name
		| map(select(.name | startswith("fault ")))
		| all($name[.parentSpanId] == "phase failover" and .status.code == 1)' client.trace
	# Of a run that does not begin: its end.
	run -3 "$DUALRAIL" client 127.0.0.1 --port 1 -g 0 --connect-timeout 50ms --trace none.trace
	"$BATS_TEST_DIRNAME/../otlp.py" none.trace
	[ "$(spans none.trace '.status.code == 2 and (.status.message | test("refused"))')" -eq 1 ]
}

# scrape PORT: the page of --metrics-listen, in the network namespace $in if it is set.
scrape() {
	${in:+ip netns exec "$in"} bash -c 'exec 9<>"/dev/tcp/127.0.0.1/$1" || exit 1
		printf "GET /metrics HTTP/1.0\r\n\r\n" >&9
		sed "1,/^\r\$/d" <&9' scrape "$1"
}

# metric PORT SERIES OPERATOR VALUE: the comparison holds. The last value stays in $value.
metric() {
	scrape "$1" >page.prom 2>/dev/null
	value=$(awk -v s="$2 " 'index($0, s) == 1 { print $NF }' page.prom)
	[[ -n $value ]] && awk -v v="$value" -v w="$4" "BEGIN { exit !(v $3 w) }"
}

# grows PORT SERIES: its value becomes larger than it is, or than 0.
grows() {
	local before
	wait_for metric "$1" "$2" ">" 0
	metric "$1" "$2" ">" 0
	before=$value
	wait_for metric "$1" "$2" ">" "$before"
}

# paths_have_all PORT tx|rx: the bytes of GPU 0's paths, which have replays too, are not behind those of the GPU.
paths_have_all() {
	local gpu
	metric "$1" "dualrail_gpu_$2_bytes_total{gpu=\"0\"}" ">" 0
	gpu=$value
	awk -v s="dualrail_path_$2_bytes_total{gpu=\"0\"," -v gpu="$gpu" \
		'index($0, s) == 1 { n += $NF } END { if (n < gpu) print n, "of", gpu; exit n < gpu }' page.prom
}

@test "--metrics-listen: both ends have a page before, during and after a session, and its figures grow" {
	local s c gpu='{gpu="0"}' path='{gpu="0",path="0"}'
	free_port
	s=$((port + 8)) c=$((port + 9))
	# A client without a server has a page.
	start early "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0 --metrics-listen "127.0.0.1:$c"
	wait_for metric "$c" dualrail_session_active == 0
	stop pid INT
	start server "$DUALRAIL" server -g 0-1 --port "$port" --allow-faults --metrics-listen "127.0.0.1:$s"
	wait_for metric "$s" dualrail_sessions_total == 0
	start_client -D 60s --rate 1G --metrics-listen "127.0.0.1:$c"
	grows "$s" "dualrail_gpu_rx_bytes_total$gpu"
	grows "$c" "dualrail_gpu_tx_bytes_total$gpu"
	grows "$c" "dualrail_path_tx_bytes_total$path"
	grows "$s" "dualrail_path_rx_bytes_total$path"
	metric "$s" dualrail_session_active == 1
	paths_have_all "$c" tx
	paths_have_all "$s" rx
	metric "$c" "dualrail_path_channels_active$path" == 2
	metric "$c" "dualrail_path_channels_connected$path" == 2
	grep -q '^dualrail_rail_state{rail="0",nic="[^"]*"} 0$' page.prom
	prom_rules page.prom
	stop client INT
	wait_for metric "$s" dualrail_session_active == 0
	metric "$s" "dualrail_path_channels_connected$path" == 0
	run -1 grep '^dualrail_rail_state' page.prom
	grep -q '^dualrail_last_run_exit_code{host="127.0.0.1",reason="[^"]*"} [1-9]' page.prom
	metric "$s" "dualrail_gpu_rx_bytes_total$gpu" ">" 0
	before=$value
	# Sums go on with the next client.
	client -D 100ms --test bw,failover --fault close:path=0,at=50ms,for=50ms --allow-faults --hold-down 50ms
	judge_status 100 0
	wait_for metric "$s" dualrail_session_active == 0
	metric "$s" dualrail_sessions_total == 2
	metric "$s" "dualrail_gpu_rx_bytes_total$gpu" ">" "$before"
	metric "$s" 'dualrail_switches_total{gpu="0",kind="failover"}' ">=" 1
	judge 100 metric "$s" "dualrail_delivery_gap_seconds_count$gpu" ">=" 1
	judge 100 metric "$s" "dualrail_delivery_gap_longest_seconds$gpu" ">" 0
	metric "$s" "dualrail_gpu_rx_bytes_total$gpu" ">" "$before"
	before=$value
	# Less than the clients before had.
	gives 0 client -D 50ms -w 0s --rate 50M
	wait_for metric "$s" dualrail_sessions_total == 3
	wait_for metric "$s" dualrail_session_active == 0
	metric "$s" "dualrail_gpu_rx_bytes_total$gpu" ">" "$before"
	prom_rules page.prom
}

@test "--metrics-listen: a lost rail is counted, one of the failover test is not; without a session no rail has a state" {
	local in rail='{rail="0",nic="rail0"}'
	[[ $(id -u) == 0 ]] || skip "link-down needs root"
	two_rails
	in=$B
	ip -n "$B" link set lo up
	server_in_b -g 0 --metrics-listen 127.0.0.1:9400
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 --test failover --allow-faults \
		--fault link-down:path=0,at=50ms,for=50ms --hold-down 50ms
	judge_status 100 0
	wait_for metric 9400 dualrail_session_active == 0
	judge 100 metric 9400 "dualrail_rail_losses_total$rail" == 0
	metric 9400 'dualrail_switches_total{gpu="0",kind="failover"}' ">=" 1
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0 -N 2 -D 60s --rate 1G
	wait_for metric 9400 "dualrail_rail_state$rail" == 0
	ip -n "$A" link set rail0 down
	wait_for metric 9400 "dualrail_rail_state$rail" == 2
	judge 100 metric 9400 "dualrail_rail_losses_total$rail" == 1
	stop client INT
	wait_for metric 9400 dualrail_session_active == 0
	run -1 grep '^dualrail_rail_state' page.prom
	judge 100 metric 9400 "dualrail_rail_losses_total$rail" == 1
	prom_rules page.prom
}

# Text of runs that have every sort of row: a client's file of all tests beside a baseline, and both pages while data flow and
# after a failover.
every_metric() {
	watch
	local s c
	free_port
	s=$((port + 8)) c=$((port + 9))
	start server "$DUALRAIL" server -g 0-1 --port "$port" --allow-faults --metrics-listen "127.0.0.1:$s"
	gives 0 client -D 50ms --save-baseline base.json
	client --test bw,lat,failover -D 50ms --heartbeat 1ms --fault close:path=0,at=50ms --allow-faults --hold-down 50ms \
		--baseline base.json --min-bw 0.001% --prom run.prom
	judge_status 100 0
	start_client -D 60s --rate 1G --metrics-listen "127.0.0.1:$c"
	wait_for metric "$s" 'dualrail_gpu_rx_bytes_total{gpu="0"}' ">" 0
	wait_for metric "$c" dualrail_session_active == 1
	scrape "$s" >server.prom
	scrape "$c" >client.prom
}

@test "dashboard and alert rules name only metrics and labels that runs export" {
	local metrics=$BATS_TEST_DIRNAME/../../scripts/metrics names=$BATS_TEST_DIRNAME/../metricnames.py
	every_metric
	"$names" "$metrics/dashboard.json" "$metrics/alerts.yaml" run.prom server.prom client.prom
	# The check finds a name and a label that do not exist.
	sed 's/dualrail_rail_state/dualrail_rail_stat/; s/{{nic}}/{{nick}}/' "$metrics/dashboard.json" >wrong.json
	run -1 "$names" wrong.json "$metrics/alerts.yaml" run.prom server.prom client.prom
	[[ $output == *"no run exports dualrail_rail_stat"* && $output == *"no metric has a label nick"* ]]
}

# bats test_tags=release,nightly
@test "promtool: the alert rules fire for their causes only, the expressions of the dashboard are valid" {
	local metrics=$BATS_TEST_DIRNAME/../../scripts/metrics
	command -v promtool >/dev/null || skip "promtool is not installed (Debian: prometheus)"
	promtool check rules "$metrics/alerts.yaml"
	promtool test rules "$BATS_TEST_DIRNAME/../fixtures/alerts_test.yaml"
	"$BATS_TEST_DIRNAME/../metricnames.py" "$metrics/dashboard.json" "$metrics/alerts.yaml" /dev/null --expressions panels.yaml || :
	promtool check rules panels.yaml
}

# json_lines FILE...: there are lines, and each is one object of --log-json.
json_lines() {
	local one
	for one in "$@"; do
		jq -Rne '[inputs | (try fromjson catch {}) | keys_unsorted] |
			length > 0 and all(. - ["run_id", "node", "rank", "gpu", "exit_code", "options"] == ["time", "level", "component", "text"])' "$one" >/dev/null || {
			echo "not only objects: $one"
			head -n 20 "$one"
			return 1
		}
	done
}

# complains STATUS COMMAND...: it ends with that status and an object of level error.
complains() {
	local rc=0 want=$1
	shift
	"$@" >/dev/null 2>complaint.err || rc=$?
	((rc == want)) || return 1
	json_lines complaint.err
	jq -se 'any(.level == "error" and .component == "dualrail")' complaint.err >/dev/null
}

@test "--log-json: every line on standard error is one object: tables, warnings, errors, what a server says" {
	export DUALRAIL_CHANEL=4
	start_server -1 --log-json -v
	start_client -D 150ms -i 50ms --test bw,lat --log-json -v --json
	ends "$client" 0
	ends "$server" 0
	json_lines client.err server.err
	jq -se 'any(.component == "table" and (.text | test("Gb/s")))' client.err
	jq -se 'any(.level == "warn" and .component == "environment")' client.err
	jq -se 'any(.text | test("^client .*: done, status 0"))' server.err
	holds client.out '.status == "pass"'
	complains 1 "$DUALRAIL" client 127.0.0.1 --no-such-option --log-json
	complains 1 "$DUALRAIL" no-such-command --log-json
	complains 1 env DUALRAIL_LOG_JSON=true "$DUALRAIL" client 127.0.0.1 --size x
	complains 2 "$DUALRAIL" client 127.0.0.1 --csv no/such/directory --log-json
	"$DUALRAIL" topo --json --log-json 2>topo.err >topo.json || :
	json_lines topo.err
}

# says FILE JQ: the condition holds for each line.
says() {
	jq -se "length > 0 and all($2)" "$1" >/dev/null || {
		echo "not on each line of $1: $2"
		jq -c "select($2 | not)" "$1" | head
		return 1
	}
}

@test "--log-json: run, node and rank are on each line, at the server on those of the run, with the same id; lines of a GPU name it" {
	local id node
	unset PMIX_RANK OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID JOB_COMPLETION_INDEX
	start_server -1 --log-json -vvv
	export SLURM_PROCID=7
	start_client -n 4 -w 0 --log-json -vvv --json=c.json --workers 1
	ends "$client" 0
	ends "$server" 0
	id=$(jq -r .run_id c.json)
	node=$(uname -n)
	says client.err ".run_id == \"$id\" and .node == \"$node\" and .rank == 7"
	says server.err "(.run_id == null or .run_id == \"$id\") and .node == \"$node\" and .rank == null"
	jq -se "any(.component == \"server\" and .run_id == \"$id\" and (.text | test(\": done, status 0\")))" server.err
	jq -se 'map(select(.text | test("^listening"))) | length == 1 and all(.run_id == null)' server.err
	for one in client.err server.err; do
		jq -c 'select(.component == "trace")' "$one" >trace.lines
		says trace.lines '.gpu == (.text | capture("^gpu (?<n>[0-9]+) ").n | tonumber)'
		jq -se '[.[].gpu] | unique == [0, 1]' trace.lines
		says trace.lines ".run_id == \"$id\""
		jq -se 'any(.component != "trace" and .gpu == null)' "$one"
	done
}

# csv_fits FILE TABLE LIST DOCUMENT: the table has the rows of the list in the document, with their values.
csv_fits() {
	python3 - "$@" <<'P'
import csv, json, sys
head, *rows = list(csv.reader(open(sys.argv[1], newline="")))
doc = json.load(open(sys.argv[4]))
want = doc[sys.argv[3]]
assert head[:2] == ["record", "run_id"], head
assert all(len(r) == len(head) and r[1] == doc["run_id"] for r in rows), "columns"
rows = [r for r in rows if r[0] == sys.argv[2]]
assert len(rows) == len(want), (len(rows), len(want))
for r, w in zip(rows, want):
    for name, value in zip(head, r):
        if isinstance(w.get(name), float):
            assert float(value) == w[name], (name, value, w[name])
P
}

@test "--csv: the rows of each table have the values of the document" {
	start_server -1
	gives 0 client -D 100ms -i 50ms --test bw,lat --csv all.csv --json=c.json
	ends "$server" 0
	csv_fits all.csv bandwidth bandwidth c.json
	csv_fits all.csv latency latency c.json
	csv_fits all.csv nic nics c.json
	csv_fits all.csv interval intervals c.json
}

# bats test_tags=release
@test "colour only on a terminal, and not with NO_COLOR" {
	start_server
	local run=("$DUALRAIL" client 127.0.0.1 --port "$port" -g 0 -N 1 -s 64K -D 50ms -w 0s --matrix)
	"${run[@]}" >plain 2>&1 || [ $? -eq 7 ]
	python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "${run[@]}" >coloured </dev/null
	NO_COLOR=1 python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "${run[@]}" >uncoloured </dev/null
	grep -q '###' plain
	grep -q $'\033\\[[0-9;]*m' coloured
	[ "$(grep -c $'\033\\[[0-9;]*m' plain)" -eq 0 ]
	[ "$(grep -c $'\033\\[[0-9;]*m' uncoloured)" -eq 0 ]
}

@test "an error is printed once on a terminal, and on both streams where they are apart" {
	free_port
	local line="$DUALRAIL client 127.0.0.1 --port $port -g 0 --connect-timeout 50ms" try
	for try in "$line" "$line --json=c.json" "$line --json-stream" "$line --dry-run --rails none0" "$line -g 999"; do
		script -qec "$try" /dev/null >seen </dev/null || :
		[ "$(grep -v '^{' seen | grep -ci 'refused;\|.none0.\|999;')" -eq 1 ]
		grep -q $'^\033\\[1;31mERROR (exit status [23])' seen
	done
	$line >tables 2>errors || [ $? -eq 3 ]
	grep -q '^dualrail: .*refused' errors
	grep -q '^  .*refused' tables
}

@test "latency: the document and Prometheus have a histogram that adds up to the samples" {
	start_server -1
	gives 0 client -D 100ms --test lat -s 64 --json=c.json --prom c.prom
	ends "$server" 0
	holds c.json '.latency | length == 2 and all(
		. as $l | (.histogram | length > 1)
		and ([.histogram[].count] | add) == .samples
		and (.histogram | all(.from_us < .to_us and .count > 0 and .to_us <= .from_us * 1.26))
		and ([.histogram[].from_us] | . == sort)
		and .histogram[0].from_us <= .rtt_us.p50
		and .histogram[-1].from_us <= .rtt_us.max and .rtt_us.max < .histogram[-1].to_us)'
	prom_rules c.prom
	grep -q '^# TYPE dualrail_round_trip_seconds histogram' c.prom
	[ "$(awk '/^dualrail_round_trip_seconds_count/ { n += $NF } END { print n }' c.prom)" -eq \
		"$(jq '[.latency[].samples] | add' c.json)" ]
}

@test "--save-baseline keeps the runs of each GPU, NIC and pair; --baseline says what it compared with what, and what not" {
	start_server
	gives 0 client -D 300ms --save-baseline base.json
	holds base.json '[.baseline[].kind] | unique == ["gpu", "nic"]'
	holds base.json '.baseline | all(.repeats == 1 and .mean_gbps == .min_gbps and (.runs | length) == 1)'
	holds base.json '.baseline | (map(select(.kind == "gpu").mean_gbps) | add) - (map(select(.kind == "nic").mean_gbps) | add)
		| fabs < 1e-6'
	gives 0 client -D 300ms --save-baseline base.json
	holds base.json '.baseline | all(.repeats == 2 and (.runs | length) == 2
		and .min_gbps == ([.runs[].gbps] | min)
		and (.mean_gbps - ([.runs[].gbps] | add / 2) | fabs) < 1e-6)'
	# The same figures are compared.
	gives 0 client -D 300ms --baseline base.json --min-bw 1% --json=same.json --prom same.prom
	holds same.json '[.comparison[].result] | unique == ["ok"]'
	holds same.json '.comparison | all(.repeats == 2 and .percent > 0 and .min_gbps <= .mean_gbps)'
	[[ $output == *"Baseline: compared 2 GPU, "*" NIC figures with the mean of 2 runs;"*"lowest "* && $output != *"not in this run"* ]]
	prom_rules same.prom
	grep -q '^dualrail_baseline_ratio{.*kind="gpu",gpu="0"' same.prom
	# Other options are refused before anything is measured: at once, and GPUs when the server has named them.
	cp base.json before.json
	gives 2 client -N 1 -D 60s --baseline base.json --json=other.json
	[[ $output == *"baseline base.json: written with --channels 2, this run has --channels 1; use those options or another file"* ]]
	holds other.json '.events == [] and .bandwidth == []'
	gives 2 client --window 4 -D 60s --save-baseline base.json -q
	[[ $output == *"--save-baseline base.json: its runs had no --window, this one --window 4; choose another file, or delete this one"* ]]
	[[ $output == *"--save-baseline=base.json: not written, nothing was measured"* ]]
	gives 2 client -g 0 -D 60s --baseline base.json --json=gpus.json
	[[ $output == *"written with --gpus 0-1, this run has --gpus 0; "* ]]
	holds gpus.json '.bandwidth == []'
	gives 2 client --baseline typo.json
	[[ $output == *"cannot read --baseline=typo.json: No such file or directory; write it first with --save-baseline typo.json"* ]]
	cmp base.json before.json
	# A figure far below is an error that names the mean.
	jq '.baseline |= map(.mean_gbps *= 1000)' base.json >high.json
	gives 7 client -D 300ms --baseline high.json --json=low.json
	holds low.json '.errors | any(.text | test("^gpu 0 to-server, messages of 1 MiB: .* % of the baseline.s .* \\(mean of 2\\), below 90 %"))'
	# A run that is added although it is far below the others.
	gives 0 client -D 300ms --save-baseline high.json
	[[ $output == *"baseline: high.json now has 3 runs"* && $output == *"the run that was added has only 0 % of the mean so far ("* ]]
	gives 0 client -g 0 -D 50ms -w 0s --matrix --save-baseline pairs.json
	[[ $output == *"baseline: pairs.json now has 1 run"* ]]
	holds pairs.json '[.baseline[].kind] | unique == ["gpu", "nic", "pair"]'
}
