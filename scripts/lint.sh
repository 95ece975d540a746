#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the rules of this tree; each message says what to do instead. `make lint`
#
#   scripts/lint.sh [RULE...]     all rules, or only these
#
# The analysers (cppcheck, tidy) look at files, and columns at lines, that differ from the commit BASE (the last one that is
# six hours older than the newest). With ALL=1 the analysers look at all files, and the rule unused, which needs a build of
# its own, is among the rules.
# Exit status 1 when a rule is broken. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

lines_max=800
bytes_max=$((256 * 1024))
jobs=$(nproc 2>/dev/null || echo 2)
cflags=(-std=c11 -D_GNU_SOURCE '-DDR_VERSION="0"' -I. -Wall -Wextra)

# Files of the tree that git does not ignore; with arguments, those that match a pattern.
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

# The commit that changes are counted from; the empty tree where the history is shorter.
base() {
	local commit=${BASE:-$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 21600))" HEAD)}
	echo "${commit:-4b825dc642cb6eb9a060e54bf8d69288fbee4904}"
}

# Sources of production to analyse; nothing when none changed.
analysed() {
	local all
	all=$(files '*.c' | grep -v -e _test.c -e '^tests/' -e '^docs/')
	if [[ ! ${ALL-} && -e .git ]]; then
		all=$(comm -12 <(sort <<<"$all") <(git diff --name-only "$(base)" | sort))
	fi
	echo "$all"
}
shell_files() { files '*.sh' '*.bash' '*.bats' '.ci/run'; }

# A rule of scripts/lint.awk.
of_awk() {
	c_files | xargs awk -v rule="$1" -f scripts/lint.awk
}

rule_calls() { of_awk calls; }
rule_folders() { of_awk folders; }
rule_parameters() { of_awk parameters; }

rule_words() {
	# Spelled so that this line does not find itself.
	files '*.c' '*.h' '*.sh' '*.bats' '*.awk' '*.md' '*.y*ml' Makefile .ci/run |
		xargs grep -nwE 'TO''DO|FIX''ME|XX''X' /dev/null | sed 's/$/  <- do it, or say it in prose/'
}

# Replaced terms, see scripts/lint-words.txt.
rule_terms() {
	files '*.c' '*.h' '*.sh' '*.bash' '*.bats' '*.awk' '*.py' '*.md' '*.patch' '*.json' '*.y*ml' Makefile .ci/run |
		xargs awk -f scripts/lint-words.awk scripts/lint-words.txt
}

# Files that include each other's headers, X.c and X.h being one. Headers that the files of a concept share do
# not count: private ones, and a folder's main header, which has its name or says "Folder NAME/:".
rule_circles() {
	c_files | grep -v -e _test.c -e '^tests/' | xargs grep -H '^#include "' |
		awk -F '[:"]' -v main="$(c_files | xargs grep -l '^ \* Folder .*/:' | tr '\n' ' ')" '{
			sub(/\.[ch]$/, "", $1)
			sub(/\.h$/, "", $3)
			n = split($3, part, "/")
			if ($1 != $3 && part[n] != part[n - 1] && !index(main, $3 ".h ") && (getline line < ($3 ".c")) > 0)
				print $1, $3
			close($3 ".c")
		}' | tsort 2>&1 >/dev/null | sed 's/^tsort: //' | awk '
			/contains a loop/ { if (circle) print circle; circle = "include each other, move what both need into a third file:"; next }
			{ circle = circle " " $0 }
			END { if (circle) print circle }'
}

# Functions without a production caller, those of scripts/lint-unused.txt excepted. Static functions are
# left out: without a caller the compiler reports them, otherwise their caller is in the list.
rule_unused() {
	local name file
	env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory -j"$jobs" unused | grep -E '^(dr|ha)_' |
		while read -r name file; do
			grep -q "^$name	" scripts/lint-unused.txt ||
				echo "$file: $name has no caller but tests: remove it, or give the reason in scripts/lint-unused.txt"
		done
	# A reason for something that is gone, or used by now.
	while IFS=$'\t' read -r name _; do
		c_files | xargs grep -qw "$name" || echo "scripts/lint-unused.txt: there is no $name: remove the line"
	done < <(grep -v '^#' scripts/lint-unused.txt)
}

rule_lines() {
	c_files | xargs wc -l | awk -v max="$lines_max" '$2 != "total" && $1 > max {
		print $2 ": " $1 " lines, " max " is the limit: split it" }'
}

# Lines of C that a change adds; a text is not broken for it.
rule_columns() {
	git diff -M -U0 "$(base)" -- '*.c' '*.h' | expand -t 8 | awk -v max=100 '
		/^\+\+\+ / { file = substr($2, 3) }
		/^@@ / { split($3, at, ","); line = at[1] - 1 }
		/^\+/ && !/^\+\+\+ / { line++; if (length($0) > max + 1 && !/"/)
			print file ":" line ": more than " max " columns: break the line" }'
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
	local lists # it reads no system header, but needs the macros of this one
	lists=$(echo '#include <sys/queue.h>' | cc -E -x c - | grep -m 1 -o '/[^"]*/sys/queue.h')
	# Tests are left out: cmocka's long jumps look like leaks.
	analysed | xargs -r cppcheck --quiet -j "$jobs" \
		--std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=0 \
		--library=posix --library=gnu -D_GNU_SOURCE '-DDR_VERSION="0"' -I. \
		'-Ddr_assert(e)=((e)?(void)0:abort())' ${lists:+"--include=$lists"} \
		--suppress=memleak:base/mem.c --suppress=missingIncludeSystem --suppress=missingInclude --suppress=unknownMacro --suppress=readdirCalled \
		--suppress=normalCheckLevelMaxBranches --suppress=checkersReport \
		--template='{file}:{line}: {id}: {message}' 2>&1
}

rule_patches() { # each planted bug applies as scripts/mutate.py applies it
	local patch
	for patch in tests/mutants/*.patch; do
		patch -p1 -F0 -s -N --dry-run <"$patch" >/dev/null 2>&1 || echo "$patch: does not apply"
		grep -q "^# Killed by: " "$patch" || echo "$patch: names no test (# Killed by: TEST)"
	done
}

rule_tidy() {
	env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory compile_commands.json >/dev/null || return
	analysed | xargs -r -P "$jobs" -n 4 clang-tidy --quiet 2>/dev/null | grep -E ' (warning|error): '
}

rule_shellcheck() {
	shell_files | grep -v '\.bats$' | xargs shellcheck -x
	shell_files | grep '\.bats$' | xargs -r shellcheck -x -s bats
}

# A Markdown file without its code: fenced blocks and `spans`.
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
				echo "$md: the link to $link has no target"
			elif [[ $link == *#* ]]; then
				file=${file:+$(dirname "$md")/$file}
				has_heading "${file:-$md}" "${link#*#}" || echo "$md: $link: no such heading"
			fi
		done < <(prose "$md" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
	done < <(files '*.md')
}

# Names in the code spans of the documents: files and functions exist (options: tests/forms.py). A name with a capital, `*`
# or `…` in it is a placeholder.
rule_docs() {
	local md name all
	all=$(files '*')
	while IFS= read -r md; do
		while IFS= read -r name; do
			case $name in
			*[A-Z*…\<'{']* | _* | build/* | dist/*) ;;
			*.[ch] | *.sh | *.bats | *.py | *.md | *.awk | *.txt | */)
				[[ -e $name || -e $(dirname "$md")/$name || $'\n'$all == *"/$name"* ]] ||
					echo "$md: there is no file $name"
				;;
			dr_*)
				c_files | xargs grep -qwF -e "$name" || echo "$md: there is no $name in the code"
				;;
			esac
		done < <(spans "$md" | sort -u)
	done < <(files '*.md' | grep -v CHANGELOG.md)
}

# Words of the code spans, where no other program is called: files and functions.
spans() {
	# shellcheck disable=SC2016
	grep -oE '`[^`]+`' "$1" | tr -d '`' | grep -vE '^(make|podman|lstopo|ip|rdma|perf|strace|stress-ng|iperf3|qperf|ucx_perftest|sysctl|modprobe)( |$)' |
		grep -oE '(^| |\()(dr_[a-z_0-9]+|[a-zA-Z_.*…{}<>0-9-]*(/[a-zA-Z_.*…{}<>0-9-]*)+|[a-z_0-9]+\.(c|h|sh|bats|py|awk|md))' |
		sed 's/^[ =(]//; s/[.,]$//'
}

# Headings as they are turned into anchors: lower case, punctuation dropped, blanks to hyphens.
has_heading() {
	[[ $1 == *.md ]] || return 0
	awk '/^ *```/ { code = !code; next } !code && /^#+ / { sub(/^#+ +/, ""); print tolower($0) }' "$1" |
		sed 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qxF -- "$2"
}

main() {
	local rules=("$@") rule out passed=0 failed=0 skipped=0 tool why line
	((${#rules[@]})) || rules=(calls words lines columns bytes spdx modes format headers cppcheck tidy shellcheck links docs
		folders circles parameters terms patches ${ALL:+unused})
	for rule in "${rules[@]}"; do
		case $rule in
		format) tool=clang-format ;;
		cppcheck | shellcheck) tool=$rule ;;
		tidy) tool=clang-tidy ;;
		*) tool="awk" ;;
		esac
		why=
		command -v "$tool" >/dev/null || why="$tool is not installed"
		if [[ $rule == columns && $(git rev-parse --is-shallow-repository 2>/dev/null) != false ]]; then
			why="no history of git to compare with"
		fi
		out=$([[ $why ]] || "rule_$rule")
		if [[ $why ]]; then
			echo "SKIP  lint $rule  ($why)"
			skipped=$((skipped + 1))
		elif [[ $out ]]; then
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
