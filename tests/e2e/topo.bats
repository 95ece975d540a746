#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where GPUs and NICs sit, shown by `topo` and used by a run.
# shellcheck disable=SC2054 # commas belong to values

# bats file_tags=one-thread
setup() {
	load lib
	common_setup
	machines=$BATS_TEST_DIRNAME/../fixtures/topology
}

teardown() {
	common_teardown
	[[ ${NS-} ]] && ip netns del "$NS" 2>/dev/null
	validated
}

# primary_of GPU, shadow_of GPU: in the document on standard input.
primary_of() {
	jq -r --argjson g "$1" '[.map[] | select(.gpu == $g) | .primary] | join(",")'
}
shadow_of() {
	jq -r --argjson g "$1" '[.map[] | select(.gpu == $g) | .shadow // "none"] | join(",")'
}

@test "this machine: status 0, and every NIC with an address is shown" {
	run "$DUALRAIL" topo
	[ "$status" -eq 0 ] || [ "$status" -eq 2 ]
	while read -r name; do
		[[ $output == *"$name"* ]]
	done < <(ip -o -4 addr show scope global up | awk '{ sub("@.*", "", $2); print $2 }')
}

@test "eight GPUs, four NICs: two GPUs each, the shadow is the other of the pair" {
	run "$DUALRAIL" topo --topology "$machines/a3-high.xml" --rails eth1,eth2,eth3,eth4 -q --json
	[ "$status" -eq 0 ]
	document=$output
	jq -e '.schema == "dualrail-topo/1" and .status == "pass" and (.gpus | length) == 8' <<<"$document"
	for gpu in 0 1 2 3 4 5 6 7; do
		[ "$(primary_of $gpu <<<"$document")" = "eth$((gpu / 2 + 1))" ]
		[ "$(shadow_of $gpu <<<"$document")" = "eth$(((gpu / 2 ^ 1) + 1))" ]
	done
	# eth0 is as fast and near, but not named.
	jq -e '.nics[] | select(.name == "eth0") | .rail == null and .not_a_rail == "not in --rails"' <<<"$document"
}

@test "the table says the same, with the reason" {
	run -0 "$DUALRAIL" topo --topology "$machines/dgx.xml"
	[[ $output == *"GPU 5   8 channels: primary rdma5, shadow rdma7 (nearest: same PCI switch)"* ]]
	grep -Eq '^eno1 .* slower than a tenth of the fastest$' <<<"$output"
	says "slower than a tenth of the fastest"
	grep -Eq '^rdma3 +mlx5_3 +0000:25:00.0 +0 up +200 +9000 +10.0.3.1/24 +3$' <<<"$output"
	grep -Eq '^5 +0000:93:00.0 +1  system .* switch +switch +root' <<<"$output"
}

@test "JSON has distances, link, speed, MTU, subnet and GID" {
	tells 0 "GPU 0 " "$DUALRAIL" topo --topology "$machines/dgx.xml" --json=topo.json
	jq -e '.distances | length == 72' topo.json
	jq -e '.distances[] | select(.gpu == 0 and .nic == "rdma1") | .distance == "switch" and .bridges > 0' topo.json
	jq -e '.nics[] | select(.name == "rdma2") | .link == "up" and .speed_gbps == 200 and .mtu_bytes == 9000
		and .subnets == ["10.0.2.0/24"] and .gid_index == 3 and .rdma == "mlx5_2" and .numa == 0' topo.json
}

@test "--map, --gpus, --spread and --channels change what is shown" {
	local machine=(--topology "$machines/dgx.xml" -q --json)
	document=$("$DUALRAIL" topo "${machine[@]}" -g 2,6 --map "6=mlx5_0,rdma5")
	[ "$(jq '[.map[].gpu] | unique' -c <<<"$document")" = "[2,6]" ]
	[ "$(primary_of 6 <<<"$document")" = rdma0 ]
	[ "$(shadow_of 6 <<<"$document")" = rdma5 ]
	[ "$(primary_of 2 <<<"$document")" = rdma2,rdma3 ]
	document=$("$DUALRAIL" topo "${machine[@]}" -g 0 -N 8 --spread all)
	[ "$(primary_of 0 <<<"$document" | tr , '\n' | sort -u | wc -l)" -eq 8 ]
	document=$("$DUALRAIL" topo "${machine[@]}" -g A2:00.0,0)
	[ "$(jq '[.map[].gpu] | unique' -c <<<"$document")" = "[0,6]" ]
	document=$("$DUALRAIL" topo "${machine[@]}" -g 0 -N 8 --spread all)
	# A shadow is never on its primary's switch here.
	jq -e 'all(.map[]; (.primary[4:] | tonumber / 2 | floor) != (.shadow[4:] | tonumber / 2 | floor))' <<<"$document"
}

@test "each transport with the rails that it can use, and why not the others" {
	plugin=${DR_BUILD:-${DUALRAIL%/*}}/tests/fakeverbs/ibverbs_plugin.so
	[[ -e $plugin ]] || skip "the fake libibverbs is not built"
	export DR_IBVERBS=$plugin DR_FAKE_IBV=fake0:lo:127.0.0.1
	run -0 "$DUALRAIL" topo --rails lo@127.0.0.1,lo@127.0.0.2
	grep -Eq '^transport tcp +lo lo$' <<<"$output"
	grep -Eq '^transport verbs +lo; not all rails: .*127.0.0.2' <<<"$output"
	"$DUALRAIL" topo -q --json=topo.json --rails lo@127.0.0.1,lo@127.0.0.2
	jq -e '[.transports[].name][:2] == ["tcp", "verbs"]' topo.json
	jq -e '.transports[0] == {name: "tcp", rails: ["lo", "lo"], error: null}' topo.json
	jq -e '.transports[1] | .rails == ["lo"] and (.error | contains("127.0.0.2"))' topo.json
	# The file's machine is elsewhere: nothing is probed.
	"$DUALRAIL" topo -q --json=topo.json --topology "$machines/dgx.xml"
	jq -e '.transports | length >= 2 and all(.rails == null and .error == null)' topo.json
}

@test "one NIC: no shadow, and it says so" {
	run -0 "$DUALRAIL" topo --topology "$machines/single.xml"
	[[ $output == *"no shadow: unprotected (the only rail)"* ]]
}

@test "functions of one port are no shadows for each other" {
	run -0 "$DUALRAIL" topo --topology "$machines/dual-port.xml" --rails c0p0,c0p0v0
	[[ $output == *"no shadow: unprotected"*"all rails share its port"* ]]
}

@test "no such file, no XML, no such NIC or GPU: one line, status 1 or 2" {
	echo hello >broken.xml
	refuses 2 nowhere.xml "$DUALRAIL" topo --topology nowhere.xml
	refuses 2 lstopo "$DUALRAIL" topo --topology broken.xml
	refuses 2 rdma9 "$DUALRAIL" topo -q --topology "$machines/dgx.xml" --rails rdma9
	refuses 2 0000:a3:00.0 "$DUALRAIL" topo -q --topology "$machines/dgx.xml" -g 8
	run -1 "$DUALRAIL" topo -q --topology "$machines/dgx.xml" --map 0=rdma9
	one_line
	run -2 "$DUALRAIL" client 127.0.0.1 --dry-run --topology broken.xml
	[[ $output == *broken.xml*lstopo* ]]
}

@test "an error is in the document too" {
	run -2 "$DUALRAIL" topo --topology nowhere.xml --json=topo.json
	jq -e '.status == "error" and .exit_code == 2 and (.errors[0] | contains("nowhere.xml"))' topo.json
}

# A namespace with two rails, eth1 and eth2, to itself and the machine's file that knows them.
namespace() {
	[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
	NS=dr${BASHPID}t
	ip netns add "$NS" 2>/dev/null || skip "network namespaces cannot be made here"
	ip -n "$NS" link set lo up
}

veth() {
	ip -n "$NS" link add "$1" type veth peer name "$1p"
	ip -n "$NS" link set "$1p" up
	ip -n "$NS" link set "$1" up
	ip -n "$NS" addr add "$2" dev "$1"
}

@test "a run takes the file's map, and the document says why" {
	namespace
	veth eth3 10.77.3.1/24
	veth eth1 10.77.1.1/24
	run -0 ip netns exec "$NS" "$DUALRAIL" client 10.77.1.2 --dry-run -v -g 0-7 -N 1 \
		--rails eth3,eth1 --topology "$machines/a3-high.xml"
	plan=$(tr -s ' \n' ' ' <<<"$output")
	[[ $plan =~ "GPU 0"[0-9,-]*" <-> 0"[0-9,-]*": primary eth1 10.77.1.1, shadow eth3 10.77.3.1 (nearest: same root)" ]]
	[[ $plan =~ "GPU "[0-9,-]*3[0-9,-]*" <-> "[0-9,-]*": primary eth1 10.77.1.1, shadow eth3 10.77.3.1 (nearest: same NUMA node)" ]]
	[[ $plan =~ "GPU "[0-9,-]*7" <-> "[0-9,-]*": primary eth3 10.77.3.1, shadow eth1 10.77.1.1 (nearest: same NUMA node)" ]]
}

@test "without places the rails are shared by number, to the end and in the document" {
	start_server --rails lo@127.0.0.1,lo@127.0.0.2
	gives 0 client -v --rails lo@127.0.0.1,lo@127.0.0.2 --iters 20 --json=run.json
	[[ $output == *"(NICs by number: PCI distances unknown)"* ]]
	[[ $output == *"NUMA: "* ]]
	jq -e '.topology.numa_nodes >= 1 and (.topology.numa_binding | startswith("NUMA: "))
		and all(.topology.gpus[]; .reason == "NICs by number: PCI distances unknown")' run.json
}

@test "a slow port beside fast ones is no rail unless it is named" {
	namespace
	modprobe bonding max_bonds=0 2>/dev/null || :
	ip -n "$NS" link add fast type bond mode balance-rr 2>/dev/null || skip "no bonding here"
	for i in 1 2 3; do
		ip -n "$NS" link add "s$i" type veth peer name "p$i"
		ip -n "$NS" link set "s$i" master fast
		ip -n "$NS" link set "p$i" up
	done
	ip -n "$NS" link set fast up
	ip -n "$NS" addr add 10.77.5.1/24 dev fast
	veth low 10.77.6.1/24
	ip -n "$NS" link add link low name slow type vlan id 7
	ip -n "$NS" link set slow up
	ip -n "$NS" addr add 10.77.7.1/24 dev slow
	ip -n "$NS" addr del 10.77.6.1/24 dev low
	wait_for sh -c "ip netns exec $NS $DUALRAIL topo | grep -Eq '^fast .* up '"
	run ip netns exec "$NS" "$DUALRAIL" topo
	[[ $output == *"slower than a tenth of the fastest"* ]]
	run -0 ip netns exec "$NS" "$DUALRAIL" client 10.77.5.2 --dry-run -g 0
	[[ $output == *"primary fast"*"no shadow"* ]]
	run -0 ip netns exec "$NS" "$DUALRAIL" client 10.77.5.2 --dry-run -g 0 --rails fast,slow
	[[ $output == *"shadow slow"* ]]
}
