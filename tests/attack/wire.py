# SPDX-License-Identifier: Apache-2.0
"""The bootstrap conversation as docs/PROTOCOL.md has it, and the processes that attacks need."""
import hashlib
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

import noise

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.append(os.path.join(ROOT, "tests"))
import ports  # noqa: E402
PROOF, DENY, WELCOME, REFUSE, OFFER, ACCEPT, HANDLES, MESSAGE, READY, GOODBYE, ACK, PING, PONG = range(1, 14)
NUMBERED = (MESSAGE, READY, GOODBYE)
WAIT_S = 60


def version():
    with open(os.path.join(ROOT, "bootstrap", "bootstrap.h"), encoding="utf-8") as f:
        return int(re.search(r"DR_BOOT_PROTOCOL_VERSION = (\d+)", f.read()).group(1))


def frame(kind, seq=0, payload=b""):
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    return struct.pack(">IB3xQ", len(payload), kind, seq) + payload


def hello(purpose=1, build=b"1.0", keyed=False):
    rest = bytes([len(build)]) + build + os.urandom(32) + bytes(16) + struct.pack(">BHQB", purpose, 0, 0, keyed)
    return b"DUALRAIL" + struct.pack(">HH", version(), len(rest)) + rest


class Ended(Exception):
    """The other end has closed the connection."""


class Line:
    """One end of a conversation; key: 32 bytes, None without one."""

    def __init__(self, s, server=False, key=None):
        self.s, self.server, self.key = s, server, key
        self.got = b""
        self.ciphers = None
        s.settimeout(WAIT_S)

    def send_raw(self, data):
        try:
            self.s.sendall(data)
        except OSError:
            pass  # what the other end does is read, not written

    def send(self, kind, seq=0, payload=b""):
        data = frame(kind, seq, payload)
        if self.ciphers:
            out = self.ciphers[0]
            data = out.seal(data[:16]) + (out.seal(data[16:]) if data[16:] else b"")
        self.send_raw(data)

    def take(self, n):
        while len(self.got) < n:
            try:
                data = self.s.recv(65536)
            except OSError as e:
                raise Ended from e
            if not data:
                raise Ended
            self.got += data
        data, self.got = self.got[:n], self.got[n:]
        return data

    def read(self):
        seal = 16 if self.ciphers else 0
        header = self.take(16 + seal)
        if self.ciphers:
            header = self.ciphers[1].open(header)
        size, kind, seq = struct.unpack(">IB3xQ", header)
        payload = self.take(size + seal) if size else b""
        if self.ciphers and size:
            payload = self.ciphers[1].open(payload)
        return kind, seq, payload

    def greet(self):
        """Hellos both ways."""
        own = hello(0 if self.server else 1, keyed=self.key is not None)
        self.send_raw(own)
        start = self.take(12)
        other = start + self.take(struct.unpack(">H", start[10:])[0])
        self.prologue = other + own if self.server else own + other

    def prove(self):
        shake = noise.Handshake(self.server, self.key or bytes(32), self.prologue)
        if self.server:
            self.send(PROOF, 0, shake.write())
        kind, _, message = self.read()
        if kind != PROOF:
            raise Ended
        shake.read(message)
        if not self.server:
            self.send(PROOF, 0, shake.write())
        self.ciphers = shake.split()

    def until(self, *kinds):
        """The first message of one of these types, and its payload; None, None when the end comes first."""
        try:
            while True:
                kind, _, payload = self.read()
                if kind in kinds:
                    return kind, payload
        except Ended:
            return None, None

    def closed(self, limit_s=WAIT_S):
        """The other end closes the connection in time."""
        end = time.monotonic() + limit_s
        while True:
            self.s.settimeout(max(end - time.monotonic(), 0.001))
            try:
                data = self.s.recv(65536)
                if not data:
                    return True
                self.got += data
            except socket.timeout:
                return False
            except OSError:
                return True

    def close(self):
        self.s.close()

    def end(self):
        """As close, while another thread reads."""
        try:
            self.s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster


def dial(port, host="127.0.0.1", key=None):
    return Line(socket.create_connection((host, port), timeout=WAIT_S), key=key)


def unproven(kind, payload):
    """Offer and answer without the ports of the proof: an end that names none is not tested."""
    if kind not in (OFFER, ACCEPT):
        return payload
    return re.sub(rb'"mtu_port":\d+', b'"mtu_port":0', payload)


class Middle:
    """A man in the middle who ends the conversations of either side himself, with the key that he
    believes in, and passes on every message. said[0]: of the client.

    A client comes twice: to prove its rails, then to run. The proof needs one token at both ends,
    but the token comes from the handshake, and he has one with each. So he prevents the proof."""

    def __init__(self, port, host="127.0.0.1", key=None):
        self.to, self.key = (host, port), key
        self.said = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.port = self.listener.getsockname()[1]
        self.enough = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            while True:
                self.converse(self.listener.accept()[0])
        except OSError:
            self.enough.set()

    def converse(self, client):
        lines = [Line(client, True, self.key),
                 Line(socket.create_connection(self.to), False, self.key)]
        back = threading.Thread(target=self.pass_on, args=(1, lines), daemon=True)
        try:
            for line in lines:
                line.greet()
                line.prove()
            back.start()
            self.pass_on(0, lines)
            back.join()
        except (Ended, noise.Refused):
            pass
        for line in lines:
            line.close()

    def pass_on(self, i, lines):
        try:
            while True:
                kind, seq, payload = lines[i].read()
                self.said[i].append((kind, seq, payload))
                lines[1 - i].send(kind, seq, unproven(kind, payload))
                if all(any(k == HANDLES for k, _, _ in said) for said in self.said):
                    self.enough.set()
        except (Ended, noise.Refused):
            lines[1 - i].end()


class Proxy:
    """One connection through this process. change(direction, offset, data) gives what is passed on, None to close;
    direction 0 is to the server."""

    def __init__(self, port, change=None, host="127.0.0.1"):
        self.to = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.port = self.listener.getsockname()[1]
        self.change = change or (lambda direction, offset, data: data)
        self.seen = [b"", b""]
        self.more = 0  # connections behind the first one
        self.done = False

    def serve(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def run(self):
        try:
            client = self.listener.accept()[0]
        except OSError:
            return
        # A connection that is made again for control that was lost is passed on unchanged.
        server = socket.create_connection(self.to)
        ends = [client, server]
        while ends:
            for s in select.select(ends + [self.listener], [], [], 0.2)[0]:
                if s is self.listener:
                    self.another()
                    continue
                direction = 0 if s is client else 1
                try:
                    data = s.recv(65536)
                except OSError:
                    data = b""
                out = self.change(direction, len(self.seen[direction]), data) if data else None
                self.seen[direction] += data
                to = server if s is client else client
                try:
                    if out is None:
                        raise OSError
                    to.sendall(out)
                except OSError:
                    for x in ends:
                        x.close()
                    ends = []
                    break
            if self.done:
                break
        while not self.done:
            self.another()
        for s in ends:
            s.close()

    def another(self):
        self.listener.settimeout(0.1)
        try:
            c = self.listener.accept()[0]
            self.more += 1
            s = socket.create_connection(self.to)
        except OSError:
            return
        for a, b in ((c, s), (s, c)):
            threading.Thread(target=copy, args=(a, b), daemon=True).start()

    def stop(self):
        self.done = True
        self.thread.join()
        self.listener.close()


def copy(a, b):
    try:
        while True:
            data = a.recv(65536)
            if not data:
                break
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Program:
    """A dualrail in the background, its output in files of a directory."""
    all = []

    def __init__(self, dualrail, *words, prefix=()):
        self.dir = tempfile.mkdtemp(prefix="attack-", dir=os.environ.get("ATTACK_TMP"))
        self.err = os.path.join(self.dir, "err")
        self.out = os.path.join(self.dir, "out")
        with open(self.err, "wb") as err, open(self.out, "wb") as out:
            self.p = subprocess.Popen([*prefix, dualrail, *words], stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        Program.all.append(self)

    def text(self):
        with open(self.err, encoding="utf-8", errors="replace") as f:
            return f.read()

    def says(self, word):
        return wait(lambda: word in self.text() or self.p.poll() is not None) and word in self.text()

    def end(self, signal=15):
        if self.p.poll() is None:
            self.p.send_signal(signal)
        return self.p.wait()


def wait(condition, limit_s=WAIT_S):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def server(dualrail, *words, **more):
    """A server that listens until the block ends, and its port."""
    port = ports.hold()
    p = Program(dualrail, "server", "-g", "0", "--port", str(port), *words, **more)
    if not p.says("listening"):
        raise RuntimeError("the server does not start: " + p.text())
    try:
        yield p, port
    finally:
        p.end()


SMALL = ("-g", "0", "-N", "2", "-s", "64K", "-D", "50ms", "-w", "0")


def client(dualrail, port, *words, host="127.0.0.1", prefix=(), limit_s=WAIT_S):
    """Status, and what it says; None when it does not end in time: then it is asked to, and killed 5 s later."""
    # Files: the end of a pipe is not the end of the program.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.Popen([*prefix, dualrail, "client", host, "--port", str(port), *SMALL, *words], stdout=out, stderr=err)
        status = ended(p, limit_s)
        if status is None:
            p.terminate()
            if ended(p, 5) is None:
                p.kill()
                p.wait()
        text = b""
        for f in (out, err):
            f.seek(0)
            text += f.read()
    return status, text.decode(errors="replace")


def ended(p, limit_s):
    try:
        return p.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None


def new_key(keyed):
    """Options that name a new key, and the 32 bytes that it stands for; not keyed: none of both."""
    if not keyed:
        return (), None
    raw = os.urandom(32)
    path = os.path.join(os.environ.get("ATTACK_TMP", "/tmp"), "key.%d" % os.getpid())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
        f.write(raw.hex())
    return ("--key-file", path), hashlib.blake2b(raw, digest_size=32).digest()


def recorded(dualrail, port, *words, host="127.0.0.1", key=None):
    """OFFER and HANDLES of a client, which is killed then."""
    middle = Middle(port, host, key)
    p = Program(dualrail, "client", "127.0.0.1", "--port", str(middle.port), *SMALL, *words)
    wait(lambda: middle.enough.is_set() or p.p.poll() is not None)
    p.end(9)
    said = {kind: payload for kind, _, payload in middle.said[0]}
    if HANDLES not in said:
        raise RuntimeError("no handles: " + p.text())
    return said
