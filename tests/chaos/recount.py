#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts a chaos campaign again from its raw log alone, with nothing in common with what wrote it.

  recount.py RAW.jsonl [--partial] [--missed PERCENT]

Prints verdicts per kind, percentiles of the gap per kind, and the share of trials that hit nothing. Exit status 1
when a trial came out otherwise than was stated beforehand; when anything but a control was WRONG or HANG; when more
than 5 % were MISSED_FAULT; when a CLEAN_ERROR came where neither both rails nor the peer were gone, or without a
status for it from every end that lived; when a hit trial lacks evidence of data in flight; when the loss of an
idle path switched anything; when a trial is there twice; or when no negative control came out WRONG (--partial:
that is not asked for).
"""
import json
import math
import sys


def rank(values, percent):
    v = sorted(values)
    return v[min(len(v) - 1, max(0, math.ceil(percent / 100 * len(v)) - 1))]


def read(path):
    meta, trials = {}, []
    for number, line in enumerate(open(path), 1):
        try:
            x = json.loads(line)
        except ValueError:
            sys.exit("%s:%d: not JSON" % (path, number))
        if "meta" in x:
            meta = x["meta"]
        else:
            trials.append(x)
    return meta, trials


def known(t):
    """A control of the measurement, which must come out as something that is never right."""
    return t["expected"] in (["WRONG"], ["HANG"], ["MISSED_FAULT"])


def objections(t):
    """What is wrong with one trial's line."""
    verdict = t.get("verdict")
    if verdict not in t["expected"]:
        yield "%s, expected %s (%s)" % (verdict, " or ".join(t["expected"]), t.get("why"))
    if known(t):
        return
    if verdict in ("WRONG", "HANG"):
        yield verdict
    if verdict == "CLEAN_ERROR":
        if t.get("gone") not in ("rails", "peer"):
            yield "an error although a rail and the peer were there"
        status = t.get("status") or {}
        for end in ("client", "server"):
            if status.get(end) not in (3, 4, -9):
                yield "CLEAN_ERROR, but the %s ended with %s" % (end, status.get(end))
        if list(status.values()).count(-9) > 1 or (-9 in status.values() and t.get("gone") != "peer"):
            yield "an end was killed in a trial that kills none"
    if verdict == "PASS":
        if not t.get("fault_ns"):
            yield "no time of the fault"
        if t.get("idle"):
            if t.get("affected") != 0 or t.get("switches"):
                yield "a fault of the idle path disturbed the active one"
        elif not t.get("in_flight"):
            yield "PASS without data in flight"
        if set((t.get("status") or {}).values()) - {0, 3, 4, 8, -9}:
            yield "PASS with exit statuses %s" % t["status"]


def table(trials):
    order = ["PASS", "CLEAN_ERROR", "MISSED_FAULT", "WRONG", "HANG", "UNCLEAN"]
    print("%-15s %6s  %s  as expected  switches" % ("kind", "trials", " ".join("%12s" % v for v in order)))
    for kind in sorted({t["kind"] for t in trials}) + [None]:
        mine = [t for t in trials if kind in (None, t["kind"])]
        counts = [sum(t["verdict"] == v for t in mine) for v in order]
        good = sum(t["verdict"] in t["expected"] for t in mine)
        print("%-15s %6d  %s  %11d  %8d" % (kind or "all", len(mine), " ".join("%12d" % c for c in counts), good,
                                          sum(t.get("switches") or 0 for t in mine)))


def gaps(trials):
    print("\nGap of the worst channel, ms, where there was a switch")
    print("%-15s %6s %8s %8s %8s %8s" % ("kind", "trials", "p50", "p90", "p99", "max"))
    for kind in sorted({t["kind"] for t in trials}):
        g = [t["gap_us"] / 1000 for t in trials if t["kind"] == kind and t.get("gap_us") is not None
             and t["verdict"] == "PASS"]
        if g:
            print("%-15s %6d %8.2f %8.2f %8.2f %8.2f" % (kind, len(g), rank(g, 50), rank(g, 90), rank(g, 99), max(g)))


def main(argv):
    names = [a for a in argv if not a.startswith("--")]
    if len(names) < 1:
        sys.exit(__doc__)
    limit = float(names[1]) if "--missed" in argv and len(names) > 1 else 5.0
    meta, trials = read(names[0])
    print("seed %s, %s, kernel %s, %s processors, %s at a time" % tuple(
        meta.get(k) for k in ("seed", "version", "kernel", "cpus", "jobs")))
    table(trials)
    gaps(trials)
    found = []
    for t in trials:
        found += ["%s %s: %s" % (t["trial"], t["kind"], text) for text in objections(t)]
    ids = [t["trial"] for t in trials]
    if len(set(ids)) != len(ids):
        found.append("a trial is in the log twice")
    asked = [t for t in trials if not known(t)]
    missed = sum(t["verdict"] == "MISSED_FAULT" for t in asked)
    share = 100 * missed / len(asked) if asked else 0
    print("\nMISSED_FAULT: %d of %d, %.1f %% (at most %.3g %%)" % (missed, len(asked), share, limit))
    if share > limit:
        found.append("%.1f %% hit nothing" % share)
    control = [t for t in trials if t["expected"] == ["WRONG"]]
    wrong = sum(t["verdict"] == "WRONG" and 6 in (t.get("status") or {}).values() for t in control)
    print("negative controls: %d of %d came out WRONG, with exit status 6" % (wrong, len(control)))
    if not wrong and "--partial" not in argv:
        found.append("no negative control came out WRONG: the campaign cannot tell")
    if not trials:
        found.append("no trials")
    stopped = [t for t in trials if t["kind"] in ("stop-server", "stop-client", "control-down", "control-hole")]
    print("switches without a fault of a rail: %d in %d trials (stopped ends, lost control)"
          % (sum(t.get("switches") or 0 for t in stopped), len(stopped)))
    print("false failovers by the program's own count: %d; failbacks not in time: %d"
          % (sum(t.get("false_failovers") or 0 for t in trials),
             sum("failback" in (t.get("note") or "") for t in trials)))
    for text in found:
        print("  " + text)
    print("recount: %d trials, %d objections: %s" % (len(trials), len(found), "FAIL" if found else "PASS"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
