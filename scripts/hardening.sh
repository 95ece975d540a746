#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints, as variables of make, which flags for a hardened program the compiler and the linker know.
#
#   scripts/hardening.sh COMPILER "COMPILER-FLAGS" "LINKER-FLAGS"      (Makefile)
#
# Environment: HARDEN=no, none of them.
set -euo pipefail

read -r -a cc <<<"$1"
read -r -a compile <<<"$2"
read -r -a link <<<"$3"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
out=$dir/out

# knows FLAG...: a program is built with these flags without a warning.
knows() {
	echo 'int main(void) { return 0; }' | "${cc[@]}" -Werror -Wl,--fatal-warnings -O2 "$@" -x c - -o "$out" 2>/dev/null
}

# Level 3 of _FORTIFY_SOURCE is one of the C library and of the compiler; older ones take it for 2 or warn.
fortify() {
	local level
	for level in 3 2; do
		if "${cc[@]}" -Werror -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$level -x c - -c -o "$out" 2>/dev/null <<-EOF; then
			#include <features.h>
			#if !defined __USE_FORTIFY_LEVEL || __USE_FORTIFY_LEVEL != $level
			#error
			#endif
		EOF
			echo "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$level"
			return
		fi
	done
}

all() {
	local flag
	for flag in "$@"; do
		if knows "$flag"; then printf ' %s' "$flag"; fi
	done
}

if [[ ${HARDEN-} == no ]]; then compile=() link=(); fi
echo "HARDEN_CC :=$(all "${compile[@]}")"
echo "HARDEN_LD :=$(all "${link[@]}")"
if [[ ${HARDEN-} == no ]]; then exit; fi
echo "HARDEN_PIE :=$(all -pie)"
echo "HARDEN_FORTIFY := $(fortify)"
