# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the lab's benchmarks share: scripts/bench/lib.sh with the two guests of the lab in place of network
# namespaces. Sourced; after build_tree and bench_begin, `measure` runs dualrail between the guests. A lab
# that is up in LAB_DIR is used and left, else one is booted and ends with the benchmark.
# shellcheck disable=SC2034,SC2154 # for those that source this; set by bench/lib.sh
BENCH_MTU=4200
# shellcheck source=scripts/bench/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../bench/lib.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=$here/lab.sh
export BENCH_HALF_WIDTH=0.15 # emulated guests scatter more
control=10.77.0.2
program=/opt/dualrail/bin/dualrail
: "${LAB_DIR:=$bench_root/build/lab/run}"
export LAB_DIR
booted='' share=''

# Instead of network namespaces.
make_nodes() {
	local rc
	if ! "$lab" status >/dev/null 2>&1; then
		"$lab" up --owner $$
		rc=$?
		((rc == 77)) && skip "the lab cannot run here"
		((rc == 0)) || die "the lab does not come up"
		booted=1
	fi
	"$lab" check || die "the rails do not work"
	mkdir "$work/bin"
	cp "$dualrail" "$work/bin/"
	"$lab" put both "$work/bin" /opt/dualrail || die "cannot copy into the guests"
	share=$("$lab" share)/bench.$$
	mkdir "$share"
	inside=/lab/${share##*/}
	(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$share/key")
}

bench_clean() {
	local pid
	trap - EXIT
	for pid in $(jobs -p); do
		kill "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	if [[ $booted ]]; then
		"$lab" down
	else
		rm -rf "$share"
	fi
	rm -rf "$work"
}

# in_b COMMAND...: in guest 1, in the background, at most BENCH_LIMIT seconds; sets peer_pid.
in_b() {
	"$lab" run -t "${BENCH_LIMIT:-300}" 1 "$@" >"$work/b.out" 2>&1 &
	peer_pid=$!
}

listening() {
	[[ $("$lab" run 1 ss -Hltn "sport = :$1") ]]
}

# measure OPTION...: server and client, the document in $share/doc.json; server options in server_with,
# words in front of either command in server_under and client_under.
server_with=() server_under=() client_under=()
measure() {
	said dualrail client HOST "$@"
	in_b "${server_under[@]}" "$program" server --one-off -g 0-7 "${server_with[@]}"
	rm -f "$share/doc.json"
	"$lab" run -t "${BENCH_LIMIT:-300}" 0 "${client_under[@]}" "$program" client "$control" --transport verbs -q \
		--json="$inside/doc.json" "$@" >"$work/client.log" 2>&1 && wait "$peer_pid" && return
	note "dualrail client $*: $(tail -n 3 "$work/client.log" | tr '\n' ' ')"
	stop "$peer_pid"
	return 1
}
