#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The manifests of k8s/, deploy.sh against a kubectl that records calls, and the pods' commands in network namespaces. No cluster.

# bats file_tags=release
load usual

setup() {
	common_setup
	K8S=$BATS_TEST_DIRNAME/../../k8s
	CHECKS=$BATS_TEST_DIRNAME/../k8s
	export FAKE=$PWD/fake KUBECTL=$CHECKS/kubectl REAL_KUBECTL
	REAL_KUBECTL=$(command -v kubectl) || REAL_KUBECTL=
}

need_kustomize() {
	local minor
	[[ $REAL_KUBECTL ]] || skip "no kubectl here; kubectl 1.27 or newer renders the overlays"
	minor=$("$REAL_KUBECTL" version --client -o json | sed -n 's/.*"gitVersion": *"v1\.\([0-9]*\).*/\1/p' | head -n 1)
	((minor >= 27)) || skip "kubectl is 1.$minor; 1.27 or newer is needed to render the overlays"
}

# A cluster with four nodes, three of them with eight GPUs.
cluster() {
	mkdir "$FAKE"
	echo 30 >"$FAKE/version"
	printf '%s\n' "n1 8" "n2 8" "n3 8" "n4" >"$FAKE/nodes"
	printf '%s\n' resource.k8s.io/v1 jobset.x-k8s.io/v1alpha2 kubeflow.org/v2beta1 >"$FAKE/apis"
	echo default >"$FAKE/namespaces"
	: >"$FAKE/pods"
	: >"$FAKE/calls"
}

deploy_sh() {
	run "$K8S/deploy.sh" "$@"
}

called() {
	grep -q -- "$1" "$FAKE/calls" || {
		cat "$FAKE/calls"
		return 1
	}
}

@test "each file with Kubernetes objects follows the schemas" {
	local files
	mapfile -t files < <(grep -lE '^kind: [A-Z]' -r "$K8S" --include=*.yaml | grep -v kustomization.yaml | grep -v /patch)
	((${#files[@]} >= 6))
	"$CHECKS/check.py" --single "${files[@]}"
}

# bats test_tags=nightly
@test "each overlay renders, and the result follows the schemas" {
	local folder
	need_kustomize
	for folder in "$K8S"/overlays/*/ "$K8S"/repair/; do
		[[ -d $folder ]] || continue
		"$REAL_KUBECTL" kustomize "$folder" >rendered.yaml
		case $folder in
		*repair/) "$CHECKS/check.py" --single rendered.yaml ;;
		*) "$CHECKS/check.py" rendered.yaml ;;
		esac
	done
}

# not_restricted WORDS FOLDER: what the level "restricted" of Pod Security would not admit.
not_restricted() {
	"$REAL_KUBECTL" kustomize "$K8S/$2" >rendered.yaml
	run "$CHECKS/check.py" --restricted rendered.yaml
	echo "$2: $output"
	[ "$(sed -n 's/.*: //p' <<<"$output" | sort | tr '\n' ' ')" = "${1:+$1 }" ]
}

@test "Pod Security: tcp and jobset are restricted; others have what RDMA, faults or ssh need, and no more" {
	need_kustomize
	not_restricted "" overlays/tcp
	not_restricted "" overlays/jobset
	not_restricted "IPC_LOCK root" overlays/rdma
	not_restricted "IPC_LOCK root" overlays/dra
	not_restricted "NET_ADMIN hostNetwork hostPath root" overlays/failover
	not_restricted "NET_ADMIN hostNetwork hostPath root" repair
}

# planted SED TEXT: after this change of the rendered base, check.py names the problem.
planted() {
	sed "$1" base.yaml >planted.yaml
	! cmp -s base.yaml planted.yaml
	tells 1 "$2" "$CHECKS/check.py" planted.yaml
}

# bats test_tags=nightly
@test "a wrong field, a missing required field and a wrong type are found" {
	{
		cat "$K8S/base/job.yaml"
		echo ---
		cat "$K8S/base/service.yaml"
		printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n' dualrail-options
		printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n' dualrail-run
	} >base.yaml
	"$CHECKS/check.py" base.yaml
	planted 's/backoffLimit:/backofLimit:/' ".spec.backofLimit: unknown field of V1JobSpec"
	planted 's/subdomain:/subdomian:/' "unknown field of V1PodSpec"
	planted 's/- name: dualrail$/- workingDir: x/' "required field name of V1Container is missing"
	planted 's/topologyKey: .*/namespaces: [a]/' "required field topologyKey of V1PodAffinityTerm is missing"
	planted 's/completions: 2/completions: "2"/' "'2' is not of the type number"
	planted 's/runAsUser: 10001/runAsUser: true/' "True is not of the type number"
	planted 's/medium: Memory/medium: memory/' "'memory' is none of"
	planted 's/memory: 16Gi/memory: 16GB/' "'16GB' is no quantity"
	planted 's,batch/v1,batch/v2,' "is not known here"
	planted 's/secretName: .*/secretName: 7/' "7 is not of the type string"
	planted 's/name: shm$/name: sham/;0,/name: sham/s//name: shm/' "the pod has no volume shm"
	planted 's/dualrail-run$/dualrail-rum/;0,/dualrail-rum/s//dualrail-run/' "ConfigMap dualrail-run is not in this manifest"
	planted 's/activeDeadlineSeconds: .*//' "the job has no activeDeadlineSeconds"
	planted 's/allowPrivilegeEscalation: false/privileged: true/' "privileged"
	planted 's/^    dualrail.job: sweep/    dualrail\/job: swept/' "selects no pod"
}

@test "wrong fields of JobSet, MPIJob and ResourceClaimTemplate are found" {
	local name
	printf 'apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec: {replicatedJobs: [{nam: a, template: {}}], networks: {}}\n' >jobset.yaml
	printf 'apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec: {slotsPerWorker: "8", mpiReplicaSpecs: {Worker: {}}}\n' >mpijob.yaml
	printf 'apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: a}\nspec: {spec: {devices: {requests: [{exactly: {count: 1}}]}}}\n' >claim.yaml
	for name in jobset mpijob claim; do
		run -1 "$CHECKS/check.py" --single "$name.yaml"
		echo "$output" >>found
	done
	cat found
	for name in "replicatedJobs\[0\].nam: unknown" "required field name of ReplicatedJob" "spec.networks: unknown field of JobSetSpec" \
		"slotsPerWorker: '8' is not" "required field Launcher" "required field template of MPIReplicaSpec" \
		"required field deviceClassName of V1ExactDeviceRequest" "required field name of V1DeviceRequest"; do
		grep -q "$name" found
	done
}

@test "deploy.sh: deploy twice, status, another job, cleanup" {
	need_kustomize
	cluster
	deploy_sh deploy --world-size 3 --gpus-per-node 8 --namespace perf --image reg:5000/x/dualrail:v7 --set PATTERN=ring
	[ "$status" -eq 0 ]
	called "^create namespace perf"
	called "^--namespace perf apply -f -"
	# The secret is never an argument.
	grep -q '"stringData": {"key": "[A-Za-z0-9+/]\{40,\}=*"}' "$FAKE/stdin"
	[ "$(grep -c stringData "$FAKE/calls")" -eq 0 ]
	"$CHECKS/check.py" "$FAKE/applied"
	for line in "completions: 3" "parallelism: 3" 'WORLD_SIZE: "3"' 'nvidia.com/gpu: "8"' "PATTERN: ring" "image: reg:5000/x/dualrail:v7" "namespace: perf"; do
		grep -qF "$line" "$FAKE/applied"
	done
	deploy_sh deploy --world-size 3 --gpus-per-node 8 --namespace perf --image reg:5000/x/dualrail:v7 --set PATTERN=ring
	[ "$status" -eq 0 ]
	[[ $output == *"runs already; nothing was changed"* ]]
	[ "$(grep -c 'apply -f -' "$FAKE/calls")" -eq 1 ]
	tells 1 "another job runs" deploy_sh deploy --world-size 2 --namespace perf
	gives 3 deploy_sh status --namespace perf
	sed -i 's/ - / Complete /' "$FAKE/jobs"
	gives 0 deploy_sh status --namespace perf
	gives 0 deploy_sh deploy --world-size 2 --namespace perf
	[[ $output == *"replacing the job, which is complete"* ]]
	called "delete job.batch dualrail --wait=true"
	sed -i 's/ - / Failed /' "$FAKE/jobs"
	gives 1 deploy_sh status --namespace perf
	gives 0 deploy_sh cleanup --namespace perf
	called "delete job,service,configmap,secret -l app.kubernetes.io/name=dualrail"
	tells 1 "there is no job" deploy_sh status
}

@test "deploy.sh: the image has the tag of --image, else that of this version" {
	local image version
	need_kustomize
	cluster
	version=$(<"$DR_ROOT/VERSION")
	for image in dualrail:"$version" reg:5000/x/dualrail:"$version" reg:5000/x/dualrail:v7; do
		"$K8S/deploy.sh" deploy --dry-run --image "${image%":$version"}" | grep -q "image: $image$"
	done
	"$REAL_KUBECTL" kustomize "$K8S/repair" | grep -q "image: dualrail:$version$"
}

@test "deploy.sh: node selector, CPUs and a claim for the results, with each overlay" {
	local overlay
	need_kustomize
	cluster
	for overlay in tcp rdma dra failover jobset mpijob; do
		gives 0 deploy_sh deploy --dry-run --overlay "$overlay" --node-selector example.com/rack=7 --node-selector a=b --cpus 16 --claim keep
		"$CHECKS/check.py" - <<<"$output"
		for line in 'example.com/rack: "7"' "a: b" "claimName: keep"; do
			[ "$(grep -cxE " *$line" <<<"$output")" -eq 1 ]
		done
		[ "$(grep -cx ' *cpu: "16"' <<<"$output")" -eq 2 ]
		[ "$(grep -B2 'claimName: keep' <<<"$output" | grep -c 'name: results')" -eq 1 ]
	done
	refuses 1 "--node-selector rack: KEY=VALUE is needed" deploy_sh deploy --node-selector rack
}

@test "deploy.sh: one pair of requests per GPU in a claim" {
	need_kustomize
	cluster
	gives 0 deploy_sh deploy --dry-run --overlay dra --gpus-per-node 8
	"$CHECKS/check.py" - <<<"$output"
	[ "$(grep -c 'name: nic-7$' <<<"$output")" -eq 1 ]
	[ "$(grep -c 'matchAttribute: resource.kubernetes.io/pcieRoot' <<<"$output")" -eq 8 ]
	[ "$(grep -c 'apply' "$FAKE/calls")" -eq 0 ]
}

@test "deploy.sh says what is missing: kubectl, cluster, kind, rights, GPUs; and what is wrong" {
	need_kustomize
	cluster
	KUBECTL=$PWD/none gives 2 deploy_sh deploy
	[[ $output == *"none is not installed; install kubectl 1.27 or newer"* ]]
	echo 20 >"$FAKE/version"
	tells 2 "is 1.20; 1.27 or newer is needed" deploy_sh deploy
	echo 34 >"$FAKE/version"
	touch "$FAKE/down"
	tells 2 "the cluster does not answer: dial tcp 10.0.0.1:6443" deploy_sh status
	rm "$FAKE/down"
	echo services >"$FAKE/denied"
	tells 2 "you may not create services" deploy_sh deploy
	rm "$FAKE/denied"
	gives 2 deploy_sh deploy --world-size 4 --gpus-per-node 8
	[[ $output == *"4 nodes with 8 GPUs are needed; 3 of 4 nodes"* ]]
	: >"$FAKE/apis"
	tells 2 "does not serve resource.k8s.io/v1" deploy_sh deploy --overlay dra
	[ "$(grep -c 'apply' "$FAKE/calls")" -eq 0 ]
	rm "$FAKE/nodes"
	gives 0 deploy_sh deploy --gpus-per-node 0
	gives 1 deploy_sh deploy --world-size 1
	gives 1 deploy_sh deploy --world-size 2x
	tells 1 "does not exist; there are:" deploy_sh deploy --overlay ../base
	refuses 1 "--set PATERN=ring: there is no such key" deploy_sh deploy --set PATERN=ring
	[ "$(grep -c 'apply' "$FAKE/calls")" -eq 1 ]
	gives 1 deploy_sh deploy --frob
	tells 1 "unknown command frob" deploy_sh frob
}

@test "deploy.sh: logs, results, and cleanup that repairs nodes" {
	need_kustomize
	cluster
	printf '%s\n' "dualrail-0-x n1" "dualrail-1-y n2" >"$FAKE/pods"
	echo '{"schema": "none", "n": 1}' >doc.json
	{
		echo hello
		echo "-----BEGIN DUALRAIL RESULT pair.json-----"
		gzip -c doc.json | base64
		echo "-----END DUALRAIL RESULT-----"
		echo "-----BEGIN DUALRAIL RESULT ../evil-----"
		gzip -c doc.json | base64
		echo "-----END DUALRAIL RESULT-----"
	} >"$FAKE/dualrail-1-y.log"
	echo waiting >"$FAKE/dualrail-0-x.log"
	gives 0 deploy_sh logs
	[[ $output == *"dualrail-0-x: waiting"* && $output == *"dualrail-1-y: hello"* && $output != *BEGIN* ]]
	gives 0 deploy_sh results --output out
	cmp doc.json out/dualrail-1-y-pair.json
	[ "$(find . -name '*evil*' | wc -l)" -eq 0 ]
	echo waiting >"$FAKE/dualrail-1-y.log"
	tells 1 "no pod has printed a result" deploy_sh results --output out
	touch "$FAKE/host"
	gives 0 deploy_sh cleanup --namespace perf
	called "exec dualrail-0-x -c dualrail -- dualrail doctor --repair"
	[[ $output == *"repaired: n1 n2"* ]]
	"$CHECKS/check.py" --single "$FAKE/applied"
	grep -A2 "operator: In" "$FAKE/applied" | grep -q n1
	grep -q "completions: 2" "$FAKE/applied"
	touch "$FAKE/repair-hangs"
	tells 2 "run on these nodes: dualrail doctor --repair" deploy_sh cleanup --namespace perf
	called "delete job,service,configmap,secret -l app.kubernetes.io/name=dualrail"
	[ "$(grep ' delete ' "$FAKE/calls" | grep -vc -- '-l app.kubernetes.io/name=dualrail ')" -eq 0 ]
}

@test "deploy.sh: logs -f shows a line of a pod that still runs" {
	cluster
	printf '%s\n' "dualrail-0-x n1" "dualrail-1-y n2" >"$FAKE/pods"
	mkfifo "$FAKE/dualrail-0-x.log"
	echo ended >"$FAKE/dualrail-1-y.log"
	start logs "$K8S/deploy.sh" logs -f
	exec 8<>"$FAKE/dualrail-0-x.log"
	printf 'a\033b\n' >&8
	wait_for grep -qx 'dualrail-0-x: a?b' logs.out
	wait_for grep -qx 'dualrail-1-y: ended' logs.out
	kill -0 "$pid"
	exec 8>&-
	ends "$pid" 0
	called "^logs dualrail-0-x --all-containers -f"
}

@test "deploy.sh: what a pod prints neither acts on the terminal nor fills the disk" {
	need_kustomize
	cluster
	echo "dualrail-0-x n1" >"$FAKE/pods"
	printf 'a\033]0;title\007b\302\233c\rd\n\351\302\265\n' >"$FAKE/dualrail-0-x.log"
	gives 0 deploy_sh logs
	[ "$output" = $'dualrail-0-x: a?]0;title?b?c?d\ndualrail-0-x: \u00b5' ]
	{
		echo "-----BEGIN DUALRAIL RESULT pair.json-----"
		head -c 2M /dev/zero | gzip -c | base64
		echo "-----END DUALRAIL RESULT-----"
	} >"$FAKE/dualrail-0-x.log"
	export DUALRAIL_UNPACKED_MIB=1
	tells 1 "pair.json has more than 1 MiB unpacked" deploy_sh results --output out
	[ -z "$(ls out)" ]
	# It keeps nobody from the documents of others.
	echo "dualrail-1-y n2" >>"$FAKE/pods"
	printf '%s\n' "-----BEGIN DUALRAIL RESULT s.json-----" "$(gzip -c <<<good | base64)" "-----END DUALRAIL RESULT-----" \
		"-----BEGIN DUALRAIL RESULT t.json-----" "x" "-----END DUALRAIL RESULT-----" >"$FAKE/dualrail-1-y.log"
	tells 1 "t.json is incomplete in the log; it was left out" deploy_sh results --output out
	[ "$(cat out/*)" = good ]
	sed -i 1q "$FAKE/pods"
	DUALRAIL_UNPACKED_MIB=2 gives 0 deploy_sh results --output out
	[ "$(stat -c %s out/dualrail-0-x-pair.json)" -eq 2097152 ]
}

@test "an image has no host keys of ssh: each pod of an MPIJob makes its own" {
	need_kustomize
	cluster
	gives 0 deploy_sh deploy --dry-run --overlay mpijob --gpus-per-node 0
	[[ $output == *"ssh-keygen -A && exec /usr/sbin/sshd"* ]]
	[ "$(grep -v '^#' "$K8S/Containerfile" | grep -c 'ssh-keygen')" -eq 0 ]
	grep -q 'rm -f /etc/ssh/ssh_host_' "$K8S/Containerfile"
}

# start_pods OPTION...: pods 0 and 1 of what deploy.sh makes of them, in namespaces A and B. The command is process 1 of a pod.
start_pods() {
	local index pod=(unshare --pid --fork --kill-child --mount-proc sh)
	need_kustomize
	cluster
	two_rails
	"$K8S/deploy.sh" deploy --dry-run --gpus-per-node 0 "$@" >pods.yaml
	PATH=$(dirname "$DUALRAIL"):$PATH
	for index in 0 1; do
		mkdir "pod$index"
		"$CHECKS/pod.py" pods.yaml "$index" "$PWD/pod$index" 0123456789abcdef0123456789abcdef "10.99.255.1 dualrail-0.dualrail"
	done
	unshare -m sh -c 'mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w && mount -t overlay o -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /etc' 2>/dev/null ||
		skip "no overlay file system can be mounted here"
	start pod0 ip netns exec "$A" "${pod[@]}" "$PWD/pod0/pod.sh"
	server=$pid
	start pod1 ip netns exec "$B" "${pod[@]}" "$PWD/pod1/pod.sh"
}

# pods OPTION...: they end with status 0.
pods() {
	start_pods "$@"
	ends "$pid" 0
	ends "$server" 0
}

@test "the pods' commands: a pair with the environment of an Indexed Job, its document from the log" {
	pods --set MODE=pair --set "DUALRAIL_OPTIONS=-g 0-1 -N 2 -s 1M -D 200ms"
	[ "$(stat -c %u pod1/results/pair.json)" = 10001 ]
	[ ! "$(ls pod1/shm)" ]
	printf '%s\n' "dualrail-0-x n1" "dualrail-1-y n2" >"$FAKE/pods"
	cp pod0.out "$FAKE/dualrail-0-x.log"
	cp pod1.out "$FAKE/dualrail-1-y.log"
	gives 0 deploy_sh results
	holds dualrail-results/dualrail-1-y-pair.json '.status == "pass" and (.argv | index("--key-file")) != null'
	grep -q '^dualrail_last_run_success{.*} 1' dualrail-results/dualrail-1-y-pair.prom
}

@test "the pods' commands: a sweep with the environment of an Indexed Job" {
	pods --set "DUALRAIL_OPTIONS=-g 0 -N 1 -s 32K --window 4 -D 300ms -w 50ms --rate 50M --min-pair 50 --detect conservative"
	printf '%s\n' "dualrail-0-x n1" "dualrail-1-y n2" >"$FAKE/pods"
	cp pod0.out "$FAKE/dualrail-0-x.log"
	cp pod1.out "$FAKE/dualrail-1-y.log"
	gives 0 deploy_sh results
	holds dualrail-results/dualrail-0-x-sweep-0.json '.schema == "dualrail-sweep/1" and .status == "pass" and .findings == [] and (.pairs | length) == 1'
	[[ $(<pod0.out) == *"network exonerated"* ]]
}

@test "the pods' commands: faults with the overlay failover" {
	pods --overlay failover \
		--set "DUALRAIL_OPTIONS=-g 0-1 -N 2 -s 1M -D 2s --test failover --allow-faults --fault link-down:path=0,at=500ms,for=300ms"
	holds pod1/results/pair.json '(.failover.faults | length) == 1 and .integrity.lost == 0 and .integrity.corrupted == 0'
}

@test "the pods' commands: SIGTERM to process 1 of a pod undoes its fault within 2 s, and the pod prints what was measured" {
	start_pods --overlay failover \
		--set "DUALRAIL_OPTIONS=-g 0-1 -N 2 -s 1M -D 11m --test failover --allow-faults --fault link-down:path=0,at=500ms,for=10m"
	wait_for is_down "$B" rail0
	local began took
	began=$(date +%s%N)
	kill -TERM "$(pgrep -P "$pid")"
	wait_for has_lower_up "$B" rail0
	took=$((($(date +%s%N) - began) / 1000000))
	echo "up again after $took ms"
	judge 500 test "$took" -lt 2000
	ends "$pid" 143
	ends "$server" 3
	echo "dualrail-1-y n2" >"$FAKE/pods"
	cp pod1.out "$FAKE/dualrail-1-y.log"
	gives 0 deploy_sh results
	holds dualrail-results/dualrail-1-y-pair.json '.exit_code == 143 and (.failover.faults | length) == 1'
}

# pair: what the two pods of a pair run, with a collector's address.
pair() {
	local of=(env MODE=pair WORLD_SIZE=2 COORDINATOR=10.99.255.1 COORDINATOR_PORT=18570 KEY_FILE="$PWD/key" JAEGER_AGENT_HOST=10.99.255.1
		RESULTS="$PWD" PATH="$(dirname "$DUALRAIL"):$PATH" "DUALRAIL_OPTIONS=-g 0 -N 1 -s 64K -n 20")
	start "$1.0" ip netns exec "$A" "${of[@]}" JOB_COMPLETION_INDEX=0 sh "$K8S/base/run.sh"
	server=$pid
	start "$1.1" ip netns exec "$B" "${of[@]}" JOB_COMPLETION_INDEX=1 sh "$K8S/base/run.sh"
	ends "$pid" 0
	ends "$server" 0
}

@test "run.sh: the trace of a pair goes to JAEGER_AGENT_HOST; no collector there is a warning" {
	command -v curl >/dev/null || skip "curl is not installed"
	two_rails
	(umask 077 && echo 0123456789abcdef0123456789abcdef >key)
	start collector ip netns exec "$A" "$CHECKS/collector.py" 4318
	wait_for test -s collector.out
	pair heard
	cmp collector.body <(tr -d '\n' <pair.trace)
	[[ $(<collector.out) == *"/v1/traces application/json" ]]
	"$BATS_TEST_DIRNAME/../otlp.py" collector.body
	! grep -q 'warning: the trace' heard.1.err || false
	pair alone
	grep -q 'warning: the trace was not sent to 10.99.255.1' alone.1.err
}

@test "MODE=nccl: on the rails of the overlay, once without and once with the plugin, with the status of a rank that failed" {
	need_kustomize
	cluster
	gives 0 deploy_sh deploy --dry-run --overlay rdma --gpus-per-node 2 --set MODE=nccl
	for line in "networks: rdma-rail0,rdma-rail1" "rdma/hca_shared_devices_b:" "MODE: nccl" "run-nccl.sh: " 'NCCL_SOCKET_IFNAME: ""'; do
		grep -qF "$line" <<<"$output"
	done
	# shellcheck disable=SC2016 # of that shell
	printf '#!/bin/sh\necho "$NCCL_COMM_ID $DEVICE ${NCCL_NET:-own} $*"; exit $((DEVICE * 4))\n' >collectives
	chmod +x collectives
	run -4 env JOB_COMPLETION_INDEX= OMPI_COMM_WORLD_RANK=1 MODE=nccl WORLD_SIZE=3 GPUS_PER_NODE=2 COORDINATOR=zero COORDINATOR_PORT=7 \
		NCCL_PART=check COLLECTIVES=./collectives RESULTS="$PWD" sh "$K8S/base/run.sh"
	[ "$(grep ^zero <<<"$output" | sort)" = "$(printf '%s env check\n' "zero:7 0 own 2 6" "zero:7 1 own 3 6" "zero:8 0 HA 2 6" "zero:8 1 HA 3 6")" ]
}

@test "run.sh: no rank, a wrong MODE, three pods for a pair, no GPUs for NCCL" {
	local word
	for word in "JOB_COMPLETION_INDEX= MODE=pair WORLD_SIZE=2" "JOB_COMPLETION_INDEX=0 MODE=frob WORLD_SIZE=2" "JOB_COMPLETION_INDEX=0 MODE=pair WORLD_SIZE=3" \
		"JOB_COMPLETION_INDEX=0 MODE=nccl WORLD_SIZE=2"; do
		# shellcheck disable=SC2086 # words
		run -1 env $word KEY_FILE=/dev/null RESULTS="$PWD" sh "$K8S/base/run.sh"
		one_line
	done
}

@test "a server-side dry run of the manifests" {
	skip "no kube-apiserver is packaged for Debian; the schemas are checked instead"
}
