#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tree's rules as a program; each message says what to do instead. `make lint`
#
#   scripts/lint.sh [RULE...]     all rules, or only these
#
# Exit status 1 when a rule is broken. The last line sums up.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

lines_max=800
bytes_max=$((256 * 1024))
jobs=$(nproc 2>/dev/null || echo 2)
cflags=(-std=c11 -D_GNU_SOURCE '-DDR_VERSION="0"' -I. -Wall -Wextra)

# Files of the tree, ignored ones left out; with arguments only those that match a pattern.
files() {
	if [[ -e .git ]]; then
		git ls-files -co --exclude-standard -- "$@"
	else
		local args=() pattern
		for pattern in "$@"; do args+=(-o -path "./$pattern"); done
		find . -type f \( "${args[@]:1}" \) -not -path './build/*' -not -path './dist/*' | sed 's#^\./##'
	fi | sort -u | while IFS= read -r f; do [[ -f $f ]] && echo "$f"; done
}

c_files() { files '*.c' '*.h'; }
shell_files() { files '*.sh' '*.bash' '*.bats' '.ci/run'; }

rule_calls() {
	c_files | xargs awk -f scripts/lint.awk
}

rule_words() {
	# Spelled so that this line does not find itself.
	files '*.c' '*.h' '*.sh' '*.bats' '*.awk' '*.md' '*.y*ml' Makefile .ci/run |
		xargs grep -nwE 'TO''DO|FIX''ME|XX''X' /dev/null | sed 's/$/  <- do it, or say it in prose/'
}

rule_lines() {
	c_files | xargs wc -l | awk -v max="$lines_max" '$2 != "total" && $1 > max {
		print $2 ": " $1 " lines, " max " is the limit: split it" }'
}

rule_bytes() {
	local f size
	while IFS= read -r f; do
		size=$(stat -c %s "$f")
		((size <= bytes_max)) || echo "$f: $size bytes, $bytes_max is the limit"
	done < <(files '*')
}

rule_spdx() {
	local f
	while IFS= read -r f; do
		head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
			echo "$f: no SPDX-License-Identifier: Apache-2.0 in its first three lines"
	done < <(c_files && shell_files)
}

rule_modes() {
	local f
	while IFS= read -r f; do
		if [[ $f == *.bats || $f == *.bash ]]; then
			continue
		elif head -c 2 "$f" | grep -q '^#!'; then
			[[ -x $f ]] || echo "$f: starts with #! but is not executable"
		fi
	done < <(shell_files)
}

rule_format() {
	local f
	# shellcheck disable=SC2016
	c_files | xargs -P "$jobs" -I{} sh -c 'clang-format --dry-run -Werror "$1" >/dev/null 2>&1 || echo "$1"' sh {} |
		sort | while IFS= read -r f; do echo "$f: run clang-format -i on it"; done
}

rule_headers() {
	# shellcheck disable=SC2016
	files '*.h' | xargs -P "$jobs" -I{} sh -c \
		'h=$1; shift; ${CC:-cc} "$@" -Wno-unused-function -fsyntax-only -x c "$h" 2>&1' sh {} "${cflags[@]}"
}

rule_cppcheck() {
	# Tests are left out: cmocka's long jumps look like leaks.
	c_files | grep -v -e _test.c -e '^tests/' | grep '\.c$' | xargs cppcheck --quiet -j "$jobs" \
		--std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=0 \
		--library=posix --library=gnu -D_GNU_SOURCE '-DDR_VERSION="0"' -I. \
		'-Ddr_assert(e)=((e)?(void)0:abort())' \
		--suppress=memleak:base/mem.c --suppress=missingIncludeSystem --suppress=missingInclude --suppress=unknownMacro --suppress=readdirCalled \
		--suppress=normalCheckLevelMaxBranches --suppress=checkersReport \
		--template='{file}:{line}: {id}: {message}' 2>&1
}

rule_tidy() {
	env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory compile_commands.json >/dev/null || return
	c_files | grep -v -e _test.c -e '^tests/' | grep '\.c$' |
		xargs -P "$jobs" -n 4 clang-tidy --quiet 2>/dev/null | grep -E ' (warning|error): '
}

rule_shellcheck() {
	shell_files | grep -v '\.bats$' | xargs shellcheck -x
	shell_files | grep '\.bats$' | xargs -r shellcheck -x -s bats
}

# Text with its code left out: fenced blocks and `spans` are no prose.
prose() {
	# shellcheck disable=SC2016
	awk '/^ *```/ { code = !code; next } !code' "$1" | sed 's/`[^`]*`//g'
}

# Relative links of Markdown files: the file, and its heading when "#..." follows.
rule_links() {
	local md link file
	while IFS= read -r md; do
		while IFS= read -r link; do
			[[ $link =~ ^([a-z]+:|/) ]] && continue
			file=${link%%#*}
			if [[ $file && ! -e $(dirname "$md")/$file ]]; then
				echo "$md: the link to $link leads nowhere"
			elif [[ $link == *#* ]]; then
				file=${file:+$(dirname "$md")/$file}
				has_heading "${file:-$md}" "${link#*#}" || echo "$md: $link: no such heading"
			fi
		done < <(prose "$md" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
	done < <(files '*.md')
}

# Headings as they are turned into anchors: lower case, punctuation dropped, blanks to hyphens.
has_heading() {
	[[ $1 == *.md ]] || return 0
	awk '/^ *```/ { code = !code; next } !code && /^#+ / { sub(/^#+ +/, ""); print tolower($0) }' "$1" |
		sed 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qxF -- "$2"
}

main() {
	local rules=("$@") rule out passed=0 failed=0 skipped=0 tool line
	((${#rules[@]})) || rules=(calls words lines bytes spdx modes format headers cppcheck tidy shellcheck links)
	for rule in "${rules[@]}"; do
		case $rule in
		format) tool=clang-format ;;
		cppcheck | shellcheck) tool=$rule ;;
		tidy) tool=clang-tidy ;;
		*) tool="awk" ;;
		esac
		if ! command -v "$tool" >/dev/null; then
			echo "SKIP  lint $rule  ($tool is not installed)"
			skipped=$((skipped + 1))
			continue
		fi
		out=$("rule_$rule")
		if [[ $out ]]; then
			echo "FAIL  lint $rule"
			while IFS= read -r line; do echo "      $line"; done <<<"$out"
			failed=$((failed + 1))
		else
			echo "PASS  lint $rule"
			passed=$((passed + 1))
		fi
	done
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}

main "$@"
