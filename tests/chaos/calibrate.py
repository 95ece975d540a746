#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is what the program reports what an outside observer sees?

  calibrate.py --dualrail PROGRAM [--trials N] [--bandwidth N] [--out DIR] [--rate 200mbit]

Gap: at the receiving end every packet is captured with the kernel's arrival time, the data connections are put
together again, and their frames (transport/tcp/tcp_wire.h) read. A chunk has arrived when its last byte has. The
true gap of a switch is the time from the last chunk of the older epoch that the new epoch does not bring again, to
the first chunk of the new epoch. It must be within 0.2 ms or 2 % (whichever is larger) of the gap that the program
reports.

Bandwidth: the receiving interface's own counters over a stretch inside the measurement, less 66 bytes of headers
for each packet it counted and the program's 20 for each chunk. Within 0.5 %.

Exit status 0: at least 95 % of the trials of each are inside; 1: not; 77: this machine cannot do it.
"""
import argparse
import json
import multiprocessing
import os
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
from lab import Lab, Run, Skip, enter, now, require

CHUNK = 65536
SMALL = ["-g", "0", "-N", "2", "--window", "4", "--chunk", "64K", "-s", "256K"]
HELLO, HELLO_LEN, FRAME_LEN, DATA = 0x44525448, 48, 20, 1
PACKET_HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with timestamps
FIN, SYN = 1, 2
SO_TIMESTAMPNS, SO_RCVBUFFORCE, OUTGOING = 35, 33, 4
ENOUGH = 95.0


# ------------------------------- the observer: a process in node b -------------------------------


class Stream:
    """One direction of one data connection, in order."""

    def __init__(self, rail, first_seq):
        self.rail, self.next, self.buf, self.early = rail, first_seq, bytearray(), {}
        self.channel, self.skip, self.frame, self.ts = None, 0, None, 0

    def segment(self, seq, payload, ts, found):
        behind = (self.next - seq) & 0xFFFFFFFF
        if behind < 1 << 31:  # begins at or before what is wanted
            if behind < len(payload):
                self.take(payload[behind:], ts, found)
                while self.next in self.early:
                    self.take(self.early.pop(self.next), ts, found)
        elif len(self.early.get(seq, b"")) < len(payload):
            self.early[seq] = payload

    def take(self, data, ts, found):
        self.next = (self.next + len(data)) & 0xFFFFFFFF
        self.ts = max(self.ts, ts)
        at = 0
        while at < len(data):
            if self.skip:  # the inside of a payload
                n = min(self.skip, len(data) - at)
                self.skip -= n
                at += n
                if self.skip == 0:
                    self.ends(found)
                continue
            want = HELLO_LEN if self.channel is None else FRAME_LEN
            n = min(want - len(self.buf), len(data) - at)
            self.buf += data[at:at + n]
            at += n
            if len(self.buf) == want:
                self.header(found)

    def header(self, found):
        raw, self.buf = bytes(self.buf), bytearray()
        if self.channel is None:
            magic, _, _, _, channel, _, _, _ = struct.unpack("!IHBBII16s16s", raw)
            self.channel = channel if magic == HELLO else -1
            return
        kind, _, _, _, length, epoch, seq = struct.unpack("!BBBBIIQ", raw)
        self.frame, self.skip = (kind, epoch, seq), length
        if length == 0:
            self.ends(found)

    def ends(self, found):
        kind, epoch, seq = self.frame
        if kind == DATA and self.channel >= 0:
            found.append((self.channel, epoch, seq, self.ts, self.rail))


def observer(netns, pipe):
    """Chunks that arrived, as [(channel, epoch, seq, time in ns, rail)], once anything is sent to it."""
    enter(netns)
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.settimeout(0.2)
    streams, found, seen = {}, [], 0
    pipe.send("ready")
    while True:
        try:
            data, aux, _, address = s.recvmsg(1 << 17, 256)
        except socket.timeout:
            if pipe.poll():
                break
            continue
        if address[2] == OUTGOING or not address[0].startswith("rail") or data[23] != 6:
            continue
        seen += 1
        ts = 0
        for level, kind, value in aux:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                sec, nsec = struct.unpack("qq", value[:16])
                ts = sec * 10**9 + nsec
        tcp = 14 + (data[14] & 15) * 4
        sport, dport, seq = struct.unpack("!HHI", data[tcp:tcp + 8])
        payload = data[tcp + (data[tcp + 12] >> 4) * 4:14 + struct.unpack("!H", data[16:18])[0]]
        key = (data[26:34], sport, dport)
        if data[tcp + 13] & SYN:
            streams[key] = Stream(address[0], (seq + 1) & 0xFFFFFFFF)
        elif key in streams and payload:
            streams[key].segment(seq, payload, ts, found)
    dropped = struct.unpack("II", s.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS
    pipe.send((found, dropped, seen))


# --------------------------------------- gaps ---------------------------------------


def true_gap(chunks, channel, epoch):
    """ns, or None when the observer did not see both of its ends."""
    new = [c for c in chunks if c[0] == channel and c[1] == epoch]
    if not new:
        return None
    first = min(new, key=lambda c: c[3])
    old = [c[3] for c in chunks if c[0] == channel and c[1] < epoch and c[2] < first[2] and c[3] < first[3]]
    return first[3] - max(old) if old else None


def gaps(args, lab):
    key = os.path.join(args.out, "key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(os.urandom(32))
    specs = ["%s,side=%s" % (k, side) for k in ("link-down:path=0", "blackhole:path=0", "close:path=0")
             for side in ("client", "server")]
    each = max(1, -(-args.trials // len(specs)))
    rows = []
    for spec in specs:
        here, there = multiprocessing.Pipe()
        watch = multiprocessing.get_context("fork").Process(target=observer, args=(lab.ns["server"], there))
        watch.start()
        here.recv()
        allow = ["--allow-faults", "--key-file", key]
        fault = spec + ",at=0s,for=150ms" + (",repeat=%d,every=300ms" % each if each > 1 else "")
        r = Run(lab, args.dualrail, args.out, SMALL + allow + ["--test", "failover", "--hold-down", "50ms",
                                                               "--fault", fault], ["-g", "0"] + allow)
        try:
            r.start_server()
            r.start_client()
            r.wait("client", time.monotonic() + 30 + 5 * each)
            r.wait("server", time.monotonic() + 10)
        finally:
            r.stop()
        here.send("enough")
        chunks, dropped, seen = here.recv()
        watch.join()
        failover = (r.document("client") or {}).get("failover") or {}
        rows += [dict(x, seen=seen) for x in compare(spec, failover, chunks, dropped, r.status)]
    return rows


def compare(spec, failover, chunks, dropped, status):
    out = []
    for f in failover.get("faults") or []:
        mine = [s for s in failover["switches"] if s["trial"] == f["trial"] and s["receiver"] and not s["planned"]
                and s["first_delivery_ns"] and s["last_delivery_ns"] and f["gap_us"] is not None]
        worst = max(mine, key=lambda s: s["first_delivery_ns"] - s["last_delivery_ns"], default=None)
        truth = true_gap(chunks, worst["channel"], worst["epoch"]) if worst else None
        row = {"what": "gap", "spec": spec, "trial": f["trial"], "reported_us": f["gap_us"],
               "true_us": truth / 1000 if truth else None, "capture_dropped": dropped, "status": status,
               "verdict": f["verdict"]}
        if truth:
            row["error_us"] = row["reported_us"] - row["true_us"]
            row["inside"] = abs(row["error_us"]) <= max(200, 0.02 * row["true_us"])
        else:
            row["inside"] = False
        out.append(row)
    return out


# ------------------------------------- bandwidth -------------------------------------


def bandwidth(args, lab, i):
    seconds, mbit = 3.0, (100, 200, 400, 800)[i % 4]
    for side in lab.ns:
        for rail in (0, 1):
            lab.shape(side, rail, "%dmbit" % mbit)
    r = Run(lab, args.dualrail, args.out, SMALL + ["-s", "64K", "--test", "bw", "-D", str(seconds), "-w", "300ms"],
            ["-g", "0"])
    try:
        r.start_server()
        pid = r.proc["server"].pid
        r.start_client()
        r.flows(20, 1000000)
        time.sleep(0.5)
        a, t0 = lab.counters(pid), now()
        time.sleep(seconds - 0.6)
        b, t1 = lab.counters(pid), now()
        r.wait("client", time.monotonic() + 30)
        r.wait("server", time.monotonic() + 10)
    finally:
        r.stop()
    octets = sum(b[d][0] - a[d][0] for d in b if d.startswith("rail"))
    packets = sum(b[d][1] - a[d][1] for d in b if d.startswith("rail"))
    true = (octets - packets * PACKET_HEADERS) * CHUNK / (CHUNK + FRAME_LEN) * 8 / (t1 - t0)
    reported = sum(x["gbps"] for x in (r.document("client") or {}).get("bandwidth") or [])
    return {"what": "bandwidth", "mbit": mbit, "reported_gbps": reported, "true_gbps": true,
            "error_percent": 100 * (reported / true - 1), "inside": abs(reported / true - 1) <= 0.005,
            "status": r.status}


def share(rows, name, tolerance):
    inside = sum(x["inside"] for x in rows)
    percent = 100 * inside / len(rows) if rows else 0.0
    print("%s: %d of %d trials within %s: %.1f %%: %s"
          % (name, inside, len(rows), tolerance, percent, "PASS" if percent >= ENOUGH else "FAIL"))
    return percent >= ENOUGH


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--dualrail", required=True)
    p.add_argument("--trials", type=int, default=60)
    p.add_argument("--bandwidth", type=int, default=12, help="runs")
    p.add_argument("--out", default="build/calibrate-out")
    p.add_argument("--rate", default="200mbit")
    args = p.parse_args()
    args.dualrail, args.out = os.path.abspath(args.dualrail), os.path.abspath(args.out)
    require(["ip", "tc", "nft"])
    os.makedirs(args.out, exist_ok=True)
    lab = Lab("dcc%d" % os.getpid(), args.rate)
    try:
        g = gaps(args, lab) if args.trials else []
        b = [bandwidth(args, lab, i) for i in range(args.bandwidth)]
    finally:
        lab.destroy()
    with open(os.path.join(args.out, "calibrate.jsonl"), "w") as f:
        f.writelines(json.dumps(x) + "\n" for x in g + b)
    for spec in dict.fromkeys(x["spec"] for x in g):
        mine = [x for x in g if x["spec"] == spec]
        e = sorted(abs(x["error_us"]) for x in mine if "error_us" in x)
        t = sorted(x["true_us"] for x in mine if x["true_us"])
        print("%-32s %3d trials, %3d inside, true gap %.2f..%.2f ms, error median %.3f, worst %.3f ms" % (
            spec, len(mine), sum(x["inside"] for x in mine), t[0] / 1000 if t else 0, t[-1] / 1000 if t else 0,
            e[len(e) // 2] / 1000 if e else 0, e[-1] / 1000 if e else 0))
    for x in b:
        print("%3d Mb/s rail: reported %.5f, counters %.5f Gb/s: %+.2f %%"
              % (x["mbit"], x["reported_gbps"], x["true_gbps"], x["error_percent"]))
    good = [share(g, "gap", "0.2 ms or 2 %")] if any(x["seen"] for x in g) else []
    good += [share(b, "bandwidth", "0.5 %")] if b else []
    if g and all(good) and not any(x["seen"] for x in g):
        print("SKIP  gap beside an observer  (the capture saw no packet of the rails)")
        return 77
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as e:
        print("SKIP calibrate: %s" % e)
        sys.exit(77)
