#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in a bare chroot of this Debian release: install an older version, upgrade, run, remove, purge.
#
#   tests/install/chroot.sh FOLDER       as root; FOLDER/old and FOLDER/new have the packages, FOLDER/demo and
#                                        FOLDER/use what is run, FOLDER/versions the line "OLD NEW"
#
# mmdebstrap makes the chroot and removes it again. Exit status 77: it could not be made, or the packages that ours
# depend on could not be fetched; the last line says why.
# shellcheck disable=SC2016 # for shells and dpkg-query inside
set -uo pipefail

fail() {
	echo "FAIL: $*"
	exit 1
}

inside() { chroot "$root" "$@"; }

apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends "$@"; }

# Everything that a package can leave behind. The caches of apt, dpkg and the dynamic linker are not compared.
snapshot() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./run -o \
		-path ./var/cache -o -path ./var/log -o -path ./var/lib/apt -o -path ./var/lib/dpkg \) -prune -o -print) | sort
}

# A network namespace with loopback alone, an ordinary user: both ends of the demo are on 127.0.0.0/8.
demo() {
	if ! unshare --net sh -c 'ip link set lo up && exec chroot "$@"' sh --userspec=65534:65534 "$root" \
		env HOME=/tmp /tmp/debs/demo >"$root/tmp/demo.out" 2>&1 || ! grep -q '^PASS' "$root/tmp/demo.out"; then
		cat "$root/tmp/demo.out"
		fail "the demo"
	fi
}

# No library is missing, no file differs from its package.
whole() {
	local package version=$1 out
	for package in "${packages[@]}"; do
		out=$(inside dpkg-query -W -f '${Version} ${db:Status-Status}' "$package")
		[[ $out == "$version installed" ]] || fail "$package is $out, not $version installed"
	done
	inside apt-get -qq check || fail "apt-get check"
	out=$(inside dpkg --verify "${packages[@]}") || fail "changed files: $out"
	out=$(inside sh -c 'ldd /usr/bin/dualrail /usr/lib/*/libdualrail.so.0 /usr/lib/*/dualrail/libnccl-net*.so' | grep 'not found')
	[[ ! $out ]] || fail "missing libraries: $out"
}

runs() {
	local out
	out=$(inside dualrail --version) || fail "dualrail --version"
	[[ $out == dualrail\ * ]] || fail "dualrail --version prints $out"
	demo
	unshare --net sh -c 'ip link set lo up && exec chroot "$1" /tmp/debs/use' sh "$root" || fail "a program that uses the library"
	unshare --net sh -c 'ip link set lo up && exec chroot "$1" sh -c "for f in /usr/lib/*/dualrail/*.so; do
		NCCL_SOCKET_IFNAME=lo dualrail plugin \$f || exit; done"' sh "$root" >"$root/tmp/plugin.out" 2>&1 || {
		tail -n 20 "$root/tmp/plugin.out"
		fail "dualrail plugin"
	}
}

# The service needs a key, so it is installed and neither enabled nor started.
service_is_off() {
	[[ -e $root/lib/systemd/system/dualrail-server.service ]] || fail "no systemd unit"
	[[ ! $(find "$root/etc/systemd" -name 'dualrail*' 2>/dev/null) ]] || fail "the service is enabled"
}

hook() {
	local old new left out
	read -r old new <"$root/tmp/debs/versions"
	mapfile -t packages < <(cd "$root/tmp/debs/new" && for f in *.deb; do echo "${f%%_*}"; done)
	snapshot >"$root/tmp/before"
	if ! apt install --download-only "${from_old[@]}" >"$root/tmp/fetch" 2>&1; then
		grep -qE 'Failed to fetch|Unable to fetch|Could not (resolve|connect)' "$root/tmp/fetch" || {
			cat "$root/tmp/fetch"
			fail "the packages cannot be installed"
		}
		echo "the mirror does not have what the packages depend on: $(tail -n 1 "$root/tmp/fetch")"
		exit 77
	fi
	echo "install $old"
	apt install "${from_old[@]}" >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log"; fail "install"; }
	whole "$old"
	[[ -e $root/usr/share/dualrail/old ]] || fail "the older version lacks its file"
	echo "upgrade to $new"
	apt install "${from_new[@]}" >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log"; fail "upgrade"; }
	whole "$new"
	[[ ! -e $root/usr/share/dualrail/old ]] || fail "a file of the older version is left"
	service_is_off
	echo "run"
	runs
	echo "remove and purge"
	apt remove "${packages[@]}" >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log"; fail "remove"; }
	[[ ! -e $root/usr/bin/dualrail ]] || fail "the program is left after remove"
	# A package is known after remove only if it left something that purge takes away.
	mapfile -t left < <(inside dpkg-query -W -f '${Package} ${db:Status-Status}\n' | awk '$2 == "config-files" { print $1 }')
	apt purge --autoremove "${left[@]}" >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log"; fail "purge"; }
	out=$(inside dpkg-query -W -f '${Package}\n' | grep dualrail)
	[[ ! $out ]] || fail "still known to dpkg: $out"
	snapshot >"$root/tmp/after"
	diff "$root/tmp/before" "$root/tmp/after" || fail "the lines above were left behind (>) or taken away (<)"
	echo "nothing is left"
}

if [[ ${1-} == --hook ]]; then
	root=$2
	cp -R "$3" "$root/tmp/debs"
	from_old=("$root"/tmp/debs/old/*.deb) from_new=("$root"/tmp/debs/new/*.deb)
	from_old=("${from_old[@]#"$root"}") from_new=("${from_new[@]#"$root"}")
	(hook) >"$3/log" 2>&1
	echo $? >"$3/status"
	exit 0
fi

# The mirrors that this machine uses, for its own release.
work=$1
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
sources=()
for one in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	[[ ! -s $one || ${#sources[@]} -gt 0 ]] || sources=("$one")
done
rm -f "$work/status"
mmdebstrap --quiet --mode=root --variant=minbase "--customize-hook=$0 --hook \"\$1\" $work" "$suite" /dev/null \
	"${sources[@]}" >"$work/mmdebstrap.log" 2>&1
if [[ ! -e $work/status ]]; then
	echo "mmdebstrap made no chroot of $suite: $(grep -m 1 -iE '^(E|W|error):? ' "$work/mmdebstrap.log")"
	exit 77
fi
cat "$work/log"
exit "$(<"$work/status")"
