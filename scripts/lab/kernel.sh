#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian's stock kernel and the lab's initramfs, in a folder of their own; nothing is installed.
#
#   scripts/lab/kernel.sh          prints the folder; it holds vmlinuz, initrd and lib/modules
#
# Environment: LAB_CACHE, where it is kept ($XDG_CACHE_HOME or ~/.cache, dualrail-lab); LAB_DEB, a
# downloaded linux-image-*.deb to use. Exit status 77: it cannot be had here, the message says why.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dualrail-lab}
PATH=$PATH:/usr/sbin:/sbin

# In the order in which init loads them, each with what it needs; rxe asks for crc32 by itself, which
# works only once /lib/modules is there.
modules=(virtio_pci virtio_net virtio_console virtio_rng 9pnet_virtio 9p overlay ipv6
	crc32_generic rdma_rxe rdma_ucm ib_uverbs)

skip() {
	echo "lab: $*" >&2
	exit 77
}

# The newest full kernel: not -cloud- (no rdma_rxe), not -rt-, not -unsigned. 6.1 is the one that the
# notes on rxe's behaviour are about; without it the one that this Debian's metapackage names.
newest() {
	{
		apt-cache pkgnames linux-image-6.1.0- | grep -E -- '^linux-image-6\.1\.0-[0-9]+-amd64$' | sort -V
	} || apt-cache depends linux-image-amd64 2>/dev/null |
		awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9.]+.*-amd64$/ { print $2 }'
}

# download DIR: the package into DIR.
download() {
	local package log=$1/apt.log try
	command -v apt-get >/dev/null || skip "needs Debian's kernel package, and there is no apt-get here"
	[[ $(uname -m) == x86_64 ]] || skip "the lab's guests are x86-64, this machine is $(uname -m)"
	for try in 1 2; do
		package=$(newest | tail -n 1)
		if [[ $package ]]; then
			echo "lab: downloading $package" >&2
			(cd "$1" && apt-get -qq -o APT::Sandbox::User=root download "$package") >"$log" 2>&1 && return
		fi
		((try == 2)) || apt-get -qq update >"$log" 2>&1 || true
	done
	skip "linux-image-6.1.0-*-amd64 cannot be downloaded: $(tail -n 1 "$log")"
}

# unpack: the kernel into $cache/VERSION, under a temporary name until it is whole.
unpack() {
	local work version
	work=$(mktemp -d "$cache/new.XXXXXX")
	# shellcheck disable=SC2064 # the folder as it is named now
	trap "rm -rf '$work'" EXIT
	if [[ ${LAB_DEB-} ]]; then
		cp "$LAB_DEB" "$work/"
	else
		download "$work"
	fi
	dpkg -x "$work"/linux-image-*.deb "$work/k"
	version=$(basename "$work"/k/lib/modules/*)
	# What no guest here has.
	rm -rf "$work"/k/lib/modules/"$version"/kernel/{sound,drivers/{gpu,media,staging,iio,usb,hid,scsi}}
	depmod -b "$work/k" "$version" 2>/dev/null
	mv "$work"/k/boot/vmlinuz-"$version" "$work/k/vmlinuz"
	rm -rf "$work"/k/usr "$work"/k/boot
	touch "$work/k/whole"
	rm -rf "${cache:?}/$version"
	mv "$work/k" "$cache/$version"
	rm -rf "$work"
	trap - EXIT
}

# pack VERSION FILE: busybox, init and the modules, uncompressed: unpacking is emulated too.
pack() {
	local root n=0 module line
	root=$(mktemp -d)
	mkdir -p "$root"/{bin,m,proc,sys,dev,lower,rw,new}
	cp "$(command -v busybox)" "$root/bin/busybox"
	install -m 755 "$here/init" "$root/init"
	install -m 755 "$here/agent" "$root/agent"
	for module in "${modules[@]}"; do
		while read -r _ line _; do
			[[ ! -e $(echo "$root"/m/*-"$(basename "$line")") ]] || continue
			cp "$line" "$root/m/$(printf %02d "$n")-$(basename "$line")"
			n=$((n + 1))
		done < <(modprobe -d "$cache/$1" -S "$1" --show-depends "$module" | grep ^insmod)
	done
	(cd "$root" && find . | cpio --quiet -o -H newc) >"$2"
	rm -rf "$root"
}

main() {
	local version whole
	mkdir -p "$cache" || skip "cannot write $cache"
	exec {lock}>"$cache/lock"
	flock "$lock"
	whole=$(find "$cache" -mindepth 2 -maxdepth 2 -name whole | sort -V | tail -n 1)
	if [[ ! $whole ]]; then
		unpack
		whole=$(find "$cache" -mindepth 2 -maxdepth 2 -name whole | sort -V | tail -n 1)
	fi
	version=$(basename "$(dirname "$whole")")
	if [[ ! -s $cache/$version/initrd || $here/init -nt $cache/$version/initrd ||
		$here/agent -nt $cache/$version/initrd || $here/kernel.sh -nt $cache/$version/initrd ]]; then
		pack "$version" "$cache/$version/initrd.$$"
		mv "$cache/$version/initrd.$$" "$cache/$version/initrd"
	fi
	echo "$cache/$version"
}

main
