# SPDX-License-Identifier: Apache-2.0
# Helpers of the lab's tests (scripts/lab/lab.sh says what the lab is). The server runs in guest 1, the
# client in guest 0. No fixed sleeps: guests are emulated and at times slow, so tests wait
# for conditions and assert no absolute time.
# shellcheck shell=bash

# The longest wait for one condition, in seconds.
WAIT_S=${DR_LAB_WAIT:-120}
DR_ROOT=${DR_ROOT:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
DR_BUILD=${DR_BUILD:-$DR_ROOT/build/release}
DUALRAIL=${DUALRAIL:-$DR_BUILD/dualrail}

# shellcheck source=tests/lib.bash
source "${BASH_SOURCE[0]%/*}/../lib.bash"

lab() {
	"$DR_ROOT/scripts/lab/lab.sh" "$@" 3>&-
}

# Brings every NIC up again, also after a test that failed in the middle of a fault.
restore_links() {
	local g n
	for g in 0 1; do
		for n in nic0 nic1 nic2 nic3 ctl0; do
			lab link "$g" "$n" up
			lab port "$g" "$n" on
		done
	done
	# shellcheck disable=SC2016 # for the guests
	lab run both sh -c 'for n in 0 1 2 3; do
		ip link set nic$n up
		for q in root clsact; do tc qdisc del dev nic$n $q 2>/dev/null; done
		[ -d /sys/class/infiniband/rxe$n ] || rdma link add rxe$n type rxe netdev nic$n; done'
}

common_setup() {
	lab status >/dev/null 2>&1 || skip "${DR_LAB_WHY:-no lab is up (make check-lab)}"
	cd "$BATS_TEST_TMPDIR" || return 1
	lab check --reboot
	share=$(lab share)/t$BATS_SUITE_TEST_NUMBER.$$
	mkdir -p "$share"
	inside=/lab/${share##*/} # the same folder, as guests see it
	watched=$(cat "${LAB_DIR:-$DR_ROOT/build/lab/run}/keeper") # the guests are its processes
	watch
}

common_teardown() {
	local rc=0
	end_background TERM
	validated ${share:+"$share"} || rc=$?
	[[ ! ${share-} ]] || rm -rf "$share"
	lab status >/dev/null 2>&1 && restore_links
	return "$rc"
}

# start NAME GUEST COMMAND...: in the background, output in NAME.out and NAME.err, its process in $pid.
start() {
	local name=$1
	shift
	# Not by lab(): the process to signal is the script, not a shell that waits for it.
	background "$name" "$DR_ROOT/scripts/lab/lab.sh" run -t "$WAIT_S" "$@"
}

# carrier GUEST NIC 0|1: the guest sees the carrier so.
carrier() {
	[[ $(lab run "$1" cat "/sys/class/net/$2/carrier") == "$3" ]]
}

# port_state GUEST DEVICE STATE, e.g. ACTIVE
port_state() {
	lab run "$1" cat "/sys/class/infiniband/$2/ports/1/state" | grep -qw "$3"
}

# --- dualrail in the guests ----------------------------------------------------------------------

DR=/opt/dualrail # where install_dualrail puts it
RUN=$DR/scripts/run_p2p.sh

# Called once per file of tests: copies the program under test and its script into the memory of both guests.
install_dualrail() {
	local stage
	lab status >/dev/null 2>&1 || return 0
	stage=$(mktemp -d)
	mkdir "$stage/bin" "$stage/scripts"
	cp "$DUALRAIL" "$stage/bin/" && cp "$DR_ROOT/scripts/run_p2p.sh" "$stage/scripts/"
	[[ ! -x $DR_BUILD/tests/conformance/conformance_test ]] ||
		cp "$DR_BUILD/tests/conformance/conformance_test" "$stage/bin/"
	lab put both "$stage/bin" "$stage/scripts" "$DR"
	# The same key for a guest that has booted again: the other one's server has read it.
	[[ -e $BATS_FILE_TMPDIR/key ]] ||
		(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$BATS_FILE_TMPDIR/key")
	lab put both "$BATS_FILE_TMPDIR/key" "$DR"
	rm -rf "$stage"
}

# For setup(): skips without a lab; installs the program again after a reboot.
verbs_setup() {
	"$DUALRAIL" --version | grep -q verbs || skip "this build has no verbs"
	common_setup
	lab run both test -x "$DR/bin/dualrail" || install_dualrail
}

# Options of the client in most tests: eight logical GPUs with two channels each. A guest moves some
# tens of MB/s: the 1 MiB in flight takes a tenth of the time that heartbeats may be missing.
GPUS=(-g 0-7)
OPTS=(--transport verbs -N 2 -s 256K --chunk 32K --window 2 --heartbeat 100ms --ib-retry 6)
TWO=(--rails "rxe0,rxe1")

# start_server [OPTION...]: in guest 1.
start_server() {
	start server 1 "$RUN" server -g 0-7 "$@"
}

# start_client [OPTION...]: in guest 0, printing every 200 ms; the document is $share/c.json.
start_client() {
	start client 0 "$RUN" client 10.77.0.2 "${OPTS[@]}" "${GPUS[@]}" -i 200ms --json="$inside/c.json" "$@"
}

# client [OPTION...]: the same, and waits for its end; sets status and output.
client() {
	run lab run -t "$WAIT_S" 0 "$RUN" client 10.77.0.2 "${OPTS[@]}" "${GPUS[@]}" --json="$inside/c.json" "$@"
}

# succeeds [OPTION...]: the client ends with 0.
succeeds() {
	client "$@"
	judge_status 500 0
}

# flow_on N: waits until the client has printed N more intervals.
flow_on() {
	judge 500 wait_for intervals $(($(grep -c 'Gb/s' client.out) + $1))
}

intervals() {
	(($(grep -c 'Gb/s' client.out) >= $1))
}

# The numbers of queue pairs and memory regions of guest $1.
resources() {
	lab run "$1" rdma resource show | grep -oE 'qp [0-9]+|mr [0-9]+' | sort | uniq -c
}

# as_before GUEST: its resources equal those in the file resources.GUEST.
as_before() {
	[[ $(resources "$1") == "$(cat "resources.$1")" ]]
}

# document: the client's document reports success and correct data.
document() {
	holds "$share/c.json" '.schema == "dualrail/1" and .status == "pass" and .exit_code == 0'
	clean "$share/c.json"
}

no_switch() {
	judge 500 holds "$share/c.json" '[.failover.switches[]? | select(.planned | not)] == []'
}

# passed N: N faults were injected, each hit data in flight, and all trials passed.
passed() {
	holds "$share/c.json" ".failover.faults | length == $1 and all(.verdict == \"PASS\" and .gap_us > 0 and .in_flight_chunks > 0)"
}

# Packets of RoCE v2 that carry a full segment of data.
LARGE='udp dport 4791 meta length > 1500'

# lose GUEST NIC MATCH: from now on this guest drops what matches and arrives there.
lose() {
	lab run "$1" nft "table ip grey { chain in { type filter hook input priority 0; iifname \"$2\" $3 counter drop; }; }"
}

# hit GUEST: the filter dropped something.
hit() {
	lab run "$1" nft list table ip grey | grep -qE 'counter packets [1-9]'
}

lose_nothing() {
	lab run both nft delete table ip grey 2>/dev/null || :
}
