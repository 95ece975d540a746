#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the RPM packages of this tree and their SPDX document into dist/.
#
#   scripts/packages/rpm.sh BUILD VERSION COMMIT      (make rpm)
#
# rpmbuild works in BUILD/rpm, from an archive of the tree and scripts/packages/dualrail.spec.in.
#
# Environment: SOURCE_DATE_EPOCH (the time of the last commit); DIST, the folder of the results (dist).
# Exit status 2: a tool or a library is missing.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/packages/lib.sh
source scripts/packages/lib.sh

build=$1 version=$2 commit=$3 dist=${DIST:-dist}
out=$build/rpm

# archive DATE: the source that the spec file names.
archive() {
	copy_tree "$out/dualrail-$version"
	mkdir -p "$out/SOURCES"
	tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mode=go+rX,go-w --mtime="@$1" \
		-cf - "dualrail-$version" | gzip -n >"$out/SOURCES/dualrail-$version.tar.gz"
}

main() {
	local home date log=$out/build.log spec=$out/dualrail.spec packages checked=()
	need rpm
	date=$(source_date)
	rm -rf "$out"
	mkdir -p "$out"
	home=$(cd "$out" && pwd)
	archive "$date"
	sed "s/@VERSION@/$version/g; s/@COMMIT@/$commit/g" scripts/packages/dualrail.spec.in >"$spec"
	# Where the packages of the distribution are not RPM's, need has looked for what the build needs.
	HOME=$home rpm -q glibc >/dev/null 2>&1 || checked=(--nodeps)
	clean_env "$home" SOURCE_DATE_EPOCH="$date" rpmbuild -bb --define "_topdir $home" "${checked[@]}" "$spec" >"$log" 2>&1 || {
		tail -n 30 "$log" >&2
		echo "rpmbuild failed: $log" >&2
		exit 1
	}
	mkdir -p "$dist"
	rm -f "$dist"/dualrail-*.rpm "$dist"/dualrail-*.spdx.json
	packages=("$out"/RPMS/*/*.rpm)
	cp "${packages[@]}" "$dist"
	packages=("${packages[@]##*/}")
	HOME=$home SOURCE_DATE_EPOCH=$date scripts/packages/sbom.py --commit "$commit" \
		-o "$dist/dualrail-$version-1.$(rpm --eval '%{_target_cpu}').spdx.json" "${packages[@]/#/$dist/}"
	(cd "$dist" && ls -1s --block-size=1K "${packages[@]}" dualrail-*.spdx.json) | sed "s#^ *\([0-9]*\) \(.*\)#$dist/\2: \1 KiB#"
}

main
