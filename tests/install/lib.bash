# SPDX-License-Identifier: Apache-2.0
# What the tests of the packages share. They look at what `make deb` left in dist/ and in the build tree.
# shellcheck shell=bash

common_setup() {
	DR_ROOT=${DR_ROOT:-$BATS_TEST_DIRNAME/../..}
	DR_BUILD=${DR_BUILD:-$DR_ROOT/build/release}
	cd "$BATS_TEST_TMPDIR" || return
	read -r VERSION <"$DR_ROOT/VERSION"
	ARCH=$(dpkg --print-architecture 2>/dev/null) || ARCH=
	export DR_ROOT DR_BUILD VERSION ARCH
}

# require COMMAND REASON: skips the test where it does not exist.
require() {
	command -v "$1" >/dev/null || skip "$2"
}

# debs [DIR]: the packages of this version, those with symbols for debuggers too.
debs() {
	find "${1:-$DR_ROOT/dist}" -maxdepth 1 -name "*dualrail*_${VERSION}_$ARCH.deb" | sort
}

# lacks REGEX FILE
lacks() { ! grep -qE -e "$1" "$2"; }
