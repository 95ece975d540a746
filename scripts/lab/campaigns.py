#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of failover campaigns, from their result documents; those of several labs are put together.

    campaigns.py DOCUMENT...

Documents with the same kinds, sides, detection, heartbeat and shape of run make one campaign. Gaps and
their parts are the receiver's; a percentile is the nearest rank. In conservative mode no switch may come
before the NIC gave up, that is, for another reason than its completion error (ETIMEDOUT). The window, (retries
+ 1) timeouts of 4.096 us * 2^t, is printed beside the soonest detection after the receiver's last delivery: a
control frame posted a little earlier may have started it, and software RoCE rounds a timeout down to ticks of
the kernel, whose timers may run out a tick early: the least that it can be. Exit status 1 when data were wrong, a
trial ended otherwise than well or hit nothing, a switch came for no reason, or too early.
"""
import os
import sys
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import stats  # noqa: E402

TICK_US = 4000  # of Debian's kernel, CONFIG_HZ=250
BROKEN = ("lost", "duplicated", "reordered", "corrupted")


def option(doc, name):
    value = doc["options"].get(name)
    return value.get("value") if isinstance(value, dict) else value


def key(doc, fault):
    return (fault["kind"], fault["side"], doc["detection"]["mode"], doc["detection"]["heartbeat_us"],
            f"{len(doc['topology']['gpus'])} x {option(doc, 'channels')}")


def window_us(doc):
    """How long the NIC tries, and the least of software RoCE's; (None, None): infinite."""
    timeout, retry = int(option(doc, "ib-timeout")), int(option(doc, "ib-retry"))
    if timeout == 0 or retry == 7:
        return None, None
    once = 4.096 * 2 ** timeout
    return once * (retry + 1), max(once // TICK_US - 1, 0) * TICK_US * (retry + 1)


class Campaign:
    def __init__(self, doc):
        self.faults, self.broken, self.false, self.docs = [], Counter(), 0, 0
        self.unknown = self.others = 0
        self.bound_ms = doc["detection"]["bound_ms"]
        self.window_us = self.least_us = None
        if doc["detection"]["mode"] == "conservative":
            self.window_us, self.least_us = window_us(doc)
        self.chunks = 0

    def add(self, doc, faults):
        self.docs += 1
        self.faults += faults
        self.others += sum(1 for s in doc["failover"]["switches"]
                           if not s["planned"] and s["self_detected"] and s["trial"] is not None
                           and s["error"] not in ("ETIMEDOUT", "EREMOTEIO"))
        self.chunks += doc["integrity"]["chunks"] or 0
        for word in BROKEN:
            self.broken[word] += doc["integrity"][word] or 0
        false = doc["failover"]["false_failovers"]
        self.false += false or 0
        self.unknown += false is None

    def verdicts(self):
        return Counter(f["verdict"] for f in self.faults)

    def soonest_us(self):
        """From the last delivery to the detection, of the trial in which it was shortest."""
        return min(stats.known(self.faults, "detect_us"), default=None)

    def early(self):
        """In conservative mode, switches that this end began for another reason than its NIC's error."""
        return self.least_us is not None and self.others

    def bad(self):
        verdicts = self.verdicts()
        return (self.early() or self.false or self.unknown or any(self.broken.values())
                or not self.faults or verdicts["PASS"] < len(self.faults))


def three(values):
    if not values:
        return "-"
    return " / ".join(f"{stats.percentile(values, p) / 1e3:.1f}" for p in (50, 90, 99))


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def name(k):
    kind, side, mode, heartbeat_us, shape = k
    return f"{kind} at the {side}, {mode}, heartbeat {heartbeat_us / 1e3:g} ms, {shape}"


def report(campaigns):
    order = sorted(campaigns.items(), key=lambda item: item[0])
    print("Gaps in ms: p50 / p90 / p99.")
    table(["campaign", "n", "verdicts", "gap", "detect", "fence", "handshake", "replay",
           "first delivery"],
          [[name(k), str(len(c.faults)),
            ", ".join(f"{n} {v}" for v, n in sorted(c.verdicts().items())),
            three(stats.known(c.faults, "gap_us")),
            *(three(stats.known(c.faults, p + "_us")) for p in stats.PARTS)] for k, c in order])
    table(["campaign", "chunks", *BROKEN, "false failovers", "longest gap, ms", "causes"],
          [[name(k), str(c.chunks), *(str(c.broken[w]) for w in BROKEN),
            str(c.false) + (" and unknown" if c.unknown else ""),
            f"{max(stats.known(c.faults, 'gap_us'), default=0) / 1e3:.1f}",
            "; ".join(f"{n} x {t}" for t, n in Counter(f["cause"] for f in c.faults).most_common(3))]
           for k, c in order])
    for k, c in order:
        if c.window_us:
            soonest = c.soonest_us()
            print(f"\n{name(k)}: hardware window {c.window_us / 1e3:.1f} ms (with {TICK_US // 1000} ms ticks "
                  f"{c.least_us / 1e3:.1f} at the least), bound of the detection {c.bound_ms:.1f} ms, soonest "
                  + ("none" if soonest is None else f"{soonest / 1e3:.1f} ms")
                  + (f"; {c.others} for ANOTHER REASON" if c.others else "; each began with a NIC that gave up"))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    campaigns, bad = {}, 0
    for path in sys.argv[1:]:
        doc = stats.load(path)
        faults = doc["failover"]["faults"]
        for k in {key(doc, f) for f in faults}:
            mine = [f for f in faults if key(doc, f) == k]
            campaigns.setdefault(k, Campaign(doc)).add(doc, mine)
        if doc["exit_code"] != 0 or not faults:
            bad = 1
            print(f"{path}: exit {doc['exit_code']}, {len(faults)} faults: "
                  + "; ".join(e["text"] for e in doc["errors"]), file=sys.stderr)
    report(campaigns)
    for k, c in campaigns.items():
        if c.bad():
            bad = 1
            print(f"\nnot good: {name(k)}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
