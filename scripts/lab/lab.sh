#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two emulated guests with RDMA devices, rails between them that can be cut: a lab for one machine.
#
#   scripts/lab/lab.sh up [--owner PID] [--life SECONDS]   boot; ends by itself with PID, or after 4 h
#   scripts/lab/lab.sh down | status
#   scripts/lab/lab.sh run [-t SECONDS] 0|1|both CMD...    output and exit status are CMD's; 124: time is up
#   scripts/lab/lab.sh shell 0|1                           a shell in there; Ctrl-] leaves it
#   scripts/lab/lab.sh put 0|1|both FILE... DIR            copy into a guest (its own memory)
#   scripts/lab/lab.sh get 0|1 FILE... DIR                 copy out of it
#   scripts/lab/lab.sh link 0|1 NIC up|down                carrier, as if the cable were pulled there
#   scripts/lab/lab.sh port 0|1 NIC on|off                 off: the switch forgets the port; carrier stays
#   scripts/lab/lab.sh power 0|1 off|on                    off: QEMU is killed; on: it boots again
#   scripts/lab/lab.sh check [--reboot]                    every rail passes packets; reboot if one does not
#   scripts/lab/lab.sh gid 0|1 DEVICE                      GID index of its IPv4 address (perftest -x)
#   scripts/lab/lab.sh share                               the folder that guests see as /lab
#
# Guest g has nic0.. with rxe0.. (192.168.100+n.g+1/24, fd00:100+n::g+1/64, MTU 4200) and ctl0
# (10.77.0.g+1/24). Its file system is this machine's, read-only, with a tmpfs over it: every program
# here is there. /tmp, /run and what is written there is the guest's own; /lab is shared and writable.
#
# The rails are taps and bridges in a network namespace of the lab's own, which goes with it. QEMU's
# dgram and stream netdevs were no good: over a unix socket a receiver whose link is down holds the
# sender up, which no wire does, and over UDP they drop under load. A tap's queue drops what its guest
# does not fetch, as a switch would. `link` is QEMU's set_link: only the guest on that side sees the
# carrier go. The guests are emulated (TCG), so times mean little and ratios to a peer in here a bit.
#
# Environment: LAB_DIR (build/lab/run), one lab per folder; LAB_RAILS (4); LAB_MEM (1536M); LAB_SMP (1),
# processors of a guest: more only where there are as many idle ones; LAB_BOOT_S (90), how long a boot may take;
# LAB_ACCEL (tcg,thread=multi); LAB_NICE (0), of the guests: below 0 beside other work, which makes a guest stand
# still for longer than heartbeats allow; LAB_CACHE, LAB_DEB: kernel.sh.
# Exit status: 1 failed; 77 cannot be done on this machine, the message says why.
set -uo pipefail

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
PATH=$PATH:/usr/sbin:/sbin
: "${LAB_DIR:=$here/../../build/lab/run}" "${LAB_RAILS:=4}" "${LAB_MEM:=1536M}" "${LAB_BOOT_S:=90}"
: "${LAB_ACCEL:=tcg,thread=multi}" "${LAB_NICE:=0}" "${LAB_SMP:=1}"
export LAB_RAILS LAB_MEM LAB_BOOT_S LAB_ACCEL LAB_NICE LAB_SMP

die() {
	echo "lab: $*" >&2
	exit 1
}

skip() {
	echo "lab: $*" >&2
	exit 77
}

usage() {
	sed -n '3,16s/^# \{0,1\}//p' "$self" >&2
	exit 1
}

# pause SECONDS, without a process.
exec {never}<> <(:)
pause() {
	read -rt "$1" -u "$never" || :
}

# The lab's lock is held by everything that belongs to it, so it is free when nothing is left.
is_up() {
	[[ -e $LAB_DIR/lock ]] && ! flock -n "$LAB_DIR/lock" true
}

need_up() {
	is_up || die "no lab is up in $LAB_DIR (lab.sh up)"
}

guest_arg() {
	[[ ${1-} == [01] ]] || die "guest 0 or 1 is expected, not \"${1-}\""
}

nic_arg() {
	local i
	[[ ${1-} != ctl0 ]] || return 0
	for ((i = 0; i < LAB_RAILS; i++)); do
		[[ ${1-} != "nic$i" ]] || return 0
	done
	die "a NIC (nic0 to nic$((LAB_RAILS - 1)), ctl0) is expected, not \"${1-}\""
}

# --- booting -------------------------------------------------------------------------------------

need_machine() {
	local tool
	[[ $(uname -m) == x86_64 ]] || skip "the guests are x86-64, this machine is $(uname -m)"
	((EUID == 0)) || skip "needs root, for the network between the guests and to show them this file system"
	for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod \
		setpriv:util-linux ip:iproute2 rdma:iproute2 ibv_devices:ibverbs-utils; do
		command -v "${tool%%:*}" >/dev/null ||
			skip "${tool%%:*} is not installed (scripts/setup.sh lab installs ${tool##*:})"
	done
	! ldd "$(command -v busybox)" 2>&1 | grep -q '=>' || skip "busybox is not the static one (busybox-static)"
	unshare -n bash -c 'ip tuntap add dev tap0 mode tap vnet_hdr && ip link add br0 type bridge' 2>/dev/null ||
		skip "no tap devices or bridges in a network namespace here"
}

up() {
	local owner='' life=14400 kernel tsc_khz keeper start=$SECONDS g
	while (($#)); do
		case $1 in
		--owner) owner=${2-} ;;
		--life) life=${2-} ;;
		*) usage ;;
		esac
		shift 2 || usage
	done
	need_machine
	kernel=$("$here/kernel.sh") || exit
	tsc_khz=$(counter_khz) || exit
	mkdir -p "$LAB_DIR" || die "cannot write $LAB_DIR"
	LAB_DIR=$(cd "$LAB_DIR" && pwd)
	exec {lock}>"$LAB_DIR/lock"
	flock -n "$lock" || die "a lab is up in $LAB_DIR already (lab.sh down, or another LAB_DIR)"
	find "$LAB_DIR" -mindepth 1 -maxdepth 1 -not -name lock -exec rm -rf {} +
	mkdir "$LAB_DIR/share" "$LAB_DIR/share/jobs"
	for g in 0 1; do
		mkfifo "$LAB_DIR"/{agent,qmp}.$g.{in,out} || die "cannot make FIFOs in $LAB_DIR"
	done
	printf '%s\n' "LAB_RAILS=$LAB_RAILS" "owner=$owner" "life=$life" >"$LAB_DIR/config"
	unset DR_TEST_FILE # of scripts/check.sh: a test that boots the lab again leaves it
	LAB_DIR=$LAB_DIR setsid unshare -n "$self" __keep "$$" "$owner" "$life" "$kernel" "$tsc_khz" \
		</dev/null >"$LAB_DIR/keeper.log" 2>&1 &
	keeper=$!
	exec {lock}>&-
	until [[ -s $LAB_DIR/share/ready.0 && -s $LAB_DIR/share/ready.1 ]]; do
		pause 0.1
		((SECONDS - start <= LAB_BOOT_S)) && kill -0 "$keeper" 2>/dev/null && continue
		boot_failed
		kill "$keeper" 2>/dev/null
		wait "$keeper"
		exit 1
	done
	: >"$LAB_DIR/booted"
	echo "lab: up after $((SECONDS - start)) s in $LAB_DIR"
}

# The rate of the guests' time stamp counter, which is this machine's; see tsc.c.
counter_khz() {
	local work rc
	work=$(mktemp -d)
	# shellcheck disable=SC2086 # "ccache gcc"
	${CC:-cc} -O2 -o "$work/tsc" "$here/tsc.c" && "$work/tsc"
	rc=$?
	rm -rf "$work"
	((rc == 0)) || skip "needs a C compiler (scripts/setup.sh build lab)"
}

boot_failed() {
	local g
	echo "lab: the guests are not up after $LAB_BOOT_S s, or ended; the keeper and the consoles say:" >&2
	tail -n 5 "$LAB_DIR/keeper.log" >&2
	for g in 0 1; do
		echo "--- guest $g" >&2
		tail -n 15 "$LAB_DIR/console.$g" >&2
	done
}

# The start time of a process tells it from a later one with its number.
born() {
	local stat
	read -r stat <"/proc/$1/stat" || return
	stat=${stat##*) }
	# shellcheck disable=SC2086
	set -- $stat
	echo "${20}"
} 2>/dev/null

# In the lab's namespace: makes the network, holds both guests as children, which the kernel kills when
# this dies however it does, and ends when a guest, the owner or, before the boot is over, `up` does.
keep() {
	local booter=$1 owner=$2 end=$((SECONDS + $3)) kernel=$4 tsc_khz=$5 owner_born='' why='' g
	echo $$ >"$LAB_DIR/keeper"
	# Where sessions are scheduled as groups, a process's own nice value counts for nothing.
	[[ ! -e /proc/self/autogroup ]] || echo "$LAB_NICE" >/proc/self/autogroup
	trap 'why=told; exit' TERM INT HUP
	# shellcheck disable=SC2154,SC2317 # g, why: in the trap
	trap 'echo "ends: $why"; for g in "${guests[@]}"; do kill -KILL "$g"; done; wait' EXIT
	guests=()
	make_network
	for g in 0 1; do
		start_guest "$g" "$kernel" "$tsc_khz"
		guests+=($!)
	done
	[[ ! $owner ]] || owner_born=$(born "$owner")
	while [[ ! $why ]]; do
		pause 1
		for g in 0 1; do
			keep_guest "$g" "$kernel" "$tsc_khz" || why="guest $g ended"
		done
		if [[ $owner && $(born "$owner") != "$owner_born" ]]; then
			why="the owner, process $owner, is gone"
		elif ((SECONDS > end)); then
			why="its time is over"
		elif [[ ! -e $LAB_DIR/booted ]] && ! kill -0 "$booter" 2>/dev/null; then
			why="nobody waits for the boot"
		fi
	done
}

# Does what `power` asks for. Status 1: the guest has ended by itself.
keep_guest() {
	local want=$LAB_DIR/power.$1
	[[ ! -e $want ]] || case $(<"$want") in
	off)
		kill -KILL "${guests[$1]}" 2>/dev/null
		return 0
		;;
	on)
		rm "$want"
		start_guest "$@"
		guests[$1]=$!
		;;
	esac
	kill -0 "${guests[$1]}" 2>/dev/null
}

# Taps t0n (guest 0's) and t1n, joined by bridge bn; n is the NIC's number, 255 is ctl0.
make_network() {
	local n g
	for n in $(seq 0 $((LAB_RAILS - 1))) 255; do
		ip link add "b$n" type bridge forward_delay 0 stp_state 0 mcast_snooping 0
		for g in 0 1; do
			ip tuntap add dev "t$g-$n" mode tap vnet_hdr
			# About what a switch has for a port; the guest holds as much again in its ring.
			ip link set "t$g-$n" mtu 9000 txqueuelen 500 up
			ip link set "t$g-$n" master "b$n"
		done
		ip link set "b$n" mtu 9000 up
	done
	# The bridges have no business talking themselves.
	sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || :
}

nic_options() {
	local g=$1 n=$2 name=$3
	printf '%s\n' -netdev "tap,id=$name,ifname=t$g-$n,script=no,downscript=no,vhost=off" -device \
		"virtio-net-pci,netdev=$name,id=dev-$name,mac=$(printf 52:54:00:4c:%02x:%02x "$g" "$n"),host_mtu=9000,romfile="
}

# Before QEMU 8.1 the code for a machine that can have one processor only is made without memory barriers
# (upstream c914d46d), though the devices run in other threads: sooner or later a virtio queue loses a
# notification and a NIC is dead until the next boot. Hence room for one more, which never comes.
start_guest() {
	local g=$1 kernel=$2 tsc_khz=$3 n options=()
	for ((n = 0; n < LAB_RAILS; n++)); do
		mapfile -t -O ${#options[@]} options < <(nic_options "$g" "$n" "nic$n")
	done
	mapfile -t -O ${#options[@]} options < <(nic_options "$g" 255 ctl0)
	: >"$LAB_DIR/console.$g"
	cd "$LAB_DIR" || exit
	setpriv --pdeathsig KILL nice -n "$LAB_NICE" qemu-system-x86_64 -name "lab$g" -nodefaults -no-user-config -display none \
		-no-reboot -accel "$LAB_ACCEL" -cpu max -smp "$LAB_SMP,maxcpus=$((LAB_SMP + 1))" -m "$LAB_MEM" \
		-kernel "$kernel/vmlinuz" -initrd "$kernel/initrd" \
		-append "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off tsc=reliable tsc_early_khz=$tsc_khz lab.guest=$g lab.modules=$kernel/lib/modules/$(basename "$kernel")" \
		-serial "file:console.$g" -serial "unix:shell.$g,server=on,wait=off" \
		-chardev "pipe,id=qmp,path=qmp.$g" -mon chardev=qmp,mode=control \
		-device virtio-serial-pci -chardev "pipe,id=agent,path=agent.$g" -device virtserialport,chardev=agent \
		-device virtio-rng-pci \
		-virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap \
		-virtfs "local,path=$LAB_DIR/share,mount_tag=lab,security_model=none,multidevs=remap" \
		"${options[@]}" &
}

down() {
	local keeper start=$SECONDS
	is_up || return 0
	keeper=$(cat "$LAB_DIR/keeper" 2>/dev/null)
	[[ $keeper ]] && kill "$keeper" 2>/dev/null
	while is_up; do
		pause 0.05
		if ((SECONDS - start > 10)) && [[ $keeper ]]; then
			kill -KILL "$keeper" 2>/dev/null
		fi
		((SECONDS - start <= 20)) || die "something of the lab in $LAB_DIR is still there after 20 s"
	done
}

status() {
	local g
	is_up || {
		echo "lab: down"
		return 1
	}
	echo "lab: up in $LAB_DIR, keeper $(cat "$LAB_DIR/keeper"), $LAB_RAILS rails"
	for g in 0 1; do
		echo "guest $g: booted in $(cat "$LAB_DIR/share/ready.$g" 2>/dev/null || echo ?) s, jobs running:" \
			"$(find "$LAB_DIR/share/jobs" -maxdepth 1 -name "$g.*" | wc -l)"
	done
}

# --- commands in the guests ----------------------------------------------------------------------

tell() {
	[[ -p $LAB_DIR/agent.$1.in ]] && echo "$2" 1<>"$LAB_DIR/agent.$1.in"
}

run() {
	local limit=600 g rc=0 other=''
	if [[ ${1-} == -t ]]; then
		limit=${2-}
		shift 2
	fi
	g=${1-}
	shift
	(($#)) || usage
	if [[ $g != both ]]; then
		guest_arg "$g"
		run_in "$g" "$limit" "$@"
		return
	fi
	"$self" run -t "$limit" 1 "$@" &
	other=$!
	run_in 0 "$limit" "$@" || rc=$?
	wait "$other" || rc=$?
	return "$rc"
}

# run_in GUEST SECONDS COMMAND...
run_in() {
	local g=$1 limit=$2 id job waiter readers rc
	shift 2
	need_up
	id=$g.$BASHPID.$RANDOM
	job=$LAB_DIR/share/jobs/$id
	mkdir "$job" || die "cannot write $job"
	printf '%q ' exec -- "$@" >"$job/cmd"
	: >"$job/out"
	: >"$job/err"
	# shellcheck disable=SC2064 # as they are now
	trap "${other:+kill $other 2>/dev/null; }tell $g 'kill $id KILL'; rm -rf '$job'" EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	await_job "$g" "$id" "$limit" &
	waiter=$!
	# What the job says comes out as it does; the readers end after the waiter, with all of it.
	tail -q -c +1 -s 0.05 --pid="$waiter" -f "$job/out" 2>/dev/null &
	readers=$!
	tail -q -c +1 -s 0.05 --pid="$waiter" -f "$job/err" >&2 2>/dev/null &
	readers="$readers $!"
	tell "$g" "run $id"
	# shellcheck disable=SC2086
	wait "$waiter" $readers
	[[ -s $job/rc ]] || die "guest $g did not answer; console: $(tail -n 1 "$LAB_DIR/console.$g")"
	rc=$(<"$job/rc")
	[[ ! -e $job/late ]] || rc=124
	rm -rf "$job"
	trap - EXIT INT TERM HUP
	return "$rc"
}

# Until the job is over; told to end when SECONDS are, killed when that does not help.
await_job() {
	local g=$1 id=$2 limit=$3 job=$LAB_DIR/share/jobs/$2 end step=0.01 signals=(TERM KILL KILL)
	end=$((SECONDS + limit + 1))
	until [[ -s $job/rc || ! -d $job ]]; do
		pause "$step"
		step=0.05
		((SECONDS < end)) && continue
		is_up && ((${#signals[@]})) || return
		: >"$job/late"
		tell "$g" "kill $id ${signals[0]}"
		signals=("${signals[@]:1}")
		end=$((SECONDS + 5))
	done
}

shell() {
	guest_arg "${1-}"
	need_up
	command -v socat >/dev/null || skip "socat is not installed (scripts/setup.sh lab)"
	cd "$LAB_DIR" && exec socat -,raw,echo=0,escape=0x1d "UNIX-CONNECT:shell.$1"
}

# put GUEST FILE... DIR
# shellcheck disable=SC2016 # for the guest
put() {
	local g=$1 stage rc
	shift
	(($# > 1)) || usage
	need_up
	stage=$(mktemp -d "$LAB_DIR/share/put.XXXXXX")
	chmod 755 "$stage"
	cp -rpL -- "${@:1:$#-1}" "$stage/" &&
		"$self" run "$g" sh -c 'mkdir -p "$2" && cp -rp --remove-destination "$1"/. "$2"' - "/lab/${stage##*/}" "${!#}"
	rc=$?
	rm -rf "$stage"
	return "$rc"
}

get() {
	local g=$1 stage rc
	shift
	(($# > 1)) || usage
	guest_arg "$g"
	need_up
	stage=$(mktemp -d "$LAB_DIR/share/get.XXXXXX")
	"$self" run "$g" cp -rp -- "${@:1:$#-1}" "/lab/${stage##*/}" && mkdir -p -- "${!#}" && cp -rp -- "$stage"/. "${!#}"
	rc=$?
	rm -rf "$stage"
	return "$rc"
}

# --- cutting -------------------------------------------------------------------------------------

# qmp GUEST COMMAND ARGUMENTS: one command over QEMU's control pipe; fails when QEMU says so.
qmp() {
	local g=$1 id=lab$BASHPID.$RANDOM line lock out
	need_up
	exec {lock}>"$LAB_DIR/qmp.$g.lock"
	flock "$lock"
	exec {out}<>"$LAB_DIR/qmp.$g.out"
	# The first asks for the command mode; later ones are refused, which does no harm.
	printf '{"execute":"qmp_capabilities"}\n{"execute":"%s","arguments":%s,"id":"%s"}\n' "$2" "$3" "$id" \
		1<>"$LAB_DIR/qmp.$g.in"
	while :; do
		read -rt 20 -u "$out" line || die "guest $g: QEMU does not answer"
		[[ $line == *"\"id\": \"$id\""* ]] && break
	done
	exec {out}<&- {lock}>&-
	[[ $line != *'"error"'* ]] || die "guest $g: $line"
}

link() {
	local flag
	guest_arg "${1-}"
	nic_arg "${2-}"
	case ${3-} in
	up) flag=true ;;
	down) flag=false ;;
	*) usage ;;
	esac
	qmp "$1" set_link "{\"name\":\"dev-$2\",\"up\":$flag}"
}

# As if its power had been cut: what the kernel of that guest knew is gone.
power() {
	local start=$SECONDS qemu
	guest_arg "${1-}"
	need_up
	case ${2-} in
	off)
		qemu=$(pgrep -P "$(cat "$LAB_DIR/keeper")" -f -- "-name lab$1 ")
		echo off >"$LAB_DIR/power.$1"
		rm -f "$LAB_DIR/share/ready.$1"
		kill -KILL "$qemu" || die "guest $1 has no process"
		;;
	on)
		[[ -e $LAB_DIR/power.$1 ]] || die "guest $1 was not switched off"
		echo on >"$LAB_DIR/power.$1"
		until [[ -s $LAB_DIR/share/ready.$1 ]]; do
			pause 0.1
			is_up || die "the lab has ended"
			((SECONDS - start <= LAB_BOOT_S)) || die "guest $1 is not up after $LAB_BOOT_S s"
		done
		;;
	*) usage ;;
	esac
}

# in_network COMMAND...: in the namespace of the lab.
in_network() {
	need_up
	nsenter -t "$(cat "$LAB_DIR/keeper")" -n "$@"
}

number() {
	[[ $1 == ctl0 ]] && echo 255 || echo "${1#nic}"
}

port() {
	local n
	guest_arg "${1-}"
	nic_arg "${2-}"
	n=$(number "$2")
	case ${3-} in
	on) in_network ip link set "t$1-$n" master "b$n" ;;
	off) in_network ip link set "t$1-$n" nomaster ;;
	*) usage ;;
	esac
}

# In guest 0: a ping over each NIC at the same time. Answers show that both ends send and receive.
# shellcheck disable=SC2016 # for the guest
check_script='rc=0
for dir in /sys/class/net/nic* /sys/class/net/ctl0; do
	nic=${dir##*/}
	case $nic in
	ctl0) peer=10.77.0.2 ;;
	*) peer=192.168.$((100 + ${nic#nic})).2 ;;
	esac
	(for try in 1 2 3 4 5; do
		busybox ping -q -c 1 -W 1 -I "$nic" "$peer" >/dev/null && exit
	done
	exit 1) &
	pids="$pids $nic:$!"
done
for one in $pids; do
	wait "${one#*:}" || { echo "${one%%:*}: no answer"; rc=1; }
done
exit $rc'

check() {
	local reboot=${1-} owner='' life=''
	need_up
	"$self" run -t 60 0 sh -c "$check_script" && return
	[[ $reboot == --reboot ]] || return 1
	echo "lab: a rail is stuck, the guests are booted again" >&2
	owner=$(sed -n 's/^owner=//p' "$LAB_DIR/config")
	life=$(sed -n 's/^life=//p' "$LAB_DIR/config")
	down
	"$self" up ${owner:+--owner "$owner"} --life "$life"
}

# The order of a GID table is that in which addresses came.
# shellcheck disable=SC2016 # for the guest
gid() {
	guest_arg "${1-}"
	run_in "$1" 60 sh -c 'cd "/sys/class/infiniband/$1/ports/1/gids" && grep -l "^0000:0000:0000:0000:0000:ffff:" * | head -n 1' - "${2-}"
}

main() {
	local command=${1-}
	(($#)) && shift
	[[ ! -e $LAB_DIR ]] || LAB_DIR=$(cd "$LAB_DIR" && pwd)
	export LAB_DIR
	if [[ $command != up && $command != __keep && -e $LAB_DIR/config ]]; then
		LAB_RAILS=$(sed -n 's/^LAB_RAILS=//p' "$LAB_DIR/config")
	fi
	case $command in
	up | down | status | run | shell | put | get | link | port | power | check | gid) "$command" "$@" ;;
	share) echo "$LAB_DIR/share" ;;
	__keep) keep "$@" ;;
	*) usage ;;
	esac
}

main "$@"
