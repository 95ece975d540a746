#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real NCCL through libnccl-net-ha.so: two GPUs, one process each, in two network namespaces with two veth rails, so
# that all traffic crosses the rails. With one GPU both processes use it, together if NVIDIA's MPS is installed, else in
# turns, which checks data, not speed.
#
#   scripts/gpu/nccl.sh BUILD [PART...]     as root
#
#   check    all collectives, protocols LL, LL128 and Simple, every element compared
#   measure  all-reduce beside NCCL's Socket transport on the same rails, alternating; NCCL_PAIRS rounds (3) of NCCL_SETS
#            ("ha 1x1 1x2 4x4 8x2": sockets per thread x threads; "ha,VARIABLE=VALUE,..." for options of the plugin) and
#            NCCL_SIZES (8 bytes to 128 MiB)
#   soak     all-reduce while the active rail is cut again and again (SOAK_SECS, 60; one cut every 5 s: link down and
#            silent loss in turns, either end); Socket in the same way, which is expected to hang. "Link Failure Convergence":
#            from a cut until the iteration ends that it stalled. "Zero-Impact Failover": how many iterations while the
#            rail is cut take no longer than the p99 of those while none is
#            SOAK_PEER=0: without Socket
#   cuts     the same for CUTS_SECS (24) with other faults, one every 3 s at either end: the data connections of the rail
#            are closed (ss -K), and the link goes down and up five times in a row
#   life     communicators that come, go and break: ncclCommAbort in mid-collective by one rank and by both, split, shrink, two
#            communicators in two threads
#   both     both rails cut: an error on both ranks
#   torch    PyTorch's DistributedDataParallel, TORCH_STEPS (1500) without a cut, then with cuts: all losses are equal
#   record   not by default: the calls of a few all-reduces to the plugin, in nccl/all-reduce.calls under GPU_OUT, for
#            tests/plugin/replay_main; tests/plugin/record_plugin.c says what its lines mean
# Environment: NCCL_CC, congestion control in the namespaces (the system's); NCCL_LIB, folder of libnccl.so.2 (the
# system's); GPU_OUT (build/gpu), logs. The last line is `N passed, N failed, N skipped`.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin
build=$(cd "${1:?BUILD}" && pwd)
shift
out=${GPU_OUT:-$root/build/gpu}/nccl
mkdir -p "$out"
A=drnccl$$a B=drnccl$$b
# shellcheck source=scripts/results.sh
source "$root/scripts/results.sh"
pids=()
gpus=0 mps=0
program=("$out/collectives")

# Kernels of both ranks wait for each other: on one GPU they have to run at the same time. The daemon is our own, in a
# folder of our own.
share_gpu() {
	if ! command -v nvidia-cuda-mps-control >/dev/null; then
		echo "one GPU without MPS: the ranks use it in turns, so times say nothing about NCCL"
		return
	fi
	export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps
	mkdir -p "$out/mps"
	nvidia-cuda-mps-control -d && mps=1 && echo "one GPU, which the ranks share through MPS"
}

leave() {
	local p
	((mps)) && nvidia-cuda-mps-control <<<quit
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null; done
	for p in "$A" "$B"; do ip netns del "$p" 2>/dev/null; done
}

cable() {
	ip link add "$1" netns "$A" type veth peer name "$1" netns "$B"
	ip -n "$A" addr add "$2.1/24" dev "$1"
	ip -n "$B" addr add "$2.2/24" dev "$1"
	for net in "$A" "$B"; do ip -n "$net" link set "$1" mtu 9000 up; done
}

enter() {
	nsenter --net="/run/netns/$1" -- "${@:2}"
}

nodes() {
	ip netns add "$A" && ip netns add "$B" || return
	for net in "$A" "$B"; do
		ip -n "$net" link set lo up
		if [[ ${NCCL_CC-} ]]; then enter "$net" sh -c "echo $NCCL_CC > /proc/sys/net/ipv4/tcp_congestion_control"; fi
	done
	cable rail0 10.99.0
	cable rail1 10.99.1
	for net in "$A" "$B"; do
		for dev in rail0 rail1; do
			until [[ $(ip -n "$net" link show "$dev") == *LOWER_UP* ]]; do :; done
		done
	done
}

compile() {
	local cuda=/usr/local/cuda name
	for name in collectives life; do
		cc -O2 -std=gnu11 -pthread -I"$cuda/include" "$root/tests/gpu/nccl/$name.c" -o "$out/$name" \
			-L"$cuda/lib64" -Wl,-rpath,"$cuda/lib64" -lcudart -lnccl >"$out/cc.log" 2>&1 || return
	done
}

common=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_IB_DISABLE=1 "NCCL_SOCKET_IFNAME==rail0,rail1"
	NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,NET,TUNING")
# Not through a link: the plugin finds its libraries beside itself.
plugin=$(readlink -f "$build/libnccl-net-ha.so")
# With a line for each connection that switched.
ha=("NCCL_NET_PLUGIN=$plugin" NCCL_NET=HA HA_NCCL_TRANSPORT=tcp HA_NCCL_DEBUG=1)
socket=(NCCL_NET_PLUGIN=none NCCL_NET=Socket)

# start NAME LIMIT VARIABLE... -- MODE...: both ranks in the background; logs NAME.0 and NAME.1; sets ranks.
start() {
	local name=$1 limit=$2 vars=() net i
	shift 2
	while [[ $1 != -- ]]; do vars+=("$1") && shift; done
	shift
	rm -f "$out/$name.id" "$out/$name.id".*
	ranks=()
	for i in 0 1; do
		net=$([[ $i == 0 ]] && echo "$A" || echo "$B")
		env "${common[@]}" "${vars[@]}" NCCL_HOSTID="node$i" DEVICE=$((i % gpus)) \
			${NCCL_LIB:+LD_LIBRARY_PATH=$NCCL_LIB:${LD_LIBRARY_PATH-}} timeout -k 5 "$limit" nsenter --net="/run/netns/$net" -- \
			"${program[@]}" $i 2 "$out/$name.id" "$@" >"$out/$name.$i" 2>&1 </dev/null &
		ranks+=($!)
		pids+=($!)
	done
}

# finish: status of the ranks in rc0 and rc1.
finish() {
	wait "${ranks[0]}"
	rc0=$?
	wait "${ranks[1]}"
	rc1=$?
	pids=()
}

via_ha() {
	grep -q 'via NET/HA' "$out/$1.0" "$out/$1.1"
}

part_check() {
	local proto name
	for proto in Simple LL LL128; do
		name=check-$proto
		start "$name" 120 "${ha[@]}" NCCL_PROTO=$proto -- check
		finish
		if [[ $rc0 == 0 && $rc1 == 0 ]] && via_ha "$name" && ! grep -h '^check' "$out/$name".? | grep -qv ' 0$'; then
			result PASS "collectives, $proto: $(grep -c '^check' "$out/$name.0") right"
		else
			result FAIL "collectives, $proto" "status $rc0, $rc1; $(grep -hE 'WARN|rank [01]:' "$out/$name".? | head -n 2)"
		fi
	done
}

rows() {
	awk -v who="$1" '$1 == "measure" { printf "      %-24s %10d B  %9.2f us  %7.3f GB/s  max %9.1f us  %6.3f CPU s/GB\n", who, $2, $3, $4, $5, $6 }' "$2"
}

# For each size the medians of the first set and of the best of Socket's, and their ratio.
beside() {
	awk '
		function median(list, v, n, i, j, t) {
			n = split(list, v, " ")
			for (i = 2; i <= n; i++)
				for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
			return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2
		}
		FNR == 1 { set = FILENAME; sub(/.*measure-/, "", set); sub(/-[0-9]+\.0$/, "", set); ours = set ~ /^ha$/ }
		$1 == "measure" && (ours || set ~ /^[0-9]+x[0-9]+$/) {
			if (!($2 in seen)) { seen[$2] = 1; size[++sizes] = $2 }
			k = set SUBSEP $2
			us[k] = us[k] " " $3; gb[k] = gb[k] " " $4; cpu[k] = cpu[k] " " $6
			if (!ours) peers[set] = 1
		}
		END {
			for (i = 1; i <= sizes; i++) {
				b = size[i]; best = ""
				for (p in peers) {
					v = b < 1e6 ? -median(us[p, b]) : median(gb[p, b])
					if (best == "" || v > least) { best = p; least = v }
				}
				if (best == "" || !(("ha" SUBSEP b) in us)) continue
				if (b < 1e6) printf "      %10d B  plugin %.1f us, Socket %s %.1f us, ratio %.2f\n", b, median(us["ha", b]), best, -least, median(us["ha", b]) / -least
				else printf "      %10d B  plugin %.2f GB/s, Socket %s %.2f GB/s, ratio %.2f; CPU s/GB %.2f and %.2f\n", b, median(gb["ha", b]), best, least, median(gb["ha", b]) / least, median(cpu["ha", b]), median(cpu[best, b])
			}
		}' "$@"
}

part_measure() {
	local i set name vars
	# shellcheck disable=SC2086 # lists
	for ((i = 1; i <= ${NCCL_PAIRS:-3}; i++)); do
		for set in ${NCCL_SETS:-ha 1x1 1x2 4x4 8x2}; do
			name=measure-${set//[^a-zA-Z0-9_=.,-]/_}-$i
			if [[ $set == ha* ]]; then
				IFS=, read -ra vars <<<"${set#ha}"
				start "$name" 120 "${ha[@]}" "${vars[@]:1}" -- measure ${NCCL_SIZES-}
			else
				start "$name" 120 "${socket[@]}" NCCL_NSOCKS_PERTHREAD="${set%x*}" NCCL_SOCKET_NTHREADS="${set#*x}" -- measure ${NCCL_SIZES-}
			fi
			finish
			rows "$set" "$out/$name.0"
			[[ $rc0 == 0 && $rc1 == 0 ]] || result FAIL "measure $set" "status $rc0, $rc1"
		done
	done
	beside "$out"/measure-*-*.0
	result PASS "measured: the figures are above"
}

# data_connections NET RAIL: a filter of ss for those that moved 1 MB or more. NCCL's own connections move less.
data_connections() {
	enter "$1" ss -tniH state established "src $(ip -n "$1" -o -4 addr show dev "$2" | awk '{ sub("/.*", "", $4); print $4 }')" | awk '
		/^[0-9]/ { port = $3; sub(/.*:/, "", port) }
		{ for (i = 1; i <= NF; i++) if ($i ~ /^bytes_(sent|received):/ && substr($i, index($i, ":") + 1) + 0 >= 1e6) data = 1 }
		/^[^0-9]/ && data { filter = filter (filter ? " or " : "") "sport = :" port; data = 0 }
		END { print filter }'
}

# cut NET RAIL down|silent|close|flap, and repair it. What close closed is in closed.log.
cut() {
	local i filter
	case $3 in
	down) ip -n "$1" link set "$2" down ;;
	silent)
		enter "$1" nft "table ip cut { chain in { type filter hook input priority 0; iifname \"$2\" drop; }; chain out { type filter hook output priority 0; oifname \"$2\" drop; }; }"
		;;
	close)
		filter=$(data_connections "$1" "$2")
		[[ ! $filter ]] || enter "$1" ss -KtnH state established "( $filter )" >>"$out/closed.log" 2>&1
		;;
	flap)
		for i in 1 2 3 4 5; do
			ip -n "$1" link set "$2" down
			sleep 0.01
			ip -n "$1" link set "$2" up
			sleep 0.02
		done
		;;
	esac
}

repair() {
	case $3 in
	down) ip -n "$1" link set "$2" up ;;
	silent) enter "$1" nft delete table ip cut ;;
	esac
}

tx_bytes() {
	# shellcheck disable=SC2016
	enter "$1" awk -v d="$2:" '$1 == d { print $10 }' /proc/net/dev
}

# cuts NAME SECONDS KIND...: again and again for `cut_s` the rail that carries more, `rest_s` apart, while rank 0 runs; each kind at one
# end, then at the other. Writes "cut NUMBER NET KIND TIME_NS RAIL BYTES0 BYTES1": by the system's clock, and what the rails carried in the
# tenth of a second before.
cut_s=2 rest_s=3
cuts() {
	local name=$1 n=0 end=$((SECONDS + $2 - 5)) net kind rail a b c d kinds
	shift 2
	kinds=("$@")
	sleep 3
	while ((SECONDS < end)) && kill -0 "${ranks[0]}" 2>/dev/null; do
		net=$( (((n / $#) % 2 == 0)) && echo "$A" || echo "$B")
		kind=${kinds[n % $#]}
		a=$(tx_bytes "$net" rail0) b=$(tx_bytes "$net" rail1)
		sleep 0.1
		c=$(tx_bytes "$net" rail0) d=$(tx_bytes "$net" rail1)
		rail=$( ((c - a >= d - b)) && echo rail0 || echo rail1)
		echo "cut $n $net $kind $(date +%s%N) $rail $((c - a)) $((d - b))" >>"$out/$name.cuts"
		cut "$net" "$rail" "$kind"
		sleep "$cut_s"
		repair "$net" "$rail" "$kind"
		sleep "$rest_s"
		n=$((n + 1))
	done
}

# For each kind of cut: how many, how many of them with 1 MB or more in the tenth of a second before, and the longest
# iteration that began up to 1 s before a cut or in the 2 s after it.
by_kind() {
	sort -n -k1 <(awk '/^cut/ { print $5, "cut", $4, ($7 > $8 ? $7 : $8) }' "$1") \
		<(awk '/^iter/ { print $3, "iter", $4 }' "$2") |
		awk '{ at[NR] = $1; what[NR] = $2; a[NR] = $3; b[NR] = $4 }
			END {
				for (i = 1; i <= NR; i++) {
					if (what[i] != "cut") continue
					n[a[i]]++
					hit[a[i]] += b[i] >= 1e6
					for (k = i; k > 0 && at[k] > at[i] - 1e9; k--)
						if (what[k] == "iter" && a[k] > max[a[i]]) max[a[i]] = a[k]
					for (k = i; k <= NR && at[k] < at[i] + 2e9; k++)
						if (what[k] == "iter" && a[k] > max[a[i]]) max[a[i]] = a[k]
				}
				for (kind in n)
					printf "      %s: %d cuts, %d with data in flight, longest iteration %.1f ms\n", kind, n[kind], hit[kind], max[kind] / 1e6
			}'
}

# Whether failback restores the bandwidth: the median time of an iteration in the 1.5 s before the first cut, and before each
# later one, when the rail of the last cut has been up for 1.5 s to 3 s. The ratio is first / later, as of bandwidths.
after_failback() {
	sort -n -k1 <(awk '/^cut/ { print $5, "cut" }' "$1") <(awk '/^iter/ { print $3, "iter", $4 }' "$2") |
		awk 'function median(from, to, i, k, n, v, x) {
				for (i = from; i < to; i++) {
					if (what[i] != "iter") continue
					for (k = n++; k > 0 && v[k - 1] > ns[i]; k--) v[k] = v[k - 1]
					v[k] = ns[i]
				}
				return n ? v[int(n / 2)] : 0
			}
			{ at[NR] = $1; what[NR] = $2; ns[NR] = $3 }
			END {
				for (i = 1; i <= NR; i++) {
					if (what[i] != "cut") continue
					for (k = i; k > 1 && at[k - 1] > at[i] - 1.5e9; k--) ;
					m = median(k, i)
					if (!first) { first = m; continue }
					if (m == 0) continue
					r[n++] = first / m
				}
				for (i = 1; i < n; i++) { x = r[i]; for (k = i; k > 0 && r[k - 1] > x; k--) r[k] = r[k - 1]; r[k] = x }
				if (n) printf "      bandwidth after failback / before the first cut: median %.3f, %.3f to %.3f (%d failbacks)\n", r[int(n / 2)], r[0], r[n - 1], n
			}'
}

# The figures "Link Failure Convergence" and "Zero-Impact Failover", and after how many cuts connections switched. A connection
# reports its switch when data has come over the other path, so an idle one does it late.
failover_figures() {
	local log p99
	for log in "$2.0" "$2.1"; do
		awk '/ -> [01], gap .* ms/ { n++ } /^iter/ { for (; n > 0; n--) printf "%.0f switch 0\n", $3 + $4 }' "$log"
	done >"$2.switches"
	sort -n -k1 <(awk '/^cut/ { print $5, "cut", $4 }' "$1") <(awk '/^iter/ { print $3, "iter", $4 }' "$2.0") "$2.switches" |
		awk -v times="$2.times" 'function put(list, n, x, k) { for (k = n; k > 0 && list[k - 1] > x; k--) list[k] = list[k - 1]; list[k] = x }
			# When the longest iteration ended that the cut at line i may have stalled: the command that cuts needs some ms.
			function stalled_until(i, k, longest, end) {
				for (k = i; k > 0 && at[k] > at[i] - 5e9; k--)
					if (what[k] == "iter" && at[k] + x[k] > at[i] && x[k] > longest) { longest = x[k]; end = at[k] + x[k] }
				for (k = i; k <= NR && at[k] < at[i] + 0.06e9; k++)
					if (what[k] == "iter" && x[k] > longest) { longest = x[k]; end = at[k] + x[k] }
				return end
			}
			{ at[NR] = $1; what[NR] = $2; x[NR] = $3 }
			END {
				for (i = 1; i <= NR; i++) {
					if (what[i] == "cut") {
						cut = at[i]
						put(convergence, cuts++, stalled_until(i) - cut)
					} else if (what[i] == "switch") {
						all++
						if (!cut) early++
						after[cuts] = 1
					} else if (cut && at[i] < cut + 2e9) {
						print "during", x[i] >times
					} else if (!cut || at[i] > cut + 4e9) {
						print "quiet", x[i] >times
					}
				}
				if (!cuts) exit
				for (c = 1; c <= cuts; c++) switched += after[c]
				printf "      cuts after which connections switched: %d of %d (%d connections; %d before the first cut)\n", switched, cuts, all, early
				printf "      Link Failure Convergence: median %.1f ms, longest %.1f ms\n", convergence[int(cuts / 2)] / 1e6, convergence[cuts - 1] / 1e6
			}'
	p99=$(awk '/^quiet/ { print $2 }' "$2.times" | sort -n | awk '{ v[NR] = $1 } END { print v[int(NR * 0.99)] }')
	awk -v p99="$p99" '/^during/ { n++; within += $2 <= p99 }
		END { if (n) printf "      Zero-Impact Failover: %.2f %% of %d iterations during cuts within the p99 of the others, %.2f ms\n", 100 * within / n, n, p99 / 1e6 }' "$2.times"
}

# endured NAME SECONDS KIND...: all-reduce for so long under cuts of these kinds; its figures and its result.
endured() {
	local name=$1 secs=$2 title="$1 (${*:3})" line
	rm -f "$out/$name.cuts"
	start "$name" $((secs + 60)) "${ha[@]}" -- soak "$secs"
	cuts "$name" "${@:2}"
	finish
	line=$(grep '^soak' "$out/$name.0")
	by_kind "$out/$name.cuts" "$out/$name.0"
	echo "      $line; connections that switched: $(cat "$out/$name".? | grep -c ' -> [01], gap .* ms')"
	if [[ $rc0 == 0 && $rc1 == 0 && $(awk '{ print $3 }' <<<"$line") == 0 ]]; then
		result PASS "$title: no error, no wrong element; longest iteration $(awk '{ printf "%.1f ms, median %.1f ms", $5 / 1e6, $4 / 1e6 }' <<<"$line")"
	else
		result FAIL "$title" "status $rc0, $rc1: $line; $(grep -hE 'rank [01]:' "$out/$name".? | head -n 2)"
	fi
}

part_soak() {
	endured soak "${SOAK_SECS:-60}" down silent
	after_failback "$out/soak.cuts" "$out/soak.0"
	failover_figures "$out/soak.cuts" "$out/soak"
	[[ ${SOAK_PEER-} == 0 ]] && return
	start soak-socket 30 "${socket[@]}" NCCL_NSOCKS_PERTHREAD=1 NCCL_SOCKET_NTHREADS=2 -- soak 10
	sleep 6
	cut "$A" rail0 down
	finish
	repair "$A" rail0 down
	echo "      Socket after one cut: status $rc0, $rc1 (124: it hung)"
}

part_cuts() {
	local cut_s=1 rest_s=2 closed
	rm -f "$out/closed.log"
	endured cuts "${CUTS_SECS:-24}" close flap
	closed=$(grep -c '^ESTAB\|^[0-9]' "$out/closed.log" 2>/dev/null)
	echo "      connections that ss closed: ${closed:-0}"
	((closed > 0)) || result SKIP "connections closed in mid-collective" "ss -K closed none: $(head -n 1 "$out/closed.log" 2>/dev/null)"
}

# Each case has processes of its own, so that one that fails stops no other.
part_life() {
	local kind name lines program=("$out/life")
	for kind in ${LIFE_CASES:-abort-one abort-both split shrink shrink-abort threads}; do
		name=life-$kind
		start "$name" 60 "${ha[@]}" -- "$kind"
		finish
		lines=$(grep -h "^life $kind " "$out/$name".?)
		if [[ $lines == *skipped* ]]; then
			result SKIP "communicators, $kind" "$(head -n 1 <<<"${lines#*skipped }")"
		elif [[ $rc0 == 0 && $rc1 == 0 && $(grep -c "^life $kind 0 " <<<"$lines") == 2 ]] && via_ha "$name"; then
			result PASS "communicators, $kind: right before, meanwhile and in a new one$(awk '$4 > 0 { printf "; an error came %.0f ms after the other rank'"'"'s abort", $4 }' <<<"$lines")"
		else
			result FAIL "communicators, $kind" "status $rc0, $rc1; $(grep -hE 'rank [01]:|too long|NCCL WARN' "$out/$name".? | head -n 3 | paste -sd';')"
		fi
	done
}

part_both() {
	local begin i after=()
	start both 90 "${ha[@]}" -- soak 30
	for ((i = 0; i < 600; i++)); do
		(($(grep -c '^iter' "$out/both.0") >= 100)) && break
		kill -0 "${ranks[0]}" 2>/dev/null || break
		sleep 0.1
	done
	begin=$(date +%s%N)
	cut "$A" rail0 down
	cut "$A" rail1 down
	finish
	repair "$A" rail0 down
	repair "$A" rail1 down
	for i in 0 1; do after+=("$(awk -v b="$begin" '/^error/ { printf "%.1f", ($2 - b) / 1e9; exit }' "$out/both.$i")"); done
	if [[ $rc0 == 4 && $rc1 == 4 ]] && awk -v a="${after[0]}" -v b="${after[1]}" 'BEGIN { exit !(a != "" && b != "" && a > 0 && b > 0 && a <= 5 && b <= 5) }'; then
		result PASS "both rails cut: an error on both ranks after ${after[0]} and ${after[1]} s"
	else
		result FAIL "both rails cut" "status $rc0, $rc1 after ${after[0]} and ${after[1]} s"
	fi
}

# losses NAME [cuts]: the job; its losses are then in NAME.losses.
losses() {
	local begin=$SECONDS program=(python3 "$root/tests/gpu/nccl/ddp.py")
	start "$1" 240 "${ha[@]}" -- "${TORCH_STEPS:-1500}"
	if [[ ${2-} ]]; then
		while ! grep -q '^step 20 ' "$out/$1.0" && ((SECONDS - begin < 120)); do sleep 0.1; done
		rm -f "$out/$1.cuts"
		cuts "$1" 200 down silent
	fi
	finish
	grep -h '^step' "$out/$1.0" >"$out/$1.losses"
	[[ $rc0 == 0 && $rc1 == 0 ]]
}

part_torch() {
	local same=0
	if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
		result SKIP "PyTorch" "no PyTorch with CUDA"
		return
	fi
	losses torch-quiet || { result FAIL "PyTorch without a cut" "status $rc0, $rc1; $(tail -n 1 "$out/torch-quiet.0")" && return; }
	losses torch-cuts cuts || { result FAIL "PyTorch with cuts" "status $rc0, $rc1; $(tail -n 1 "$out/torch-cuts.0")" && return; }
	echo "      $(grep -h '^torch' "$out/torch-cuts.0"); $(grep -c ^cut "$out/torch-cuts.cuts") cuts; switches: $(cat "$out"/torch-cuts.? | grep -c ' -> [01], gap .* ms')"
	cmp -s "$out/torch-quiet.losses" "$out/torch-cuts.losses" && same=1
	if [[ $same == 1 ]] && via_ha torch-cuts && grep -q ' -> [01], gap .* ms' "$out/torch-cuts.0" "$out/torch-cuts.1"; then
		result PASS "PyTorch: $(wc -l <"$out/torch-cuts.losses") losses equal those without a cut"
	else
		result FAIL "PyTorch" "$(diff "$out/torch-quiet.losses" "$out/torch-cuts.losses" | wc -l) lines of losses differ, or no cut hit the job"
	fi
}

# A file with the calls of both ranks. Two channels keep it small.
part_record() {
	local file=$out/all-reduce.calls version
	rm -f "$out"/calls.*
	cc -O2 -std=gnu11 -fPIC -shared -pthread -I"$root" "$root/tests/plugin/record_plugin.c" -o "$out/record.so" -ldl \
		>"$out/record-cc.log" 2>&1 || { result FAIL "recording" "$(head -n 2 "$out/record-cc.log")" && return; }
	start record 120 "${ha[@]}" NCCL_NET_PLUGIN="$out/record.so" NET_RECORD_PLUGIN="$plugin" \
		NET_RECORD="$out/calls" NCCL_MAX_NCHANNELS=2 -- record
	finish
	if [[ $rc0 != 0 || $rc1 != 0 ]] || ! via_ha record || (($(cat "$out"/calls.* | grep -c ^process) != 2)); then
		result FAIL "recording" "status $rc0, $rc1; $(grep -hE 'WARN|rank [01]:|record:' "$out"/record.? | head -n 2)"
		return
	fi
	version=$(grep -hoE 'NCCL version [^ ]+' "$out/record.0" | head -n 1)
	{
		echo "# ${version:-NCCL}, two ranks on $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), two rails,"
		echo "# libnccl-net-ha.so; recorded by scripts/gpu/nccl.sh BUILD record: $(grep -h '^check' "$out/record.0" |
			awk '{ printf "%s%s", n++ ? ", " : "", $3 }') bytes of all-reduce"
		cat "$out"/calls.*
	} >"$file"
	result PASS "recording: $(grep -c '^send ' "$file") sends, $(wc -c <"$file") bytes in $file"
}

main() {
	local part
	(($#)) || set -- check measure soak cuts life both torch
	gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
	if [[ $(id -u) != 0 || $gpus == 0 ]]; then
		result SKIP "NCCL" "needs root and an NVIDIA GPU"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	trap leave EXIT
	((gpus > 1)) || share_gpu
	compile || { result FAIL "the test program does not compile" "$(head -n 2 "$out/cc.log")" && echo "0 passed, 1 failed, 0 skipped" && exit 1; }
	nodes || { result FAIL "namespaces" && echo "0 passed, 1 failed, 0 skipped" && exit 1; }
	for part; do "part_$part"; done
	sum_up
}

main "$@"
