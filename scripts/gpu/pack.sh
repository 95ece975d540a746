#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pack what `make check-gpu` runs, for a GPU machine that cannot build it.
#
#   scripts/gpu/pack.sh BUILD DIR [BUNDLE]
#
# The program is that of the tarball which users get (dist/dualrail-VERSION-ARCH.tar.gz of `make bundle`, or BUNDLE), unpacked
# into DIR/bundle with the libraries that it brings. DIR then has the shape of a build tree, with the tests, their
# libraries in lib/, and ip, ss and nft in bin/; carry it together with this repository, and there run
#   . DIR/env.sh && scripts/gpu/check.sh DIR
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$1 dir=$2 bundle=${3-}
programs=(tests/gpu/device_test tests/gpu/gpu_main tests/gpu/cuda_abi_test tests/plugins/gpu_test
	tests/plugins/libnccl-net-fake.so)
# PACK_TOOLS: more of them, for benchmarks there.
# shellcheck disable=SC2206
tools=(ip ss nft ${PACK_TOOLS-})

# glibc's own parts come from the host.
libraries() {
	ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
		grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+))\.so\.[0-9]+$' || :
}

# into FOLDER FILE...: the libraries that they need.
into() {
	local folder=$1 lib
	shift
	mkdir -p "$folder"
	for lib in $(libraries "$@"); do
		install -m 755 "$(readlink -f "$lib")" "$folder/$(basename "$lib")"
	done
}

# A tool behind a wrapper, so that only the tool itself sees its libraries, not what it starts.
add_tool() {
	local tool=$1 path
	path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$tool") || return 0
	install -m 755 -s "$path" "$dir/tools/$tool.bin"
	into "$dir/tools" "$path"
	cat >"$dir/bin/$tool" <<-EOF
		#!/bin/sh
		here=\$(cd "\$(dirname "\$0")/../tools" && pwd)
		exec /lib64/ld-linux-x86-64.so.2 --library-path "\$here" "\$here/$tool.bin" "\$@"
	EOF
	chmod 755 "$dir/bin/$tool"
}

# The tarball's program runs from where it was unpacked, with its own libraries, whatever LD_LIBRARY_PATH is.
add_bundle() {
	[[ $bundle ]] || bundle=dist/dualrail-$(cat VERSION)-$(uname -m).tar.gz
	[[ -e $bundle ]] || {
		echo "$bundle is not there: run make bundle" >&2
		exit 1
	}
	mkdir -p "$dir/bundle"
	tar -C "$dir/bundle" --strip-components=1 -xzf "$bundle"
	ln -s bundle/bin/dualrail "$dir/dualrail"
	ln -s bundle/lib/dualrail/libnccl-net-ha.so "$dir/libnccl-net-ha.so"
}

main() {
	local p
	rm -rf "$dir"
	mkdir -p "$dir/bin" "$dir/tools" "$dir/gpu" "$dir/tests/gpu" "$dir/tests/plugins"
	add_bundle
	for p in "${programs[@]}"; do
		install -m 755 -s "$build/$p" "$dir/$p"
		into "$dir/lib" "$build/$p"
	done
	for p in "${tools[@]}"; do
		add_tool "$p"
	done
	cat >"$dir/env.sh" <<-'EOF'
		here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
		export PATH=$here/bin:$PATH LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	EOF
	du -sh "$dir"
}

main
