#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coordinator.py DUALRAIL keyed|unkeyed: a coordinator that orders runs of a member of a sweep with
hosts that are options, files and other words. No file is made, changed or read, and a run with an
address starts all the same. Prints one line; exit status 0 or 1. keyed: the coordinator has the key.
"""
import json
import os
import shutil
import socket
import sys
import tempfile

import wire
from wire import ACCEPT, MESSAGE, OFFER, WELCOME

SECRET = "root:x:0:0"


def hosts(d):
    """Words that are no address; options among them make, replace or read a file below d."""
    for option in ("json", "csv", "prom", "trace", "save-baseline"):
        yield "--%s=%s/made-%s" % (option, d, option)
        yield "--%s=%s/own" % (option, d)
    yield "--config=%s/secret" % d
    yield "--key-file=%s/secret" % d
    yield "--transport=nccl:%s/secret" % d
    yield from ("--", "-h", "--version", "-g0", "--user=nobody", "", " ", "localhost", "127.0.0.1:1")
    yield from ("127.1", "0x7f.1", "1", "[::1]", "::1%no-nic", "fe80::1%--prom=x", "%s%s%n")
    yield from ("127.0.0.1 --prom=%s/made" % d, "$(touch %s/made)" % d, "127.0.0.1\n", "\x1b[31m")
    yield from ("1" * 400, "é::")


def state(d):
    """Names, contents and inodes."""
    found = {}
    for name in sorted(os.listdir(d)):
        path = os.path.join(d, name)
        with open(path, encoding="utf-8") as f:
            found[name] = (f.read(), os.stat(path).st_ino)
    return found


class Member:
    def __init__(self, dualrail, words, key):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(wire.WAIT_S)
        self.program = wire.Program(
            dualrail, "sweep", "--rank", "1", "--nodes", "2", "-g", "0", "--connect-timeout", "50ms",
            "--coordinator", "127.0.0.1:%d" % listener.getsockname()[1],
            "--port", str(wire.ports.hold()), *words)
        self.line = line = wire.Line(listener.accept()[0], True, key)
        listener.close()
        line.greet()
        line.prove()
        line.send(WELCOME, 0, bytes(8))
        if line.until(OFFER)[0] != OFFER:
            raise RuntimeError("no OFFER")
        line.send(ACCEPT, 0, {"sweep": 1})
        self.n = 0

    def run(self, host):
        """Orders a client of this host: its report."""
        self.n += 1
        self.line.send(MESSAGE, self.n, {"op": "run", "id": self.n, "attempt": 1, "client": True,
                                         "host": host, "port": 1, "time_ms": 20000})
        while True:
            kind, text = self.line.until(MESSAGE)
            if not kind:
                raise RuntimeError("the member ended after the order of %r" % host)
            done = json.loads(text)
            if done.get("op") == "done" and done.get("id") == self.n:
                return done


def attack(dualrail, keyed, d):
    words, key = wire.new_key(keyed)
    for name, text in (("own", "mine\n"), ("secret", SECRET + "\n")):
        fd = os.open(os.path.join(d, name), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, text.encode())
        os.close(fd)
    before, wrong, n = state(d), [], 0
    member = Member(dualrail, words, key)
    try:
        for n, host in enumerate(hosts(d), 1):
            done = member.run(host)
            now, text = state(d), done.get("text", "")
            if now != before:
                changed = [name for name in now if now[name] != before.get(name)]
                wrong.append("%r: %s" % (host[:60], ", ".join(changed)))
                before = now
            elif done.get("exit_code") != 2 or "is not an address" not in text or SECRET in text:
                wrong.append("%r: started, %s" % (host[:60], text))
        done = member.run("127.0.0.1")
        if done.get("exit_code") != 3:
            wrong.append("a run with an address: %s" % done)
    finally:
        member.program.end()
    text = "%d orders, %d became words of a command line" % (n, len(wrong))
    return "; ".join([text, *wrong]), bool(wrong)


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("keyed", "unkeyed"):
        print(__doc__.split(":")[0], file=sys.stderr)
        return 2
    d = tempfile.mkdtemp(prefix="orders-", dir=os.environ.get("ATTACK_TMP"))
    try:
        text, bad = attack(sys.argv[1], sys.argv[2] == "keyed", d)
    except (RuntimeError, OSError, wire.Ended) as e:
        for p in wire.Program.all:
            print(p.text(), file=sys.stderr)
        text, bad = str(e) or repr(e), True
    finally:
        shutil.rmtree(d)
    print(text)
    return bad


sys.exit(main())
