#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Example of a prolog of Slurm (slurm.conf: Prolog=.../prolog.sh, PrologFlags=Alloc): checks the node before a job starts on it. Runs
# as root on each node of the job, with SLURM_* alone in its environment, so the settings are assignments in a file
# (/etc/default/dualrail-prolog, or the first argument):
#
# PEER            host with `dualrail server` (scripts/systemd), another one than this node; its address in the management network
# DUALRAIL_NAME   an option of `dualrail preflight`: DUALRAIL_KEY_FILE=/etc/dualrail/key, DUALRAIL_BASELINE=/var/lib/dualrail/good.json
# PATH            if `dualrail` is elsewhere
#
# Status 6 (wrong data) and 7 (below the baseline) end the prolog with 1: Slurm drains the node, with the reason "Prolog error", and
# requeues the job. A prolog must not call scontrol. Other failures, such as a server that does not answer, say nothing about this
# node: the job starts. The verdict is in the system log of the node.
set -u

settings=${1:-/etc/default/dualrail-prolog}
set -a
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=/dev/null
[[ ! -r $settings ]] || . "$settings"
set +a
if [[ -z ${PEER-} ]]; then
	logger -t dualrail-prolog "PEER is not set in $settings: not checked"
	exit 0
fi

line=$(dualrail preflight "$PEER" 2>&1)
status=$?
logger -t dualrail-prolog "status $status: ${line##*$'\n'}"
((status != 6 && status != 7))
