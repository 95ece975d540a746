#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The exported symbols of libdualrail.so are the functions and data that the installed headers declare.
#
#   scripts/exports.sh names HEADER...           the declared names, one per line
#   scripts/exports.sh map HEADER...             a linker version script that exports them
#   scripts/exports.sh check LIBRARY HEADER...   compares them with what LIBRARY exports
#
# The compiler (CC, default cc) lists the declarations: gcc by -fdump-go-spec, clang by -ast-dump.
# Inline functions are not exported. Exit status 1 when the names differ, or when the compiler fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra cc <<<"${CC:-cc}"
flags=(-std=c11 -D_GNU_SOURCE -I. -x c)

# names HEADER...
names() {
	printf '#include "%s"\n' "$@" >"$work/all.c"
	if "${cc[@]}" "${flags[@]}" -S -o /dev/null "-fdump-go-spec=$work/spec" "$work/all.c" 2>"$work/why"; then
		sed -nE 's/^(func|var) _(dualrail_[a-z0-9_]+) .*/\2/p' "$work/spec"
	elif "${cc[@]}" --version | grep -q clang; then
		"${cc[@]}" "${flags[@]}" -fsyntax-only -fno-color-diagnostics -Xclang -ast-dump "$work/all.c" >"$work/ast" &&
			grep -E '^[|`]-(Function|Var)Decl ' "$work/ast" | grep -vE "'[^']*' (static|inline)" |
			sed -nE "s/^[^']* (dualrail_[a-z0-9_]+) '.*/\1/p"
	else
		cat "$work/why" >&2
		return 1
	fi | sort -u
}

map() {
	echo 'DUALRAIL_0 {'
	echo 'global:'
	names "$@" | sed 's/.*/\t&;/' || return 1
	printf '%s\n' 'local:' '	*;' '};'
}

check() {
	local library=$1 bad=0
	shift
	names "$@" >"$work/declared" || return 1
	nm -D --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort -u >"$work/exported"
	while IFS= read -r name; do
		echo "$name is declared in an installed header and not defined in $library: define it, or remove the declaration"
		bad=1
	done < <(comm -23 "$work/declared" "$work/exported")
	while IFS= read -r name; do
		echo "$library exports $name, which no installed header declares: declare it, or hide it"
		bad=1
	done < <(comm -13 "$work/declared" "$work/exported")
	[[ -s $work/declared ]] || {
		echo "no declarations found in: $*"
		bad=1
	}
	return $bad
}

case ${1-} in
names | map | check) "$@" ;;
*)
	sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
