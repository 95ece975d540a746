#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs dualrail on the nodes of a Kubernetes cluster.
#
#   k8s/deploy.sh deploy|status|logs|results|cleanup [options]
#
#   deploy    create the job, or replace one that has ended; nothing changes if the same job is there already
#   status    the job and its pods; status 0: complete, 3: not yet, 1: failed or absent
#   logs      the output of all pods; -f: as it comes, until they end
#   results   write the result documents of the pods to --output
#   cleanup   undo faults that are left, then delete everything that deploy created
#
#   --world-size N        pods, one per node (2)
#   --gpus-per-node M     GPUs per pod; 0: host memory (8)
#   --overlay NAME        a folder of k8s/overlays (tcp)
#   --namespace NAME      created if absent (the current one)
#   --image IMAGE         image with dualrail (dualrail), for instance registry/dualrail; without a tag: of this version
#   --set KEY=VALUE       a key of k8s/base/options.env; repeatable
#   --node-selector KEY=VALUE   label of the nodes; repeatable
#   --cpus N              CPUs per pod, request and limit (2, no limit)
#   --claim NAME          PersistentVolumeClaim for /var/lib/dualrail, ReadWriteMany (an emptyDir)
#   --output DIR          folder for results (dualrail-results)
#   --dry-run             print the manifests (deploy) or the commands; the cluster is not asked
#
# Environment: KUBECTL, the program (kubectl); DUALRAIL_WAIT, seconds that cleanup waits for repairs (300); DUALRAIL_UNPACKED_MIB,
# the largest document that results writes (512).
# Exit status: 0; 1 wrong usage, or the job failed; 2 kubectl, cluster, rights or GPUs are missing; 3 the job goes on.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kubectl=${KUBECTL:-kubectl}
command=${1-} nodes=2 gpus=8 overlay=tcp namespace='' image='' output=dualrail-results dry='' follow='' cpus='' claim='' settings=() selectors=()
label=app.kubernetes.io/name=dualrail

# What pods and the cluster say, without characters that act on a terminal instead of showing: controls, C1 too, invalid UTF-8.
plain() {
	{ iconv -c -f UTF-8 -t UTF-8 || :; } | LC_ALL=C sed 's/\xc2[\x80-\x9f]/?/g' | LC_ALL=C tr '\000-\010\013-\037\177' '?'
}

fail() {
	local status=$1
	shift
	printf 'deploy.sh: %s\n' "$@" | plain >&2
	exit "$status"
}

usage() {
	sed -n '3,/^# Exit/s/^# \?//p' "${BASH_SOURCE[0]}"
	exit "$1"
}

number() {
	if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
		fail 1 "$1 $2: a number from $3 to $4 is needed"
	fi
}

options() {
	local option
	while (($#)); do
		option=$1
		case $option in
		--dry-run | -f)
			if [[ $option == -f ]]; then follow=1; else dry=1; fi
			shift
			continue
			;;
		--world-size) nodes=${2-} ;;
		--gpus-per-node) gpus=${2-} ;;
		--overlay) overlay=${2-} ;;
		--namespace) namespace=${2-} ;;
		--image) image=${2-} ;;
		--set) settings+=("${2-}") ;;
		--node-selector) selectors+=("${2-}") ;;
		--cpus) cpus=${2-} ;;
		--claim) claim=${2-} ;;
		--output) output=${2-} ;;
		-h | --help) usage 0 ;;
		*) fail 1 "unknown option $option; k8s/deploy.sh --help lists the options" ;;
		esac
		(($# > 1)) || fail 1 "$option needs a value"
		shift 2
	done
	number --world-size "$nodes" 2 100000
	number --gpus-per-node "$gpus" 0 64
	folder=$here/overlays/$overlay
	[[ $overlay == [a-z]* && -f $folder/kustomization.yaml ]] ||
		fail 1 "overlay $overlay does not exist; there are: $(cd "$here/overlays" && echo *)"
	[[ ! $cpus ]] || number --cpus "$cpus" 1 100000
	[[ $claim =~ ^[a-z0-9.-]*$ ]] || fail 1 "--claim $claim: the name of a PersistentVolumeClaim is needed"
	for option in "${selectors[@]}"; do
		[[ $option =~ ^[A-Za-z0-9./_-]+=[A-Za-z0-9._-]*$ ]] || fail 1 "--node-selector $option: KEY=VALUE is needed"
	done
	for option in "${settings[@]}"; do
		[[ $option =~ ^[A-Z_][A-Z0-9_]*= ]] || fail 1 "--set $option: KEY=VALUE is needed"
		grep -qE "^( *- )?${option%%=*}=" "$here/base/options.env" "$folder/kustomization.yaml" ||
			fail 1 "--set $option: there is no such key; k8s/base/options.env has the keys"
	done
}

k() {
	"$kubectl" ${namespace:+--namespace "$namespace"} "$@"
}

# kubectl 1.27 has the kustomize that the overlays need.
need_kubectl() {
	local version
	command -v "$kubectl" >/dev/null || fail 2 "$kubectl is not installed; install kubectl 1.27 or newer, or set KUBECTL"
	version=$("$kubectl" version --client -o json 2>/dev/null | sed -n 's/.*"gitVersion": *"v1\.\([0-9]*\).*/\1/p' | head -n 1)
	[[ $version ]] || fail 2 "$kubectl version --client does not name its version; kubectl 1.27 or newer is needed"
	((version >= 27)) || fail 2 "$kubectl is 1.$version; 1.27 or newer is needed"
}

need_cluster() {
	local text
	text=$("$kubectl" get --raw /version --request-timeout=15s 2>&1) ||
		fail 2 "the cluster does not answer: ${text##*$'\n'}" "look at: $kubectl config current-context; $kubectl cluster-info"
}

# need_api GROUP/VERSION WHAT
need_api() {
	"$kubectl" get --raw "/apis/$1" >/dev/null 2>&1 || fail 2 "the cluster does not serve $1, which --overlay $overlay needs: install $2"
}

need_rights() {
	local verb=$1 resource
	shift
	for resource in "$@"; do
		k auth can-i "$verb" "$resource" >/dev/null 2>&1 ||
			fail 2 "you may not $verb $resource in namespace ${namespace:-of the context}; ask for a role with this right"
	done
}

# Nodes with enough GPUs. Those who may not list nodes get a warning: the scheduler decides then.
need_gpus() {
	local list fit
	((gpus)) || return 0
	if ! list=$("$kubectl" get nodes -o 'jsonpath={range .items[*]}{.metadata.name} {.status.allocatable.nvidia\.com/gpu}{"\n"}{end}' 2>/dev/null); then
		echo "deploy.sh: you may not list nodes, so their GPUs are not checked" >&2
		return 0
	fi
	fit=$(awk -v m="$gpus" '$2 + 0 >= m' <<<"$list" | wc -l)
	((fit >= nodes)) || fail 2 "$nodes nodes with $gpus GPUs are needed; $fit of $(grep -c . <<<"$list") nodes have so many (nvidia.com/gpu)" \
		"pass a smaller --world-size or --gpus-per-node, --gpus-per-node 0 for host memory, or install NVIDIA's device plugin"
}

kind() {
	case $overlay in
	jobset) echo jobset.jobset.x-k8s.io ;;
	mpijob) echo mpijob.kubeflow.org ;;
	*) echo job.batch ;;
	esac
}

# The requests and constraints of a claim with $gpus pairs of a GPU and a NIC, as JSON patches.
claim_patch() {
	local i
	cat <<-END
		- target: {kind: ResourceClaimTemplate, name: dualrail-aligned}
		  patch: |-
	END
	for ((i = 1; i < gpus; i++)); do
		cat <<-END
			    - op: add
			      path: /spec/spec/devices/requests/-
			      value: {name: gpu-$i, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}}
			    - op: copy
			      from: /spec/spec/devices/requests/1
			      path: /spec/spec/devices/requests/-
			    - op: replace
			      path: /spec/spec/devices/requests/$((2 * i + 1))/name
			      value: nic-$i
			    - op: add
			      path: /spec/spec/devices/constraints/-
			      value: {requests: [gpu-$i, nic-$i], matchAttribute: resource.kubernetes.io/pcieRoot}
		END
	done
}

# The image of --image. A colon after the last slash begins a tag.
image_patch() {
	local tag=''
	[[ ${image##*/} != *:* ]] || tag=${image##*:}
	[[ ! $image ]] || printf 'images:\n- {name: dualrail, newName: "%s"%s}\n' "${image%":$tag"}" "${tag:+", newTag: \"$tag\""}"
}

# Where the overlay's kind has its numbers of pods, and its pod templates.
paths() {
	case $overlay in
	jobset) counts=(/spec/replicatedJobs/0/template/spec/completions /spec/replicatedJobs/0/template/spec/parallelism)
		pods=(/spec/replicatedJobs/0/template/spec/template/spec) ;;
	mpijob) counts=(/spec/mpiReplicaSpecs/Worker/replicas) pods=(/spec/mpiReplicaSpecs/Worker/template/spec) ;;
	*) counts=(/spec/completions /spec/parallelism) pods=(/spec/template/spec) ;;
	esac
}

# kustomization HASH: the overlay with the options of the command line.
kustomization() {
	local counts pods path setting resources kinds='(Job|JobSet|MPIJob)'
	paths
	resources=${pods[0]}/containers/0/resources
	cat <<-END
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources: ["$(realpath --relative-to="$work" "$folder")"]
		${namespace:+namespace: $namespace}
		commonAnnotations: {dualrail/manifest: "$1"}
		generatorOptions: {disableNameSuffixHash: true}
		configMapGenerator:
		- name: dualrail-options
		  behavior: merge
		  literals:
		  - WORLD_SIZE=$nodes
		  - GPUS_PER_NODE=$gpus
	END
	for setting in "${settings[@]}"; do printf '  - %s\n' "\"${setting//\"/\\\"}\""; done
	image_patch
	printf 'patches:\n- target: {kind: %s}\n  patch: |-\n' "$kinds"
	for path in "${counts[@]}"; do printf '    - {op: replace, path: %s, value: %s}\n' "$path" "$nodes"; done
	for setting in "${selectors[@]}"; do
		path=${setting%%=*}
		printf '    - {op: add, path: %s, value: "%s"}\n' "${pods[0]}/nodeSelector/${path//\//~1}" "${setting#*=}"
	done
	[[ ! $cpus ]] || printf '    - {op: add, path: %s/cpu, value: "'"$cpus"'"}\n' "$resources/requests" "$resources/limits"
	[[ ! $claim ]] || cat <<-END
		    - {op: test, path: ${pods[0]}/volumes/3/name, value: results}
		    - {op: replace, path: ${pods[0]}/volumes/3, value: {name: results, persistentVolumeClaim: {claimName: "$claim"}}}
	END
	case $overlay in
	dra) ((gpus < 2)) || claim_patch ;;
	*)
		if ((gpus)); then
			printf '    - {op: add, path: %s/nvidia.com~1gpu, value: "%s"}\n' "$resources/limits" "$gpus"
		else
			printf '    - {op: remove, path: %s/nvidia.com~1gpu}\n' "$resources/limits"
		fi
		;;
	esac
}

# render: the manifests; the annotation dualrail/manifest is the checksum of what is rendered without it.
render() {
	local first hash
	[[ $overlay != dra || $gpus -gt 0 ]] || fail 1 "--overlay $overlay takes GPUs from its claim; --gpus-per-node 0 needs another overlay"
	kustomization none >"$work/kustomization.yaml"
	first=$("$kubectl" kustomize "$work") || fail 2 "the overlay $overlay cannot be rendered, see above"
	hash=$(sha256sum <<<"$first" | cut -c1-16)
	echo "${first//dualrail\/manifest: none/dualrail/manifest: \"$hash\"}"
}

make_key() {
	k get secret dualrail-key >/dev/null 2>&1 && return 0
	# By standard input: other users see arguments.
	k create -f - >/dev/null <<-END || fail 2 "the Secret dualrail-key could not be created, see above"
		{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dualrail-key", "labels": {"app.kubernetes.io/name": "dualrail"}},
		 "type": "Opaque", "stringData": {"key": "$(head -c 32 /dev/urandom | base64 -w 0)"}}
	END
	echo "created the Secret dualrail-key"
}

# state: absent, running, complete or failed.
state() {
	local text
	text=$(k get "$(kind)" dualrail -o 'jsonpath={.metadata.name} {range .status.conditions[?(@.status=="True")]}{.type} {end}' 2>/dev/null) || {
		echo absent
		return
	}
	case " $text " in
	*\ Failed\ *) echo failed ;;
	*\ Complete\ * | *\ Completed\ * | *\ Succeeded\ *) echo complete ;;
	*) echo running ;;
	esac
}

deploy() {
	local manifests now hash have
	if [[ $dry ]]; then
		render
		return
	fi
	need_cluster
	case $overlay in
	jobset) need_api jobset.x-k8s.io/v1alpha2 "JobSet" ;;
	mpijob) need_api kubeflow.org/v2beta1 "the MPI Operator" ;;
	dra) need_api resource.k8s.io/v1 "Kubernetes 1.34 or newer and a DRA driver" ;;
	esac
	if [[ $namespace ]] && ! "$kubectl" get namespace "$namespace" >/dev/null 2>&1; then
		"$kubectl" create namespace "$namespace" || fail 2 "namespace $namespace does not exist and could not be created, see above"
	fi
	need_rights create "$(kind)" services configmaps secrets
	[[ $overlay == dra ]] || need_gpus
	manifests=$(render)
	hash=$(sed -n 's/.*dualrail\/manifest: "\{0,1\}\([0-9a-f]\{16\}\).*/\1/p' <<<"$manifests" | head -n 1)
	now=$(state)
	have=$(k get "$(kind)" dualrail -o 'jsonpath={.metadata.annotations.dualrail/manifest}' 2>/dev/null || :)
	case $now in
	running)
		[[ $have == "$hash" ]] || fail 1 "another job runs; wait for it, or run: k8s/deploy.sh cleanup"
		echo "the same job runs already; nothing was changed"
		return
		;;
	complete | failed)
		echo "replacing the job, which is $now"
		k delete "$(kind)" dualrail --wait=true >/dev/null
		;;
	esac
	make_key
	k apply -f - <<<"$manifests" || fail 2 "the manifests were not accepted, see above"
}

status() {
	local now
	need_cluster
	now=$(state)
	k get "$(kind),pods" -l "$label" -o wide 2>/dev/null | plain || :
	echo "job dualrail: $now"
	case $now in
	complete) return 0 ;;
	running) return 3 ;;
	absent) fail 1 "there is no job; run: k8s/deploy.sh deploy" ;;
	*) return 1 ;;
	esac
}

pod_names() {
	k get pods -l "$label" "$@" -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}'
}

# logs_of POD FILTER [-f]: without the packed documents, which are for results.
logs_of() {
	k logs "$1" --all-containers "${@:3}" 2>&1 | sed -u '/^-----BEGIN DUALRAIL/,/^-----END DUALRAIL/d' | "$2" | sed -u "s/^/$1: /" || :
}

# iconv waits for the end of its input.
plain_lines() {
	local line
	while IFS= read -r line; do plain <<<"$line"; done
}

logs() {
	local pod
	need_cluster
	for pod in $(pod_names); do
		if [[ $follow ]]; then logs_of "$pod" plain_lines -f & else logs_of "$pod" plain; fi
	done
	wait
}

# Of each pod at most so many bytes of its log and so many documents are read, and a document is unpacked to at most 512 MiB, which is
# what `dualrail report` reads.
log_bytes=$((256 << 20)) documents=16 unpacked=$((${DUALRAIL_UNPACKED_MIB:-512} << 20))

results() {
	local pod found=0 bad=0 file out why
	need_cluster
	mkdir -p "$output"
	for pod in $(pod_names); do
		k logs "$pod" --all-containers 2>/dev/null | head -c "$log_bytes" >"$work/log" || :
		while read -r file; do
			# A name of a pod's log is no path.
			[[ $file =~ ^[A-Za-z0-9._-]{1,100}$ && $file != .* ]] || continue
			out=$output/$pod-$file why=''
			awk -v b="-----BEGIN DUALRAIL RESULT $file-----" '$0 == b { on = 1; next } /^-----END DUALRAIL/ { on = 0 } on' "$work/log" |
				base64 -d | gzip -dc | head -c $((unpacked + 1)) >"$out" || why="is incomplete in the log"
			[[ $(wc -c <"$out") -le $unpacked ]] || why="has more than $((unpacked >> 20)) MiB unpacked (DUALRAIL_UNPACKED_MIB)"
			if [[ $why ]]; then
				rm "$out"
				echo "deploy.sh: $pod: $file $why; it was left out" | plain >&2
				bad=1
				continue
			fi
			echo "$out"
			found=$((found + 1))
		done < <(sed -n 's/^-----BEGIN DUALRAIL RESULT \(.*\)-----$/\1/p' "$work/log" | head -n "$documents")
	done
	((found || bad)) || fail 1 "no pod has printed a result; see: k8s/deploy.sh status, k8s/deploy.sh logs"
	return "$bad"
}

# repair_nodes NODE...: a job on these nodes undoes what killed pods left in the nodes' network.
repair_nodes() {
	local list
	list=$(printf '"%s",' "$@")
	cat >"$work/kustomization.yaml" <<-END
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources: ["$(realpath --relative-to="$work" "$here/repair")"]
		${namespace:+namespace: $namespace}
		patches:
		- target: {kind: Job}
		  patch: |-
		    - {op: replace, path: /spec/completions, value: $#}
		    - {op: replace, path: /spec/parallelism, value: $#}
		    - op: replace
		      path: /spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values
		      value: [${list%,}]
	END
	image_patch >>"$work/kustomization.yaml"
	"$kubectl" kustomize "$work" | k apply -f - >/dev/null || fail 2 "the job that repairs could not be created, see above"
	if k wait --for=condition=complete job/dualrail-repair --timeout="${DUALRAIL_WAIT:-300}s" >/dev/null; then
		echo "repaired: $*"
	else
		echo "deploy.sh: the repair did not end on all of: $*; run on these nodes: dualrail doctor --repair" >&2
		repair_failed=1
	fi
}

cleanup() {
	local pod node hosts=() repair_failed=''
	if [[ $dry ]]; then
		echo "$kubectl exec POD -- dualrail doctor --repair, for each pod that runs"
		echo "$kubectl delete job,jobset,mpijob,service,configmap,resourceclaimtemplate,secret -l $label"
		return
	fi
	need_cluster
	for pod in $(pod_names --field-selector=status.phase=Running); do
		k exec "$pod" -c dualrail -- dualrail doctor --repair >/dev/null 2>&1 || echo "deploy.sh: $pod: no repair in the pod; its network ends with it" >&2
	done
	if [[ $(k get job -l "$label,dualrail/repair=host" -o name) ]]; then
		mapfile -t hosts < <(k get pods -l "$label,dualrail/job=sweep" -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | grep .)
	fi
	k delete job -l "$label" --wait=true --ignore-not-found >/dev/null
	for node in jobset.jobset.x-k8s.io mpijob.kubeflow.org resourceclaimtemplate.resource.k8s.io; do
		# Absent kinds are not an error.
		k delete "$node" -l "$label" --wait=true --ignore-not-found >/dev/null 2>&1 || :
	done
	((${#hosts[@]} == 0)) || repair_nodes "${hosts[@]}"
	k delete job,service,configmap,secret -l "$label" --wait=true --ignore-not-found >/dev/null
	echo "deleted everything with the label $label"
	[[ ! $repair_failed ]] || exit 2
}

case $command in
deploy | status | logs | results | cleanup) shift ;;
-h | --help) usage 0 ;;
'') usage 1 >&2 ;;
*) fail 1 "unknown command $command; use deploy, status, logs, results or cleanup" ;;
esac
options "$@"
need_kubectl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$command"
