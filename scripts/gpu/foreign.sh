#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Foreign code, built elsewhere, against this one: a network plugin of NCCL under `--transport nccl:FILE`, and test programs
# for such plugins on libnccl-net-ha.so.
#
#   scripts/gpu/foreign.sh BUILD [--plugin FILE] [PROGRAM...]     as root
#
# FILE: `dualrail plugin` on the loopback interface; then, between two namespaces with two rails, bandwidth with every byte
# compared, FAULTS (20) links down and as many black holes. PROGRAM: a functional test of two ranks that opens
# libnccl-net.so (aws-ofi-nccl has such ones), with mpirun. It fails if its status is not 0; the last lines of what it says
# are printed. Variables of the plugin, e.g. NCCL_FLOW_PLACEMENT_ENABLE, are passed on.
# Environment: FAULTS, at least 2; GPU_OUT (build/gpu), logs. The last line is `N passed, N failed, N skipped`.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin
build=$(cd "${1:?BUILD}" && pwd)
shift
out=${GPU_OUT:-$root/build/gpu}/foreign
mkdir -p "$out"
# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"
: "${FAULTS:=20}"

# shown NAME SECONDS COMMAND...: its result is that of the command; PASS with the lines that say what was found.
shown() {
	local name=$1 log rc=0
	log=$out/${name// /-}.log
	timeout "$2" "${@:3}" >"$log" 2>&1 || rc=$?
	if ((rc == 0)); then
		grep -E '^(NOTE|Bandwidth|Failover|  .*data in flight|Data)' "$log" | sed 's/^/      /'
		result PASS "$name"
	else
		tail -n 8 "$log" | sed 's/^/      /'
		result FAIL "$name" "status $rc; $log"
	fi
}

plugin() {
	local over=("$build/dualrail" demo -g 0 --memory host --transport "nccl:$1" --verify) kind
	NCCL_SOCKET_IFNAME=lo shown report 300 "$build/dualrail" plugin "$1"
	export NCCL_SOCKET_IFNAME=rail
	shown bandwidth 120 "${over[@]}" --test bw -N 2 -D 3s
	for kind in link-down blackhole; do
		shown "$FAULTS x $kind" $((120 + FAULTS * 4)) "${over[@]}" --test failover -D 500ms --hold-down 200ms \
			--fault "$kind:path=0,at=100ms,for=300ms,repeat=$FAULTS,every=2s"
	done
}

program() {
	local name=${1##*/}
	command -v mpirun >/dev/null || { result SKIP "$name" "mpirun not found" && return; }
	shown "$name" 300 mpirun --allow-run-as-root --oversubscribe -np 2 -x LD_LIBRARY_PATH -x HA_NCCL_TRANSPORT=tcp \
		-x NCCL_SOCKET_IFNAME=lo "$1"
}

if [[ ${1-} == --plugin ]]; then
	plugin "$(realpath "${2:?FILE}")"
	shift 2
fi
if (($#)); then
	# They open it by this name.
	ln -sf "$build/libnccl-net-ha.so" "$out/libnccl-net.so"
	export LD_LIBRARY_PATH=$out${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	for file; do program "$(realpath "$file")"; done
fi
sum_up
