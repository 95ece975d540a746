# SPDX-License-Identifier: Apache-2.0
# Set-up and clean-up as most files here have them. A file that needs more has functions of its own by these names.
# shellcheck shell=bash disable=SC2119 # validated takes directories only where there are more

# shellcheck source=tests/e2e/lib.bash
source "${BASH_SOURCE[0]%/*}/lib.bash"

setup() {
	common_setup
}

teardown() {
	common_teardown
	validated
}
