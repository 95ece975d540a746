#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does recount.py object to what it should? A right log passes; each wrong one, made from it, does not."""
import copy
import json
import os
import subprocess
import sys
import tempfile

RECOUNT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recount.py")


def trial(name, kind, verdict, expected, client=0, server=0, **more):
    return dict({"trial": name, "kind": kind, "gone": None, "expected": expected, "verdict": verdict, "why": None,
                 "fault_ns": 5, "in_flight": 3, "gap_us": 20000.0, "switches": 2, "parameters": {},
                 "status": {"client": client, "server": server}}, **more)


def right():
    data = ["PASS", "MISSED_FAULT"]
    log = [trial("1.%d" % i, "link-down", "PASS", data) for i in range(40)]
    log.append(trial("2.0", "both-for-good", "CLEAN_ERROR", ["CLEAN_ERROR"], 4, 4, gone="rails"))
    log.append(trial("3.0", "kill-client", "CLEAN_ERROR", ["CLEAN_ERROR"], -9, 3, gone="peer"))
    log.append(trial("4.0", "known-wrong", "WRONG", ["WRONG"], 6, 6))
    log.append(trial("6.0", "close-idle", "PASS", ["PASS"], idle=True, affected=0, in_flight=0, switches=0))
    log.append(trial("5.0", "known-hang", "HANG", ["HANG"], None, None))
    return log


def change(i, **values):
    def f(log):
        log[i].update(values)
    return f


def several_missed(log):
    for t in log[:4]:
        t["verdict"] = "MISSED_FAULT"


CASES = {
    "data wrong": change(0, verdict="WRONG"),
    "wrong, and even expected": change(0, verdict="WRONG", expected=["PASS", "WRONG"]),
    "a hang": change(1, verdict="HANG"),
    "no verdict": change(2, verdict=None),
    "an error where a rail was left": change(3, verdict="CLEAN_ERROR", expected=["PASS", "CLEAN_ERROR"],
                                             status={"client": 4, "server": 4}),
    "an error without a status": change(40, status={"client": 4, "server": 0}),
    "an end that never ended": change(40, status={"client": 4, "server": None}),
    "an end killed by nobody": change(40, status={"client": -9, "server": 4}),
    "passed where both rails were lost": change(40, verdict="PASS"),
    "nothing was in flight": change(5, in_flight=0),
    "an idle path's loss that switched": change(43, switches=1),
    "no time of the fault": change(6, fault_ns=None),
    "the control came out right": change(42, verdict="PASS"),
    "the control without exit status 6": change(42, status={"client": 0, "server": 0}),
    "no control": lambda log: log.pop(42),
    "a trial twice": lambda log: log.append(copy.deepcopy(log[7])),
    "too many that hit nothing": several_missed,
    "an empty log": lambda log: log.clear(),
}


def recount(folder, log):
    name = os.path.join(folder, "raw.jsonl")
    with open(name, "w") as f:
        f.writelines(json.dumps(x) + "\n" for x in [{"meta": {"seed": 1}}] + log)
    return subprocess.run([sys.executable, RECOUNT, name], stdout=subprocess.DEVNULL).returncode


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if recount(folder, right()) != 0:
            print("recount.py objects to a log that is right")
            failed = 1
        for name, f in CASES.items():
            log = right()
            f(log)
            if recount(folder, log) != 1:
                print("recount.py lets pass: %s" % name)
                failed = 1
    print("recount.py: %d wrong logs, %s" % (len(CASES), "not all noticed" if failed else "all noticed"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
