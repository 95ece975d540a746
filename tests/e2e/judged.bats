#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the other files rely on: a check is skipped only where the machine stood, ports are held, and scripts/check.sh finds
# processes that a file leaves behind.
# shellcheck disable=SC2016,SC2317 # for the shell of a test

load usual

# judged MS COMMAND...: what judge() or judge_status() makes of it where the machine stood for MS.
judged() {
	skip() { echo "SKIP $*" && exit; }
	rm -f ready
	background stood sh -c "trap 'echo $1; exit' TERM; echo >ready; while :; do sleep 0.01; done"
	watcher=$pid
	wait_for test -e ready
	local rc=0
	"${@:2}" || rc=$?
	kill -KILL "$watcher" 2>/dev/null
	return $rc
}

@test "a check that fails is skipped where the machine stood for as long as it says, and only there" {
	run judged 180 judge 100 true
	[[ $status == 0 && ! $output ]]
	run judged 180 judge 100 false
	[[ $status == 0 && $output == "SKIP not judged: the machine stood for 180 ms" ]]
	run judged 99 judge 100 false
	[[ $status == 1 && $output == "the machine stood for 99 ms, less than 100" ]]
	echo '{"integrity": {"lost": 3, "duplicated": 0, "reordered": null, "corrupted": 0}}' >lost.json
	run judged 180 judge 100 false
	[[ $output == "SKIP not judged: "* ]]
	echo '{"integrity": {"lost": 0, "duplicated": 0, "reordered": null, "corrupted": 1}}' >wrong.json
	run judged 180 judge 100 false
	[[ $status == 1 && $output == "a document here has wrong data" ]]
}

# ended STATUS WANT: judge_status() of a process that ended so.
ended() {
	sh -c "exit $1" &
	judged 180 judge_status 100 "$2" $!
}

@test "of exit statuses, only those of a run that was late are skipped" {
	local rc
	for rc in 4 5 7 8; do
		run ended $rc 0
		[[ $status == 0 && $output == *"exit status $rc, not 0"*"SKIP not judged"* ]]
	done
	for rc in 1 2 3 6 134 137 139; do
		run ended $rc 0
		[[ $status == 1 && $output != *SKIP* ]]
	done
	run ended 0 0
	[[ $status == 0 && ! $output ]]
	run ended 0 7
	[[ $status == 0 && $output == *"SKIP not judged"* ]]
	run ended 0 2
	[[ $status == 1 && $output != *SKIP* ]]
}

@test "only the share of others in what the processes waited for counts, and it counts from a fifth on" {
	PYTHONPATH=$BATS_TEST_DIRNAME/.. python3 -B - <<'P'
import os, stood
stood.PROC = "proc"
def process(pid, parent, ran, waited):
    os.makedirs(f"proc/{pid}/task/{pid}", exist_ok=True)
    with open(f"proc/{pid}/stat", "w") as f: f.write(f"{pid} (a) b) S {parent} 1 1")
    with open(f"proc/{pid}/task/{pid}/schedstat", "w") as f: f.write(f"{ran} {waited} 1")
process(10, 1, 999, 999)  # the root itself
process(11, 10, 100, 5)
process(12, 11, 200, 30)
process(13, 1, 400, 70)  # no child
family = stood.Family(10)
assert family.sample() == (300, 30)
process(11, 10, 150, 10)
process(12, 1, 200, 37)  # its parent is another one now
assert family.sample() == (50, 7)
assert family.sample() == (0, 0)
with open("proc/stat", "w") as f: f.write("cpu  1 2 4 800 800 800 800 8 0 0\n")
assert stood.used_ns() == 15 * 10**9 // os.sysconf("SC_CLK_TCK")
assert stood.excused(100, 100, 50) == stood.excused(100, 80, 50) == stood.excused(100, 120, 50) == 0
assert stood.excused(100, 50, 50) == 25 and stood.excused(100, 0, 50) == 50
P
}

@test "a port is held until the test ends: nobody else can have it, a server that reuses addresses can" {
	free_port
	run python3 -c 'import socket, sys
for reuse in 0, 1:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        s.bind(("", int(sys.argv[1])))
        s.listen()
        print("listens")
    except OSError as e:
        print(e.strerror)' "$port"
	[[ $output == $'Address already in use\nlistens' ]]
}

@test "scripts/check.sh names a process that a file leaves behind, and ends it" {
	local left
	printf '%s\n' '@test "leaves one" {' 'sleep 1000 3>&- & echo $! >"$LEFT"' '}' >left.bats
	LEFT=$PWD/left run "$BATS_TEST_DIRNAME/../../scripts/check.sh" --unit "${DUALRAIL%/*}" "$PWD/left.bats"
	left=$(<left)
	[ "$status" -eq 1 ]
	[[ $output == *"FAIL  $PWD/left.bats  (left behind: $left sleep 1000 )"* ]]
	wait_for test ! -e "/proc/$left/exe"
}
