#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a pod runs. Environment: MODE, WORLD_SIZE, GPUS_PER_NODE, PATTERN, COORDINATOR, COORDINATOR_PORT, JOIN_TIMEOUT, SERVER_OPTIONS,
# DUALRAIL_OPTIONS, JAEGER_AGENT_HOST (ConfigMap dualrail-options); JOB_COMPLETION_INDEX (set by Kubernetes) or OMPI_COMM_WORLD_RANK is the rank.
#
#   sweep   dualrail sweep on every pod; rank 0 coordinates and has the document
#   pair    rank 0 is a server for one run, rank 1 its client, which has the document and sends the trace
#   nccl    NCCL's collectives on all GPUs (run-nccl.sh)
#
# The documents are left in RESULTS (/var/lib/dualrail). They are also printed, packed, between two lines that deploy.sh finds in the
# log, for a finished pod's volume cannot be read. The exit status is dualrail's. As process 1 it passes SIGTERM on, upon which dualrail
# undoes its fault; a process 1 without a trap would not see it.
set -u
rank=${JOB_COMPLETION_INDEX:-${OMPI_COMM_WORLD_RANK:-}}
results=${RESULTS:-/var/lib/dualrail}
: "${MODE:=sweep}" "${JOIN_TIMEOUT:=10m}" "${DUALRAIL_OPTIONS:=}" "${SERVER_OPTIONS:=}" "${GPUS_PER_NODE:=0}" "${JAEGER_AGENT_HOST:=}"

stop() {
	echo "run.sh: $1" >&2
	exit 1
}
[ -n "$rank" ] || stop "no rank: JOB_COMPLETION_INDEX is not set; the Job needs completionMode: Indexed"
[ "$MODE" != pair ] || [ "$WORLD_SIZE" -eq 2 ] || stop "MODE=pair needs WORLD_SIZE=2, not $WORLD_SIZE; use MODE=sweep"
[ "$MODE" != nccl ] || [ "$GPUS_PER_NODE" -gt 0 ] || stop "MODE=nccl needs GPUS_PER_NODE=1 or more"

# Kubernetes lets the pod's group read the Secret, which dualrail refuses.
key=$(mktemp -p /dev/shm) && cat "${KEY_FILE:-/etc/dualrail-key/key}" >"$key"
trap 'rm -f "$key"' EXIT

# 0 GPUs: data in host memory.
if [ "$GPUS_PER_NODE" -gt 0 ]; then
	DUALRAIL_OPTIONS="-g 0-$((GPUS_PER_NODE - 1)) $DUALRAIL_OPTIONS"
fi

pack() {
	[ -s "$1" ] || return 0
	echo "-----BEGIN DUALRAIL RESULT ${1##*/}-----"
	gzip -c "$1" | base64
	echo "-----END DUALRAIL RESULT-----"
}

# The options of DUALRAIL_OPTIONS and SERVER_OPTIONS are words.
# shellcheck disable=SC2086
case $MODE-$rank in
sweep-*)
	dualrail sweep --nodes "$WORLD_SIZE" --rank "$rank" --coordinator "$COORDINATOR:$COORDINATOR_PORT" --pattern "$PATTERN" \
		--key-file "$key" --join-timeout "$JOIN_TIMEOUT" --json="$results/sweep-$rank.json" $DUALRAIL_OPTIONS &
	;;
pair-0)
	dualrail server --port "$COORDINATOR_PORT" --key-file "$key" --one-off --metrics-listen "${METRICS:-0.0.0.0:9464}" $SERVER_OPTIONS &
	;;
pair-1)
	dualrail client "$COORDINATOR:$COORDINATOR_PORT" --key-file "$key" --connect-timeout "$JOIN_TIMEOUT" --prom "$results/pair.prom" \
		--json="$results/pair.json" ${JAEGER_AGENT_HOST:+--trace "$results/pair.trace"} $DUALRAIL_OPTIONS &
	;;
nccl-*)
	JOB_COMPLETION_INDEX=$rank sh "${0%/*}/run-nccl.sh" &
	;;
*)
	stop "MODE=$MODE, rank $rank: MODE is sweep, pair or nccl"
	;;
esac
pid=$!
# A command in the background ignores SIGINT.
trap 'kill "$pid"' TERM INT
# A signal ends wait, too.
until wait "$pid"; status=$?; ! kill -0 "$pid" 2>/dev/null; do :; done
if [ -s "$results/pair.trace" ]; then
	curl -sS -f -m 10 -o /dev/null -H "Content-Type: application/json" -d "@$results/pair.trace" \
		"http://$JAEGER_AGENT_HOST:4318/v1/traces" || echo "run.sh: warning: the trace was not sent to $JAEGER_AGENT_HOST" >&2
fi
for file in "$results"/*.json "$results"/*.prom; do pack "$file"; done
exit "$status"
