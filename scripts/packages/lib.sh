# SPDX-License-Identifier: Apache-2.0
# What deb.sh and rpm.sh share. They run in the top folder of the tree.
# shellcheck shell=bash

# need GROUP: ends with status 2 where a package of that group of scripts/setup.sh is missing.
need() {
	scripts/setup.sh --check build "$1" >&2 || exit 2
}

# The files of the tree, without those that git ignores; outside a git checkout without what make writes.
tree_files() {
	if [[ -e .git ]]; then
		git ls-files -z -co --exclude-standard | while IFS= read -rd '' file; do
			[[ ! -f $file ]] || printf '%s\0' "$file"
		done
	else
		find . -type f -not -path './build/*' -not -path './dist/*' -not -name compile_commands.json -printf '%P\0'
	fi | LC_ALL=C sort -z
}

# copy_tree DIR: what tree_files names.
copy_tree() {
	mkdir -p "$1"
	tree_files | tar --null --no-recursion -T - -cf - | tar -C "$1" -xf -
}

# Seconds since 1970 that stand for the time of the build: SOURCE_DATE_EPOCH, or the time of the last commit, or of VERSION.
source_date() {
	echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)}"
}

# The packages of a release do not depend on the variables of the shell that builds them, nor on its home or a compiler
# cache. clean_env HOME COMMAND...: Debian's rpm makes a database in its home.
clean_env() {
	local home=$1
	shift
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" LC_ALL=C.UTF-8 TZ=UTC "$@"
}
