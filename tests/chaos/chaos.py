#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults drawn by seed, on real sockets, against a real server and a real client.

  chaos.py --dualrail PROGRAM [--trials N] [--jobs N] [--seed N] [--out DIR] [--limit SECONDS]
           [--kinds K,K,..] [--rate 500mbit|none] [--keep]

Each trial is one fault, or one group of faults that belong together. What may come out is stated before
the run starts (KINDS below); the verdict is what came:

  PASS          both ends ended with 0, every byte compared right, data moved again after the fault
  WRONG         data lost, duplicated, reordered or corrupted, at either end
  HANG          no end, or no data again, within the bound
  CLEAN_ERROR   every end that was not killed ended by itself with a status for it, and a whole document
  MISSED_FAULT  nothing was in flight when the fault came
  UNCLEAN       anything else; nobody expects it

Trials of kinds that the program injects itself (--fault) share a run of the program, and take their verdict
from their row of its result document, as long as the whole run was right; faults of the world outside (signals,
the control link, two rails, flaps, shaping, long loss) are done by this program while data flows.

Kinds called known-* are controls of this measurement itself: one changes two bytes of some packets on the way and
must come out WRONG, one stops a server for good (HANG), one cuts a link that carries nothing (MISSED_FAULT).

DIR/raw.jsonl has one line per trial; recount.py judges it. Exit status 0: recount.py has nothing to object;
1: it has; 77: this machine cannot do it, with the reason.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from lab import Lab, Run, Skip, now, require  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = ["-g", "0-1", "-N", "2", "--window", "4", "--chunk", "64K", "-s", "256K", "--hold-down", "50ms"]
BOUND_S = 20      # no run takes so much longer than it should
MOVES_S = 8       # after an external fault data must move within
PER_CAMPAIGN = 16 # trials in a run of the program's own faults
PER_CONTROL = 600 # trials for which there is one more of each control
CLEAN = (3, 4)    # exit statuses of an end that lost its peer, or both rails

# ------------------------- kinds: what is drawn, and what is expected -------------------------

PASS, CLEAN_ERROR = ["PASS"], ["CLEAN_ERROR"]
DATA = ["PASS", "MISSED_FAULT"]  # how often it may miss is recount.py's matter


def ms(r, low, high):
    return r.randint(low, high)


def program_fault(r, kind, side, direction="", percent=None, low=100, high=200, path=None):
    spec = kind if percent is None else "%s=%s" % (kind, percent)
    if path is None:  # either rail carries data: path 1's NIC is the primary one of the other GPU
        path = 0 if r.random() < 0.7 else 1
    spec += ":path=%d,side=%s,at=0s,for=%dms" % (path, side, ms(r, low, high))
    return spec + (",dir=" + direction if direction else "")


def draw_percent(r):
    return "%.3g" % (0.1 * 300 ** r.random())  # 0.1 to 30, as likely in each decade


# kind: what draws a --fault
CAMPAIGN = {
    "link-down": lambda r: program_fault(r, "link-down", r.choice(("client", "server"))),
    "blackhole": lambda r: program_fault(r, "blackhole", r.choice(("client", "server"))),
    "blackhole-in": lambda r: program_fault(r, "blackhole", r.choice(("client", "server")), "in"),
    "blackhole-out": lambda r: program_fault(r, "blackhole", r.choice(("client", "server")), "out"),
    "close": lambda r: program_fault(r, "close", r.choice(("client", "server")), low=50, high=100, path=0),
    "close-idle": lambda r: program_fault(r, "close", r.choice(("client", "server")), low=50, high=100, path=1),
    "loss": lambda r: program_fault(r, "loss", r.choice(("client", "server")), r.choice(("in", "out", "both")),
                                    draw_percent(r), 150, 400),
}

# kind: (repeats in a run, who is gone for good or for long, expected, what draws the parameters)
EXTERNAL = {
    "stop-server": (3, None, DATA, lambda r: {"ms": ms(r, 50, 900)}),
    "stop-client": (3, None, DATA, lambda r: {"ms": ms(r, 50, 900)}),
    "control-down": (2, None, DATA, lambda r: {"ms": ms(r, 50, 900), "side": r.choice(("client", "server"))}),
    "control-hole": (2, None, DATA, lambda r: {"ms": ms(r, 50, 900)}),
    "flap": (3, None, DATA, lambda r: {"rail": r.randint(0, 1), "side": r.choice(("client", "server")),
                                       "times": [[ms(r, 1, 60), ms(r, 1, 120)] for _ in range(r.randint(2, 6))]}),
    "shape": (3, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 300, 700),
                                        "mbit": r.choice((5, 10, 20, 50, 100))}),
    "loss-long": (2, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 600, 1200),
                                            "percent": draw_percent(r)}),
    "one-way-long": (2, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 300, 800),
                                               "side": r.choice(("client", "server"))}),
    "both-in-turn": (2, None, DATA, lambda r: {"first": r.randint(0, 1), "ms": ms(r, 100, 300),
                                               "side": r.choice(("client", "server"))}),
    "cut-and-loss": (2, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 200, 400),
                                               "percent": "%.3g" % (0.1 * 100 ** r.random())}),
    "cut-and-stop": (2, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 200, 400),
                                               "who": r.choice(("client", "server")), "after": ms(r, 0, 40)}),
    "cut-and-control": (2, None, DATA, lambda r: {"rail": r.randint(0, 1), "ms": ms(r, 200, 400),
                                                  "after": ms(r, 0, 40)}),
    "both-briefly": (1, "rails", ["PASS", "CLEAN_ERROR", "MISSED_FAULT"],
                     lambda r: {"how": r.choice(("link", "hole", "mixed")), "apart": ms(r, 0, 60),
                                "side": r.choice(("client", "server")), "ms": ms(r, 50, 1000)}),
    "both-for-good": (1, "rails", CLEAN_ERROR,
                      lambda r: {"how": r.choice(("link", "hole", "mixed")), "apart": ms(r, 0, 100),
                                 "side": r.choice(("client", "server"))}),
    "kill-server": (1, "peer", CLEAN_ERROR, lambda r: {}),
    "kill-client": (1, "peer", CLEAN_ERROR, lambda r: {}),
    "cut-and-kill": (1, "peer", CLEAN_ERROR, lambda r: {"rail": r.randint(0, 1), "after": ms(r, 0, 60),
                                                        "who": r.choice(("client", "server"))}),
}
CONTROLS = {
    "known-wrong": (1, None, ["WRONG"], lambda r: {"every": r.randint(20, 60)}),
    "known-hang": (1, None, ["HANG"], lambda r: {}),
    "known-missed": (1, None, ["MISSED_FAULT"], lambda r: {"rail": 0, "ms": 200, "side": "client"}),
}


def plan(seed, trials, kinds, shaped=True):
    """Runs, in order; the same for the same arguments. A run: {run, kind, seed, trials: [...]}."""
    r, runs, total = random.Random(seed), [], 0
    external = [k for k in EXTERNAL if (not kinds or k in kinds) and (shaped or k != "shape")]
    campaign = [k for k in CAMPAIGN if not kinds or k in kinds]
    controls = [k for k in CONTROLS if not kinds or k in kinds]

    def add(kind, drawn):
        nonlocal total
        runs.append({"run": len(runs), "kind": kind, "trials": drawn})
        total += len(drawn)

    def add_external(kind, table):
        repeats, gone, expected, draw = table[kind]
        add(kind, [{"kind": kind, "gone": gone, "expected": expected, "parameters": draw(r)}
                   for _ in range(repeats)])

    def add_campaign(n):
        drawn = []
        for _ in range(n):
            kind = r.choice(campaign)
            idle = kind == "close-idle"
            drawn.append({"kind": kind, "gone": None, "expected": PASS if idle else DATA, "idle": idle,
                          "parameters": {"fault": CAMPAIGN[kind](r)}})
        add("campaign", drawn)

    for _ in range(1 + trials // PER_CONTROL):
        for k in controls:
            add_external(k, CONTROLS)
    while total < trials and (external or campaign):
        # A round: each external kind once, as often the same number of trials of the program's own.
        deck = r.sample(external, len(external))
        rounds = max(1, len(deck)) if campaign else 0
        for i in range(max(len(deck), rounds and 1)):
            if total < trials and deck:
                add_external(deck[i], EXTERNAL)
            if total < trials and campaign and i % 2 == 0:
                add_campaign(min(PER_CAMPAIGN, trials - total))
    return runs


# --------------------------------- one run, in a worker ---------------------------------


def wrong(document):
    i = (document or {}).get("integrity") or {}
    return any(i.get(k) for k in ("lost", "duplicated", "reordered", "corrupted"))


def verified(document):
    i = (document or {}).get("integrity") or {}
    return bool(i.get("verified")) and (i.get("chunks") or 0) > 0


def digest(path):
    try:
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()[:16]
    except OSError:
        return None


def base(run, t, i):
    return {"trial": "%d.%d" % (run["run"], i), "run": run["run"], "kind": t["kind"], "gone": t["gone"],
            "idle": t.get("idle", False),
            "parameters": t["parameters"], "expected": t["expected"], "verdict": None, "why": None,
            "fault_ns": None, "undone_ns": None, "in_flight": None, "gap_us": None, "switches": None,
            "status": None, "documents": None}


def common(row, r):
    row["status"] = dict(r.status)
    row["documents"] = {side: digest(f) for side, f in r.files.items()}
    return row


class Campaign:
    """The program's own faults: a row of its document is a trial."""

    def __init__(self, args, lab, folder, run):
        self.args, self.lab, self.folder, self.run = args, lab, folder, run

    def go(self):
        key = os.path.join(self.folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(os.urandom(32))
        allow = ["--allow-faults", "--key-file", key]
        client = SMALL + allow + ["--test", "failover", "-w", "100ms"]
        for t in self.run["trials"]:
            client += ["--fault", t["parameters"]["fault"]]
        r = Run(self.lab, self.args.dualrail, self.folder, client, ["-g", "0-1"] + allow)
        try:
            r.start_server()
            r.start_client()
            deadline = time.monotonic() + 2 * len(self.run["trials"]) + BOUND_S
            r.wait("client", deadline)
            r.wait("server", time.monotonic() + BOUND_S)
        finally:
            r.stop()
        return self.judge(r)

    def judge(self, r):
        docs = {side: r.document(side) for side in r.files}
        faults = ((docs["client"] or {}).get("failover") or {}).get("faults") or []
        switches = ((docs["client"] or {}).get("failover") or {}).get("switches") or []
        any_wrong = any(wrong(d) for d in docs.values())
        named = any(f["verdict"] == "WRONG" for f in faults)
        out = []
        for i, t in enumerate(self.run["trials"]):
            row = common(base(self.run, t, i), r)
            f = faults[i] if i < len(faults) else None
            if f:
                row.update(fault_ns=f["at_monotonic_ns"], in_flight=f["in_flight_chunks"], gap_us=f["gap_us"],
                           affected=f["channels_affected"], failback_us=f["failback_us"], note=f["note"],
                           cadence_us=(f.get("cadence_us") or {}).get("p50"), verdict=f["verdict"],
                           detect_us=f["detect_us"],
                           bandwidth=[f["bandwidth_before_gbps"], f["bandwidth_during_gbps"],
                                      f["bandwidth_after_gbps"]],
                           switches=sum(not s["receiver"] and not s["planned"] and s["trial"] == f["trial"]
                                        for s in switches))
            else:
                row.update(verdict="HANG" if r.status["client"] in (None, 5) else "UNCLEAN",
                           why="no row of this trial: the run ended before it")
            if any_wrong and not named:
                row.update(verdict="WRONG", why="data wrong somewhere in this run")
            elif f and f["verdict"] in ("PASS", "MISSED_FAULT"):
                self.check_run(row, r, docs)
            out.append(row)
            if not f:
                break  # the rest was never tried
        if out:
            out[-1]["false_failovers"] = ((docs["client"] or {}).get("failover") or {}).get("false_failovers")
        return out

    @staticmethod
    def check_run(row, r, docs):
        """A row that says PASS holds only if the whole run was right."""
        missed_only = all("in flight" in e["text"] or "without a fault" in e["text"]
                          for e in (docs["client"] or {}).get("errors") or [])
        if r.status["client"] is None or r.status["server"] is None:
            row.update(verdict="HANG", why="the run did not end")
        elif 5 in r.status.values():
            row.update(verdict="HANG", why="an end waited in vain: exit statuses %s" % r.status)
        elif not all(verified(d) for d in docs.values()):
            row.update(verdict="UNCLEAN", why="nothing was compared")
        elif r.status["client"] not in (0, 8) or (r.status["client"] == 8 and not missed_only):
            row.update(verdict="UNCLEAN", why="the run ended with %s" % r.status["client"])


class External:
    """Faults of the world outside, one after the other in a run."""

    SPAN = {"stop-server": 1.2, "stop-client": 1.2, "control-down": 1.4, "control-hole": 1.4, "flap": 1.3,
            "shape": 1.3, "loss-long": 1.8, "one-way-long": 1.3, "both-in-turn": 1.5, "cut-and-loss": 1.0,
            "cut-and-stop": 1.0, "cut-and-control": 1.0, "both-briefly": 3.0, "both-for-good": 30,
            "kill-server": 30, "kill-client": 30, "cut-and-kill": 30, "known-wrong": 1.0, "known-hang": 2,
            "known-missed": 1.0}

    def __init__(self, args, lab, folder, run):
        self.args, self.lab, self.folder, self.run = args, lab, folder, run
        self.killed = set()
        self.undo = []

    def go(self):
        kind, trials = self.run["kind"], self.run["trials"]
        seconds = 0.4 + self.SPAN[kind] * len(trials)
        client = SMALL + ["--test", "bw", "--verify", "-D", "%.1f" % seconds, "-w", "100ms"]
        if kind == "known-missed":
            client += ["--rate", "1M"]
        # A stop for good is waited for longer than our own bound, so that the bound is what is seen.
        r = self.r = Run(self.lab, self.args.dualrail, self.folder, client, ["-g", "0-1"])
        rows = []
        bound = 4 if kind == "known-hang" else seconds + BOUND_S
        try:
            r.start_server()
            began = time.monotonic()
            r.start_client()
            for i, t in enumerate(trials):
                row = base(self.run, t, i)
                if not self.one(row, t):
                    break
                rows.append(row)
            for side in ("client", "server"):
                r.wait(side, max(began + bound, time.monotonic() + 0.1))
                if side == "client" and r.status[side] is not None:
                    bound = time.monotonic() - began + BOUND_S
        finally:
            for f in self.undo:
                f()
            r.stop()
            self.lab.restore()
        if not rows:
            rows = [dict(base(self.run, trials[0], 0), why="no data flowed before the fault")]
        return self.judge(rows)

    def one(self, row, t):
        r, lab = self.r, self.lab
        least = 64 if t["kind"] == "known-missed" else 1000000
        if not r.flows(BOUND_S, least):
            return False
        if t["kind"] == "known-missed":
            self.idle_moment()
        before = lab.sent()
        time.sleep(0.01)
        row["in_flight"] = lab.unacknowledged(t["parameters"].get("rail"))
        row["sent_before"] = lab.sent() - before
        row["fault_ns"] = now()
        getattr(self, "do_" + t["kind"].replace("-", "_"))(row, t["parameters"])
        row["undone_ns"] = now()
        if t["gone"] != "peer" and t["expected"] != CLEAN_ERROR and t["kind"] != "known-hang":
            row["moved"] = r.flows(MOVES_S, 100000 if least > 64 else 64)
            row["moved_ns"] = now()
            row["ended_before"] = not r.alive()
            time.sleep(0.12)  # both paths up again, the hold-down over
        return True

    def idle_moment(self):
        end = time.monotonic() + 2
        while self.lab.unacknowledged() and time.monotonic() < end:
            pass

    # ---- faults ----

    def wait(self, milliseconds):
        time.sleep(milliseconds / 1000)

    def stopped(self, side, p):
        self.r.kill(side, signal.SIGSTOP)
        self.wait(p["ms"])
        self.r.kill(side, signal.SIGCONT)

    def do_stop_server(self, row, p):
        self.stopped("server", p)

    def do_stop_client(self, row, p):
        self.stopped("client", p)

    def down(self, p, dev, side=None):
        side = side or p.get("side", "client")
        self.lab.link(side, dev, "down")
        return lambda: self.lab.link(side, dev, "up")

    def hole(self, dev, sides=("client", "server"), rule="drop"):
        made = [self.lab.filter_on(side, dev, "counter " + rule) for side in sides]
        return lambda: [self.lab.filter_off(m) for m in made]

    def lossy(self, dev, percent, row):
        made = [self.lab.filter_on(side, dev, "numgen random mod 100000 < %d counter drop"
                                   % max(1, round(float(percent) * 1000))) for side in self.lab.ns]

        def off():
            row["dropped"] = sum(self.lab.filter_off(m) for m in made)
        return off

    def do_control_down(self, row, p):
        up = self.down(p, "ctl0")
        self.wait(p["ms"])
        up()

    def do_control_hole(self, row, p):
        off = self.hole("ctl0")
        self.wait(p["ms"])
        off()

    def do_flap(self, row, p):
        for low, high in p["times"]:
            up = self.down(p, "rail%d" % p["rail"])
            self.wait(low)
            up()
            self.wait(high)

    def do_shape(self, row, p):
        for side in self.lab.ns:
            self.lab.shape(side, p["rail"], "%dmbit" % p["mbit"])
        self.wait(p["ms"])
        for side in self.lab.ns:
            self.lab.shape(side, p["rail"], self.lab.rate)

    def do_loss_long(self, row, p):
        off = self.lossy("rail%d" % p["rail"], p["percent"], row)
        self.wait(p["ms"])
        off()

    def do_one_way_long(self, row, p):
        off = self.hole("rail%d" % p["rail"], (p["side"],))
        self.wait(p["ms"])
        off()

    def do_both_in_turn(self, row, p):
        for rail in (p["first"], 1 - p["first"]):
            up = self.down(p, "rail%d" % rail)
            self.wait(p["ms"])
            up()
            if not self.r.flows(MOVES_S, 1000000):
                return
            self.wait(300)  # until the first rail protects again

    def do_cut_and_loss(self, row, p):
        off = self.lossy("rail%d" % (1 - p["rail"]), p["percent"], row)
        up = self.down(p, "rail%d" % p["rail"])
        self.wait(p["ms"])
        up()
        off()

    def do_cut_and_stop(self, row, p):
        up = self.down(p, "rail%d" % p["rail"])
        self.wait(p["after"])
        self.stopped(p["who"], p)
        up()

    def do_cut_and_control(self, row, p):
        up = self.down(p, "rail%d" % p["rail"])
        self.wait(p["after"])
        control = self.down(p, "ctl0")
        self.wait(p["ms"])
        control()
        up()

    def both(self, p):
        undo = []
        for i, how in enumerate({"link": ("link", "link"), "hole": ("hole", "hole"),
                                 "mixed": ("link", "hole")}[p["how"]]):
            dev = "rail%d" % i
            undo.append(self.down(p, dev) if how == "link" else self.hole(dev))
            if i == 0:
                self.wait(p["apart"])
        return undo

    def do_both_briefly(self, row, p):
        undo = self.both(p)
        self.wait(p["ms"])
        for f in undo:
            f()

    def do_both_for_good(self, row, p):
        self.undo += self.both(p)

    def die(self, side):
        self.killed.add(side)
        self.r.kill(side, signal.SIGKILL)

    def do_kill_server(self, row, p):
        self.die("server")

    def do_kill_client(self, row, p):
        self.die("client")

    def do_cut_and_kill(self, row, p):
        self.undo.append(self.down(p, "rail%d" % p["rail"]))
        self.wait(p["after"])
        self.die(p["who"])

    # ---- controls ----

    def do_known_wrong(self, row, p):
        made = [self.lab.filter_on("server", "rail%d" % i, "meta length > 1200 numgen random mod %d == 0 "
                                   "@th,1600,16 set 0xbad0 counter" % p["every"]) for i in (0, 1)]
        self.wait(600)
        row["changed"] = sum(self.lab.filter_off(m) for m in made)

    def do_known_hang(self, row, p):
        self.r.kill("server", signal.SIGSTOP)

    def do_known_missed(self, row, p):
        up = self.down(p, "rail0")
        self.wait(p["ms"])
        up()

    # ---- verdicts ----

    def judge(self, rows):
        r = self.r
        docs = {side: r.document(side) for side in r.files}
        switches = ((docs["client"] or {}).get("failover") or {}).get("switches") or []
        last = rows[-1]
        for row in rows:
            common(row, r)
            self.gap(row, rows, switches)
            verdict, why = self.verdict(row, row is last, docs)
            if row["verdict"] is None:
                row.update(verdict=verdict, why=why)
        return rows

    @staticmethod
    def gap(row, rows, switches):
        """Switches from this fault to the next."""
        if row["fault_ns"] is None:
            return
        end = min([x["fault_ns"] for x in rows if x["fault_ns"] > row["fault_ns"]], default=1 << 62)
        mine = [s for s in switches if not s["planned"] and row["fault_ns"] <= (s["detect_ns"] or 0) < end]
        row["switches"] = sum(not s["receiver"] for s in mine)
        gaps = [s["first_delivery_ns"] - s["last_delivery_ns"] for s in mine
                if s["receiver"] and s["first_delivery_ns"] and s["last_delivery_ns"]]
        row["gap_us"] = max(gaps) / 1000 if gaps else None

    def verdict(self, row, is_last, docs):
        s = self.r.status
        left = [side for side in s if side not in self.killed]
        if any(wrong(d) for d in docs.values()) or 6 in s.values():
            return "WRONG", "integrity of " + ", ".join(side for side in docs if wrong(docs[side]))
        if any(s[side] in (None, 5) for side in left):
            return "HANG", "no end, or only by its timeout: %s" % s
        if row["fault_ns"] is None:
            return "UNCLEAN", row["why"]
        if row.get("moved") is False and not row.get("ended_before"):
            return "HANG", "no data within %d s after the fault" % MOVES_S
        if all(s[side] == 0 for side in s):
            if not all(verified(d) for d in docs.values()):
                return "UNCLEAN", "nothing was compared"
            if not row["in_flight"]:
                return "MISSED_FAULT", "nothing unacknowledged"
            return "PASS", None
        if all(s[side] in CLEAN and (docs[side] or {}).get("exit_code") == s[side] for side in left):
            # The earlier trials of the run were survived.
            return ("CLEAN_ERROR" if is_last else "PASS"), None
        return "UNCLEAN", "exit statuses %s" % s


# ------------------------------------ all of it ------------------------------------


def take(runs, todo):
    with todo.get_lock():
        if todo.value >= len(runs):
            return None
        todo.value += 1
        return runs[todo.value - 1]


def worker(args, n, runs, todo, done):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = None
    try:
        lab = Lab("dch%d-%d" % (os.getppid(), n), args.rate)
        while True:
            run = take(runs, todo)
            if run is None:
                break
            folder = os.path.join(args.out, "runs", "%05d" % run["run"])
            os.makedirs(folder, exist_ok=True)
            began = time.monotonic()
            try:
                cls = Campaign if run["kind"] == "campaign" else External
                rows = cls(args, lab, folder, run).go()
            except (OSError, RuntimeError) as e:
                rows = [dict(base(run, run["trials"][0], 0), verdict="UNCLEAN", why="could not be run: %s" % e)]
                lab.restore()
            if any(x["verdict"] not in x["expected"] for x in rows):
                lab.restore()
            for row in rows:
                row["seconds"] = round((time.monotonic() - began) / len(rows), 3)
            if not args.keep and all(x["verdict"] in x["expected"] for x in rows):
                shutil.rmtree(folder)
            done.put(rows)
    except Skip as e:
        done.put("SKIP %s" % e)
    except Exception as e:  # pylint: disable=broad-except
        done.put("worker %d: %s: %s" % (n, type(e).__name__, e))
    finally:
        if lab:
            lab.destroy()
        done.put(None)


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--dualrail", required=True)
    p.add_argument("--trials", type=int, default=150)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--seed", type=int, default=0, help="0: draw one, and print it")
    p.add_argument("--out", default="build/chaos-out")
    p.add_argument("--limit", type=float, default=0, help="start no run after so many seconds")
    p.add_argument("--kinds", default="", help="only these, with commas")
    p.add_argument("--rate", default="500mbit", help="of each rail; none: not shaped")
    p.add_argument("--keep", action="store_true", help="documents of runs that came out as expected, too")
    args = p.parse_args()
    args.dualrail = os.path.abspath(args.dualrail)
    args.out = os.path.abspath(args.out)
    args.seed = args.seed or random.SystemRandom().randrange(1, 1 << 31)
    args.kinds = [k for k in args.kinds.split(",") if k]
    unknown = [k for k in args.kinds if k not in {**CAMPAIGN, **EXTERNAL, **CONTROLS}]
    if unknown or not os.access(args.dualrail, os.X_OK):
        p.error("no such kind: %s" % unknown if unknown else "no program %s" % args.dualrail)
    return args


def main():
    args = parse()
    require(["ip", "tc", "nft"])
    runs = plan(args.seed, args.trials, args.kinds, args.rate != "none")
    n = sum(len(r["trials"]) for r in runs)
    os.makedirs(args.out, exist_ok=True)
    raw_name = os.path.join(args.out, "raw.jsonl")
    print("seed %d: %d trials in %d runs, %d at a time; %s" % (args.seed, n, len(runs), args.jobs, raw_name))
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    context = multiprocessing.get_context("fork")
    todo, done = context.Value("l", 0), context.Queue()  # index of the next run
    version = subprocess.run([args.dualrail, "--version"], capture_output=True, text=True).stdout.strip()
    workers = [context.Process(target=worker, args=(args, i, runs, todo, done)) for i in range(args.jobs)]
    for w in workers:
        w.start()
    began, said, rows, bad, left, failed = time.monotonic(), 0.0, 0, 0, len(workers), False
    with open(raw_name, "w") as raw:
        raw.write(json.dumps({"meta": {"seed": args.seed, "trials": n, "jobs": args.jobs, "rate": args.rate,
                                       "kinds": args.kinds, "version": version, "cpus": os.cpu_count(),
                                       "kernel": os.uname().release, "bound_s": BOUND_S}}) + "\n")
        try:
            while left:
                if args.limit and time.monotonic() - began > args.limit:
                    todo.value = len(runs)
                try:
                    got = done.get(timeout=1)
                except queue.Empty:
                    if not any(w.is_alive() for w in workers):
                        break
                    got = []
                if got is None:
                    left -= 1
                elif isinstance(got, str):
                    print(got)
                    if got.startswith("SKIP"):
                        failed = "skip"
                    else:
                        failed = failed or "broken"
                    got = []
                for row in got or []:
                    row["seed"] = args.seed
                    raw.write(json.dumps(row) + "\n")
                    rows += 1
                    if row["verdict"] not in row["expected"]:
                        bad += 1
                        print("%s %s: %s, expected %s: %s %s" % (row["trial"], row["kind"], row["verdict"],
                              row["expected"], row["why"] or "", json.dumps(row["parameters"])))
                raw.flush()
                if time.monotonic() - said > 10:
                    said = time.monotonic()
                    print("%5.0f s: %d of %d trials, %d not as expected" % (said - began, rows, n, bad))
                    sys.stdout.flush()
        except KeyboardInterrupt:
            failed = "interrupted"
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)
            for w in workers:
                w.terminate()
        for w in workers:
            w.join(60)
    print("%d trials in %.0f s" % (rows, time.monotonic() - began))
    if failed == "skip":
        return 77
    sys.stdout.flush()
    rc = subprocess.run([sys.executable, os.path.join(HERE, "recount.py"), raw_name]
                        + (["--partial"] if args.kinds else [])).returncode
    return 1 if failed else rc


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as e:
        print("SKIP chaos: %s" % e)
        sys.exit(77)
