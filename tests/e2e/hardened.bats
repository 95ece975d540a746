#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The linked files have what the flags for hardening promise; the flags are those that the compiler knows.
# bats file_tags=release
load usual

setup() {
	common_setup
	programs=("$DR_BUILD/dualrail")
	objects=("$DR_BUILD/libnccl-net-ha.so" "$DR_BUILD/libdualrail.so.0")
	flags=$("$DUALRAIL" --version -v)
}

# known FLAG...: the compiler of this machine builds a program with it.
known() {
	echo 'int main(void) { return 0; }' | cc -Werror "$@" -O2 -x c - -o known 2>known.err
}

# each_has REGEX READELF-OPTION FILE...
each_has() {
	local regex=$1 option=$2 file
	shift 2
	for file in "$@"; do
		readelf -W "$option" "$file" >out || return
		grep -Eq "$regex" out || {
			echo "$file: readelf $option shows no $regex"
			return 1
		}
	done
}

@test "programs are position-independent" {
	each_has 'Type: +DYN' -h "${programs[@]}"
	each_has 'FLAGS_1.* PIE' -d "${programs[@]}"
}

@test "relocations are read-only, and all are resolved at the start" {
	each_has ' GNU_RELRO ' -l "${programs[@]}" "${objects[@]}"
	each_has 'FLAGS_1.* NOW|BIND_NOW' -d "${programs[@]}" "${objects[@]}"
}

@test "no stack is executable, and no segment is writable and executable" {
	local file
	each_has ' GNU_STACK .* RW +0x' -l "${programs[@]}" "${objects[@]}"
	for file in "${programs[@]}" "${objects[@]}"; do
		readelf -W -l "$file" >segments
		[[ $(grep -cE '^ +[A-Z_]+ .* RWE ' segments) == 0 ]]
	done
}

@test "calls of the C library are checked, at the highest level that it has" {
	local level file
	for file in "${programs[@]}" "${objects[@]}"; do
		readelf -W --dyn-syms "$file" >symbols
		# Of memory, of strings and of formats.
		grep -Eq ' UND __(memcpy|memset|memmove)_chk' symbols
		grep -Eq ' UND __v?snprintf_chk' symbols
		[[ $(grep -cE ' UND (vsnprintf|vfprintf)(@|$)' symbols) == 0 ]]
	done
	level=$(printf '#include <features.h>\n__USE_FORTIFY_LEVEL\n' |
		cc -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -E -x c - | tail -n 1)
	[[ $flags == *"-D_FORTIFY_SOURCE=$level"* ]]
}

@test "functions with arrays check the stack, and large frames touch each of their pages" {
	each_has ' UND __stack_chk_fail' --dyn-syms "${programs[@]}" "${objects[@]}"
	known -fstack-protector-strong
	[[ $flags == *-fstack-protector-strong* ]]
	known -fstack-clash-protection || skip "this compiler has no -fstack-clash-protection"
	[[ $(uname -m) == x86_64 ]] || skip "the instructions are those of x86-64"
	# A page is subtracted and touched.
	objdump -d --no-show-raw-insn "${programs[0]}" | grep -A1 -E 'sub +[$]0x1000,%rsp' |
		grep -Eq 'orq +[$]0x0,(0x[0-9a-f]+)?\(%rsp\)'
}

@test "every object file is marked for indirect branch tracking and shadow stacks" {
	local file
	known -fcf-protection=full || skip "no control-flow protection on $(uname -m)"
	[[ $(uname -m) == x86_64 ]] || skip "the notes are those of x86-64"
	for file in "$DR_BUILD"/{orchestrator/main.o,libdualrail.a,orchestrator.a,plugin/net.o}; do
		readelf -W -n "$file" >notes 2>/dev/null
		[[ $(grep -c 'x86 feature: IBT, SHSTK' notes) -ge $(grep -c '^File: ' notes) ]]
		grep -q 'x86 feature: IBT, SHSTK' notes
	done
	# The linker keeps the mark only if the C library's start files have it too.
	known -fcf-protection=full -Wl,-z,now
	readelf -W -n known | grep -q 'IBT, SHSTK' ||
		skip "the C library's start files are not marked, so no linked file can be; the object files are"
	each_has 'x86 feature: IBT, SHSTK' -n "${programs[@]}" "${objects[@]}"
}

@test "make installs nothing: it names what is missing and the command" {
	[[ -f $DR_ROOT/Makefile ]] || skip "no source tree"
	mkdir bin
	# A pkg-config that finds nothing, and an apt-get that leaves a trace.
	printf '#!/bin/sh\nexit 1\n' >bin/pkg-config
	printf '#!/bin/sh\ntouch "%s/installed"\n' "$PWD" >bin/apt-get
	chmod +x bin/*
	PATH=$PWD/bin:$PATH run env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$DR_ROOT" B="$PWD/b" all
	((status == 2))
	[[ $output == *"missing: "*libjansson-dev* ]]
	[[ ! -e installed && ! -e b/base/err.o ]]
	# The script that is asked to does, and says what first.
	((EUID == 0)) || skip "only root installs"
	[[ -e /etc/debian_version ]] || skip "packages are installed on Debian and Ubuntu only"
	PATH=$PWD/bin:$PATH run -2 "$DR_ROOT/scripts/setup.sh" build
	[[ -e installed && $output == *"installing libjansson-dev with: "* ]]
}
