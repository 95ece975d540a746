#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results.py rows|documents DUALRAIL [keyed]: results that are made to exhaust who reads them. Prints one line; exit status 0, or 1.

rows       a server whose results have rows without bound, for a run of one GPU: its client ends at its own deadline
documents  documents for `compare`, `report` and `sweep --resume` of many values, rows and environments: read or refused soon
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import noise
import wire
from wire import ACK, GOODBYE, MESSAGE, READY

LIMIT_S, LIMIT_MB, DOCUMENT_MB, MESSAGES = 15, 120, 1000, 4
PART = {"schema": "dualrail-part/1", "host": {}, "integrity": {}}
ROWS = {"latency": lambda i: {"gpu": i, "bytes": i}, "bandwidth": lambda i: {"phase": i}, "switches": lambda i: {}, "events": lambda i: {},
        "intervals": lambda i: {}, "errors": lambda i: {"text": ""}, "channels": lambda i: {"gpu": i}, "phases": lambda i: {"phase": i}}


def full(name, first=0):
    """A message of at most 1 MiB with as many rows of that list as fit."""
    rows, size = [], 1 << 10
    while size < 1000000:
        # Padded: a text of more values than its size allows is refused.
        row = json.dumps({**ROWS[name](first + len(rows)), "": "." * 12}, separators=(",", ":"))
        rows.append(row)
        size += len(row) + 1
    part = json.dumps({"t": "part", "token": 0, "part": PART})
    return (part[:-2] + ',"%s":[%s]}}' % (name, ",".join(rows))).encode()


class Fast(noise.Cipher):
    """The same by libsodium: the pure one takes seconds for a MiB."""
    lib = ctypes.CDLL("libsodium.so.23")

    def seal(self, data, ad=b""):
        out = ctypes.create_string_buffer(len(data) + 16)
        self.lib.crypto_aead_chacha20poly1305_ietf_encrypt(out, None, data, ctypes.c_ulonglong(len(data)), ad, ctypes.c_ulonglong(len(ad)),
                                                           None, self.nonce(), self.key)
        return out.raw


class Liar(wire.Middle):
    """The server's messages are replaced by these, which come when the client is ready."""

    def __init__(self, port, messages, key):
        self.messages, self.sent, self.lock = messages, 0, threading.Lock()
        super().__init__(port, key=key)

    def pass_on(self, i, lines):
        try:
            while True:
                kind, seq, payload = lines[i].read()
                # What is numbered here is not what the server has sent.
                if kind == ACK and i == 0 or kind in (MESSAGE, GOODBYE) and i == 1:
                    continue
                with self.lock:
                    lines[1 - i].send(kind, seq, wire.unproven(kind, payload))
                if kind == READY and i == 0:
                    with self.lock:
                        slow, fast = lines[0].ciphers[0], Fast(lines[0].ciphers[0].key)
                        fast.n, lines[0].ciphers = slow.n, (fast, lines[0].ciphers[1])
                    threading.Thread(target=self.flood, args=(lines[0],), daemon=True).start()
        except (wire.Ended, noise.Refused):
            lines[1 - i].end()

    def flood(self, line):
        for i, message in enumerate(self.messages):
            with self.lock:
                line.send(MESSAGE, i + 1, message)
            self.sent += 1


def measured(words, limit_s=90):
    """Status (None: not in time), CPU seconds and MB at most of a program, and what it says."""
    end = time.monotonic() + limit_s
    with tempfile.TemporaryFile() as said:
        p = subprocess.Popen(words, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        pid = 0
        while not pid and time.monotonic() < end:
            time.sleep(0.02)
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
        if not pid:
            p.kill()
            _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return p.returncode if pid else None, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10, said.read().decode(errors="replace")


class Worst:
    """The most of several programs, and which of them were above the limits."""

    def __init__(self, limit_mb):
        self.limit_mb, self.n, self.s, self.mb, self.bad = limit_mb, 0, 0, 0, []

    def add(self, name, result, statuses):
        status, seconds, mb, said = result
        self.n, self.s, self.mb = self.n + 1, max(self.s, seconds), max(self.mb, mb)
        line = "%s: status %s, %.1f s of CPU, %d MB" % (name, status, seconds, mb)
        print("%s: %s" % (line, re.sub(r"\s+", " ", said[-200:])), flush=True)
        if status not in statuses or seconds > LIMIT_S or mb > self.limit_mb:
            self.bad.append(line)

    def told(self, what):
        if self.bad:
            raise RuntimeError("; ".join(self.bad))
        return "%d %s: %.1f s of CPU, %d MB at most" % (self.n, what, self.s, self.mb)


def rows(dualrail, keyed):
    words, key = wire.new_key(keyed)
    worst = Worst(LIMIT_MB)
    with wire.server(dualrail, "--verbose=0", *words) as (_, port):
        for name in ROWS:
            messages = [full(name, i << 16) for i in range(MESSAGES)]
            liar = Liar(port, messages, key)
            result = measured([dualrail, "client", "127.0.0.1", "--port", str(liar.port), *wire.SMALL, *words,
                               "--connect-timeout", "5s", "--timeout", "3s"])
            worst.add("%s, %d messages" % (name, liar.sent), result, (2, 3))
            if not liar.sent:
                raise RuntimeError("the client ended before rows came")
    return worst.told("lists of rows")


def cell(n, make):
    return "[" + ",".join(json.dumps(make(i), separators=(",", ":")) for i in range(n)) + "]"


def lists():
    """Members of a document of a run, as text."""
    rails = cell(16, lambda i: {"rail": i, "ifname": "eth%d" % i})
    yield "values", '"x":[%s]' % ",".join(["{}"] * (20 << 20))
    yield "rows", '"latency":' + cell(1 << 20, lambda i: {"gpu": i, "bytes": i})
    yield "rows of runs", '"bandwidth":%s,"topology":{"rails":%s,"gpus":%s}' % (
        cell(8192, lambda i: {"phase": i >> 5, "gpu": i & 31, "direction": "to-server", "message_bytes": 8, "gbps": 1}), rails,
        cell(2048, lambda i: {"gpu": 0, "primary_rail": i & 15, "shadow_rail": i >> 4}))
    yield "one phase", '"bandwidth":%s,"topology":{"rails":%s,"gpus":%s}' % (
        cell(8192, lambda i: {"phase": 0, "gpu": i, "direction": "to-server", "message_bytes": i, "gbps": 1}), rails,
        cell(2048, lambda i: {"gpu": i, "primary_rail": i & 15}))
    yield "faults", '"failover":{"faults":%s}' % cell(1 << 18, lambda i: {"kind": "k%d" % i, "verdict": "PASS", "gap_us": 1})
    yield "environments", '"environment":{"nics":%s}' % cell(1 << 17, lambda i: {"side": "client", "nic": "eth0", "mtu_bytes": i & 1})


def cases(dualrail, folder):
    """Name, and words of a program that reads such documents."""
    sweep, page, old, new = (folder + "/" + name for name in ("sweep", "page.html", "old", "new"))
    with open(sweep, "w", encoding="ascii") as f:
        f.write('{"schema":"dualrail-sweep/1","status":"pass","pairs":[%s]}' % ",".join(["{}"] * (20 << 20)))
    yield "values", (dualrail, "report", sweep, "-o", page)
    yield "values", (dualrail, "sweep", "--rank", "0", "--nodes", "2", "--coordinator", "127.0.0.1", "--resume", sweep)
    for name, text in lists():
        for path in (old, new):
            with open(path, "w", encoding="ascii") as f:
                f.write('{"schema":"dualrail/1","run_id":"%s","status":"pass","side":"client",%s}' % (path, text))
        yield name, (dualrail, "compare", old, "--", new)
        yield name, (dualrail, "report", old, "-o", page)


def documents(dualrail, _):
    worst = Worst(DOCUMENT_MB)
    with tempfile.TemporaryDirectory() as folder:
        for name, words in cases(dualrail, folder):
            worst.add("%s, %s" % (name, words[1]), measured(words), (0, 2, 7))
    return worst.told("documents")


def main():
    attacks = {"rows": rows, "documents": documents}
    try:
        print(attacks[sys.argv[1]](sys.argv[2], sys.argv[3:]))
        return 0
    except (RuntimeError, OSError, wire.Ended) as e:
        print(e)
        return 1


if __name__ == "__main__":
    sys.exit(main())
