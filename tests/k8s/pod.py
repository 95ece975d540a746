#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares a pod of a rendered manifest to run on this machine, with the files and the environment that Kubernetes sets.

usage: pod.py MANIFEST INDEX FOLDER KEY HOSTS...     HOSTS: lines of /etc/hosts, in place of the headless Service

Writes FOLDER/pod.sh, to be run as root in the pod's network namespace: in a mount namespace of its own it mounts the
volumes and runs the container's command, as the user, with the capabilities and on the read-only root of its security
context. Volumes are laid as kubelet does: files are links into ..data, a Secret's have its defaultMode, and fsGroup may
read them; emptyDir and hostPath are FOLDER/NAME. KEY is the content of each key of a Secret.
"""
import os
import shlex
import sys

import yaml


def pod_template(doc):
    if doc["kind"] == "Job":
        return doc["spec"]["template"]
    return doc["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def lay(folder, files, mode, group):
    data = os.path.join(folder, "..data")
    os.makedirs(data)
    for name, text in files.items():
        path = os.path.join(data, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chown(path, 0, group)
        os.chmod(path, mode | (mode >> 3 & 0o050 if group else 0))
        os.symlink(os.path.join("..data", name), os.path.join(folder, name))


def main():
    manifest, index, folder, key = sys.argv[1:5]
    with open(manifest, encoding="utf-8") as f:
        docs = list(yaml.safe_load_all(f))
    maps = {d["metadata"]["name"]: d["data"] for d in docs if d["kind"] == "ConfigMap"}
    pod = pod_template(next(d for d in docs if d["kind"] in ("Job", "JobSet")))["spec"]
    container = pod["containers"][0]
    secure = {**pod.get("securityContext", {}), **container["securityContext"]}
    user, group = secure.get("runAsUser", 0), secure.get("fsGroup", 0)
    for volume in pod["volumes"]:
        where = os.path.join(folder, volume["name"])
        if "configMap" in volume:
            lay(where, maps[volume["configMap"]["name"]], 0o644, group)
        elif "secret" in volume:
            lay(where, {"key": key + "\n"}, volume["secret"]["defaultMode"], group)
        else:
            os.makedirs(where)
            if "emptyDir" in volume:
                os.chmod(where, 0o777)
    env = {}
    for source in container.get("envFrom", []):
        env.update(maps[source["configMapRef"]["name"]])
    env.update({e["name"]: e["value"] for e in container.get("env", []) if "value" in e})
    env["JOB_COMPLETION_INDEX"] = index
    with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as f:
        f.write("\n".join(["127.0.0.1 localhost"] + sys.argv[5:]) + "\n")
    script = ["set -e", f"cd {shlex.quote(folder)}", "mkdir over", "mount -t tmpfs tmpfs over"]
    for name, path in (("etc", "/etc"), ("lib", "/var/lib")):
        script += [f"mkdir over/u{name} over/w{name}",
                   f"mount -t overlay overlay -o lowerdir={path},upperdir=$PWD/over/u{name},workdir=$PWD/over/w{name} {path}"]
    # What is mounted there already, by `ip netns exec` for instance, is not wanted.
    script += ["rm -f /etc/hosts", "cp hosts /etc/hosts"]
    for mount in container["volumeMounts"]:
        script += [f"mkdir -p {mount['mountPath']}", f"mount --bind {mount['name']} {mount['mountPath']}"]
    if secure.get("readOnlyRootFilesystem"):
        script += ["for at in / /etc /var/lib; do mount -o remount,bind,ro $at; done"]
    rights = ",".join(["-all"] + ["+" + c.lower() for c in secure["capabilities"].get("add", [])])
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}", f"--bounding-set={rights}", "--inh-caps=-all",
             "--no-new-privs", "env"]
    words += [f"{k}={v}" for k, v in env.items()] + container["command"] + container.get("args", [])
    script.append("cd / && exec " + " ".join(shlex.quote(w) for w in words))
    with open(os.path.join(folder, "pod.sh"), "w", encoding="utf-8") as f:
        f.write("\n".join(script) + "\n")


main()
