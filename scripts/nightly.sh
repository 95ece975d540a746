#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long proof: all that .ci/run leaves out. `make nightly`
#
#   scripts/nightly.sh [PART...]      these parts (-l lists them), or all
#
# A part that passed on this commit is not repeated, so the same command goes on where it was stopped; AGAIN=1 repeats
# it. Results are in OUT (build/nightly). It ends with a table, a line for each gate of docs/VALIDATION_PLAN.md, what the
# failed parts printed, and `N passed, N failed, N skipped`; the exit status is 1 when something failed.
#
# Environment: SEEDS of sim (200000), SECS of each fuzzer (60), MUTANTS of each folder (30), TRIALS of chaos (200), RUNS of
# compare at each side (10), HOURS of soak (0.1): HOURS=24 make nightly PARTS=soak.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
jobs=$(nproc 2>/dev/null || echo 2)
export MAKEFLAGS="-j$jobs"
: "${OUT:=build/nightly}" "${SEEDS:=200000}" "${SECS:=60}" "${MUTANTS:=30}" "${TRIALS:=200}" "${RUNS:=10}" "${HOURS:=0.1}"
steps_dir=$OUT
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

# Part | limit in minutes | command | what it shows.
parts() {
	cat <<-END
		check | 60 | make check ALL=1 | all tests, also those that are slow or need a quiet machine
		address | 120 | make check ALL=1 SAN=address,undefined | all tests: memory errors, undefined behaviour
		thread | 120 | make check ALL=1 SAN=thread | all tests with threads: races
		lint | 60 | make lint ALL=1 | every rule and analyser over every file
		sim | 240 | make sim SEEDS=$SEEDS JOBS=$jobs | failover core: fresh schedules of faults in virtual time
		exhaustive | 60 | make exhaustive-full | failover core: every interleaving of small scopes
		mutants | 60 | make mutants | each invariant of the protocol has a test that finds its bug
		mutate | 240 | make mutate N=$MUTANTS | fresh random bugs in the data path: which ones no test finds
		fuzz | 120 | make fuzz SECS=$SECS | parsers of foreign bytes, beyond the corpus
		torture | 240 | make torture | each allocation and system call of a run fails once
		attack | 180 | make check-attack-long | hostile peers, strangers and men in the middle
		outside | 60 | make check-outside | faults by ip, tc, nft and ss: verdicts and stalls
		chaos | 120 | make chaos TRIALS=$TRIALS | drawn faults on real sockets, beside an observer
		kills | 120 | make kills | no fault stays behind, whatever is killed
		lab | 120 | make check-lab | verbs on two emulated nodes with RDMA devices
		browser | 20 | make check-report | pages in headless Chromium
		packages | 60 | make check-packages | Debian and RPM packages, in a bare chroot
		schedulers | 60 | make check-schedulers | sweep under Open MPI and Slurm
		image | 60 | make image | the container image and its demo
		fleet | 120 | make exonerate | sweeps: false and missed findings
		compare | 120 | make check-compare RUNS=$RUNS | compare: false alarms and power
		cycles | 70 | make plugin-cycles | the NCCL plugin: nothing is left after 10,000 comms
		gpu | 60 | make check-gpu | GPU memory, real NCCL
		gates | 60 | scripts/gates.sh | the gates of an NCCL transport
		soak | $(awk -v h="$HOURS" 'BEGIN { print int(h * 60) + 30 }') | make soak HOURS=$HOURS | verified data while links flap; goes on where it was stopped
	END
}

# field PART NUMBER: a column of its line in parts.
field() {
	parts | awk -F ' [|] ' -v part="$1" -v n="$2" '$1 == part { print $n }'
}

shows() {
	field "$1" 4
}

# passed PART: it has passed on this commit.
passed() {
	local p f rest
	[[ ! ${AGAIN-} && -e $OUT/$1.result ]] && read -r p f rest <"$OUT/$1.result" && ((f == 0))
}

main() {
	local names=() commit part command
	(($#)) || mapfile -t names < <(parts | cut -d ' ' -f 1)
	names+=("$@")
	if [[ ${1-} == -l ]]; then
		parts | awk -F ' [|] ' '{ printf "%-12s %s\n", $1, $4 }'
		return
	fi
	for part in "${names[@]}"; do
		[[ $(field "$part" 1) ]] || { echo "nightly.sh: there is no part \"$part\"; -l lists them" >&2 && return 1; }
	done
	commit=$(git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)
	mkdir -p "$OUT"
	[[ $commit == "$(cat "$OUT/commit" 2>/dev/null)" && $commit != *-dirty && $commit != unknown ]] || rm -f "$OUT"/*.result
	echo "$commit" >"$OUT/commit"
	step setup 30 scripts/setup.sh build test # a part that needs more installs it
	step build 60 make all tests
	for part in "${names[@]}"; do
		if passed "$part"; then
			echo "=== $part: has passed on $commit"
		else
			read -ra command <<<"$(field "$part" 3)"
			step "$part" "$(field "$part" 2)" "${command[@]}"
		fi
	done
	grep -hE '^(PASS|FAIL|SKIP)  gate [0-9]' "$OUT/gates.log" 2>/dev/null
	table setup build "${names[@]}"
}

main "$@"
