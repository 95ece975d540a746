#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Example of a prolog of Slurm (slurm.conf: Prolog=.../prolog.sh): checks the node before a job starts on it, and drains it on a bad
# verdict. Runs as root on each node of the job.
#
# DUALRAIL_PEER   host with `dualrail server` (scripts/systemd), another one than this node; its address in the management network
# DUALRAIL_KEY_FILE  key of that server (/etc/dualrail/key if there is one); without it a server with a key refuses every check
# DUALRAIL_BASE   baseline that `dualrail preflight --save-baseline` wrote on this node
#
# Status 6 (wrong data) and 7 (below the baseline) drain the node, and Slurm requeues the job. Other failures, such as a server that
# does not answer, say nothing about this node: they are logged, and the job starts.
set -u

peer=${DUALRAIL_PEER:-}
base=${DUALRAIL_BASE:-/var/lib/dualrail/baseline.json}
node=${SLURMD_NODENAME:-$(hostname -s)}
if [[ -z ${DUALRAIL_KEY_FILE:-} && -e /etc/dualrail/key ]]; then
	export DUALRAIL_KEY_FILE=/etc/dualrail/key
fi
if [[ -z $peer ]]; then
	logger -t dualrail-prolog "DUALRAIL_PEER is not set: not checked"
	exit 0
fi

line=$("${DUALRAIL:-dualrail}" preflight "$peer" --baseline "$base" 2>&1)
status=$?
line=$(tail -n 1 <<<"$line")
logger -t dualrail-prolog "status $status: $line"
if ((status == 6 || status == 7)); then
	scontrol update nodename="$node" state=drain reason="dualrail: ${line:0:200}"
	exit 1
fi
exit 0
