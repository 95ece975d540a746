#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bats file_tags=release
# The unit under systemd as the first process of a PID namespace, with an overlay over this file system.

load usual

@test "systemd starts the unit as a user of its own, repairs and restarts after SIGKILL, and stops it without a failure" {
	[[ $(id -u) == 0 ]] || skip "needs root"
	[[ -x /lib/systemd/systemd ]] || skip "systemd is not installed"
	cat >booted.sh <<-'END'
		set -e
		mount --make-rprivate /
		mkdir fs && mount -t tmpfs t fs && cd fs && mkdir up work root
		mount -t overlay o -o lowerdir=/,upperdir=up,workdir=work root
		mount -t proc p root/proc && mount -t tmpfs t root/run && mount -t tmpfs t root/tmp
		mount --rbind /dev root/dev && mount -t sysfs s root/sys
		: >console && mount --bind console root/dev/console
		mount -t tmpfs t root/sys/fs/cgroup && mount -t cgroup2 c root/sys/fs/cgroup
		mkdir -p root/etc/systemd/system root/etc/dualrail root/opt/dr
		cp "$1" root/opt/dr/dualrail
		sed 's,@BINDIR@,/opt/dr,g' "$2" >root/etc/systemd/system/dualrail-server.service
		head -c 32 /dev/urandom | base64 >root/etc/dualrail/key && chmod 600 root/etc/dualrail/key
		printf '[Unit]\nRequires=dualrail-server.service\nDefaultDependencies=no\n' >root/etc/systemd/system/t.target
		ip link set lo up
		(
			set +e
			inside() { chroot root "$@"; }
			# The unit is active before its process, then named "(dualrail)", has its user and is the program.
			until pid=$(inside systemctl show --value -p MainPID dualrail-server) &&
				inside grep -qx dualrail "/proc/$pid/comm"; do sleep 0.2; done
			inside grep -E '^(Uid|NoNewPrivs|CapEff):' "/proc/$pid/status"
			inside /opt/dr/dualrail client 127.0.0.1 -g 0 -N 1 -s 64K --key-file /etc/dualrail/key -D 100ms -q
			echo "client=$?"
			inside kill -KILL "$pid"
			until [ "$(inside systemctl show --value -p NRestarts dualrail-server)" = 1 ] &&
				inside systemctl -q is-active dualrail-server; do sleep 0.2; done
			inside journalctl --no-pager -u dualrail-server | grep leftover
			inside systemctl stop dualrail-server
			inside systemctl show -p ActiveState,Result dualrail-server
			echo over
		) >"$3" 2>&1 &
		exec env container=other chroot root /lib/systemd/systemd --system --unit=t.target
	END
	: >report
	start systemd unshare -pmfnuiC --kill-child bash booted.sh "$DUALRAIL" "$BATS_TEST_DIRNAME/../../scripts/systemd/dualrail-server.service" \
		"$PWD/report"
	for ((i = 0; i < WAIT_S * 5; i++)); do
		grep -q '^over' report && break
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.2
	done
	cat report
	[[ -s report ]] || skip "systemd does not run in namespaces here: $(tail -n 1 systemd.err)"
	grep -q '^client=0' report
	grep -qE '^Uid:.[1-9]' report
	grep -qE '^NoNewPrivs:.1' report
	grep -q 'ok *leftover' report
	grep -q '^ActiveState=inactive' report
	grep -q '^Result=success' report
	grep -q '^over' report
}
