#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hours of verified data while links flap: memory, descriptors and bandwidth must stay where they are.

  soak.py --dualrail PROGRAM --hours H [--out DIR] [--leg MINUTES] [--sample SECONDS] [--flap-every SECONDS]
          [--seed N] [--fresh]

One server for all legs, one client for each leg. At random times, on average every 20 s, one of the rails, at one of
the ends, goes down for 0.05 to 2 s, sometimes several times in a row. The offered load fits on one rail, so that
the bandwidth is the same with one and with two.

Resumable: DIR/state.json says how far it got and DIR/samples.jsonl what was seen; the same command goes on from there
(with a new server, whose memory is judged by itself). Exit status 0: every leg ended with 0 and right data at both
ends, and each process was steady; 1: not; 3: interrupted; 77: this machine cannot do it.
"""
import argparse
import json
import os
import random
import signal
import statistics
import sys
import time

sys.dont_write_bytecode = True
from lab import Lab, Run, Skip, require

LOAD = ["-g", "0-1", "-N", "2", "--window", "4", "--chunk", "64K", "-s", "256K", "--hold-down", "200ms",
        "--rate", "150M", "--test", "bw", "--verify"]
GROWTH_BYTES, GROWTH_SHARE = 2 << 20, 0.05  # of memory over the life of a process, the larger of them
MORE_FDS = 4
LESS_BANDWIDTH = 0.05
WARM_SAMPLES = 3


def memory(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
    return 0


def seen(pid):
    try:
        return {"pid": pid, "rss": memory(pid), "fds": len(os.listdir("/proc/%d/fd" % pid))}
    except OSError:
        return None


def wrong(integrity):
    return sum(integrity.get(k) or 0 for k in ("lost", "duplicated", "reordered", "corrupted"))


class Soak:
    def __init__(self, args, lab):
        self.args, self.lab = args, lab
        self.state_name = os.path.join(args.out, "state.json")
        self.samples_name = os.path.join(args.out, "samples.jsonl")
        self.state = self.load()
        # Other draws after each resumption, the same for the same history.
        self.random = random.Random("%d/%d" % (self.state["seed"], self.state["lives"]))
        self.next_flap = time.monotonic() + 5

    def load(self):
        try:
            with open(self.state_name) as f:
                state = json.load(f)
            if not self.args.fresh and state["hours"] == self.args.hours:
                state["lives"] += 1
                return state
        except (OSError, ValueError, KeyError):
            pass
        open(self.samples_name, "w").close()
        return {"hours": self.args.hours, "seed": self.args.seed or random.SystemRandom().randrange(1, 1 << 31),
                "done_s": 0.0, "lives": 1, "legs": [], "flaps": 0}

    def save(self):
        with open(self.state_name + ".tmp", "w") as f:
            json.dump(self.state, f)
        os.rename(self.state_name + ".tmp", self.state_name)

    def flap(self):
        if time.monotonic() < self.next_flap:
            return
        rail, side = "rail%d" % self.random.randint(0, 1), self.random.choice(("client", "server"))
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            self.lab.link(side, rail, "down")
            time.sleep(self.random.uniform(0.05, 2) if self.random.random() < 0.5 else 0.05)
            self.lab.link(side, rail, "up")
            self.state["flaps"] += 1
            time.sleep(self.random.uniform(0.05, 0.4))
        self.next_flap = time.monotonic() + self.random.uniform(0.5, 1.5) * self.args.flap_every

    def all_legs(self):
        total = self.args.hours * 3600
        server = None
        while self.state["done_s"] < total - 1:
            left = total - self.state["done_s"]
            seconds = min(left, self.args.leg * 60)
            if left - seconds < 60:
                seconds = left
            r = Run(self.lab, self.args.dualrail, os.path.join(self.args.out, "leg%d" % len(self.state["legs"])),
                    LOAD + ["-D", "%.0f" % max(2, seconds)], ["-g", "0-1"], one_off=False)
            if server is None:
                r.start_server()
                server, document = r.proc["server"], r.files["server"]
            r.proc["server"], r.files["server"] = server, document
            number = len(self.state["legs"])
            try:
                self.leg(r, seconds)
            finally:
                if len(self.state["legs"]) == number:  # interrupted: what was found up to here still counts
                    if r.alive():
                        r.kill("client", signal.SIGTERM)
                    r.wait("client", time.monotonic() + 20)
                    d = r.document("client") or {}
                    bad = wrong(d.get("integrity") or {}) + sum(e["kind"] == "integrity"
                                                                for e in d.get("events") or [])
                    self.state["legs"].append({"status": "interrupted", "wrong": [bad], "switches": 0})
                    self.save()
        if server:
            server.kill()
            server.wait()

    def leg(self, r, seconds):
        number, interval = len(self.state["legs"]), self.args.sample
        r.start_client()
        if not r.flows(30, 1000000):
            raise RuntimeError("no data flows: see %s" % r.folder)
        began, base = time.monotonic(), self.state["done_s"]
        next_sample, was, was_at = began + interval, self.lab.sent(), began
        with open(self.samples_name, "a") as out:
            while r.alive() and time.monotonic() < began + seconds + 60:
                self.flap()
                time.sleep(0.05)
                if time.monotonic() < next_sample or time.monotonic() > began + seconds - 1:
                    continue
                next_sample += interval
                at, sent = time.monotonic(), self.lab.sent()
                row = {"life": self.state["lives"], "leg": number, "s": round(base + at - began, 1),
                       "gbps": (sent - was) * 8e-9 / (at - was_at), "flaps": self.state["flaps"],
                       "client": seen(r.proc["client"].pid), "server": seen(r.proc["server"].pid)}
                was, was_at = sent, at
                out.write(json.dumps(row) + "\n")
                out.flush()
                self.state["done_s"] = base + min(seconds, at - began)
                self.save()
                print("%8.0f s leg %d: %.3f Gb/s, %d flaps, client %.1f MiB %d fds, server %.1f MiB %d fds" % (
                    row["s"], number, row["gbps"], row["flaps"], row["client"]["rss"] / 2**20,
                    row["client"]["fds"], row["server"]["rss"] / 2**20, row["server"]["fds"]))
                sys.stdout.flush()
        status = r.wait("client", time.monotonic() + 30)
        if status is None:
            r.kill("client", signal.SIGKILL)
            r.wait("client", time.monotonic() + 10)
        end = time.monotonic() + 10
        docs = [r.document("client"), None]
        while time.monotonic() < end:  # the server writes its own when the client is gone
            docs[1] = r.document("server")
            if docs[1] and docs[0] and docs[1].get("run_id") == docs[0].get("run_id"):
                break
            time.sleep(0.1)
        integrity = [(d or {}).get("integrity") or {} for d in docs]
        self.state["legs"].append({
            "status": status, "server_status": (docs[1] or {}).get("exit_code"),
            "messages": [i.get("chunks") for i in integrity],
            "wrong": [wrong(i) for i in integrity],
            "rows_lost": (docs[0] or {}).get("rows_lost"),
            "switches": sum(not s["receiver"] and not s["planned"] for s in
                            ((docs[0] or {}).get("failover") or {}).get("switches") or [])})
        self.state["done_s"] = base + seconds
        self.save()


def slope(points):
    """Median of the slopes of all pairs (Theil, Sen): a single step or spike does not tilt it."""
    s = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:] if x2 > x1]
    return statistics.median(s) if s else 0.0


def quarter(values, last):
    n = max(1, len(values) // 4)
    return values[-n:] if last else values[:n]


def judge(state, samples):
    bad = []
    for i, leg in enumerate(state["legs"]):
        ended = leg["status"] == "interrupted" or (
            leg["status"] == 0 and leg["server_status"] == 0 and all(leg["messages"]))
        if not ended or sum(leg["wrong"]):
            bad.append("leg %d: %s" % (i, json.dumps(leg)))
    lives = {}
    for s in samples:
        for side in ("client", "server"):
            if s[side]:
                lives.setdefault((side, s["life"], s[side]["pid"]), []).append((s["s"], s[side]))
    for (side, life, pid), rows in lives.items():
        rows = rows[WARM_SAMPLES:]
        if len(rows) < 8:
            continue
        per_s = slope([(t, x["rss"]) for t, x in rows[::max(1, len(rows) // 400)]])
        grown, level = per_s * (rows[-1][0] - rows[0][0]), statistics.median(x["rss"] for _, x in rows)
        fds = [x["fds"] for _, x in rows]
        more = max(quarter(fds, True)) - max(quarter(fds, False))
        text = "%s %d of life %d: %.1f MiB, slope %+.1f KiB/h, %+.2f MiB over %.2f h; descriptors %d to %d" % (
            side, pid, life, level / 2**20, per_s * 3600 / 1024, grown / 2**20, (rows[-1][0] - rows[0][0]) / 3600,
            min(fds), max(fds))
        print(text)
        if grown > max(GROWTH_BYTES, GROWTH_SHARE * level):
            bad.append("memory grows: " + text)
        if more > MORE_FDS:
            bad.append("descriptors grow: " + text)
    g = [s["gbps"] for s in samples]
    if len(g) >= 8:
        a, b = statistics.median(quarter(g, False)), statistics.median(quarter(g, True))
        print("bandwidth: first quarter %.4f, last quarter %.4f Gb/s; all samples %.4f to %.4f"
              % (a, b, min(g), max(g)))
        if b < (1 - LESS_BANDWIDTH) * a:
            bad.append("bandwidth falls")
    else:
        bad.append("too few samples to judge (%d)" % len(g))
    print("%.2f h in %d legs, %d flaps, %d switches" % (state["done_s"] / 3600, len(state["legs"]), state["flaps"],
                                                        sum(leg["switches"] for leg in state["legs"])))
    for text in bad:
        print("  " + text)
    print("soak: %s" % ("FAIL" if bad else "PASS"))
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--dualrail", required=True)
    p.add_argument("--hours", type=float, required=True)
    p.add_argument("--out", default="build/soak-out")
    p.add_argument("--leg", type=float, default=30, help="minutes")
    p.add_argument("--sample", type=float, default=0, help="seconds; default: 60, less in a short soak")
    p.add_argument("--flap-every", type=float, default=20, help="seconds, on average")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fresh", action="store_true")
    args = p.parse_args()
    args.dualrail, args.out = os.path.abspath(args.dualrail), os.path.abspath(args.out)
    args.sample = args.sample or min(60.0, max(1.0, args.hours * 3600 / 40))
    require(["ip", "tc", "nft"])
    os.makedirs(args.out, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    lab = Lab("dcs%d" % os.getpid())
    try:
        soak = Soak(args, lab)
        if soak.state["done_s"]:
            print("goes on after %.2f of %g h" % (soak.state["done_s"] / 3600, args.hours))
        print("seed %d; %s" % (soak.state["seed"], soak.samples_name))
        soak.all_legs()
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here")
        return 3
    finally:
        lab.destroy()
    with open(soak.samples_name) as f:
        return judge(soak.state, [json.loads(line) for line in f])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as e:
        print("SKIP soak: %s" % e)
        sys.exit(77)
