#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Applies the patches of tests/mutants one at a time, each a bug, and checks that a test finds it (make mutants).
#
#   scripts/mutants.sh [--all] [--schedules N] [--share N] [NAME...]
#
# NAME is a patch without its folder and ".patch", or the beginning of one; without any, all.
# --all runs every test of the list `killers` on each bug and names all that find it, not only the first.
# --share N plants each N-th bug only. The commit selects which, so that N commits in a row are likely to plant most of them;
# the others are counted as skipped.
#
# The unchanged tree must pass first. Then, for each bug, the patch is applied to a copy, and the killers are built
# and run one after another: those that the patch names, then the others, the cheapest first. A bug counts as found when a killer fails with the message of a
# checker or an assertion. A bad memory access, a hang or a rare state that was not reached does not count.
# A patch that does not apply or does not compile is a failure.
#
# The last line is `N passed, N failed, N skipped`; the exit status is 1 when a bug survived.
#
# Environment: B, the copies are made in B/mutants (build); JOBS, copies at a time (two per processor: tests also wait).
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1

jobs=${JOBS:-$((2 * $(nproc 2>/dev/null || echo 2)))}
schedules=2000
first_seed=1
limit_s=90 # of processor time, so that other work beside it does not matter

# The cheapest first; words behind the name are arguments.
killers=(
	channel/failover_test
	channel/failover_switch_test
	channel/failover_end_test
	channel/failover_close_test
	channel/failover_local_test
	channel/failover_time_test
	channel/channel_test
	channel/channel_life_test
	channel/heartbeat_test
	channel/heartbeat_number_test
	channel/heartbeat_starved_test
	channel/heartbeat_padded_test
	channel/heartbeat_mute_test
	channel/heartbeat_path_test
	channel/detect_test
	channel/peer_test
	channel/rate_test
	channel/rate_leave_test
	channel/manager_test
	channel/manager_channels_test
	channel/grey_test
	channel/lossy_test
	channel/slow_test
	channel/leave_test
	channel/frame_test
	channel/dgram_test
	window/window_test
	bootstrap/conv_test
	bootstrap/conv_seal_test
	bootstrap/noise_test
	bootstrap/key_test
	bootstrap/io_test
	bootstrap/io_end_test
	bootstrap/conv_text_test
	bootstrap/control_test
	bootstrap/acceptor_test
	base/source_test
	base/key_test
	base/file_test
	topology/locality_test
	topology/mtu_search_test
	transport/ncclnet/plugin_test
	transport/ncclnet/guard_test
	transport/ncclnet/lane_test
	transport/ncclnet/flush_test
	transport/ncclnet/iso_test
	transport/ncclnet/iso_path_test
	transport/ncclnet/iso_gpu_test
	gpu/share_test
	orchestrator/plan/transport_test
	orchestrator/engine/gaps_test
	orchestrator/engine/stream_gaps_test
	orchestrator/record/delivery_gap_test
	orchestrator/session/campaign_gaps_test
	orchestrator/session/campaign_nics_test
	orchestrator/session/inject_test
	orchestrator/sweep/confirm_test
	orchestrator/fault/state_test
	orchestrator/fault/guard_test
	plugin/match_test
	base/privileges_test
	plugin/plan_test
	plugin/names_test
	plugin/config_test
	plugin/device_test
	bootstrap/rdv_handle_test
	plugin/session_test
	library/request_test
	library/library_test
	bootstrap/rdv_test
	transport/tcp/tcp_hs_test
	transport/tcp/tcp_info_test
	transport/tcp/tcp_test
	transport/tcp/tcp_rail_test
	transport/verbs/verbs_hs_test
	transport/verbs/where_test
	transport/ncclnet/ncclnet_wire_test
	transport/verbs/probe_test
	transport/verbs/path_test
	tests/fakeverbs/unsafe_test
	tests/fakeverbs/fill_test
	tests/fakeverbs/failback_test
	tests/conformance/staged_test
	"tests/conformance/conformance_test tcp*"
	tests/sim/sim_test
	tests/exhaustive/exhaustive_test
	"tests/exhaustive/exhaustive_main kind=stream parts=1 faults=1 cold=1 lazy=1"
	"tests/exhaustive/exhaustive_main kind=stream parts=1 faults=2 prompt=1"
	"tests/exhaustive/exhaustive_main kind=stream parts=2 faults=2 prompt=1"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 idle=1 faults=2 may=17"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 idle=1 faults=1 may=2"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 cold=1 faults=1 may=3"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 faults=1 may=4 stop_ms=31000 stride_ms=2000"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 idle=1 faults=1 may=1 leaves=1"
	"tests/exhaustive/exhaustive_main kind=stream clock=1 parts=1 idle=1 flaps=1 faults=0 stride_ms=50"
)
dirs="base window bootstrap transport transport/tcp transport/verbs transport/staged transport/ncclnet topology gpu channel library orchestrator/* plugin tests/conformance tests/fakeverbs tests/fakeverbs/ibverbs tests/sim tests/exhaustive"

# build COPY JOBS KILLER...: these killers of a copy of the tree.
build() {
	local copy=$1 jobs=$2 killer targets=(b/tests/fakeverbs/ibverbs_plugin.so b/tests/fakecuda/cuda_plugin.so)
	shift 2
	for killer in "$@"; do targets+=("b/${killer%% *}"); done
	make -s -C "$copy" -j"$jobs" B=b CFLAGS='-O1 -g0' DIRS="$dirs" "${targets[@]}"
}

# order [PATCH]: sets queue to the killers, those that the patch names in its first line before the others.
order() {
	local by='' killer name rest=()
	queue=()
	if (($#)); then by=$(sed -n '1s/.*killed by: *//p' "$1"); fi
	for killer in "${killers[@]}"; do
		name=${killer%% *}
		name=${name##*/}
		case $name in
		sim_test) name=sim ;;
		exhaustive_*) name=exhaustive ;;
		esac
		if [[ $by == *"$name"* ]]; then queue+=("$killer"); else rest+=("$killer"); fi
	done
	queue+=("${rest[@]}")
}

# Sets found (empty, or how LOG shows the bug) and odd (empty, or an end that shows nothing).
judge() {
	local killer=$1 rc=$2 log=$3 name='' seed
	found='' odd=''
	((rc == 0)) && return
	if ((rc == 124 || rc == 137 || rc == 152)); then
		odd="did not finish within $limit_s s"
		return
	fi
	case $killer in
	*/sim_test)
		# A schedule that a checker refused; "assert" is a process that ended, for whatever reason.
		found=$(grep -E '^FAIL seed [0-9]+: ' "$log" | grep -v '^FAIL seed [0-9]*: assert: ' |
			sort -t ' ' -k 3n | head -n 1)
		if [[ $found ]]; then
			seed=${found#FAIL seed }
			seed=${seed%%:*}
			found="sim: ${found#*: } (after $((seed - first_seed + 1)) schedules)"
			return
		fi
		name=sim
		;;
	*/exhaustive_*)
		found=$(grep -m 1 '^BROKEN ' "$log")
		if [[ $found ]]; then
			found="exhaustive: ${found#*: }"
			return
		fi
		name=exhaustive
		;;
	*) name=${killer##*/} ;;
	esac
	found=$(grep -m 1 'assertion failed: ' "$log")
	if [[ $found ]]; then
		found="$name: ${found#*bug at }"
	elif grep -q 'exception: ' "$log"; then
		odd=$(grep -m 1 -o 'exception: .*' "$log")
	elif grep -q '^\[  FAILED  \] ' "$log"; then
		found="$name: $(sed -n 's/^\[  FAILED  \] //p' "$log" | grep -v ' ' | head -n 1)"
	elif grep -q '^misuse: ' "$log"; then # what the emulated GPUs say at the end of a test
		found="$name: $(grep -m 1 '^misuse: ' "$log")"
	else
		odd="exit status $rc"
	fi
}

# hunt COPY [LOG]: builds and runs the killers of queue. Sets by (lines, one for each that found the bug) and odds.
hunt() {
	local copy=$1 killer rc log=${2:-$1/log}
	by=() odds=()
	for killer in "${queue[@]}"; do
		if ! build "$copy" 1 "$killer" >"$log" 2>&1; then
			odds+=("${killer##*/}: does not build")
			continue
		fi
		# Without the shell's own report of a test that aborts.
		{
			(
				cd "$copy" || exit 125
				ulimit -t "$limit_s"
				# shellcheck disable=SC2086
				SEED=$first_seed SEEDS=$schedules SHRINK=0 timeout -k 5 "$((limit_s * 10))" b/$killer
			) >"$log" 2>&1 </dev/null
			rc=$?
		} 2>/dev/null
		judge "${killer%% *}" "$rc" "$log"
		[[ $odd ]] && odds+=("${killer##*/}: $odd")
		[[ $found ]] || continue
		by+=("$found")
		if [[ ! $every ]]; then break; fi
	done
}

# share K: each jobs-th killer from the K-th on, on the tree as it is. What failed goes to the file unchanged.K.
share() {
	local k
	queue=()
	for ((k = $1; k < ${#killers[@]}; k += jobs)); do queue+=("${killers[k]}"); done
	every=1 hunt "$work/tree" "$work/log.$1"
	printf '%s\n' "${by[@]}" "${odds[@]}" | grep . >"$work/unchanged.$1"
}

# unchanged: runs all killers on the tree as it is. Status 1, and what failed on stdout, when one fails.
unchanged() {
	local k
	for ((k = 0; k < jobs; k++)); do share "$k" & done
	wait
	! cat "$work"/unchanged.* | grep .
}

# one COPY PATCH: prints what became of the bug. Status 1 when it survived, or was no bug.
one() {
	local copy=$1 file=$2 name rc=0 text start=$SECONDS
	name=${file##*/}
	name=${name%.patch}
	# A copy of the built tree costs less than building what the last bug changed once more.
	rm -rf "$copy"
	cp -a "$work/tree" "$copy" || return 1
	if ! patch -d "$copy" -p1 -F0 -s -N --dry-run <"$file" >"$copy/log" 2>&1; then
		printf 'FAIL  %s does not apply any more: %s\n' "$name" "$(head -n 1 "$copy/log")"
		return 1
	fi
	patch -d "$copy" -p1 -F0 -s -N --no-backup-if-mismatch <"$file" >/dev/null
	order "$file"
	if build "$copy" 1 "${queue[0]}" >"$copy/log" 2>&1; then
		hunt "$copy"
		if ((${#by[@]})); then
			text=$(printf '\n        %s' "${by[@]:1}")
			printf 'killed  %s by %s (%d s)%s\n' "$name" "${by[0]}" $((SECONDS - start)) "${by[1]:+$text}"
		else
			printf 'SURVIVED  %s%s\n' "$name" "${odds[0]:+ ($(printf '%s; ' "${odds[@]}"))}"
			rc=1
		fi
	else
		printf 'FAIL  %s does not compile: %s\n' "$name" "$(grep -m 1 'error:' "$copy/log")"
		rc=1
	fi
	return $rc
}

# worker COPY PATCH...: takes what no other worker has taken.
worker() {
	local copy=$1 file
	shift
	for file in "$@"; do
		mkdir "$work/taken/${file##*/}" 2>/dev/null || continue
		one "$copy" "$file" && touch "$work/taken/${file##*/}/killed"
	done
}

# The sources that are there, without what git ignores.
copy_tree() {
	mkdir -p "$1"
	if [[ -e .git ]]; then
		git ls-files -co --exclude-standard -z -- Makefile VERSION scripts \
			base window bootstrap transport topology gpu channel library orchestrator plugin tests/sim tests/faulty tests/exhaustive \
			tests/conformance tests/fakeverbs tests/fixtures/topology tests/minplug tests/faketcpx tests/fakegdr tests/badplug tests/fakecuda \
			docs/NCCL_PLUGIN.md |
			while IFS= read -r -d '' f; do [[ -e $f ]] && printf '%s\0' "$f"; done
	else
		find Makefile VERSION scripts base window bootstrap transport topology gpu channel library orchestrator plugin \
			tests/sim tests/faulty tests/exhaustive tests/conformance tests/fakeverbs tests/fixtures/topology \
			tests/minplug tests/faketcpx tests/fakegdr tests/badplug tests/fakecuda docs/NCCL_PLUGIN.md -type f -print0
	fi | tar --null -T - -cf - | tar -xf - -C "$1"
}

# narrow N: leaves each N-th file of files, beginning with one that the commit selects.
narrow() {
	local n=$1 first i some=()
	[[ $n =~ ^[1-9][0-9]{0,3}$ ]] || {
		echo "--share: a number from 1 to 9999" >&2
		exit 1
	}
	first=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % n))
	for ((i = first; i < ${#files[@]}; i += n)); do some+=("${files[i]}"); done
	omitted=$((${#files[@]} - ${#some[@]}))
	echo "SKIP  $omitted of ${#files[@]} bugs  (--share $n, those from number $first on; without it all are planted)"
	files=("${some[@]}")
}

main() {
	local word file names=() files=() i killed text omitted=0 share=1
	every=
	while (($#)); do
		word=$1
		shift
		case $word in
		--all) every=1 ;;
		--schedules)
			schedules=$1
			shift
			;;
		--share)
			share=$1
			shift
			;;
		-*)
			sed -n '5,10s/^# \{0,1\}//p' "$0" >&2
			exit 1
			;;
		*) names+=("$word") ;;
		esac
	done
	((${#names[@]})) || names=('')
	for word in "${names[@]}"; do
		for file in tests/mutants/"$word"*.patch; do
			[[ -e $file ]] && files+=("$root/$file")
		done
	done
	if ((${#files[@]} == 0)); then
		echo "no such bug in tests/mutants" >&2
		exit 1
	fi
	((share == 1)) || narrow "$share"
	work=${B:-build}/mutants
	[[ $work == /* ]] || work=$root/$work
	rm -rf "$work"
	mkdir -p "$work/taken"
	# The makes below are no part of the one that called.
	unset MAKEFLAGS MAKELEVEL MFLAGS B

	copy_tree "$work/tree"
	order
	build "$work/tree" "$jobs" "${queue[@]}" >"$work/log" 2>&1 || {
		cat "$work/log"
		echo "the tree as it is does not build"
		exit 1
	}
	text=$(unchanged) || {
		printf 'FAIL  the tree as it is: %s\n' "$text"
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	}
	echo "the tree as it is passes; ${#files[@]} bugs to plant, $schedules schedules each"
	trap 'kill $(jobs -p) 2>/dev/null' INT TERM
	for ((i = 1; i <= jobs; i++)); do worker "$work/$i" "${files[@]}" & done
	wait
	killed=$(find "$work/taken" -name killed | wc -l)
	echo "$killed passed, $((${#files[@]} - killed)) failed, $omitted skipped"
	((killed == ${#files[@]}))
}

main "$@"
