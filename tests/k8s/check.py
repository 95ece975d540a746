#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks rendered Kubernetes manifests without a cluster.

usage: check.py [--single | --restricted] FILE...      "-": standard input; documents separated by ---; --single: each document alone

Each document: its kind is known, each field exists, has its type, and no required field is missing (models.json is
generated from Kubernetes 1.36, crds.json has JobSet and MPIJob), and the values of the fields in VALUES are known.
The documents of a file together: each volume, ConfigMap key, claim and Service that a pod names exists, a Service
selects pods, no container is privileged, and each Job ends and is removed by itself.
--restricted: instead, what Pod Security's level "restricted" would not admit, and a root file system that can be written.
Prints each violation as FILE: KIND/NAME: PATH: text; exit status 1 if there was one.
"""
import json
import os
import re
import sys

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {
    ("batch/v1", "Job"): "V1Job", ("v1", "Service"): "V1Service", ("v1", "ConfigMap"): "V1ConfigMap", ("v1", "Secret"): "V1Secret",
    ("v1", "PersistentVolumeClaim"): "V1PersistentVolumeClaim", ("v1", "ServiceAccount"): "V1ServiceAccount",
    ("v1", "Namespace"): "V1Namespace", ("resource.k8s.io/v1", "ResourceClaimTemplate"): "V1ResourceClaimTemplate",
    ("resource.k8s.io/v1", "DeviceClass"): "V1DeviceClass", ("jobset.x-k8s.io/v1alpha2", "JobSet"): "JobSet",
    ("kubeflow.org/v2beta1", "MPIJob"): "MPIJob",
}
VALUES = {
    "V1JobSpec.completionMode": ["Indexed", "NonIndexed"], "V1PodSpec.restartPolicy": ["Never", "OnFailure", "Always"],
    "V1PodSpec.dnsPolicy": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    "V1Container.restartPolicy": ["Always", "OnFailure", "Never"], "V1Container.imagePullPolicy": ["Always", "IfNotPresent", "Never"],
    "V1EmptyDirVolumeSource.medium": ["", "Memory"], "V1Toleration.operator": ["Exists", "Equal"],
    "V1Toleration.effect": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
    "V1HostPathVolumeSource.type": ["", "Directory", "DirectoryOrCreate", "File", "Socket"],
    "V1ExactDeviceRequest.allocationMode": ["ExactCount", "All"], "JobSetDependsOn.status": ["Ready", "Complete"],
    "JobSetSuccessPolicy.operator": ["All", "Any"], "MPIJobSpec.launcherCreationPolicy": ["AtStartup", "WaitForWorkersReady"],
    "MPIJobSpec.mpiImplementation": ["OpenMPI", "Intel", "MPICH"], "MPIRunPolicy.cleanPodPolicy": ["All", "Running", "None"],
}
QUANTITY = re.compile(r"^[+-]?[0-9.]+([eE][0-9]+|[numkMGTPE]|[KMGTPE]i)?$")
NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


def models():
    table = {}
    for name in ("models.json", "crds.json"):
        with open(os.path.join(HERE, name), encoding="utf-8") as f:
            table.update({k: v for k, v in json.load(f).items() if k != "//"})
    return table


class Checker:
    def __init__(self):
        self.models = models()
        self.found = []

    def say(self, path, text):
        self.found.append((path, text))

    def scalar(self, value, kind, path):
        good = {
            "string": isinstance(value, str), "Date": isinstance(value, str), "any": True,
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
            "boolean": isinstance(value, bool), "object": isinstance(value, dict),
            "IntOrString": isinstance(value, (int, str)) and not isinstance(value, bool),
        }.get(kind)
        if good is None:
            self.say(path, f"type {kind} is not in models.json")
        elif not good:
            self.say(path, f"{value!r} is not of the type {kind}")

    def value(self, value, kind, path):
        if kind[0] in "[{":
            list_of = kind[0] == "["
            if not isinstance(value, list if list_of else dict):
                self.say(path, f"{value!r} is no {'list' if list_of else 'map'}")
                return
            for key, one in enumerate(value) if list_of else value.items():
                self.value(one, kind[1:-1], f"{path}[{key}]" if list_of else f"{path}.{key}")
        elif kind in self.models:
            self.object(value, kind, path)
        else:
            self.scalar(value, kind, path)

    def object(self, value, model, path):
        if not isinstance(value, dict):
            self.say(path, f"{value!r} is no object ({model})")
            return
        fields = self.models[model]
        for key, one in value.items():
            if key not in fields:
                self.say(f"{path}.{key}", f"unknown field of {model}")
            elif one is None:
                self.say(f"{path}.{key}", "has no value")
            else:
                self.value(one, fields[key].rstrip("!"), f"{path}.{key}")
                known = VALUES.get(f"{model}.{key}")
                if known and one not in known:
                    self.say(f"{path}.{key}", f"{one!r} is none of {', '.join(known)}")
        for key, kind in fields.items():
            if kind.endswith("!") and key not in value:
                self.say(path, f"required field {key} of {model} is missing")
        if model == "V1ResourceRequirements":
            self.quantities(value, path)

    def quantities(self, resources, path):
        for part in ("limits", "requests"):
            for key, amount in (resources.get(part) or {}).items():
                if not QUANTITY.match(str(amount)):
                    self.say(f"{path}.{part}.{key}", f"{amount!r} is no quantity")

    def document(self, doc):
        if not isinstance(doc, dict) or not doc.get("kind") or not doc.get("apiVersion"):
            self.say("", "no kind or no apiVersion")
            return
        model = KINDS.get((doc["apiVersion"], doc["kind"]))
        if not model:
            self.say("", f"kind {doc['kind']} of {doc['apiVersion']} is not known here")
            return
        self.object(doc, model, "")
        if not NAME.match(str((doc.get("metadata") or {}).get("name", ""))):
            self.say(".metadata.name", "no name of the form a-z, 0-9, - and .")


def templates(doc):
    """Of the document (path, Job's spec or None, pod's template)."""
    spec = doc.get("spec") or {}
    if doc["kind"] == "Job":
        yield ".spec.template", spec, spec.get("template") or {}
    elif doc["kind"] == "JobSet":
        for number, job in enumerate(spec.get("replicatedJobs") or []):
            inner = (job.get("template") or {}).get("spec") or {}
            # The JobSet removes the Jobs.
            whole = dict(inner, ttlSecondsAfterFinished=spec.get("ttlSecondsAfterFinished"))
            yield f".spec.replicatedJobs[{number}].template.spec.template", whole, inner.get("template") or {}
    elif doc["kind"] == "MPIJob":
        for role, part in (spec.get("mpiReplicaSpecs") or {}).items():
            yield f".spec.mpiReplicaSpecs.{role}.template", spec.get("runPolicy") or {}, part.get("template") or {}


def named(docs, kind):
    return {d["metadata"]["name"]: d for d in docs if d["kind"] == kind}


def keys_of_pod(checker, docs, pod, path):
    volumes = {v.get("name"): v for v in pod.get("volumes") or []}
    maps, claims = named(docs, "ConfigMap"), {c.get("name"): c for c in pod.get("resourceClaims") or []}
    for name, volume in volumes.items():
        source = (volume.get("configMap") or {}).get("name")
        if source and source not in maps:
            checker.say(f"{path}.volumes.{name}", f"ConfigMap {source} is not in this manifest")
    for name, claim in claims.items():
        if claim.get("resourceClaimTemplateName") not in named(docs, "ResourceClaimTemplate"):
            checker.say(f"{path}.resourceClaims.{name}", "its ResourceClaimTemplate is not in this manifest")
    for container in (pod.get("initContainers") or []) + (pod.get("containers") or []):
        where = f"{path}.{container.get('name')}"
        for mount in container.get("volumeMounts") or []:
            if mount.get("name") not in volumes:
                checker.say(f"{where}.volumeMounts", f"the pod has no volume {mount.get('name')}")
        for source in container.get("envFrom") or []:
            name = (source.get("configMapRef") or {}).get("name")
            if name and name not in maps:
                checker.say(f"{where}.envFrom", f"ConfigMap {name} is not in this manifest")
        for env in container.get("env") or []:
            ref = (env.get("valueFrom") or {}).get("configMapKeyRef")
            if ref and ref.get("key") not in (maps.get(ref.get("name"), {}).get("data") or {}):
                checker.say(f"{where}.env.{env.get('name')}", f"ConfigMap {ref.get('name')} has no key {ref.get('key')}")
        for claim in (container.get("resources") or {}).get("claims") or []:
            if claim.get("name") not in claims:
                checker.say(f"{where}.resources.claims", f"the pod has no claim {claim.get('name')}")
        if (container.get("securityContext") or {}).get("privileged"):
            checker.say(f"{where}.securityContext", "privileged; add the capabilities that are needed instead")


def together(checker, docs):
    labels = []
    for doc in docs:
        for path, job, template in templates(doc):
            where = f"{doc['kind']}/{doc['metadata']['name']}: {path}"
            pod = template.get("spec") or {}
            labels.append((template.get("metadata") or {}).get("labels") or {})
            keys_of_pod(checker, docs, pod, where)
            for limit in ("activeDeadlineSeconds", "ttlSecondsAfterFinished"):
                if not job.get(limit):
                    checker.say(where, f"the job has no {limit}")
            if doc["kind"] == "Job" and pod.get("subdomain") not in named(docs, "Service"):
                checker.say(where, f"subdomain {pod.get('subdomain')} is no Service of this manifest")
    for name, service in named(docs, "Service").items():
        wanted = service["spec"].get("selector") or {}
        if not any(wanted.items() <= one.items() for one in labels):
            checker.say(f"Service/{name}: .spec.selector", f"selects no pod: {wanted}")


def restricted(checker, docs):
    for doc in docs:
        for path, _, template in templates(doc):
            pod = template.get("spec") or {}
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                if pod.get(key):
                    checker.say(path, key)
            for volume in pod.get("volumes") or []:
                if "hostPath" in volume:
                    checker.say(path, "hostPath")
            for container in (pod.get("initContainers") or []) + (pod.get("containers") or []):
                secure = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
                capabilities = secure.get("capabilities") or {}
                for text, bad in (
                        ("privileges may be gained", secure.get("allowPrivilegeEscalation") is not False),
                        ("privileged", secure.get("privileged")),
                        ("root", not secure.get("runAsNonRoot") or secure.get("runAsUser") == 0),
                        ("seccomp", (secure.get("seccompProfile") or {}).get("type") != "RuntimeDefault"),
                        ("writable root", not secure.get("readOnlyRootFilesystem")),
                        ("capabilities are kept", capabilities.get("drop") != ["ALL"])):
                    if bad:
                        checker.say(path, text)
                for name in capabilities.get("add") or []:
                    checker.say(path, name)


def check(path, single, rule):
    with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as f:
        docs = [d for d in yaml.safe_load_all(f) if d is not None]
    lines = [] if docs else ["no document"]
    for doc in docs:
        checker = Checker()
        checker.document(doc)
        name = f"{doc.get('kind')}/{(doc.get('metadata') or {}).get('name')}" if isinstance(doc, dict) else "?"
        lines += [f"{name}: {where or '.'}: {text}" for where, text in checker.found]
    if not lines and not single:
        checker = Checker()
        rule(checker, docs)
        lines = [f"{where}: {text}" for where, text in checker.found]
    for line in lines:
        print(f"{path}: {line}")
    return len(lines)


if __name__ == "__main__":
    option = sys.argv[1] if sys.argv[1].startswith("--") else None
    judged = restricted if option == "--restricted" else together
    sys.exit(1 if sum(check(path, option == "--single", judged) for path in sys.argv[1 + bool(option):]) else 0)
