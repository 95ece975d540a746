#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures between two nodes, or between two processes on this node.
#
#   scripts/run_p2p.sh server [options]          on one node
#   scripts/run_p2p.sh client HOST [options]     on the other node
#   scripts/run_p2p.sh demo [options]            both ends on this node: network namespaces as root, otherwise loopback
#
# HOST may be a file with one address per line (scripts/node_ips/*.txt; # starts a comment): the first
# address that does not belong to this node is used; a file of another user, but root, is refused.
# The options are those of dualrail (--help).
# Builds the program first if needed; in an unpacked bundle it is in bin/.
# Exit status: that of dualrail; 2 if no program was found or it could not be built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
	echo "run_p2p.sh: $*" >&2
	exit 2
}

usage() {
	sed -n '3,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

# Sets program.
find_program() {
	if [[ -n ${DUALRAIL-} ]]; then
		program=$DUALRAIL
	elif [[ -x $root/bin/dualrail ]]; then
		program=$root/bin/dualrail
	elif [[ -f $root/Makefile && -d $root/orchestrator ]]; then
		program=$root/build/release/dualrail
		build
	elif ! program=$(command -v dualrail); then
		die "no dualrail here: unpack the bundle, run this in the source tree, or set DUALRAIL"
	fi
	[[ -x $program ]] || die "$program cannot be run"
}

build() {
	local log
	# Two ends may start at the same time in one tree.
	exec 9<"$root/Makefile"
	! command -v flock >/dev/null || flock 9
	"$root/scripts/setup.sh" build >&2 || exit 2
	log=$(mktemp)
	if ! make -C "$root" --no-print-directory -j"$(nproc)" all >"$log" 2>&1; then
		tail -n 5 "$log" >&2
		rm -f "$log"
		die "the build failed: run make in $root"
	fi
	rm -f "$log"
	exec 9<&-
}

own_addresses() {
	ip -o addr show 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }'
	hostname 2>/dev/null || true
}

# The first address of the file that is not this node's. As in dualrail, neither the file nor a link to it is of another user.
first_other() {
	local own line uid
	exec 8<"$1"
	for uid in "$(stat -c %u -- "$1")" "$(stat -Lc %u /dev/fd/8)"; do
		[[ $uid == 0 || $uid == "$EUID" ]] ||
			die "$1 belongs to user $uid, this script runs as user $EUID; copy the file, or change its owner"
	done
	own=$(own_addresses)
	while IFS= read -r line || [[ $line ]]; do
		line=${line%%#*}
		line=${line//[[:space:]]/}
		[[ $line ]] || continue
		[[ $line != -* ]] || die "$1: \"$line\" is no address"
		grep -qxF -e "$line" <<<"$own" && continue
		echo "$line"
		return
	done <&8
	die "$1: no address in it but this node's own"
}

main() {
	local command=${1-} host program
	case $command in
	server | demo)
		shift
		find_program
		exec "$program" "$command" "$@"
		;;
	client)
		host=${2-}
		[[ $host && $host != -* ]] || die "client: HOST is missing (see --help)"
		if [[ $host == *.txt && ! -f $host && -f $root/scripts/node_ips/$host ]]; then
			host=$root/scripts/node_ips/$host
		fi
		[[ $host != *.txt || -f $host ]] || die "$host: no such file"
		if [[ -f $host ]]; then host=$(first_other "$host"); fi
		shift 2
		find_program
		exec "$program" client "$host" "$@"
		;;
	-h | --help)
		usage
		;;
	*)
		die "server, client HOST or demo is expected, not \"$command\" (see --help)"
		;;
	esac
}

main "$@"
