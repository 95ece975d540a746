#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One MPTCP stream between two network namespaces, its first link cut: the receiver's gap in us.

  mptcp_gap.py run link-down|blackhole TRIALS HOST A B
  mptcp_gap.py receive            (started by run, in B) prints its port, then "start end" of gaps and "now now" while data flow
  mptcp_gap.py send HOST PORT     (started by run, in A) prints "ready" when both subflows are there
"""
import select
import socket
import subprocess
import sys
import time

IPPROTO_MPTCP = 262
SOL_MPTCP, MPTCP_INFO = 284, 1
CHUNK = 64 * 1024
NOTED_NS = 1_000_000  # the receiver tells of gaps from 1 ms on
LIMIT_S = 30
TICK_NS = 20_000_000
BEFORE_NS, AFTER_NS = 100_000_000, 300_000_000


def receive():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    listener.bind(("0.0.0.0", 0))
    listener.listen(1)
    print(listener.getsockname()[1], flush=True)
    conn, _ = listener.accept()
    buf = bytearray(CHUNK)
    last = told = time.monotonic_ns()
    while conn.recv_into(buf):
        now = time.monotonic_ns()
        if now - last >= NOTED_NS:
            print(last, now, flush=True)
        if now - told >= TICK_NS:
            print(now, now, flush=True)
            told = now
        last = now


def subflows(sock):
    return sock.getsockopt(SOL_MPTCP, MPTCP_INFO, 64)[0]


def send(host, port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    sock.connect((host, int(port)))
    data = bytes(CHUNK)
    told = False
    while True:
        sock.send(data)
        if not told and subflows(sock) >= 1:
            told = True
            print("ready", flush=True)


def line(child, seconds):
    if not select.select([child.stdout], [], [], seconds)[0]:
        raise TimeoutError("a child says nothing")
    return child.stdout.readline().decode().strip()


class Fault:
    """The first rail, cut at A or silent on both ends."""

    def __init__(self, kind, nodes):
        self.kind, self.nodes = kind, nodes

    def do(self):
        if self.kind == "link-down":
            subprocess.run(["ip", "-n", self.nodes[0], "link", "set", "rail0", "down"], check=True)
            return
        for node in self.nodes:
            rules = ("add table netdev cut; add chain netdev cut in "
                     "{ type filter hook ingress device rail0 priority 0; policy drop; }")
            subprocess.run(["ip", "netns", "exec", node, "nft", rules], check=True)

    def undo(self):
        if self.kind == "link-down":
            subprocess.run(["ip", "-n", self.nodes[0], "link", "set", "rail0", "up"], check=True)
            return
        for node in self.nodes:
            subprocess.run(["ip", "netns", "exec", node, "nft", "delete table netdev cut"], check=False)


def gap_of(receiver, cut_ns):
    """Longest gap around or soon after the cut, once data flowed again for AFTER_NS; None: never."""
    longest, settled_ns = 0, cut_ns + BEFORE_NS
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if not select.select([receiver.stdout], [], [], 0.05)[0]:
            continue
        words = receiver.stdout.readline().split()
        if len(words) != 2:
            return None
        start, end = map(int, words)
        if end >= settled_ns + AFTER_NS and start == end:
            return longest
        if end > cut_ns and start <= cut_ns + BEFORE_NS and end - start > longest:
            longest, settled_ns = end - start, max(settled_ns, end)
    return None


def trial(host, fault):
    me = [sys.executable, __file__]
    enter = [["ip", "netns", "exec", node] for node in fault.nodes]
    receiver = subprocess.Popen(enter[1] + me + ["receive"], stdout=subprocess.PIPE, bufsize=0)
    sender = None
    try:
        port = line(receiver, 10)
        sender = subprocess.Popen(enter[0] + me + ["send", host, port], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, bufsize=0)
        if line(sender, 10) != "ready":
            raise RuntimeError("the second subflow did not come up")
        time.sleep(0.5)  # traffic before the cut, the same in every trial
        cut_ns = time.monotonic_ns()
        fault.do()
        try:
            return gap_of(receiver, cut_ns)
        finally:
            fault.undo()
    finally:
        for child in (sender, receiver):
            if child:
                child.kill()
                child.wait()


def run(kind, trials, host, *nodes):
    for i in range(int(trials)):
        gap_ns = trial(host, Fault(kind, nodes))
        gap_us = LIMIT_S * 1e6 if gap_ns is None else gap_ns / 1e3
        print(gap_us, flush=True)
        print(f"  mptcp {kind} {i + 1}/{trials}: {gap_us / 1e3:.1f} ms", file=sys.stderr)


if __name__ == "__main__":
    {"receive": receive, "send": send, "run": run}[sys.argv[1]](*sys.argv[2:])
