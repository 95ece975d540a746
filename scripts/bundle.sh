#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pack dist/dualrail-VERSION-ARCH.tar.gz from a build tree: a folder that runs where it is unpacked.
#
#   scripts/bundle.sh BUILD VERSION      (make bundle)
#
# bin/dualrail and the NCCL plugin in lib/dualrail/ find lib/ relative to themselves (RPATH); lib/ holds every shared
# library that they need, except glibc's. The scripts find bin/ relative to themselves. NCCL_LINKS: other names of the
# plugin.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1 version=$2
name=dualrail-$version-$(uname -m)
stage=$build/bundle/$name

# glibc comes from the host, because it must match the host's dynamic linker.
libraries() {
	ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
		grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|BrokenLocale))\.so\.[0-9]+$'
}

# The newest GLIBC_x.y version that the files require.
glibc_needed() {
	local f
	for f in "$@"; do objdump -T "$f"; done | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -Vu | tail -n 1
}

main() {
	local binaries=("$build/bundle/dualrail" "$build/bundle/libnccl-net-ha.so") lib libs needed
	rm -rf "$stage"
	mkdir -p "$stage/bin" "$stage/lib/dualrail" "$stage/share/man/man1" dist
	install -m 755 "${binaries[0]}" "$stage/bin/dualrail"
	install -m 755 "${binaries[1]}" "$stage/lib/dualrail/"
	for lib in $NCCL_LINKS; do ln -s libnccl-net-ha.so "$stage/lib/dualrail/$lib"; done
	mapfile -t libs < <(libraries "${binaries[@]}")
	for lib in "${libs[@]}"; do
		install -m 755 "$(readlink -f "$lib")" "$stage/lib/$(basename "$lib")"
	done
	install -m 644 "$build/dualrail.1" "$stage/share/man/man1/"
	install -D -m 644 "$build/dualrail.bash" "$stage/share/bash-completion/completions/dualrail"
	cp -R scripts "$stage/"
	# These are useful in the source tree only.
	rm -rf "$stage/scripts/"{lint*,check.sh,exports.sh,bundle.sh,setup.sh,packages}
	install -m 644 LICENSE VERSION "$stage/"
	[[ -e README.md ]] && install -m 644 README.md "$stage/"
	needed=$(glibc_needed "$stage/bin/dualrail" "$stage"/lib/*.so* "$stage"/lib/dualrail/libnccl-net-ha.so)
	tar -C "$build/bundle" --owner=0 --group=0 --sort=name -czf "dist/$name.tar.gz" "$name"
	echo "dist/$name.tar.gz: $(du -h "dist/$name.tar.gz" | cut -f 1), ${#libs[@]} libraries, needs ${needed/_/ } or newer"
}

main
