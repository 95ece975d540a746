#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# doctor: each finding is true, and the command that it gives fixes it.
# check.sh: address

# bats file_tags=one-thread
setup() {
	load lib
	common_setup
	nets=()
}

teardown() {
	local net
	common_teardown
	for net in "${nets[@]}"; do
		ip netns del "$net" 2>/dev/null
	done
	validated
}

LO=(--rails "lo@127.0.0.1,lo@127.0.0.2")

# doctor OPTIONS...: status, and the document in d.json. Two GPUs unless -g says otherwise.
doctor() {
	local gpus=(-g 0-1)
	[[ " $* " != *" -g "* ]] || gpus=()
	run timeout "$WAIT_S" "$DUALRAIL" doctor --json=d.json "${gpus[@]}" "$@"
}

# finding CHECK SEVERITY [WHERE]: there is one.
finding() {
	holds d.json ".findings | any(.check == \"$1\" and .severity == \"$2\" and (\"${3-}\" == \"\" or .where == \"${3-}\"))" || {
		jq -c '.findings[] | select(.severity != "ok")' d.json
		return 1
	}
}

no_finding() {
	holds d.json ".findings | all(.check != \"$1\" or .severity == \"ok\" or .severity == \"note\")" || {
		jq -c ".findings[] | select(.check == \"$1\")" d.json
		return 1
	}
}

# ---- on one node ----

@test "one node: a table, and a document of the same" {
	doctor "${LO[@]}"
	[[ $status == 0 || $status == 2 ]]
	[[ $output == *"ok    rails"*"(exit status $status)" ]]
	holds d.json ".schema == \"dualrail-doctor/1\" and .exit_code == $status and .target == null"
	holds d.json '.findings | all(.severity == "ok" or .severity == "note" or .remedy != null)'
	holds d.json '(.findings | length) == (.counts | add)'
	holds d.json '[.findings[].check] | contains(["rails", "link", "mtu", "leftover", "memlock",
		"open-files", "cpu-quota", "capabilities", "ports", "rdma", "gpu-driver", "clock"])'
	"$DUALRAIL" doctor "${LO[@]}" --json 2>err | jq -e '.findings | length > 10'
	grep -q 'exit status' err
	run "$DUALRAIL" doctor "${LO[@]}" -q
	[[ $output != *"ok    "* ]]
}

@test "usage: two hosts, rails that are none, a file that cannot be written" {
	run -1 "$DUALRAIL" doctor a b
	one_line
	run -1 "$DUALRAIL" doctor --size 1M
	run -2 "$DUALRAIL" doctor --json=/no/such/folder/x.json
	one_line
	gives 2 doctor --rails no-such-device
	finding rails fail
	gives 1 doctor --rails ,
	finding rails fail
	gives 2 doctor --control no-such-device
	finding control fail
}

@test "too few open files: status 2, and the command of the finding fixes it" {
	(
		ulimit -n 100
		gives 2 doctor "${LO[@]}" -N 32
		finding open-files fail
	)
	local remedy
	remedy=$(jq -r '.findings[] | select(.check == "open-files") | .remedy' d.json)
	[[ $remedy =~ ^ulimit\ -n\ ([0-9]+) ]]
	ulimit -n "${BASH_REMATCH[1]}"
	doctor "${LO[@]}" -N 32
	finding open-files ok
}

@test "a port that another program has: status 2 with its name; a server of ours is none" {
	doctor "${LO[@]}" --port 1
	finding ports ok
	free_port
	cp "$DUALRAIL" other
	start other ./other server -g 0-1 --port "$port"
	wait_for grep -q listening other.err
	gives 2 doctor "${LO[@]}" --port "$port"
	finding ports fail
	holds d.json ".findings | any(.check == \"ports\" and .found == \"other ($pid)\")"
	start_server
	doctor "${LO[@]}" --port "$port"
	finding ports note
}

@test "GPUs: in host memory where there are none; one that is not there stops a run" {
	doctor "${LO[@]}" --memory host
	finding gpus ok
	DR_LIBCUDA=libnone-of-this-name.so.1 gives 2 doctor "${LO[@]}" --memory cuda
	finding gpus fail
	gives 1 doctor "${LO[@]}" -g 3,3
}

@test "RDMA: missing is a note, with --transport verbs it stops a run; a sound one is shown" {
	plugin=${DR_BUILD:-${DUALRAIL%/*}}/tests/fakeverbs/ibverbs_plugin.so
	[[ -e $plugin ]] || skip "tests are not built: $plugin"
	export DR_IBVERBS=libnone-of-this-name.so.1
	doctor "${LO[@]}"
	finding rdma note
	gives 2 doctor "${LO[@]}" --transport verbs
	finding rdma fail
	export DR_IBVERBS=$plugin
	doctor "${LO[@]}" --transport verbs
	finding rdma ok lo
	no_finding rdma
	gives 2 doctor "${LO[@]}" --transport verbs --gid 99
	finding rdma fail lo
	DR_FAKE_IBV=fake0:lo:127.0.0.1 gives 2 doctor "${LO[@]}" --transport verbs
	finding rdma fail
	finding rdma ok lo
}

# ---- with a server ----

@test "no server there, no such host: status 3, in the document too" {
	free_port
	gives 3 doctor 127.0.0.1 --port "$port" --connect-timeout 300ms
	finding peer fail
	holds d.json '.exit_code == 3 and .target == "127.0.0.1" and (.findings | any(.remedy != null
		and (.remedy | contains("dualrail server"))))'
	gives 3 doctor no.such.host.invalid --connect-timeout 300ms
	finding peer fail
}

@test "a server answers doctor, is not disturbed by it, and keeps no record" {
	new_key key other-key
	start_server --key-file key --one-off --json=s.json
	doctor 127.0.0.1 --port "$port" --key-file key
	finding peer ok
	finding peer-gpus ok
	finding peer-rails ok
	no_finding peer
	gives 3 doctor 127.0.0.1 --port "$port" --key-file other-key --connect-timeout 5s
	gives 3 doctor 127.0.0.1 --port "$port" --connect-timeout 5s
	gives 2 doctor 127.0.0.1 --port "$port" --key-file key -g 0-3
	finding peer-gpus fail
	doctor 127.0.0.1 --port "$port" --key-file key -g 0
	finding peer-gpus ok
	gives 2 doctor 127.0.0.1 --port "$port" --key-file key --transport verbs --rails nothing
	[[ ! -e s.json ]]
	# The first client after all of that is the one that --one-off serves.
	gives 0 client -D 200ms -q --key-file key
	ends "$server" 0
	whole s.json
	holds s.json '.exit_code == 0'
}

@test "what the server would refuse a client doctor finds" {
	start_server --rails lo@127.0.0.9
	gives 2 doctor 127.0.0.1 --port "$port" --rails lo@127.0.0.1,lo@127.0.0.2
	finding peer fail
	run "$DUALRAIL" client 127.0.0.1 --port "$port" -g 0-1 --rails lo@127.0.0.1,lo@127.0.0.2 -q
	[ "$status" -eq 2 ]
}

# ---- two nodes with a switch between them ----

# A and B, with ports of bridges in C: port NODE DEVICE ADDRESS BRIDGE.
nodes() {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	A=dr${BASHPID}a B=dr${BASHPID}b C=dr${BASHPID}c
	ip netns add "$A" 2>/dev/null || skip "network namespaces cannot be made here"
	nets+=("$A" "$B" "$C")
	ip netns add "$B"
	ip netns add "$C"
	n_ports=0
	local bridge
	for bridge in sw0 sw1 swc; do
		ip -n "$C" link add "$bridge" type bridge || skip "no bridges here"
		ip -n "$C" link set "$bridge" up
	done
	port "$A" ctl0 10.99.255.1/24 swc
	port "$B" ctl0 10.99.255.2/24 swc
}

port() {
	local end=p$((n_ports++))
	ip link add "$2" netns "$1" type veth peer name "$end" netns "$C"
	ip -n "$1" addr add "$3" dev "$2"
	ip -n "$C" link set "$end" up master "$4"
	ip -n "$1" link set "$2" up
	last_port=$end
}

two_subnets() {
	nodes
	port "$B" rail0 10.99.0.2/24 sw0
	port "$B" rail1 10.99.1.2/24 sw1
	port "$A" rail0 10.99.0.1/24 sw0
	port "$A" rail1 10.99.1.1/24 sw1
}

one_subnet() {
	nodes
	port "$B" rail0 10.99.0.2/24 sw0
	port "$B" rail1 10.99.0.12/24 sw0
	port "$A" rail0 10.99.0.1/24 sw0
	port "$A" rail1 10.99.0.11/24 sw0
}

# apply_fix NET CHECK: runs in NET the commands that doctor gave for CHECK, without the remarks in brackets.
apply_fix() {
	local commands
	commands=$(jq -r ".findings[] | select(.check == \"$2\" and .severity != \"ok\") | .remedy" d.json |
		sed 's/ (.*//; s/^at the server: //')
	[[ $commands ]]
	ip netns exec "$1" sh -ec "$commands"
}

@test "two sound nodes: status 0; the way of each rail was tried at full size" {
	two_subnets
	server_in_b
	gives 0 doctor_in_a 10.99.255.2
	finding peer ok
	finding peer-rails ok
	finding path-mtu ok rail0
	finding path-mtu ok rail1
	holds d.json '.counts.fail == 0 and .counts.warn == 0'
}

# sysctl_in NET NAME=VALUE...
sysctl_in() {
	ip netns exec "$1" sysctl -qw "${@:2}"
}

@test "the settings of both ends: what differs is named, and the commands work" {
	two_subnets
	server_in_b
	sysctl_in "$A" net.ipv4.tcp_congestion_control=reno
	sysctl_in "$B" net.ipv4.tcp_congestion_control=reno
	doctor_in_a 10.99.255.2
	finding settings ok
	sysctl_in "$B" net.ipv4.tcp_wmem="4096 16384 1048576"
	sysctl_in "$A" net.ipv4.tcp_rmem="4096 131072 1048576"
	gives 0 doctor_in_a 10.99.255.2
	finding tcp-buffers warn tcp_wmem
	finding tcp-buffers warn tcp_rmem
	no_finding settings
	holds d.json '[.findings[] | select(.check == "tcp-buffers").remedy] | map(startswith("at the server: ")) | sort == [false, true]'
	sysctl_in "$B" net.ipv4.tcp_wmem="$(ip netns exec "$A" cat /proc/sys/net/ipv4/tcp_wmem)"
	doctor_in_a 10.99.255.2
	apply_fix "$A" tcp-buffers
	doctor_in_a 10.99.255.2
	finding settings ok
	sysctl_in "$B" net.ipv4.tcp_congestion_control=bbr || skip "no second congestion control here"
	doctor_in_a 10.99.255.2
	finding congestion-control warn
	apply_fix "$B" congestion-control
	sysctl_in "$A" net.ipv4.tcp_congestion_control=bbr
	sysctl_in "$B" net.ipv4.tcp_congestion_control=bbr
	doctor_in_a 10.99.255.2
	no_finding congestion-control
}

@test "a rail without carrier, one without partner, one rail only" {
	two_subnets
	server_in_b
	ip -n "$C" link set "$last_port" down
	gives 2 doctor_in_a --rails rail0,rail1
	finding link fail rail1
	doctor_in_a 10.99.255.2
	finding rails warn
	finding peer-rails warn
	ip -n "$C" link set "$last_port" up
	ip -n "$A" link set rail1 mtu 1400
	doctor_in_a 10.99.255.2
	finding mtu warn rail1
	finding peer-mtu warn rail1
	apply_fix "$A" mtu
	gives 0 doctor_in_a 10.99.255.2
	finding mtu ok
}

@test "a smaller MTU at the server: a warning, and the remedy fixes it" {
	two_subnets
	ip -n "$B" link set rail1 mtu 1400
	server_in_b
	gives 0 doctor_in_a 10.99.255.2
	finding peer-mtu warn rail1
	finding path-mtu ok rail1
	apply_fix "$B" peer-mtu
	doctor_in_a 10.99.255.2
	no_finding peer-mtu
	holds d.json '.counts.warn == 0'
}

@test "a switch with a smaller MTU swallows large packets: status 2" {
	two_subnets
	server_in_b
	ip -n "$C" link set "$last_port" mtu 1400
	gives 2 doctor_in_a 10.99.255.2
	finding path-mtu fail rail1
	finding path-mtu ok rail0
	# Nobody there at all is no proof of that.
	ip -n "$B" addr del 10.99.1.2/24 dev rail1
	ip -n "$B" addr add 10.99.1.3/24 dev rail1
	ip netns exec "$B" sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv4.icmp_msgs_per_sec=0 || :
	ip -n "$C" link set "$last_port" mtu 1500
	doctor_in_a 10.99.255.2
	no_finding path-mtu
}

# bats test_tags=nightly
@test "two rails in one subnet: ARP and rp_filter; the remedies bring both rails to work" {
	one_subnet
	server_in_b
	gives 2 doctor_in_a 10.99.255.2
	finding arp warn rail0
	finding arp warn rail1
	finding peer-address fail
	apply_fix "$A" arp
	apply_fix "$B" arp
	gives 0 doctor_in_a 10.99.255.2
	finding arp ok
	ip netns exec "$A" sysctl -qw net.ipv4.conf.all.rp_filter=1
	gives 2 doctor_in_a 10.99.255.2
	finding peer-address fail rail1
	apply_fix "$A" peer-address
	gives 0 doctor_in_a 10.99.255.2
	finding path-mtu ok rail0
	finding path-mtu ok rail1
	run timeout "$WAIT_S" ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" -D 300ms -q --json=c.json
	[ "$status" -eq 0 ]
	[[ $output != *"answer ARP for each other"* ]]
	holds c.json '[.nics[] | select(.tx_bytes > 1000000)] | length == 2'
}

@test "two rails in one subnet with arp_filter and source routing: both are used, no warning" {
	local node rail table=100 address
	one_subnet
	for node in "$A" "$B"; do
		sysctl_in "$node" net.ipv4.conf.all.arp_filter=1
		for rail in rail0 rail1; do
			address=$(ip -n "$node" -j addr show "$rail" | jq -r '.[].addr_info[] | select(.family == "inet").local')
			ip -n "$node" route add 10.99.0.0/24 dev "$rail" src "$address" table $((++table))
			ip -n "$node" rule add from "$address" table "$table"
		done
	done
	server_in_b
	gives 0 doctor_in_a 10.99.255.2
	finding arp ok
	holds d.json '.counts.warn == 0'
	client_in_a -D 200ms --json=c.json
	[[ $status == 0 && $output != *"answer ARP"* ]]
	holds c.json '.topology.rails | length == 2'
}

@test "a run killed with its guard leaves a cut link: doctor names it, then repairs it" {
	two_subnets
	server_in_b
	start client ip netns exec "$A" "$DUALRAIL" client 10.99.255.2 "${SMALL[@]}" --test failover \
		--allow-faults --fault link-down:path=0,at=100ms,for=60s
	wait_for is_down "$A" rail0
	# The guard first, so that nobody is left to undo anything.
	local one
	for one in $(family "$client") "$client"; do
		kill -STOP "$one"
	done
	for one in $(family "$client") "$client"; do
		kill -9 "$one"
	done
	wait "$client" || :
	gives 2 doctor_in_a --rails rail0,rail1 --dry-run
	finding leftover fail rail0
	is_down "$A" rail0
	doctor_in_a --rails rail0,rail1
	finding leftover note rail0
	run is_down "$A" rail0
	[ "$status" -ne 0 ]
	doctor_in_a --rails rail0,rail1
	finding leftover ok
}
