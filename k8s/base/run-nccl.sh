#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MODE=nccl in one pod: a process per GPU, first with NCCL's own network (Socket or IB, as NCCL_IB_DISABLE says), then
# with libnccl-net-ha.so. Environment: WORLD_SIZE, GPUS_PER_NODE, COORDINATOR, COORDINATOR_PORT, JOB_COMPLETION_INDEX, NCCL_*;
# NCCL_PART, check or measure (both); COLLECTIVES, the program, and PLUGIN (in /usr/lib/dualrail).
# Ranks find each other through NCCL_COMM_ID, the address of rank 0. Exit status: 0, or that of the first process that failed.
set -u
program=${COLLECTIVES:-/usr/lib/dualrail/collectives}
plugin=${PLUGIN:-/usr/lib/dualrail/libnccl-net-ha.so}
first=$((JOB_COMPLETION_INDEX * GPUS_PER_NODE))
ranks=$((WORLD_SIZE * GPUS_PER_NODE))
port=$COORDINATOR_PORT
status=0

if ! [ -x "$program" ]; then
	echo "run-nccl.sh: $program is not in this image; build it with a BASE that has CUDA and NCCL, see k8s/README.md" >&2
	exit 1
fi

# run NAME PART VARIABLE=VALUE...
run() {
	name=$1 part=$2
	shift 2
	echo "== $name: $part, $ranks ranks"
	pids='' i=0
	while [ "$i" -lt "$GPUS_PER_NODE" ]; do
		env "$@" DEVICE="$i" NCCL_COMM_ID="$COORDINATOR:$port" "$program" $((first + i)) "$ranks" env "$part" &
		pids="$pids $!"
		i=$((i + 1))
	done
	for pid in $pids; do
		wait "$pid" || { rc=$?; [ "$status" -ne 0 ] || status=$rc; }
	done
	# The last root may still hold its port.
	port=$((port + 1))
}

for part in ${NCCL_PART:-check measure}; do
	run "NCCL's own network" "$part" NCCL_NET_PLUGIN=none
	run "dualrail's plugin" "$part" NCCL_NET_PLUGIN="$plugin" NCCL_NET=HA
done
exit "$status"
