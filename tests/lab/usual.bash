# SPDX-License-Identifier: Apache-2.0
# For files whose tests run dualrail over verbs in the guests: the program is copied there once, and each test finds the
# guests as they were. A file that needs more has functions of its own by these names.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib.bash
source "${BASH_SOURCE[0]%/*}/lib.bash"

setup_file() {
	install_dualrail
}

setup() {
	verbs_setup
}

teardown() {
	common_teardown
}
