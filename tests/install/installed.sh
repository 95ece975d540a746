#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What users start: the demo, `make install` and the archive of `make bundle`, used from elsewhere. `make check-install`
#
#   tests/install/installed.sh BUILD
#
# The last line is `N passed, N failed, N skipped`, the exit status 1 when something failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=$1
# shellcheck source=scripts/results.sh
source scripts/results.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Both ends on this machine, for a second, with the result document checked.
demo() {
	local out=$work/demo.json
	"$@" demo --gpus 0 --duration 1 --json="$out" || return
	jq -e '.schema == "dualrail/1" and .status == "pass" and .total.gbps > 0' "$out" >/dev/null || {
		echo "the result document is wrong:"
		head -c 2000 "$out"
		return 1
	}
}

# The NCCL plugin in DIR by each of its names, found in LD_LIBRARY_PATH only, in versions 6 and 12 of the interface.
plugin_in() {
	local name version
	for name in libnccl-net-ha.so libnccl-net.so librccl-net.so; do
		for version in v6 v12; do
			LD_LIBRARY_PATH=$1 NCCL_SOCKET_IFNAME=lo HA_NCCL_TRANSPORT=tcp "$build/dualrail" plugin "$name" \
				--net-api $version || return
		done
	done
}

# Install, use from a program of another tree, uninstall without a trace.
installed() {
	local root=$work/root tree=$PWD h
	export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
	make install DESTDIR="$root" PREFIX=/usr B="$build" >/dev/null || return
	"$root/usr/bin/dualrail" --version || return
	(
		cd "$work" || exit
		cc -std=c11 -Wall -Werror -fsyntax-only -x c "$root/usr/include/dualrail.h" || exit
		# shellcheck disable=SC2046
		cc -std=c11 -Wall -Werror "$tree/tests/install/use.c" \
			$(pkg-config --cflags --libs dualrail) -o use &&
			LD_LIBRARY_PATH=$root/usr/lib ./use
	) || return
	plugin_in "$root/usr/lib/dualrail" || return
	for h in man/man1/dualrail.1 man/man3/libdualrail.3 bash-completion/completions/dualrail \
		../lib/systemd/system/dualrail-server.service dualrail/schema/result.json \
		doc/dualrail/docs/READING.md; do
		[[ -s $root/usr/share/$h ]] || {
			echo "not installed: $h"
			return 1
		}
	done
	tests/install/links.py "$root/usr/share/doc/dualrail" || return
	make uninstall DESTDIR="$root" PREFIX=/usr >/dev/null || return
	h=$(find "$root" -not -type d -o -path '*/doc/*')
	[[ ! $h ]] || {
		echo "left behind by uninstall: $h"
		return 1
	}
}

# The archive, unpacked elsewhere: every library beside the program, and a run.
bundled() {
	local away=$work/away version dir
	version=$(cat VERSION)
	make bundle B="$build" || return
	mkdir -p "$away"
	tar -C "$away" -xzf "dist/dualrail-$version-$(uname -m).tar.gz" || return
	dir=$away/dualrail-$version-$(uname -m)
	"$dir/bin/dualrail" --version || return
	! ldd "$dir/bin/dualrail" "$dir"/lib/*.so* "$dir"/lib/dualrail/*.so | grep 'not found' || return
	ldd "$dir/bin/dualrail" | grep jansson | grep -qF "$dir/" || {
		echo "the program does not use the libraries in the bundle"
		return 1
	}
	ldd "$dir/lib/dualrail/libnccl-net-ha.so" | grep jansson | grep -qF "$dir/" || {
		echo "the NCCL plugin does not use the libraries in the bundle"
		return 1
	}
	plugin_in "$dir/lib/dualrail" || return
	demo "$dir/scripts/run_p2p.sh"
}

demonstrated() {
	demo scripts/run_p2p.sh
}

for check in demonstrated installed bundled; do
	if "$check" >"$work/log" 2>&1; then
		result PASS "$check"
	else
		result FAIL "$check"
		show "$work/log"
	fi
done
sum_up
