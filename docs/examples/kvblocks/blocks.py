#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same as blocks.c through Python.

    blocks.py receive --nics LIST --handle FILE
    blocks.py send --nics LIST --handle FILE [--blocks N] [--bytes B] [--seed S] [--faults N] [--cut]
"""

import argparse
import hashlib
import os
import select
import struct
import sys
import time

import dualrail
from dualrail import lib

NOTE = struct.Struct("=QQIIII")  # seed, round, blocks, bytes, last, wrong: struct note of blocks.c
WAIT_S = 60


def content(seed, number, block, size):
    return hashlib.shake_128(struct.pack("=QQI", seed, number, block)).digest(size)


class Blocks:
    def __init__(self, args):
        self.args = args
        self.end = dualrail.Endpoint(args.nics, hold_down_ms=100)
        self.memory = [bytearray(args.bytes) for _ in range(args.blocks)]
        self.peer = None
        self.gaps_ns = []  # of failures only

    def wait(self, kind):
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            ev = self.end.next()
            if not ev:
                select.select([self.end], [], [], 1)
                continue
            if ev.kind == lib.DUALRAIL_SWITCHED and ev.code == 0:
                print(f"lane {ev.lane} switched: {ev.text}, gap {max(ev.gap_ns, 0) / 1e6:.3f} ms", flush=True)
                self.gaps_ns.append(ev.gap_ns)
            if ev.kind == kind:
                return ev
            if ev.kind == lib.DUALRAIL_CLOSED:
                sys.exit(f"blocks.py: the connection ended: {ev.text}")
        sys.exit("blocks.py: no event for a minute")


def receive(b):
    for i, memory in enumerate(b.memory):
        b.end.register(memory, i + 1)
    part = b.args.handle + ".part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(b.end.listen())
    os.rename(part, b.args.handle)
    b.peer = b.wait(lib.DUALRAIL_CONNECTED).peer
    compared = wrong = last = 0
    while not last:
        seed, number, blocks, size, last, _ = NOTE.unpack(b.wait(lib.DUALRAIL_NOTE).data)
        bad = sum(b.memory[i] != content(seed, number, i, size) for i in range(blocks))
        compared, wrong = compared + blocks, wrong + bad
        dualrail.put(b.peer, [], NOTE.pack(seed, number, blocks, size, last, bad))
    b.wait(lib.DUALRAIL_CLOSED)
    gap = max(b.gaps_ns, default=0)
    print(f"{compared} blocks compared, {wrong} wrong, {len(b.gaps_ns)} switches, longest gap {gap / 1e6:.3f} ms")
    return wrong


def read_handle(path):
    until = time.monotonic() + WAIT_S
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)  # the receiver is not there yet
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
        if os.fstat(f.fileno()).st_uid != os.geteuid():
            sys.exit("%s: belongs to another user" % path)  # the blocks would go to him
        return f.read()


def put_round(b, registered, number, last):
    args, sent = b.args, dualrail.stats(b.peer).sent_bytes
    for i, memory in enumerate(b.memory):
        memory[:] = content(args.seed, number, i, args.bytes)
    blocks = [(i + 1, 0, m, 0, args.bytes) for i, m in enumerate(registered)]
    note = NOTE.pack(args.seed, number, args.blocks, args.bytes, last, 0)
    transfer = dualrail.put(b.peer, blocks, note)
    if args.cut and not last:
        s = dualrail.stats(b.peer)
        while s.in_flight > 0 and s.sent_bytes < sent + args.blocks * args.bytes // 4:
            s = dualrail.stats(b.peer)
        if s.in_flight > 0:
            dualrail.cut(b.peer, number % s.nics)
    wrong = NOTE.unpack(b.wait(lib.DUALRAIL_NOTE).data)[5]
    while not dualrail.test(transfer):
        b.wait(lib.DUALRAIL_PUT_DONE)
    dualrail.release(transfer)
    return wrong


def send(b):
    registered = [b.end.register(m) for m in b.memory]
    b.peer = b.end.connect(read_handle(b.args.handle))
    b.wait(lib.DUALRAIL_CONNECTED)
    number = faults = replayed = wrong = 0
    while True:
        last = faults >= b.args.faults
        wrong += put_round(b, registered, number, last)
        again = dualrail.stats(b.peer).replayed_bytes
        faults, replayed, number = faults + (again > replayed), again, number + 1
        if last:
            break
        if number == 1:
            print("first round done", flush=True)
    print(f"{number} rounds of {b.args.blocks} blocks, {wrong} wrong, {faults} faults hit data, {replayed} bytes sent again")
    return wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=["send", "receive"])
    p.add_argument("--nics")
    p.add_argument("--handle", required=True)
    p.add_argument("--blocks", type=int, default=64)
    p.add_argument("--bytes", type=int, default=256 << 10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--faults", type=int, default=1)
    p.add_argument("--cut", action="store_true")
    args = p.parse_args()
    b = Blocks(args)
    wrong = send(b) if args.role == "send" else receive(b)
    b.end.close()
    sys.exit(1 if wrong else 0)


main()
