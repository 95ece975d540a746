#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stranger.py ATTACK DUALRAIL [NETNS|keyed]: a peer that keeps to no rule, without a key but where keyed is given. Prints one
line, after what the programs said when it failed; exit status 0, 1, or 77: not judged, since the machine stood.

wrong     each type of message, known or not, at each moment of a conversation: what a client never sends ends the
          connection, and the server serves the next client
stops     a client that is silent (keyed: stops in the middle of a message) at each moment before a run begins, while another
          one comes: that one is served within 2 s and its own time
middle    a man in the middle who ends the conversation of either side himself. keyed: with another key
faults    a peer without a key requests faults, exec in particular: in the offer, and in a session that has none
steady    3,000 connections a second with garbage: a hello is answered within 4 s, two requests that the kernel drops
reflect   handles, offers and NICs that name a third host: no datagram leaves to it. In a network namespace; the server
          is in NETNS
silent    a session without any connection or datagram of its client: the server sends no more heartbeats than it got.
          As reflect
"""
import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import wire
from wire import ACCEPT, ACK, GOODBYE, HANDLES, MESSAGE, OFFER, PING, READY, REFUSE, WELCOME

NEVER = [0, wire.PROOF, wire.DENY, WELCOME, REFUSE, ACCEPT, 14, 99, 255]
OFTEN = [OFFER, HANDLES, MESSAGE, READY, GOODBYE, ACK, PING, wire.PONG]
PAYLOAD = {wire.PROOF: bytes(48), wire.DENY: bytes(16), WELCOME: bytes(8), REFUSE: b'{"cause":9,"code":3,"text":"x"}', OFFER: b"{}", ACCEPT: b"{}",
           HANDLES: bytes(4), MESSAGE: b'{"t":"stop"}', ACK: bytes(8), PING: bytes(8), wire.PONG: bytes(24)}
CONTROL = "10.99.255.2"
THIRD = "10.99.0.77"


class Failed(Exception):
    pass


class NotJudged(Exception):
    pass


def must(ok, *what):
    if not ok:
        raise Failed(" ".join(str(x) for x in what))


class Session:
    """As far as `until` says, with what a client said before. The server serves one at a time."""

    def __init__(self, port, said, until, offer=None, handles=None, host="127.0.0.1", key=None):
        self.seq = 1
        self.answer = self.payload = None
        end = time.monotonic() + wire.WAIT_S
        while True:
            self.peer = peer = wire.dial(port, host, key)
            if until == "connect":
                return
            peer.greet()
            if until == "hello":
                return
            peer.prove()
            if until == "proof":
                return
            answer, text = peer.until(WELCOME, REFUSE)
            # A session whose control was lost is kept for a while, for its client to come back.
            if answer == WELCOME or time.monotonic() > end or b"busy" not in (text or b""):
                break
            peer.close()
            time.sleep(0.05)
        must(answer == WELCOME, "no WELCOME:", answer, text)
        if until == "welcome":
            return
        peer.send(OFFER, 0, offer or json.loads(said[OFFER]))
        self.answer, self.payload = peer.until(ACCEPT, REFUSE)
        if until == "offer" or self.answer != ACCEPT:
            return
        peer.send(HANDLES, 0, handles(said[HANDLES]) if handles else said[HANDLES])
        self.answer, self.payload = peer.until(HANDLES, REFUSE)
        if until == "handles" or self.answer != HANDLES:
            return
        self.say(READY)

    def say(self, kind, payload=b""):
        self.peer.send(kind, self.seq if kind in wire.NUMBERED else 0, payload)
        self.seq += kind in wire.NUMBERED

    def half(self, kind, payload):
        """The begin of a message."""
        whole, send = [], self.peer.send_raw
        self.peer.send_raw = whole.append
        self.say(kind, payload)
        self.peer.send_raw = send
        send(whole[0][:len(whole[0]) // 2])


def served(dualrail, port, *words, **more):
    """The next client, soon."""
    end = time.monotonic() + 30
    while True:
        status, text = wire.client(dualrail, port, *words, **more)
        if status == 0 or time.monotonic() > end:
            must(status == 0, "the next client: status", status, text)
            return
        time.sleep(0.05)


MOMENTS = ("connect", "hello", "proof", "welcome", "offer", "handles", "ready")


def wrong(dualrail, keyed):
    words, key = wire.new_key(keyed)
    with wire.server(dualrail, "--verbose=0", *words) as (server, port):
        said = wire.recorded(dualrail, port, *words, key=key)
        n = ended = clients = 0
        for moment in MOMENTS:
            for kind in NEVER + OFTEN:
                session = Session(port, said, moment, key=key)
                session.say(kind, PAYLOAD.get(kind, b""))
                n += 1
                early = moment in ("connect", "hello", "proof") and (moment, kind) != ("proof", OFFER)
                if (kind in NEVER or early) and (moment, kind) != ("hello", wire.DENY):
                    must(session.peer.closed(10), "message", kind, "after", moment, "does not end the connection")
                    ended += 1
                elif session.answer == HANDLES:
                    session.say(GOODBYE)
                    session.peer.closed(0.3)
                session.peer.close()
                must(server.p.poll() is None, "the server ended after message", kind, "after", moment)
            served(dualrail, port, "--verify", *words)
            clients += 1
        return "%d messages at %d moments: %d ended the connection, the others had no effect on the %d clients that followed" % (
            n, len(MOMENTS), ended, clients)


SILENT_S = 2  # PROTOCOL.md, 8.3
HALF = {"welcome": OFFER, "offer": HANDLES, "handles": READY, "ready": MESSAGE}


def took(dualrail, port, *words):
    begin = time.monotonic()
    status, text = wire.client(dualrail, port, "--connect-timeout", "30s", *words)
    must(status == 0, "the next client: status", status, text)
    return time.monotonic() - begin


@contextmanager
def watched():
    """stood.py, which says when it is terminated for how long the machine stood."""
    p = subprocess.Popen([os.path.join(wire.ROOT, "tests", "stood.py"), str(os.getpid())], stdout=subprocess.PIPE, text=True)
    try:
        yield p
    finally:
        p.kill()
        p.wait()


def stops(dualrail, keyed):
    words, key = wire.new_key(keyed)
    # --timeout: its control connection would be waited for.
    with watched() as watch, wire.server(dualrail, "--verbose=0", "--timeout", "600s", *words) as (_, port):
        said = wire.recorded(dualrail, port, *words, key=key)
        served(dualrail, port, *words)
        own = max(took(dualrail, port, *words) for _ in range(3))
        worst = n = 0
        for moment in MOMENTS:
            session = Session(port, said, moment, key=key)
            must(moment not in ("offer", "handles", "ready") or session.answer in (ACCEPT, HANDLES), "no session after", moment)
            if keyed and moment in HALF:
                session.half(HALF[moment], said.get(HALF[moment], PAYLOAD.get(HALF[moment], b"")))
            delay = took(dualrail, port, *words) - own
            session.peer.close()
            if delay > SILENT_S + own:
                watch.terminate()
                stood = int(watch.communicate()[0] or 0)
                if stood >= 1000 * SILENT_S / 4:
                    raise NotJudged("not judged: the machine stood for %d ms" % stood)
                raise Failed("stopped after %s: the next client was delayed by %.1f s" % (moment, delay))
            worst, n = max(worst, delay), n + 1
        return "stopped at %d moments: the next client was delayed by at most %.1f s" % (n, max(worst, 0))


def flood(port, rate, seconds):
    """Connections of another address that say garbage, 600 of them open; by a process of its own, that has no end to write to."""
    pid = os.fork()
    if pid:
        return pid
    try:
        begin, held = time.monotonic(), []
        for n in range(rate * seconds):
            s = socket.socket()
            s.setblocking(False)
            s.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            s.bind(("127.0.0.2", 0))
            try:
                s.connect_ex(("127.0.0.1", port))
                s.send(b"GET / HTTP/1.0\r\n\r\n")
            except OSError:
                pass  # the kernel has dropped the request
            held.append(s)
            if len(held) > 600:
                held.pop(0).close()
            if n >= rate * (time.monotonic() - begin):
                time.sleep(0.001)
    finally:
        os._exit(0)


def steady(dualrail, _):
    seconds = 8
    with watched() as watch, wire.server(dualrail, "--verbose=0") as (_, port):
        end = time.monotonic() + seconds - 1
        pid = flood(port, 3000, seconds)
        waited = []
        while time.monotonic() < end:
            begin = time.monotonic()
            peer = wire.dial(port)
            peer.greet()
            waited.append(time.monotonic() - begin)
            peer.close()
            time.sleep(0.05)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        watch.terminate()
        stood = int(watch.communicate()[0] or 0)
        # While it stands requests are dropped too, and the next one comes after twice the time.
        if 4 < max(waited) <= 4 + 3 * stood / 1000:
            raise NotJudged("not judged: the machine stood for %d ms" % stood)
        must(max(waited) <= 4, "a hello was answered after %.1f s" % max(waited))
        return "%d hellos, the longest took %.1f s" % (len(waited), max(waited))


def middle(dualrail, keyed):
    words, _ = wire.new_key(keyed)
    with wire.server(dualrail, "--verbose=0", *words) as (_, port):
        man = wire.Middle(port, key=bytes(32) if keyed else None)
        status, text = wire.client(dualrail, man.port, "--connect-timeout", "3s", *words)
        read = len(man.said[0]) + len(man.said[1])
        if keyed:
            must(read == 0 and status == 3, read, "messages read, status", status, text)
        else:
            kinds = [kind for kind, _, _ in man.said[0]]
            must(HANDLES in kinds, "he was not in the run:", text)
        served(dualrail, port, *words)
        return "%d messages read and passed on, the client's status %s" % (read, status)


def faults(dualrail, _):
    told = os.path.join(os.environ.get("ATTACK_TMP", "/tmp"), "told.%d" % os.getpid())
    exec_ = "mark=touch %s,rm -f %s" % (told, told)
    with wire.server(dualrail, "--verbose=0", "--allow-faults", "--fault-exec", exec_) as (_, port):
        record = wire.recorded(dualrail, port)
        plain = json.loads(record[OFFER])
        refused = 0
        for spec in ("exec=mark", "exec=mark:nic=lo", "exec=mark,path=0", "link-down:path=0"):
            for field in ("server_fault", "faults", "server_faults"):
                offer = json.loads(json.dumps(plain))
                offer["params"]["server_faults"] = True
                if field != "server_faults":
                    offer["params"][field] = [spec]
                session = Session(port, record, "offer", offer)
                must(session.answer == REFUSE and b"--key-file" in session.payload, "an offer with faults:", session.answer,
                     session.payload)
                refused += 1
                session.peer.close()
            # In a session without faults.
            session = Session(port, record, "ready")
            must(session.answer == HANDLES, "no session", session.payload)
            for t in ("inject", "fault", "undo"):
                session.say(MESSAGE, {"t": t, "id": 1, "spec": spec, "fault": spec, "path": 0, "text": spec})
            text = b""
            while text is not None and b'"err":-' not in text.replace(b" ", b""):
                text = session.peer.until(MESSAGE, REFUSE)[1]
            refused += 1
            session.peer.close()
        served(dualrail, port)
        must(not os.path.exists(told), "the command of exec ran")
        return "%d requests refused, no command ran" % refused


def counted(net, *rules):
    """Counters of what leaves the namespace: {name: packets}."""
    text = "table inet attack {\n%s\nchain out { type filter hook output priority 0;\n%s\n}\n}\n" % (
        "\n".join("counter %s {}" % name for name, _ in rules), "\n".join("%s counter name %s" % (m, n) for n, m in rules))
    subprocess.run(["ip", "netns", "exec", net, "nft", "-f", "-"], input=text, text=True, check=True)

    def read():
        out = subprocess.run(["ip", "netns", "exec", net, "nft", "-j", "list", "counters"], capture_output=True, text=True,
                             check=True).stdout
        return {c["counter"]["name"]: c["counter"]["packets"] for c in json.loads(out)["nftables"] if "counter" in c}
    return read


@contextmanager
def outside(dualrail, net):
    with wire.server(dualrail, "--verbose=0", prefix=("ip", "netns", "exec", net)) as (_, port):
        yield port, wire.recorded(dualrail, port, "--rails", "rail0,rail1", host=CONTROL)


def reflect(dualrail, net):
    with outside(dualrail, net) as (port, record):
        read = counted(net, ("third_udp", "ip daddr %s meta l4proto udp" % THIRD), ("third_tcp", "ip daddr %s meta l4proto tcp" % THIRD),
                       ("alive", "ip daddr 10.99.255.1 meta l4proto tcp"))
        plain = json.loads(record[OFFER])
        own, third = bytes([10, 99, 0, 1]), bytes(int(x) for x in THIRD.split("."))
        other = json.loads(json.dumps(plain).replace("10.99.0.1", THIRD))
        moved = lambda data: data.replace(own, third)
        cases = refused = 0
        for offer, handles in ((plain, moved), (other, None), (other, moved)):
            session = Session(port, record, "ready", offer, handles, CONTROL)
            cases += 1
            refused += session.answer == REFUSE
            must(session.answer == REFUSE or (offer is other and handles), "handles that the offer does not name:", session.answer)
            # What it would send comes within a heartbeat; 50 of them here, as a bound and not as a wait for an effect.
            session.peer.closed(0.5)
            session.peer.close()
        served(dualrail, port, "--rails", "rail0,rail1", host=CONTROL)
        n = read()
        must(n["alive"] > 0, "the counters count nothing")
        must(n["third_udp"] == 0, n["third_udp"], "datagrams left to the third host")
        return "%d of %d handles and offers that name a third host refused; %d datagrams and %d TCP segments left to it" % (
            refused, cases, n["third_udp"], n["third_tcp"])


def silent(dualrail, net):
    with outside(dualrail, net) as (port, record):
        # WELCOME: the session that was recorded has ended, its last datagrams have left.
        Session(port, record, "welcome", host=CONTROL).peer.close()
        read = counted(net, ("beats", "ip daddr { 10.99.0.1, 10.99.1.1 } meta l4proto udp"))
        session = Session(port, record, "ready", host=CONTROL)
        must(session.answer == HANDLES, "no session", session.payload)
        session.peer.closed(1.0)
        n = read()["beats"]
        session.peer.close()
        must(n == 0, n, "datagrams left to a client that sent none")
        served(dualrail, port, "--rails", "rail0,rail1", host=CONTROL)
        must(read()["beats"] > 0, "the counters count nothing")
        return "%d datagrams in 1 s of a session of which no datagram and no connection came" % n


def main():
    attacks = {f.__name__: f for f in (wrong, stops, steady, middle, faults, reflect, silent)}
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in attacks:
        print(__doc__.split(":")[0], file=sys.stderr)
        return 2
    try:
        print(attacks[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
        return 0
    except NotJudged as e:
        print(e)
        return 77
    except (Failed, RuntimeError, OSError, wire.Ended, subprocess.TimeoutExpired) as e:
        for p in wire.Program.all:
            print(" ".join(p.p.args[1:]), "said:", *p.text().splitlines()[-20:], sep="\n")
        print(re.sub(r"\s+", " ", str(e)) or repr(e))
        return 1


sys.exit(main())
