#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The systemd unit: its rating, and a server that runs as it prescribes. Without systemd as process 1 the user, capabilities,
# limits and no_new_privs are set by setpriv; system calls and address families are read from strace and compared with the lists.
# Mounts and device lists are not made here.
# The sanitizers have threads and system calls of their own.
# bats file_tags=release
load usual

setup() {
	common_setup
	sed "s|@BINDIR@|$(dirname "$(realpath "$DUALRAIL")")|" \
		"$DR_ROOT/scripts/systemd/dualrail-server.service" >dualrail-server.service
}

# value KEY: of the unit, the last one.
value() {
	sed -n "s/^$1=//p" dualrail-server.service | tail -n 1
}

# as_service COMMAND...: with user, capabilities and limits of the unit.
as_service() {
	local set='' cap
	for cap in $(value CapabilityBoundingSet); do
		cap=${cap#CAP_}
		set+=,+${cap,,}
	done
	[[ $(value AmbientCapabilities) == "$(value CapabilityBoundingSet)" ]]
	[[ $(value NoNewPrivileges) == yes && $(value DynamicUser) == yes ]]
	ulimit -l unlimited 2>/dev/null || :
	setpriv --reuid 61184 --regid 61184 --clear-groups --inh-caps "-all$set" --ambient-caps "-all$set" \
		--bounding-set "-all$set" --no-new-privs env XDG_RUNTIME_DIR=run "$@"
}

# A service of its own in B; it reads the key as the unit says, from its standard input.
start_service() {
	[[ $EUID == 0 ]] || skip "needs root"
	command -v setpriv >/dev/null || skip "needs setpriv (util-linux)"
	[[ $(value StandardInput) == file:* && $(value ExecStart) == *" --key-file /dev/stdin "* ]]
	two_rails
	new_key key
	mkdir -m 700 run
	chown 61184:61184 run
	export XDG_RUNTIME_DIR=$PWD/run
	cp "$DUALRAIL" program
	chmod 755 program
	touch server.out server.err
	as_service_in_b "$@" ./program server --key-file /dev/stdin --allow-faults -g 0-1 <key >server.out 2>server.err 3>&- &
	pids+=("$!")
	wait_for grep -q 'listening on port' server.err
	server=$(pgrep -u 61184 -n -x program)
	pids+=("$server") # ended by teardown; the process above it is a shell
}

as_service_in_b() {
	export -f as_service value
	ip netns exec "$B" bash -c 'as_service "$@"' as_service "$@"
}

client_in_a() {
	ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --key-file key "$@"
}

@test "the unit is valid, and rated 3.0 or better" {
	command -v systemd-analyze >/dev/null || skip "systemd-analyze is not installed"
	(($(systemd-analyze --version | awk '{ print $2; exit }') >= 250)) || skip "systemd-analyze has no --offline before 250"
	run -0 systemd-analyze verify --man=no ./dualrail-server.service
	[[ $output != *dualrail-server.service* ]]
	run -0 systemd-analyze security --offline=true --threshold=30 ./dualrail-server.service
	[[ $output == *"exposure level for dualrail-server.service: "[012].* || $output == *": 3.0 "* ]]
}

@test "a server with the unit's user and capabilities serves, and injects and undoes a fault" {
	start_service
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --key-file key --test bw,failover \
		-D 300ms --fault link-down:path=0,side=server,at=100ms,for=200ms --json=c.json
	judge_status 100 0
	judge 100 holds c.json '.failover.faults | length == 1 and .[0].verdict == "PASS"'
	# Locked memory may be limited all the same: a container cannot raise the limit.
	grep -Eq '^CapEff:.000000000000(0000|4000)$' /proc/"$server"/status
	grep -q '^CapEff:.0000000000001000$' /proc/"$(pgrep -P "$server" -x dualrail-guard)"/status
	has_lower_up "$B" rail0
}

@test "all of the service is killed while it holds a fault: ExecStopPost= undoes it, as the service's user" {
	local stop all
	start_service
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --key-file key --test failover \
		--fault link-down:path=0,side=server,at=100ms,for=60s
	wait_for is_down "$B" rail0
	# Stopped first, so that nobody undoes anything while the others end.
	all=("$(pgrep -P "$server" -x dualrail-keeper)" "$(pgrep -P "$server" -x dualrail-guard)" "$server")
	kill -STOP "${all[@]}"
	kill -9 "${all[@]}"
	wait "${pids[0]}" || :
	is_down "$B" rail0
	stop=$(value ExecStopPost)
	[[ $stop == */dualrail\ doctor\ --repair ]]
	# It has no --fault-exec: the record of a command has to be there at the next start.
	[[ $(value RuntimeDirectoryPreserve) == restart ]]
	# shellcheck disable=SC2086 # words of the unit
	run -0 as_service_in_b ./program ${stop#* }
	has_lower_up "$B" rail0
}

# listed SET...: the system calls of these sets of systemd.
listed() {
	local one
	for one in "$@"; do
		if [[ $one == @* ]]; then
			# shellcheck disable=SC2046 # names
			listed $(systemd-analyze syscall-filter "$one" | awk '/^ +[-@a-z_0-9]+$/ { print $1 }')
		else
			echo "$one"
		fi
	done
}

# bats test_tags=nightly
@test "what the server calls is within the unit's system calls and address families" {
	local word
	command -v systemd-analyze >/dev/null || skip "systemd-analyze is not installed"
	command -v strace >/dev/null || skip "strace is not installed"
	while read -r word; do
		if [[ $word == ~* ]]; then
			# shellcheck disable=SC2086 # names
			listed ${word#"~"} | sort -u >less
			sort -u allowed | comm -23 - less >rest && mv rest allowed
		else
			# shellcheck disable=SC2086 # names
			listed $word >>allowed
		fi
	done < <(sed -n 's/^SystemCallFilter=//p' dualrail-server.service)
	sort -u -o allowed allowed
	(($(wc -l <allowed) > 200))
	start_service strace -f -qq -o run/trace
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --key-file key --test bw,lat,failover \
		-D 200ms --fault link-down:path=0,side=server,at=200ms,for=200ms --fault blackhole:path=0,side=server,at=1s,for=200ms
	((status == 0))
	kill "$server"
	wait "${pids[0]}" || :
	# What failed with EPERM is the program's own filter, or is given up.
	sed -nE '/= -1 EPERM/d; s/^[0-9]+ +([a-z_0-9]+)\(.*/\1/p' run/trace | sort -u >called
	(($(wc -l <called) > 40))
	comm -23 called allowed >forbidden
	cat forbidden
	[[ ! -s forbidden ]]
	sed -nE 's/^[0-9]+ +socket\((AF_[A-Z0-9]+),.*/\1/p' run/trace | sort -u >families
	value RestrictAddressFamilies | tr ' ' '\n' | sort -u | comm -23 families - >forbidden
	cat forbidden
	[[ ! -s forbidden ]]
}
