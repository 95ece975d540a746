#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Debian packages that `make deb` left in dist/: lintian, what is in them, their SPDX document.
load lib

setup() {
	common_setup
	[[ $(debs) ]] || skip "no packages in dist/ (make deb)"
}

# unpack_all: the packages in packages/, the files of each in a folder with its name.
unpack_all() {
	local deb
	mkdir -p packages
	for deb in $(debs); do
		cp "$deb" packages/
		dpkg-deb -x "$deb" "${deb##*/}"
	done
}

@test "lintian finds no error and no warning" {
	require lintian "lintian is not installed"
	lintian --profile debian --allow-root --fail-on error,warning --pedantic \
		"$DR_BUILD/deb/dualrail_${VERSION}_$ARCH.changes"
}

@test "each file that make install writes is in one package" {
	local root=$DR_BUILD/deb/dualrail-$VERSION
	unpack_all
	# Under debian/tmp debhelper keeps what make install wrote.
	(cd "$root/debian/tmp" && find . -not -type d | sort) | grep -vE '/(LICENSE|uPlot.LICENSE)$' >wanted
	[[ $(wc -l <wanted) -gt 40 ]]
	for deb in *"_$ARCH.deb"; do
		[[ $deb == *-dbgsym_* ]] || (cd "$deb" && find . -not -type d)
	done | grep -vE '/(changelog.gz|copyright)$' | sed -E 's/\.([13])\.gz$/.\1/' | sort >found
	diff wanted found
}

@test "the links of the documents lead to files of the package, and what is run there is executable" {
	unpack_all
	local docs=dualrail_${VERSION}_$ARCH.deb/usr/share/doc/dualrail
	"$BATS_TEST_DIRNAME/links.py" "$docs"
	[ -x "$docs/k8s/deploy.sh" ]
	[ -x "$docs/scripts/slurm/prolog.sh" ]
	[ -x "$docs/docs/examples/kvblocks/blocks.py" ]
}

@test "libraries are dependencies where they are linked, and recommended or suggested where they are opened at run time" {
	local deb
	for deb in dualrail dualrail-nccl-plugin libdualrail0; do
		dpkg-deb -f "$DR_ROOT/dist/${deb}_${VERSION}_$ARCH.deb" Depends >depends
		grep -q 'libc6 (>= ' depends
		grep -q 'libjansson4 (>= ' depends
		lacks 'ibverbs|cuda' depends
		dpkg-deb -f "$DR_ROOT/dist/${deb}_${VERSION}_$ARCH.deb" Recommends Suggests >others
		grep -q libibverbs1 others
		grep -q libcuda1 others
	done
}

@test "program, library and plugin are hardened and do not name the folder of the build" {
	local file
	unpack_all
	for file in dualrail_*/usr/bin/dualrail libdualrail0_*/usr/lib/*/libdualrail.so.?.*.* \
		dualrail-nccl-plugin_*/usr/lib/*/dualrail/libnccl-net-ha.so; do
		readelf -Wd "$file" | grep -qE 'BIND_NOW|FLAGS_1.* NOW'
		readelf -W --dyn-syms "$file" | grep -q _chk
		lacks "$DR_ROOT" "$file"
	done
	"./dualrail_${VERSION}_$ARCH.deb/usr/bin/dualrail" --version -v >version
	lacks -prefix-map version
	grep -q -- -D_FORTIFY_SOURCE=3 version
}

@test "the SPDX document follows the rules and is true" {
	unpack_all
	"$DR_ROOT/tests/install/spdx_check.py" "$DR_ROOT/dist/dualrail_${VERSION}_$ARCH.spdx.json" .
}

@test "the check of SPDX documents finds what is wrong" {
	local doc=$DR_ROOT/dist/dualrail_${VERSION}_$ARCH.spdx.json n=0 change section
	unpack_all
	while read -r section change; do
		jq "$change" "$doc" >wrong.json
		! cmp -s <(jq . "$doc") wrong.json
		run "$DR_ROOT/tests/install/spdx_check.py" wrong.json .
		[[ $status == 1 && $output == *"$section: "* ]] || {
			echo "$change: $output"
			return 1
		}
		n=$((n + 1))
	done <<-'END'
		6.1 .spdxVersion = "SPDX-2.2"
		6.5 .documentNamespace += "#x"
		6.9 .creationInfo.created = "today"
		7 del(.packages[0].downloadLocation)
		7 .packages[0].license = "Apache-2.0"
		7.2 .files[0].SPDXID = "SPDXRef-a_b"
		7.2 .files[0].SPDXID = .files[1].SPDXID
		7.3 del(.packages[] | select(.name == "libc6") | .versionInfo)
		7.9 .packages[0].packageVerificationCode.packageVerificationCodeValue = "0"
		7.10 .packages[0].checksums[1].checksumValue = ("0" * 64)
		7.13 .packages[0].licenseConcluded = "Apache 2"
		8.1 del(.files[0])
		8.4 .files[0].checksums[1].checksumValue = ("0" * 64)
		8.4 del(.files[0].checksums[0])
		11.1 .relationships[0].relatedSpdxElement = "SPDXRef-nothing"
		11.1 .relationships[0].relationshipType = "DESCRIBE"
	END
	((n == 16))
}
