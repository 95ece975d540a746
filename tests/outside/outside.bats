#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Faults made from outside the program, with ip, tc, nft and ss, on rail 0 between two namespaces. Needs root.
# An observer at the receiver's NICs (observer_main.c) measures the stall: the longest time after the fault in
# which the connections of a channel, on both rails together, brought no new data.
#
# STALLS=FILE collects a line for each fault: name, rails left, paths of rail 0 that are up at the end, ms without
# data, ms of that in which the program waited for a processor, ms from the last data on rail 0 to the fault.
# shellcheck disable=SC2154 # set by lib.bash

# check.sh: alone
# bats file_tags=release,nightly

# What is expected of each fault. Rails: those that channels leave; "-": none. Stall: the longest time without data
# of a channel, in ms. Paths: how many of the four over rail 0 are up at the end. "now" is what the program does at
# present, "goal" what it should do: either passes, and a fix replaces "now" by "goal". "." is not judged: with
# losses TCP itself stalls.
expectations() {
	cat <<-'END'
		# name              rails: now goal  stall: now goal  paths: now goal
		link-down-client           0   0           60   60          0   0
		link-down-server           0   0           60   60          0   0
		drop-to-server             0   0           60   60          0   0
		drop-to-client             0   0           60   60          0   0
		black-hole                 0   0           60   60          0   0
		mtu-hole                   0   0          150  150          .   .
		mtu-refused                0   0          200  150          .   .
		tcp-dropped                0   0          150  150          2   0
		tcp-refused                0   0          200  150          2   0
		udp-dropped                0   -           60   60          .   4
		wrong-arp-client           0   0           60   60          0   0
		wrong-arp-server           0   0           60   60          0   0
		address-client             0   0          100  100          0   0
		address-server             0   0          100  100          0   0
		slow                       0   -         2000    .          4   4
		reset                      0   0           60   60          4   4
		reject                     0   0           60   60          2   0
		loss-5                     -   -         1000    .          4   4
		loss-40                    0   -            .    .          4   4
		deleted                    0   0           60   60          0   0
		moved                      0   0           60   60          0   0
		neighbour-flap             -   -           60   60          4   4
		duplicate-address          0   0           60   60          0   0
		route-lost                 0   0           60   60          0   0
		route-elsewhere            -   -           60   60          4   4
	END
}

# Load may lengthen a stall by this factor, and by the time that the program waited for a processor meanwhile.
SCALE=2
# The observer must have seen data on rail 0 within this time before the fault, time that the program waited for a processor
# not counted.
JUST_BEFORE_MS=100
# A run whose rails are all lost ends within this time: 1.5 s for the verdict, and what the run needs to end.
LOST_MS=4000

# Namespaces of a run that was killed, their processes first.
remove_stale() {
	local one owner
	for one in $(ip netns list | awk '/^outside[0-9]+[abc]/ { print $1 }'); do
		owner=${one//[!0-9]/}
		[[ -d /proc/$owner ]] || remove "$one"
	done
}

remove() {
	local one
	for one in $(ip netns pids "$1" 2>/dev/null); do
		kill -KILL "$one" 2>/dev/null
	done
	ip netns del "$1" 2>/dev/null || :
}

setup() {
	load ../e2e/lib
	common_setup
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	[[ -r /proc/self/schedstat ]] || skip "this kernel does not tell how long a task waited for a processor"
	for tool in tc nft ss; do
		command -v $tool >/dev/null || skip "needs $tool"
	done
	remove_stale
	A=outside${BASHPID}a B=outside${BASHPID}b C=outside${BASHPID}c
	ip netns add "$A" 2>/dev/null || skip "network namespaces cannot be made here"
	ip netns add "$B"
	ip netns add "$C"
	link rail0 10.99.0
	link rail1 10.99.1
	link ctl0 10.99.255
	for rail in rail0 rail1; do
		for node in "$A" "$B"; do
			# Packets as on a wire, not the kernel's aggregates of 64 KiB.
			ip -n "$node" link set dev $rail mtu 9000 gso_max_segs 1
			tc -n "$node" qdisc add dev $rail root handle 1: tbf rate 200mbit burst 128kb limit 4mb ||
				skip "this kernel has no token bucket filter (sch_tbf)"
		done
	done
}

teardown() {
	common_teardown
	for node in ${A-} ${B-} ${C-}; do
		remove "$node"
	done
	validated
}

# filter NODE RULE [NIC [egress]]: applied to each packet that arrives at NODE by rail 0, or by that NIC, as if
# the network lost it; egress: that leaves NODE, as if an output filter refused it.
filter() {
	ip netns exec "$1" nft -f - <<-END
		table netdev outside-${3:-rail0} {
			chain filtered {
				type filter hook ${4:-ingress} device ${3:-rail0} priority 0; policy accept;
				$2
			}
		}
	END
}

needs_filter() {
	filter "$A" "ip saddr 192.0.2.1 drop" ctl0 egress 2>/dev/null ||
		skip "this kernel has no egress hook of nftables"
}

now_us() {
	echo "${EPOCHREALTIME/[.,]/}"
}

# All four channels bring data, two on each rail.
observed() {
	tail -n 1000 observer.out | awk '
		{ channels[$3] = rails[$2] = 1 }
		END { for (i in channels) n++; for (i in rails) n += 10; exit !(NR == 1000 && n == 24) }'
}

# Until the client ends: for each thread of both ends, how long it waited for a processor so far.
watch_waits() {
	local one stat
	while kill -0 "$client" 2>/dev/null; do
		for one in /proc/{"$client","$server"}/task/*/schedstat; do
			read -r stat <"$one" && echo "${EPOCHREALTIME/[.,]/} $one $stat"
		done 2>/dev/null || :
		read -rt 0.05 <> <(:) || :
	done
}

# flow: verified data over both rails.
flow() {
	start observer ip netns exec "$B" "$DR_BUILD/tests/outside/observer_main" rail0 rail1
	observer=$pid
	wait_for grep -q ready observer.err
	start server ip netns exec "$B" "$DUALRAIL" server -g 0-1 -1 --json=s.json
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 -g 0-1 -N 2 --chunk 64K --window 8 -s 1M \
		--verify -D "${1:-4s}" -i 0 --json=c.json
	start waits watch_waits
	watcher=$pid
	wait_for observed
}

# fault COMMAND...: on flowing data.
fault() {
	began_us=$(now_us)
	"$@"
	made_us=$(now_us)
}

# From observer.out: ms without data on rail 0 before the fault; the longest time without data of a channel that
# ended after the fault began, in ms, and its begin and end; how many channels had data after the fault was made.
stalls() {
	awk -v began="$began_us" -v made="$made_us" '
		$2 == "rail0" && $1 < began { before = $1 }
		$1 > began && ($3 in last) && $1 - last[$3] > longest {
			longest = $1 - last[$3]
			from = last[$3]
			until = $1
		}
		$1 > made { resumed[$3] = 1 }
		{ last[$3] = $1 }
		END {
			for (i in resumed)
				n++
			printf "%.1f %.1f %.0f %.0f %d\n", (began - before) / 1000, longest / 1000, from, until, n
		}' observer.out
}

# Rails that channels left because of an error, not for a failback: "-", "0", "1" or "01".
rails_left() {
	jq -r '(.topology.gpus | map({ key: "\(.gpu)", value: [.primary_rail, .shadow_rail] }) | from_entries) as $rails |
		[.failover.switches[] | select(.error) | $rails["\(.gpu)"][.from_path]] |
		unique | if . == [] then "-" else map(tostring) | add end' c.json
}

# Paths over rail 0 that are up at the end, of four.
paths_up() {
	jq '(.topology.gpus | map({ key: "\(.gpu)", value: [.primary_rail, .shadow_rail] }) | from_entries) as $rails |
		[.topology.paths[] | select($rails["\(.gpu)"][.path] == 0).up] | add' c.json
}

# waited FROM UNTIL (microseconds): ms that the slowest thread of the client and of the server waited, together.
waited() {
	awk -v from="$1" -v until="$2" '
		NF < 5 { next }
		$1 <= from || !($2 in first) { first[$2] = $4 }
		!($2 in ended) { last[$2] = $4 }
		$1 >= until { ended[$2] = 1 }
		END {
			for (i in last) {
				split(i, part, "/")
				if (last[i] - first[i] > most[part[3]])
					most[part[3]] = last[i] - first[i]
			}
			for (i in most)
				sum += most[i]
			printf "%.0f\n", sum / 1000000
		}' waits.out
}

# expect NAME: the run ends well, the observer saw data on rail 0 just before the fault, and the table's line
# NAME is kept.
expect() {
	local name=$1 rails rails_goal limit paths paths_goal before stall from until resumed left up wait before_wait
	ends "$client" 0
	ends "$server" 0
	ends "$watcher" 0
	kill -TERM "$observer"
	ends "$observer" 0
	clean c.json
	holds c.json '.status == "pass" and .errors == [] and .integrity.chunks > 0'
	holds s.json '.exit_code == 0'
	read -r _ rails rails_goal limit _ paths paths_goal < <(expectations | grep "^$name ")
	read -r before stall from until resumed < <(stalls)
	left=$(rails_left)
	up=$(paths_up)
	wait=$(waited "$from" "$until")
	echo "$name: left $left (expected $rails), $up paths of rail 0 up (expected $paths), $stall ms without data" \
		"(limit $limit, waited $wait), data on rail 0 $before ms before the fault, on $resumed channels after it"
	[[ ! ${STALLS-} ]] || echo "$name $left $up $stall $wait $before" >>"$STALLS"
	before_wait=$(waited $((began_us - ${before%.*} * 1000)) "$began_us")
	((${before%.*} < JUST_BEFORE_MS + before_wait && resumed == 4))
	# A path that was left is dialled again; at this loss the handshake may outlast the run.
	[[ $name != loss-40 || $left == - ]] || paths=.
	[[ $left == "$rails" || $left == "$rails_goal" ]]
	[[ $paths == . || $up == "$paths" || $up == "$paths_goal" ]]
	[[ $limit == . ]] || ((${stall%.*} < SCALE * limit + wait))
}

# breaks NAME COMMAND...: this fault on flowing data, and what is expected of it.
breaks() {
	[[ $2 != @(filter|both_ways) ]] || needs_filter
	flow
	fault "${@:2}"
	expect "$1"
}

@test "link down at the client" {
	breaks link-down-client ip -n "$A" link set rail0 down
}

@test "link down at the server" {
	breaks link-down-server ip -n "$B" link set rail0 down
}

@test "packets to the server dropped" {
	breaks drop-to-server filter "$B" drop
}

@test "packets to the client dropped" {
	breaks drop-to-client filter "$A" drop
}

both_ways() {
	filter "$A" "$1"
	filter "$B" "$1"
}

@test "black hole: packets of both directions dropped" {
	breaks black-hole both_ways drop
}

@test "MTU hole: packets above 1,500 bytes to the server dropped" {
	breaks mtu-hole filter "$B" "meta length > 1514 drop"
}

@test "MTU hole: packets above 1,500 bytes refused by the client's output filter" {
	breaks mtu-refused filter "$A" "meta length > 1514 drop" rail0 egress
}

@test "TCP dropped, other packets pass" {
	breaks tcp-dropped both_ways "meta l4proto tcp drop"
}

@test "TCP to the server refused by the client's output filter, other packets pass" {
	breaks tcp-refused filter "$A" "meta l4proto tcp drop" rail0 egress
}

@test "UDP dropped, other packets pass" {
	breaks udp-dropped both_ways "meta l4proto udp drop"
}

NOBODY=02:00:00:00:00:99

@test "wrong ARP entry at the client" {
	breaks wrong-arp-client ip -n "$A" neigh replace 10.99.0.2 dev rail0 lladdr "$NOBODY" nud permanent
}

@test "wrong ARP entry at the server" {
	breaks wrong-arp-server ip -n "$B" neigh replace 10.99.0.1 dev rail0 lladdr "$NOBODY" nud permanent
}

@test "address removed at the client" {
	breaks address-client ip -n "$A" addr del 10.99.0.1/24 dev rail0
}

@test "address removed at the server" {
	breaks address-server ip -n "$B" addr del 10.99.0.2/24 dev rail0
}

# Some seconds of a hundredth of the other rail's rate.
slow() {
	tc -n "$A" qdisc change dev rail0 root handle 1: tbf rate 1mbit burst 16kb limit 4mb
	read -rt 3 <> <(:) || :
	tc -n "$A" qdisc change dev rail0 root handle 1: tbf rate 200mbit burst 128kb limit 4mb
}

@test "1 Mb/s for three seconds" {
	breaks slow slow
}

close_connections() {
	ip netns exec "$A" ss -HtK dst 10.99.0.2 >closed
}

@test "TCP reset: the client's connections closed by ss -K" {
	flow
	fault close_connections
	[[ -s closed ]] || skip "this kernel cannot close sockets for another process (INET_DIAG_DESTROY)"
	expect reset
}

# reject NIC
reject() {
	ip netns exec "$B" nft -f - <<-END
		table inet outside-$1 {
			chain in {
				type filter hook input priority 0; policy accept;
				iifname $1 meta l4proto tcp reject with tcp reset
			}
		}
	END
}

@test "TCP reset: every segment rejected by the server's firewall" {
	reject ctl9 2>/dev/null || skip "this kernel has no nft reject"
	breaks reject reject rail0
}

@test "5 % loss" {
	breaks loss-5 filter "$B" "numgen random mod 100 < 5 drop"
}

@test "40 % loss" {
	breaks loss-40 filter "$B" "numgen random mod 100 < 40 drop"
}

@test "NIC deleted" {
	breaks deleted ip -n "$A" link del rail0
}

@test "NIC moved to another namespace" {
	breaks moved ip -n "$A" link set rail0 netns "$C"
}

# Ten times forgotten, while packets flow.
flap_neighbour() {
	local i
	for ((i = 0; i < 10; i++)); do
		ip -n "$A" neigh del 10.99.0.2 dev rail0 || :
		ip -n "$B" neigh del 10.99.0.1 dev rail0 || :
		read -rt 0.05 <> <(:) || :
	done
}

@test "neighbour entries forgotten again and again: the rail is used on" {
	breaks neighbour-flap flap_neighbour
}

# A third station on the wire takes the server's address and announces it.
duplicate() {
	ip -n "$B" link add link rail0 name station type macvlan mode bridge || return 0
	ip -n "$B" link set station netns "$C"
	ip netns exec "$C" sysctl -qw net.ipv4.conf.station.arp_notify=1
	ip -n "$C" addr add 10.99.0.2/24 dev station
	ip -n "$C" link set station up
	: >announced
}

@test "duplicate address" {
	flow
	fault duplicate
	[[ -e announced ]] || skip "this kernel has no macvlan for a third station"
	expect duplicate-address
}

@test "route changed to a router that is not there" {
	breaks route-lost ip -n "$A" route add 10.99.0.2/32 via 10.99.0.77 dev rail0
}

@test "route changed to the other rail: sockets are bound to their NIC" {
	breaks route-elsewhere ip -n "$A" route replace 10.99.0.0/24 dev rail1
}

both_rails() {
	filter "$B" drop
	filter "$B" drop rail1
}

@test "both rails dropped: both ends end with status 4" {
	needs_filter
	flow 60s # it ends before
	fault both_rails
	ends "$client" 4
	ends "$server" 4
	ended_us=$(now_us)
	ends "$watcher" 0
	took=$(((ended_us - made_us) / 1000))
	wait=$(waited "$made_us" "$ended_us")
	echo "ended after $took ms (limit $LOST_MS, waited $wait)"
	((took < SCALE * LOST_MS + wait))
	for document in c.json s.json; do
		holds $document '.status == "error" and .exit_code == 4 and .errors != []'
		holds $document '.integrity | [.duplicated, .reordered, .corrupted] | all(. == null or . == 0)'
	done
}
