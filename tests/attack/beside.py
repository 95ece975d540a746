#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside.py DUALRAIL BUILD [ROUNDS [SECONDS]]: what a flood of garbage connections costs a bandwidth test, and which part is the server's own.

Each round measures in drawn order: alone; beside a flood of the server's control port; beside the same flood of a program that closes each
connection at once, and of one that accepts none. The flood uses a processor itself, and the kernel does too. So the server's own share is the
ratio of the first flood to the other two: geometric mean of the rounds, with its 95 % interval (t). Meanwhile other clients come to
the flooded server, one after another: how long connection and hello took them, until the server answers. Prints one line; exit status 1 if
one of them waits for 10 s or longer, or a run fails. The seed is in the line.
"""
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import wire

FLOODED = ("alone", "server", "close", "backlog")
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 15: 2.14, 20: 2.09, 30: 2.05}


class Flood:
    def __init__(self, build, port, seconds):
        self.p = subprocess.Popen([os.path.join(build, "tests/flood/flood_main"), "garbage", "1000000", str(seconds), "127.0.0.2",
                                   "127.0.0.1", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.p.stdout.readline()  # "flooding", or the end of one that has come to nothing

    def end(self):
        line = self.first if self.first.startswith("opened") else self.p.stdout.readline()
        self.p.stdin.close()
        self.p.wait()
        return int(line.split()[1].rstrip(","))


def start_sink(build, kind):
    p = subprocess.Popen([os.path.join(build, "tests/flood/sink_main"), kind, "127.0.0.1"], stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline())


def run(dualrail, port, seconds):
    with tempfile.TemporaryDirectory() as d:
        doc = os.path.join(d, "c.json")
        status, text = wire.client(dualrail, port, "-D", "%ds" % seconds, "--json=" + doc, "-q")
        if status:
            raise RuntimeError("status %s: %s" % (status, text))
        with open(doc, encoding="utf-8") as f:
            return json.load(f)["total"]["gbps"]


class Visitors:
    """Clients that say hello to the server, one after another."""

    def __init__(self, port):
        self.port, self.waited, self.over = port, [], threading.Event()
        self.thread = threading.Thread(target=self.visit)
        self.thread.start()

    def visit(self):
        while not self.over.is_set():
            begin = time.monotonic()
            try:
                line = wire.dial(self.port)
                line.greet()
                line.close()
                self.waited.append(time.monotonic() - begin)
            except (OSError, wire.Ended):
                self.waited.append(wire.WAIT_S)
            self.over.wait(0.05)

    def end(self):
        self.over.set()
        self.thread.join()
        return self.waited


def ratio(a, b):
    logs = [math.log(x / y) for x, y in zip(a, b)]
    mean, n = statistics.mean(logs), len(logs)
    t = T95[max(k for k in T95 if k <= n)]
    half = t * statistics.stdev(logs) / math.sqrt(n)
    return "%.2f (%.2f to %.2f)" % tuple(math.exp(x) for x in (mean, mean - half, mean + half))


def main():
    dualrail, build = sys.argv[1:3]
    rounds, seconds = (int(x) for x in (sys.argv[3:] + ["10", "2"][len(sys.argv) - 3:])[:2])
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    draw = random.Random(seed)
    gbps, opened, waited = {k: [] for k in FLOODED}, {k: 0 for k in FLOODED}, []
    with wire.server(dualrail, "--verbose=0") as (_, port):
        for _ in range(rounds):
            for kind in draw.sample(FLOODED, len(FLOODED)):
                sink, at = (None, port) if kind in ("alone", "server") else start_sink(build, kind)
                flood = Flood(build, at, seconds + 2) if kind != "alone" else None
                visitors = Visitors(port) if kind == "server" else None
                gbps[kind].append(run(dualrail, port, seconds))
                waited += visitors.end() if visitors else []
                opened[kind] += flood.end() if flood else 0
                if sink:
                    sink.kill()
                    sink.wait()
    a_second = {k: n / rounds / (seconds + 2) for k, n in opened.items()}
    print("%d rounds of %d s (seed %d): %s; beside a flood of the server %s of alone, %s of a flood of a program that accepts none, %s of one that "
          "closes at once; %d hellos meanwhile: median %.0f ms, longest %.0f ms" % (
              rounds, seconds, seed, ", ".join("%s %.1f Gb/s%s" % (k, statistics.median(v), " at %d connections a second" % a_second[k] if
                                                                   k != "alone" else "") for k, v in gbps.items()),
              ratio(gbps["server"], gbps["alone"]), ratio(gbps["server"], gbps["backlog"]), ratio(gbps["server"], gbps["close"]),
              len(waited), 1000 * statistics.median(waited), 1000 * max(waited)))
    return int(max(waited) >= 10)


sys.exit(main())
