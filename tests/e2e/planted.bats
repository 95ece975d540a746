#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Files that another user placed under a name that root is about to write or read: status 2, one message, nothing else.
# check.sh: address
# shellcheck disable=SC2016 # text for another shell

load usual

# Runs a command as another user.
other() {
	setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}

# shared: a directory as /tmp is, with what another user planted there; skips the test without root.
shared() {
	[[ $(id -u) == 0 ]] || skip "needs root, to have files of another user"
	chmod 755 . && mkdir shared && chmod 1777 shared
	echo 'root:secret' >victim
	chmod 600 victim
	other true || skip "another user cannot be had here"
	other env -C shared sh -c 'echo planted >file && chmod 4777 file && ln -s ../victim link && mkfifo fifo && ln -s /dev/zero device'
}

# What is in the shared directory, with owners, modes and sizes.
inventory() {
	stat -c '%n %u %A %s %i' shared/* victim
	cat victim shared/file
}

# refused REASON COMMAND...: status 2 with that reason, at once, and nothing has changed.
refused() {
	local reason=$1 before
	shift
	before=$(inventory)
	run timeout "$WAIT_S" "$DUALRAIL" "$@"
	echo "$* -> $status $output"
	[ "$status" -eq 2 ]
	[[ $output == *"$reason"* ]]
	[ "$(inventory)" = "$before" ]
	[ -z "$(find shared -name '.*' ! -name shared)" ]
}

@test "a planted file, link or FIFO is not written, whichever option names it" {
	local option
	shared
	for option in --json --csv --prom --save-baseline; do
		refused "cannot write $option=shared/file: it belongs to user 65534, this process runs as user 0; remove it or name another file" \
			client 127.0.0.1 "$option=shared/file"
		refused "cannot write $option=shared/link: it is a symbolic link; name the file that it points to, or remove the link" \
			client 127.0.0.1 "$option=shared/link"
		refused "cannot write $option=shared/fifo: it belongs to user 65534" client 127.0.0.1 "$option=shared/fifo"
	done
	refused "cannot write --json=shared/file: it belongs to user 65534" server --json=shared/file
	refused "cannot write --json=shared/link: it is a symbolic link" doctor --json=shared/link
	refused "cannot write --json=shared/file: it belongs to user 65534" topo --json=shared/file
}

@test "a planted key or baseline is not read, and a FIFO is not waited for" {
	local name
	shared
	for name in file link device; do
		refused "belongs to user 65534, this process runs as user 0; copy the file, or change its owner" \
			client 127.0.0.1 --key-file "shared/$name"
		refused "belongs to user 65534, this process runs as user 0; copy the file, or change its owner" \
			server --key-file "shared/$name"
		refused "cannot read --baseline=shared/$name: " client 127.0.0.1 --baseline "shared/$name"
	done
	refused "it is not a regular file; copy it into one" client 127.0.0.1 --key-file shared/fifo
	refused "it is not a regular file; copy it into one" client 127.0.0.1 --baseline shared/fifo
	# No byte of what the link points to is in a message.
	[[ $output != *secret* ]]
}

@test "a planted configuration, topology, host file or sweep is not read, and a FIFO is not waited for" {
	local name option
	shared
	# With it another user would choose the commands that root runs.
	other env -C shared sh -c 'echo "{\"fault-exec\": \"cut=ip link set eth0 down,true\"}" >file'
	for option in "client 127.0.0.1 --dry-run --config" "topo --topology" "sweep --hostfile" \
		"sweep --rank 0 --nodes 2 --coordinator 127.0.0.1 --resume"; do
		for name in file link device; do
			# shellcheck disable=SC2086 # a command and its options
			refused "belongs to user 65534, this process runs as user 0; copy the file, or change its owner" \
				$option "shared/$name"
		done
		# shellcheck disable=SC2086
		refused "it is not a regular file; copy it into one" $option shared/fifo
	done
	# By descriptor, as a shell passes it, and by a link of this user.
	echo '{"size": "3M"}' >own.json
	ln -s own.json own
	for name in own <(cat own.json); do
		run -0 "$DUALRAIL" client 127.0.0.1 --dry-run -v --config "$name"
		[[ $output == *size=3MiB* ]]
	done
}

@test "with file capabilities no library is loaded that the caller names; a set-user-ID bit ends the start" {
	shared
	cp "$DUALRAIL" capable
	cp "$DR_ROOT/tests/fixtures/topology/dgx.xml" dgx.xml
	setcap cap_net_raw+ep capable 2>/dev/null || skip "file capabilities cannot be set here"
	other ./capable --version || skip "they have no effect here"
	local -a topo=(topo --rails "lo@127.0.0.2,lo@127.0.0.3")
	other ./capable "${topo[@]}" >own
	other env HWLOC_XMLFILE=dgx.xml HWLOC_THISSYSTEM=0 ./capable "${topo[@]}" >foreign
	cmp own foreign
	run -0 other env DR_LIBCUDA=/none.so DR_IBVERBS=/none.so DUALRAIL_WINDOW=5 ./capable client 127.0.0.1 --dry-run -v
	[[ $output == *$'\nwindow=5\n'* && $output != */none.so* ]]
	run -2 other ./capable plugin ./none.so
	[ "$output" = "dualrail: ./none.so is not loaded: this program has file capabilities, which its code would get; remove them (setcap -r), or run as root" ]
	cp "$DUALRAIL" owner
	chmod 4755 owner
	run -2 other ./owner topo
	[ "$output" = "dualrail: this program has a set-user-ID or set-group-ID bit: whoever starts it could run commands as its owner; remove it (chmod ug-s)" ]
}

@test "run_p2p.sh takes no addresses from a planted file or link, and no option from a file" {
	local name
	shared
	mkdir open
	chmod 777 open # the kernel itself refuses links of others in sticky directories
	other ln -s ../victim open/link
	for name in shared/file open/link; do
		run -2 "$DR_ROOT/scripts/run_p2p.sh" client "$name"
		[ "$output" = "run_p2p.sh: $name belongs to user 65534, this script runs as user 0; copy the file, or change its owner" ]
	done
	echo 192.0.2.1 >nodes.txt
	mkdir bin
	ln -s "$(type -P false)" bin/stat # as where /dev/fd is missing
	PATH=$PWD/bin:$PATH run -2 "$DR_ROOT/scripts/run_p2p.sh" client nodes.txt
	[[ $output == "run_p2p.sh: nodes.txt belongs to user "* ]]
	echo --config=shared/file >nodes.txt
	run -2 "$DR_ROOT/scripts/run_p2p.sh" client nodes.txt
	[ "$output" = 'run_p2p.sh: nodes.txt: "--config=shared/file" is no address' ]
}

@test "null in a configuration file is an error, not a run without a key" {
	local option
	for option in key-file allow-from user fault-nics; do
		echo "{\"$option\": null}" >c.json
		run -1 timeout "$WAIT_S" "$DUALRAIL" server --config c.json
		[ "$output" = "dualrail: --config c.json: \"$option\": null is no value; give one, or remove the line for the default" ]
	done
}

@test "another user's directory at the place of root's state files is reported and not read" {
	shared
	unshare -m true 2>/dev/null || skip "mount namespaces cannot be made here"
	run timeout "$WAIT_S" unshare -m sh -c 'mount -t tmpfs none /run && mkdir /run/dualrail &&
		chown 65534 /run/dualrail && exec "$@"' sh "$DUALRAIL" client 127.0.0.1 --dry-run --json=c.json
	[[ $output == *"state directory /run/dualrail is not used: Operation not permitted; it must be a directory of user 0"* ]]
}

@test "own files are replaced without special mode bits; devices, descriptors and FIFOs are written" {
	local old reader
	: >own.json
	: >real.csv
	chmod 6755 own.json
	old=$(stat -c %i own.json)
	mkfifo stream
	start reader cat stream
	reader=$pid
	umask 027
	start_server -1 --json=new.json
	client -D 100ms -q --json=own.json --csv /dev/fd/9 --prom stream --save-baseline base.json 9>>real.csv
	[ "$status" -eq 0 ]
	ends "$reader" 0
	ends "$server" 0
	[ "$(stat -c %a own.json)" = 755 ]
	[ "$(stat -c %i own.json)" != "$old" ]
	[ "$(stat -c %a new.json)" = 640 ]
	grep -q ^total, real.csv
	grep -q ^dualrail_ reader.out
	# A key by descriptor, and by a link of this user, as Kubernetes mounts it.
	new_key key.1
	ln -s key.1 key
	start_server -1 --key-file key
	gives 0 client -D 100ms -q --key-file <(cat key.1) --json=/dev/stdout --csv /dev/null
	ends "$server" 0
	[[ $output == *'"schema": "dualrail/1"'* ]]
	[ -c /dev/null ]
}

@test "a full file system: one message, and the old document is whole" {
	[[ $(id -u) == 0 ]] && unshare -m true 2>/dev/null || skip "needs root for a full file system"
	mkdir full
	start_server
	# The program writes a document of more than 4 KiB into a file system that has 8 KiB, 4 of them in use.
	run timeout "$WAIT_S" unshare -m sh -c 'mount -t tmpfs -o size=8k none full && echo old >full/c.json && "$@"
		code=$?; cat full/c.json; ls -A full; exit $code' sh "$DUALRAIL" \
		client 127.0.0.1 --port "$port" "${SMALL[@]}" -D 100ms -q --json=full/c.json
	[ "$status" -eq 2 ]
	[ "$(grep -c "cannot write --json=full/c.json: No space left on device; free some space" <<<"$output")" -ge 1 ]
	[ "$(tail -n 2 <<<"$output")" = $'old\nc.json' ]
}
