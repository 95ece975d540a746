#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs or names the packages that the build, tests, lint, fuzzing, coverage, benchmarks and the lab need.
#
#   scripts/setup.sh [--check] [GROUP...]     groups: build (default) test lint fuzz cover mutate bench report deb rpm
#                                             package lab all
#
# Checks for each command or library itself, not for its package. Missing packages are installed when this
# runs as root on Debian or Ubuntu; it prints the name of each, and of each that comes with it, before. Otherwise,
# and always with --check, they are printed with the command that installs them; nothing is installed. Exit status: 0 nothing is missing, 2 something is missing.
set -euo pipefail

# Group, package in Debian and Ubuntu, how to check for it. "?": optional.
table() {
	cat <<-'EOF'
		build gcc cmd:cc
		build libc6-dev header:stdio.h
		build make cmd:make
		build pkg-config cmd:pkg-config
		build libjansson-dev pkg:jansson
		build libsodium-dev pkg:libsodium
		build libmnl-dev pkg:libmnl
		build libnftnl-dev pkg:libnftnl
		build libmicrohttpd-dev pkg:libmicrohttpd
		build libhwloc-dev pkg:hwloc
		build libnuma-dev pkg:numa
		build libibverbs-dev header:infiniband/verbs.h
		test libcmocka-dev pkg:cmocka
		test bats cmd:bats
		test iproute2 cmd:ip
		test nftables cmd:nft
		test jq cmd:jq
		test curl cmd:curl ?
		test python3-jsonschema python:jsonschema
		test python3-yaml python:yaml
		test procps cmd:ps
		test binutils cmd:readelf
		test strace cmd:strace ?
		test systemd cmd:systemd-analyze ?
		test man-db cmd:lexgrog ?
		test python3-cffi python:cffi ?
		lint clang-format cmd:clang-format
		lint clang-tidy cmd:clang-tidy
		lint cppcheck cmd:cppcheck
		lint shellcheck cmd:shellcheck
		fuzz clang cmd:clang
		cover gcovr cmd:gcovr
		mutate patch cmd:patch
		bench iperf3 cmd:iperf3
		bench qperf cmd:qperf
		bench ucx-utils cmd:ucx_perftest ?
		bench stress-ng cmd:stress-ng
		bench valgrind cmd:valgrind
		report chromium cmd:chromium
		deb dpkg-dev cmd:dpkg-buildpackage
		deb debhelper cmd:dh
		deb python3 cmd:python3
		rpm rpm cmd:rpmbuild
		rpm cpio cmd:cpio
		rpm python3 cmd:python3
		package lintian cmd:lintian
		package mmdebstrap cmd:mmdebstrap ?
		lab qemu-system-x86 cmd:qemu-system-x86_64
		lab busybox-static static:busybox
		lab cpio cmd:cpio
		lab kmod cmd:depmod
		lab util-linux cmd:setpriv
		lab rdma-core file:/etc/rdma/modules
		lab ibverbs-utils cmd:ibv_devices
		lab ibverbs-providers file:/etc/libibverbs.d/rxe.driver
		lab perftest cmd:ib_write_bw
		lab linux-perf cmd:perf ?
		lab libibverbs-dev pkg:libibverbs
		lab iproute2 cmd:rdma
		lab nftables cmd:nft
		lab ethtool cmd:ethtool
		lab jq cmd:jq
		lab bats cmd:bats
		lab python3 cmd:python3
		lab socat cmd:socat ?
	EOF
}

# The PATH of other users than root often lacks the administration tools.
PATH=$PATH:/usr/sbin:/sbin

present() {
	case $1 in
	cmd:*) command -v "${1#cmd:}" >/dev/null ;;
	lib:*) ldconfig -p | grep -qF "${1#lib:}" ;;
	pkg:*) pkg-config --exists "${1#pkg:}" 2>/dev/null ;;
	static:*) command -v "${1#static:}" >/dev/null && ! ldd "$(command -v "${1#static:}")" 2>&1 | grep -q '=>' ;;
	file:*) [[ -e ${1#file:} ]] ;;
	python:*) /usr/bin/python3 -c "import ${1#python:}" 2>/dev/null ;;
	header:*) echo "#include <${1#header:}>" | cc -E -x c - >/dev/null 2>&1 ;;
	esac
}

# Fills `missing` (required) and `wished` (optional) for the given groups.
look() {
	local group package probe optional
	missing=() wished=()
	while read -r group package probe optional; do
		[[ " $* " == *" $group "* || " $* " == *" all "* ]] || continue
		present "$probe" && continue
		if [[ $optional ]]; then wished+=("$package"); else missing+=("$package"); fi
	done < <(table)
}

is_debian() {
	command -v apt-get >/dev/null && [[ -e /etc/debian_version ]]
}

name_missing() {
	local sudo=
	((EUID == 0)) || sudo="sudo "
	echo "missing: ${missing[*]}" >&2
	if is_debian; then
		echo "install with: ${sudo}apt-get update && ${sudo}apt-get install -y ${missing[*]}" >&2
	else
		echo "install the packages that correspond to these Debian packages" >&2
	fi
}

# packages_with PACKAGE: what installing it adds or replaces besides.
packages_with() {
	apt-get -s install --no-install-recommends "$1" 2>/dev/null | awk -v p="$1" '
		$1 == "Inst" && $2 != p { printf "%s%s", n++ ? " " : "", $2 }
		END { if (!n) printf "nothing else" }'
}

install_missing() {
	local apt=(apt-get -qq -o "DPkg::Lock::Timeout=600" -o "Acquire::Retries=3") package
	export DEBIAN_FRONTEND=noninteractive
	"${apt[@]}" update >&2 || echo "apt-get update failed; the present package lists are used" >&2
	for package in "${missing[@]}" "${wished[@]}"; do
		echo "installing $package with: $(packages_with "$package")" >&2
	done
	if ((${#missing[@]})); then
		"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null || return 1
	fi
	for package in "${wished[@]}"; do
		"${apt[@]}" install -y --no-install-recommends "$package" >/dev/null ||
			echo "$package could not be installed; tests that need it are skipped" >&2
	done
}

main() {
	local check='' groups=() word
	for word in "$@"; do
		case $word in
		--check) check=1 ;;
		build | test | lint | fuzz | cover | mutate | bench | report | deb | rpm | package | lab | all) groups+=("$word") ;;
		*)
			echo "usage: scripts/setup.sh [--check] [build|test|lint|fuzz|cover|mutate|bench|report|deb|rpm|package|lab|all]..." >&2
			exit 1
			;;
		esac
	done
	((${#groups[@]})) || groups=(build)
	look "${groups[@]}"
	if [[ ! $check ]] && ((EUID == 0)) && is_debian && ((${#missing[@]} + ${#wished[@]})); then
		install_missing || true
		look "${groups[@]}"
	fi
	((${#missing[@]} == 0)) && exit 0
	name_missing
	exit 2
}

main "$@"
