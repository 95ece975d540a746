#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ring_main does to the network of a rank.
#
#   act.sh VERB NODE DEVICE [DEVICE]
#
# NODE is a network namespace. cut, drop: link down and silent loss of the first device, over which data flow at that
# moment; it ends when they flow over the second one. back, undrop: the repair; it ends when data flow over the device
# again. silence: silent loss whatever flows. cut-both, drop-both: both devices. WAIT_S: seconds that each may take.
set -eu
# Not by ip netns exec, which mounts /sys: on a busy machine that takes seconds.
bytes() { ip -n "$1" -s -j link show dev "$2" | jq '.[0].stats64.tx.bytes'; }
within() { nsenter --net="/run/netns/$1" "${@:2}"; }
flows() {
	local start end=$((SECONDS + WAIT_S))
	start=$(bytes "$@")
	until (($(bytes "$@") > start + 1000000)); do
		((SECONDS < end)) || { echo "# nothing flows: $*"; exit 1; }
		read -rt 0.002 <> <(:) || :
	done
}
drop() {
	within "$1" nft -f - <<-NFT
		add table inet cut$2
		add chain inet cut$2 in { type filter hook input priority 0; }
		add chain inet cut$2 out { type filter hook output priority 0; }
		add chain inet cut$2 by { type filter hook forward priority 0; }
		add rule inet cut$2 in iifname "$2" drop
		add rule inet cut$2 out oifname "$2" drop
		add rule inet cut$2 by iifname "$2" drop
		add rule inet cut$2 by oifname "$2" drop
	NFT
}
case $1 in
cut) flows "$2" "$3"; ip -n "$2" link set "$3" down; flows "$2" "$4" ;;
back) ip -n "$2" link set "$3" up; flows "$2" "$3" ;;
drop) flows "$2" "$3"; drop "$2" "$3"; flows "$2" "$4" ;;
silence) drop "$2" "$3" ;;
undrop) within "$2" nft delete table inet "cut$3"; flows "$2" "$3" ;;
cut-both) flows "$2" "$3"; ip -n "$2" link set "$3" down; ip -n "$2" link set "$4" down ;;
drop-both) flows "$2" "$3"; drop "$2" "$3"; drop "$2" "$4" ;;
esac
