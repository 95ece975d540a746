#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""keys.py DUALRAIL: what a process that has read a key leaves of it: in its memory, and in a core file when it crashes.

A listening server has one copy of the key, and none of the file's text or bytes. Needs the right to read its memory: exit status 77
without. Exit status 1 if more is left.
"""
import os
import resource
import signal
import sys
import tempfile

import wire


def copies(pid, secrets):
    """How often each of them is in the memory of a process."""
    found = {name: 0 for name in secrets}
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if mode[:2] != "rw":
                continue
            mem.seek(begin)
            try:
                data = mem.read(end - begin)
            except OSError:
                continue  # a device
            for name, secret in secrets.items():
                found[name] += data.count(secret)
    return found


def main():
    dualrail = os.path.realpath(sys.argv[1])
    words, key = wire.new_key(True)
    with open(words[1], "rb") as f:
        text = f.read()
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit[1], limit[1]))
    # The server's working directory, where a core file would be.
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        with wire.server(dualrail, *words) as (p, _):
            try:
                found = copies(p.p.pid, {"key": key, "bytes": bytes.fromhex(text.decode()), "text": text})
            except PermissionError as e:
                print("not judged: %s" % e)
                return 77
            p.p.send_signal(signal.SIGSEGV)
            core = os.waitid(os.P_PID, p.p.pid, os.WEXITED | os.WNOWAIT).si_code == os.CLD_DUMPED
        os.chdir("/")
    print("copies of %s; core %s" % (", ".join("%s %d" % f for f in found.items()), "written" if core else "none"))
    return int(core or found != {"key": 1, "bytes": 0, "text": 0})


if __name__ == "__main__":
    sys.exit(main())
