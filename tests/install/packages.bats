#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What takes longer of the packages: a second build, a bare chroot, RPM packages. `make check-packages` builds the
# Debian packages in dist/ before.
load lib

# Each builds, or fetches a chroot.
# shellcheck disable=SC2034
BATS_TEST_TIMEOUT=900

setup() { common_setup; }

# A copy of the tree in DIR, without git, as an archive of it has no git either.
# shellcheck source=scripts/packages/lib.sh
copy_to() {
	(cd "$DR_ROOT" && source scripts/packages/lib.sh && copy_tree "$1")
}

# What a build in a copy has to be told, since there is no git.
commit_of() { sed -nE 's/^ *"sourceInfo": "commit ([0-9a-f]+(-dirty)?|unknown)",$/\1/p' "$1" | sort -u; }
date_of() { date -d "$(jq -r .creationInfo.created "$1")" +%s; }

@test "the Debian packages of a copy of the tree in another folder are the same, byte by byte" {
	local copy=$PWD/another/folder doc=$DR_ROOT/dist/dualrail_${VERSION}_$ARCH.spdx.json deb
	[[ $(debs) ]] || skip "no packages in dist/ (make deb)"
	copy_to "$copy"
	env -u MAKEFLAGS -u MAKELEVEL SOURCE_DATE_EPOCH="$(date_of "$doc")" TZ=Asia/Tokyo \
		make -C "$copy" deb B=elsewhere DIST="$PWD/dist" COMMIT="$(commit_of "$doc")"
	[[ $(debs dist | wc -l) == 7 ]]
	for deb in $(debs) "$doc"; do
		cmp "$deb" "dist/${deb##*/}"
	done
}

@test "the Debian packages install, run, upgrade and go without a trace in a bare chroot" {
	local deb old=0.0.1 lib
	((EUID == 0)) || skip "needs root"
	[[ $(debs) ]] || skip "no packages in dist/ (make deb)"
	require mmdebstrap "mmdebstrap is not installed"
	mkdir -p root work/old work/new
	for deb in $(debs); do
		[[ $deb != *-dbgsym_* ]] || continue
		cp "$deb" work/new/
		dpkg-deb -x "$deb" root
		# The same with another number, and a file that the new version does not have.
		rm -rf unpacked
		dpkg-deb -R "$deb" unpacked
		sed -i "s/^Version: .*/Version: $old/; s/(= $VERSION)/(= $old)/g" unpacked/DEBIAN/control
		[[ ${deb##*/} != dualrail_* ]] || echo old >unpacked/usr/share/dualrail/old
		dpkg-deb -Zgzip -z1 -b unpacked work/old/ >/dev/null
	done
	echo "$old $VERSION" >work/versions
	cp "$DR_ROOT/scripts/packages/debian/tests/demo" work/
	lib=$(echo "$PWD"/root/usr/lib/*-linux-gnu*)
	(
		cd "$DR_ROOT"
		export AUTOPKGTEST_TMP=$BATS_TEST_TMPDIR/work LD_LIBRARY_PATH=$lib
		PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$BATS_TEST_TMPDIR/root scripts/packages/debian/tests/library
	)
	run "$DR_ROOT/tests/install/chroot.sh" "$PWD/work"
	echo "$output"
	((status != 77)) || skip "${lines[-1]}"
	((status == 0))
}

@test "the RPM packages of two folders are the same; they install, run and go without a trace, and their SPDX document is true" {
	local copy=$PWD/another/folder doc rpm name
	require rpmbuild "rpmbuild is not installed"
	((EUID == 0)) || skip "needs root, to install them below a folder"
	export HOME=$PWD/home # Debian's rpm makes a database there
	mkdir "$HOME"
	copy_to "$copy"
	env -u MAKEFLAGS -u MAKELEVEL make -C "$DR_ROOT" rpm B="$DR_BUILD" DIST="$PWD/dist"
	doc=$(echo dist/*.spdx.json)
	env -u MAKEFLAGS -u MAKELEVEL SOURCE_DATE_EPOCH="$(date_of "$doc")" TZ=Asia/Tokyo \
		make -C "$copy" rpm B=elsewhere DIST="$PWD/again" COMMIT="$(commit_of "$doc")"
	[[ $(echo dist/*.rpm | wc -w) == 4 ]]
	for rpm in dist/*; do
		cmp "$rpm" "again/${rpm##*/}"
	done

	mkdir packages root
	for rpm in dist/*.rpm; do
		name=${rpm##*/}
		cp "$rpm" packages/
		mkdir "$name"
		rpm2cpio "$rpm" | (cd "$name" && cpio -idm --quiet)
	done
	"$DR_ROOT/tests/install/spdx_check.py" "$doc" .

	# Debian has no RPM packages for what they depend on, and the folder has no shell for their scripts.
	rpm --root "$PWD/root" --nodeps --noscripts -i dist/*.rpm
	root/usr/bin/dualrail --version
	NCCL_SOCKET_IFNAME=lo root/usr/bin/dualrail plugin root/usr/lib*/dualrail/libnccl-net-ha.so
	rpm --root "$PWD/root" --nodeps --noscripts -e dualrail dualrail-libs dualrail-devel dualrail-nccl-plugin
	find root -not -type d -not -path '*/rpm/*' -not -path '*/.rpmdb/*' >left
	[[ ! -s left ]] || {
		cat left
		return 1
	}
}

@test "without its tools a package is not built, with status 2 and the reason" {
	local kind
	mkdir tools
	# Everything but the tools of packages.
	ln -s /usr/bin/* tools/
	rm -f tools/{dh,rpmbuild,dpkg-buildpackage}
	for kind in deb rpm; do
		run env PATH="$PWD/tools" "$DR_ROOT/scripts/packages/$kind.sh" build "$VERSION" unknown
		[[ $status == 2 ]]
		[[ $output == *missing:* ]]
	done
	[[ ! -e build ]]
}
