#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages of this tree and their SPDX document into dist/.
#
#   scripts/packages/deb.sh BUILD VERSION COMMIT      (make deb)
#
# The tree is copied to BUILD/deb/dualrail-VERSION and built there by dpkg-buildpackage, with scripts/packages/debian as
# its debian/ and a changelog of one entry. The .changes and .buildinfo files stay in BUILD/deb.
#
# Environment: SOURCE_DATE_EPOCH (the time of the last commit); DIST, the folder of the results (dist);
# DEBFULLNAME and DEBEMAIL, the maintainer of the packages; DEB_BUILD_OPTIONS.
# Exit status 2: a tool or a library is missing.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/packages/lib.sh
source scripts/packages/lib.sh

build=$1 version=$2 commit=$3 dist=${DIST:-dist}
out=$build/deb
stage=$out/dualrail-$version

# debian_folder DATE: what debian/ needs beside the files of scripts/packages/debian.
debian_folder() {
	local control=$stage/debian/control maintainer
	cp -R scripts/packages/debian "$stage/debian"
	if [[ ${DEBFULLNAME-} && ${DEBEMAIL-} ]]; then
		maintainer="$DEBFULLNAME <$DEBEMAIL>"
		awk -v m="$maintainer" '/^Maintainer:/ { $0 = "Maintainer: " m } { print }' \
			scripts/packages/debian/control >"$control"
	fi
	maintainer=$(sed -n 's/^Maintainer: //p' "$control")
	echo "$commit" >"$stage/debian/commit"
	cat >"$stage/debian/changelog" <<-END
		dualrail ($version) unstable; urgency=medium

		  * Version $version. CHANGELOG.md lists the changes.

		 -- $maintainer  $(LC_ALL=C date -u -d "@$1" '+%a, %d %b %Y %H:%M:%S +0000')
	END
}

main() {
	local home date log=$out/build.log packages
	need deb
	date=$(source_date)
	rm -rf "$out"
	mkdir -p "$out"
	home=$(cd "$out" && pwd)
	copy_tree "$stage"
	debian_folder "$date"
	(cd "$stage" && clean_env "$home" SOURCE_DATE_EPOCH="$date" DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-parallel=$(nproc)}" \
		dpkg-buildpackage -b -us -uc) >"$log" 2>&1 || {
		tail -n 30 "$log" >&2
		echo "dpkg-buildpackage failed: $log" >&2
		exit 1
	}
	mkdir -p "$dist"
	rm -f "$dist"/{dualrail,libdualrail}*.deb "$dist"/dualrail_*.spdx.json
	packages=("$out"/*.deb)
	cp "${packages[@]}" "$dist"
	packages=("${packages[@]##*/}")
	SOURCE_DATE_EPOCH=$date scripts/packages/sbom.py --commit "$commit" \
		-o "$dist/dualrail_${version}_$(dpkg --print-architecture).spdx.json" "${packages[@]/#/$dist/}"
	(cd "$dist" && ls -1s --block-size=1K "${packages[@]}" dualrail_*.spdx.json) | sed "s#^ *\([0-9]*\) \(.*\)#$dist/\2: \1 KiB#"
}

main
