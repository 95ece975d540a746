#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# libdualrail as its users see it: the example docs/examples/kvblocks in C and in Python, two processes, while
# connections or links are cut under the data; its manual pages.
# bats file_tags=release
load usual

setup() {
	common_setup
	EXAMPLE=$DR_ROOT/docs/examples/kvblocks
	export DUALRAIL_HEADER=$DR_ROOT/library/dualrail.h DUALRAIL_LIBRARY=$DR_BUILD/libdualrail.so.0
	export PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=$DR_BUILD
	# Each run has content of its own.
	SEED=$RANDOM$RANDOM
	echo "seed $SEED"
}
# The command of the example's README, with the tree in the place of an installation.
build_example() {
	cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -O2 -I"$DR_ROOT/library" "$EXAMPLE/blocks.c" \
		-L"$DR_BUILD" -ldualrail -o blocks
}

python_example() {
	/usr/bin/python3 -c 'import cffi' 2>/dev/null || skip "python3-cffi is not installed"
}

# Every block of every round was compared and is right, and faults hit data on its way: it was sent again.
every_block_is_right() {
	cat send.out receive.out | tail -n 5
	grep -E "^[1-9][0-9]* rounds of $1 blocks, 0 wrong, [1-9][0-9]* faults hit data, [1-9][0-9]* bytes sent again$" send.out
	grep -E '^[1-9][0-9]* blocks compared, 0 wrong, [1-9][0-9]* switches, longest gap [0-9.]+ ms$' receive.out
	local rounds compared
	rounds=$(awk '/ rounds of /{ print $1 }' send.out) compared=$(awk '/ compared, /{ print $1 }' receive.out)
	((compared == rounds * $1))
}

# both PROGRAM...: the two ends over two addresses of the loopback device, connections aborted three times.
both() {
	local nics=127.0.0.2,127.0.0.3 receiver
	background receive "$@" receive --nics $nics --handle handle --seed "$SEED"
	receiver=$pid
	background send "$@" send --nics $nics --handle handle --seed "$SEED" --faults 3 --cut
	ends "$pid" 0
	ends "$receiver" 0
	every_block_is_right 64
	grep -E '^lane [0-9]+ switched: lo -> lo' receive.out send.out
	[[ $(stat -c %a handle) == 600 ]]
}

@test "the example moves blocks between two processes; connections are aborted under the data, and every block is right" {
	build_example
	both ./blocks
}

@test "the example of libdualrail(3) compiles and moves its bytes" {
	cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -O2 -I"$DR_ROOT/library" "$DR_ROOT/docs/examples/put.c" \
		-L"$DR_BUILD" -ldualrail -o put
	local receiver
	background receive ./put handle receive
	receiver=$pid
	wait_for test -s handle
	background send ./put handle send
	ends "$pid" 0
	ends "$receiver" 0
	grep -x 'received 67108864 bytes: all' receive.out
	[[ ! -d $DR_BUILD/man3 ]] || grep -q '^.SH EXAMPLE' "$DR_BUILD/man3/libdualrail.3"
}

# bats test_tags=nightly
@test "the example through Python: the same" {
	python_example
	both /usr/bin/python3 "$EXAMPLE/blocks.py"
}

# A block is not compared with itself: what the sender does not put is found.
@test "the example sends no blocks to the handle of another user" {
	[[ $(id -u) == 0 ]] || skip "needs root, to have a file of another user"
	build_example
	head -c 128 /dev/zero >planted
	chown 65534 planted
	run -1 timeout "$WAIT_S" ./blocks send --nics 127.0.0.2,127.0.0.3 --handle planted
	[[ $output == *"planted: belongs to another user" ]]
	python_example
	run -1 timeout "$WAIT_S" /usr/bin/python3 "$EXAMPLE/blocks.py" send --nics 127.0.0.2,127.0.0.3 --handle planted
	[[ $output == *"planted: belongs to another user" ]]
}

@test "a byte that is wrong in the receiver's memory is found by the example" {
	local receiver
	sed 's/n.wrong = count_wrong/b->memory[5] ^= 1; n.wrong = count_wrong/' "$EXAMPLE/blocks.c" >broken.c
	cc -std=c11 -D_POSIX_C_SOURCE=200809L -I"$DR_ROOT/library" broken.c -L"$DR_BUILD" -ldualrail -o broken
	build_example
	background receive ./broken receive --nics 127.0.0.2 --handle handle
	receiver=$pid
	run timeout "$WAIT_S" ./blocks send --nics 127.0.0.2 --handle handle --faults 0
	[[ $status == 1 && $output == *"1 rounds of 64 blocks, 1 wrong, 0 faults"* ]]
	ends "$receiver" 1
}

# has N PATTERN: at least N lines of the sender's output.
has() { (($(grep -c "$2" send.out) >= $1)); }
gone() { ! kill -0 "$sender" 2>/dev/null; }
# Lanes that are unprotected now: each says so, and when it has healed, in turn.
open_lanes() { echo $(($(grep -c unprotected send.out) - $(grep -c healed send.out))); }
exposed() { gone || (($(open_lanes) > 0)); }
whole() { gone || (($(open_lanes) == 0)); }

# The links go down in turn, for data stays where it is while a rail flaps, until the sender says that a fault hit data.
@test "the example between two nodes: a link goes down under the data, and every block is right" {
	local receiver sender rail=0
	two_rails
	build_example
	background receive ip netns exec "$B" ./blocks receive --nics rail0,rail1 --handle handle --seed "$SEED"
	receiver=$pid
	background send ip netns exec "$A" ./blocks send --nics rail0,rail1 --handle handle --seed "$SEED" --faults 1
	sender=$pid
	wait_for has 1 'first round done'
	until gone; do
		ip -n "$A" link set "rail$rail" down
		wait_for exposed
		ip -n "$A" link set "rail$rail" up
		wait_for whole
		rail=$((1 - rail))
	done
	ends "$sender" 0
	ends "$receiver" 0
	every_block_is_right 64
}

# impatient: the example, whose connections have 1.5 s to come up.
impatient() {
	sed 's/\.size = sizeof(opts)/&, .connect_timeout_ms = 1500/' "$EXAMPLE/blocks.c" >impatient.c
	cc -std=c11 -D_POSIX_C_SOURCE=200809L -I"$DR_ROOT/library" impatient.c -L"$DR_BUILD" -ldualrail -o impatient
}

# rejects RULE: in the host firewall of B.
rejects() {
	ip netns exec "$B" nft -f - <<-END || skip "no nftables here"
		add table inet f
		add chain inet f i { type filter hook input priority 0; }
		add rule inet f i $1
	END
}

@test "a NIC of the peer that never answers is named with the cause, and the other one carries the blocks" {
	local receiver
	command -v nft >/dev/null || skip "needs nft"
	two_rails
	build_example
	rejects 'iifname "rail1" drop'
	background receive ip netns exec "$B" ./blocks receive --nics rail0,rail1 --handle handle
	receiver=$pid
	background send ip netns exec "$A" ./blocks send --nics rail0,rail1 --handle handle --faults 0
	ends "$pid" 0
	ends "$receiver" 0
	# Who noticed it first; the other one has no time to.
	grep -q 'warn library: rail1 never came up: no answer from 10.99.1.[12]' send.err receive.err
	says "libdualrail: a NIC of the peer that never answers" send.err receive.err
}

# shellcheck disable=SC2016 # for that bash
@test "no data connection comes up: the end that dials has its last error, this process's before the firewall's" {
	local receiver port limit
	command -v nft >/dev/null || skip "needs nft"
	two_rails
	build_example
	impatient
	for limit in "$(ulimit -n)" 15; do
		rm -f handle
		background receive ip netns exec "$B" ./impatient receive --nics rail0,rail1 --handle handle
		receiver=$pid
		wait_for test -s handle
		port=$(ip netns exec "$B" ss -tlnH | awk '{ sub(".*:", "", $4); print $4; exit }')
		rejects "iifname { rail0, rail1 } tcp dport != $port reject with tcp reset"
		run -1 timeout "$WAIT_S" ip netns exec "$A" bash -c 'ulimit -n "$1"; exec ./impatient send --nics rail0,rail1 --handle handle' - "$limit"
		ends "$receiver" 1
		ip netns exec "$B" nft flush ruleset
		if ((limit == 15)); then
			[[ $output == *"rail0 never came up: this process has no file descriptor left; raise ulimit -n"* ]]
		else
			[[ $output == *"rail0 never came up: 10.99.0.2 on port "*" is rejected (Connection refused)"* ]]
			grep -q 'rail[01] never came up: no answer from 10.99.[01].1' receive.err
		fi
	done
}

# bats test_tags=nightly
@test "the manual pages of the library have no warnings, and man finds each of them by its name" {
	local page name
	command -v lexgrog >/dev/null || skip "lexgrog is not installed (man-db)"
	make -s -C "$DR_ROOT" man B="$DR_BUILD"
	lexgrog "$DR_BUILD"/man3/*.3 >names
	for page in "$DR_BUILD"/man3/*.3; do
		name=${page##*/}
		grep -qF "$page: \"${name%.3} - " names
	done
	LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$DR_BUILD"/man3/*.3 2>&1 >/dev/null | tee warnings
	[[ ! -s warnings ]]
	# A page for each function, whose names are those that the library exports.
	diff <(cd "$DR_BUILD"/man3 && printf '%s\n' dualrail_*.3 | sed 's/\.3$//' | sort) \
		<(nm -D --defined-only "$DUALRAIL_LIBRARY" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' | sort)
	[[ $(nm -D --defined-only "$DUALRAIL_LIBRARY" | grep -c '@@DUALRAIL_0$') == $(nm -D --defined-only "$DUALRAIL_LIBRARY" | grep -c ' T ') ]]
}
