#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dualrail sweep under Debian's Open MPI and Slurm: makes a Debian 12 of its own, installs them there and runs
# tests/schedulers in it, as root.
#
#   scripts/schedulers.sh BUILD [OPTIONS OF BATS...]
#
# Not on this system, for openmpi-bin brings plugins of hwloc, and Slurm daemons with fixed ports and folders. The system is
# made once, by debootstrap, in BUILD/schedulers. Namespaces of mounts, network and processes end with the tests. MIRROR:
# of Debian packages. Status 77: it cannot run here.
set -euo pipefail

build=$(realpath "${1:?build folder}")
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
system=$build/schedulers
packages=(openmpi-bin slurmctld slurmd slurm-client munge bats jq iproute2 procps python3-jsonschema libjansson4 libsodium23
	libmnl0 libnftnl11 libmicrohttpd12 libhwloc15 libnuma1 libibverbs1)

skip() {
	echo "SKIP: $*"
	exit 77
}

((EUID == 0)) || skip "needs root, for a chroot and network namespaces"
PATH=$PATH:/usr/sbin:/sbin

make_system() {
	command -v debootstrap >/dev/null || apt-get install -y -q debootstrap >"$build/schedulers.log" 2>&1 ||
		skip "debootstrap is not installed and cannot be: $build/schedulers.log"
	rm -rf "$system" "$system.new"
	debootstrap --variant=minbase bookworm "$system.new" ${MIRROR:+"$MIRROR"} >"$build/schedulers.log" 2>&1 ||
		skip "debootstrap made no system: $(tail -n 1 "$build/schedulers.log")"
	# Nothing is started by its installation.
	printf '#!/bin/sh\nexit 101\n' >"$system.new/usr/sbin/policy-rc.d"
	chmod +x "$system.new/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf "$system.new/etc/resolv.conf"
	chroot "$system.new" env DEBIAN_FRONTEND=noninteractive sh -c \
		'apt-get update -q && exec apt-get install -y -q --no-install-recommends "$@"' sh "${packages[@]}" \
		>>"$build/schedulers.log" 2>&1 || skip "packages were not installed: $(tail -n 1 "$build/schedulers.log")"
	mv "$system.new" "$system"
}

[[ -d $system ]] || make_system
# The root of a namespace has to be a mount, for `ip netns exec` changes how it propagates.
# shellcheck disable=SC2016 # of that shell
exec unshare --mount --net --pid --fork --kill-child bash -c '
	set -e
	system=$1 root=$2 build=$3
	shift 3
	mount --make-rprivate /
	mount --rbind "$system" "$system"
	mount -t proc proc "$system/proc"
	mount -t sysfs sysfs "$system/sys"
	mount --rbind /dev "$system/dev"
	mount -t tmpfs tmpfs "$system/run"
	mount -t tmpfs tmpfs "$system/tmp"
	mkdir -p "$system/source" "$system/build"
	mount --bind "$root" "$system/source"
	mount --bind "$build" "$system/build"
	ip link set lo up
	exec chroot "$system" env HOME=/root TMPDIR=/tmp DR_SCHEDULERS=1 DR_ROOT=/source DUALRAIL=/build/dualrail \
		bats "$@" /source/tests/schedulers/schedulers.bats
' schedulers "$system" "$root" "$build" "$@"
