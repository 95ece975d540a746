#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image of k8s/Containerfile on a bare Debian 12 and runs its demo, as root. No container runtime, registry or base image
# from elsewhere is needed: debootstrap makes the base, buildah works by chroot.
#
#   scripts/image.sh BUILD
#
# Prints the sizes of base and image. Layers are in BUILD/image and are removed at the end, unless KEEP is set. MIRROR: of
# Debian packages. PACKAGES: as in the Containerfile. Status 77: it cannot run here.
set -euo pipefail

build=$(realpath "${1:?build folder}")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$build/image
PATH=$PATH:/usr/sbin:/sbin
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot

skip() {
	echo "SKIP: $*"
	exit 77
}

((EUID == 0)) || skip "needs root, for chroots"
mkdir -p "$work"
for tool in debootstrap buildah; do
	command -v $tool >/dev/null || apt-get install -y -q --no-install-recommends $tool >"$work/log" 2>&1 ||
		skip "$tool is not installed and cannot be: $work/log"
done

store() {
	buildah --root "$work/store" --runroot "$work/run" "$@"
}

clean_up() {
	store rm --all >/dev/null 2>&1 || :
	[[ ${KEEP-} ]] || rm -rf "$work/store" "$work/run"
}
trap clean_up EXIT

if [[ ! -d $work/base ]]; then
	debootstrap --variant=minbase bookworm "$work/base.new" ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 ||
		skip "debootstrap made no system: $(tail -n 1 "$work/log")"
	mv "$work/base.new" "$work/base"
fi
base=$(store from scratch)
cp -a "$work/base/." "$(store mount "$base")/"
store umount "$base" >/dev/null
store commit -q "$base" localhost/debian:bare >/dev/null
# The source alone: no build trees, no repository.
git -C "$root" ls-files -z | tar -C "$root" --null -T - -c | (rm -rf "$work/source" && mkdir "$work/source" && tar -x -C "$work/source")
store bud --build-arg BASE=localhost/debian:bare ${PACKAGES:+--build-arg "PACKAGES=$PACKAGES"} -f "$work/source/k8s/Containerfile" -t localhost/dualrail "$work/source" \
	>"$work/log" 2>&1 || { tail -n 20 "$work/log" && exit 1; }
store images --format '{{.Name}} {{.Size}}'
image=$(store from localhost/dualrail)
echo "runs as $(store run "$image" -- id)"
store run "$image" -- dualrail --version
store run "$image" -- dualrail demo --quiet
store run "$image" -- test -e /usr/lib/dualrail/libnccl-net-ha.so
# That all who run the image would share.
store run "$image" -- sh -c '! ls /etc/ssh/ssh_host_* 2>/dev/null'
echo "demo: PASS"
