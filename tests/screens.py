#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Screens of a program as text.

screens.py fits WIDTH FILE        no sentence is wider than WIDTH, no row of a table wider than 110. The verdicts of preflight and
                                  sweep are one line each, for other programs
screens.py join                   the files w60, w80 and w120, one after the other, each with its width
screens.py same FILE FILE         the same shape: words without numbers, where lines break does not count
"""
import re
import sys

# What comes only if something happened: counters of NICs, late threads, a latency that is the same for all GPUs.
OPTIONAL = [r"COUNTERS: .*?(?=COUNTERS|Processor|Data)", r"Processor, \w+: .*? by that", r"to 0 us \(GPU 0 over rail0\)",
            r"[,;] (but|ctl0) [^-]*?(?=-----|$)"]


def shape(text):
    text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}", "RUN", text)
    text = re.sub(r"(?<= )(#+|\.)(?= |$)", "", text, flags=re.M)  # marks of heat
    text = re.sub(r"\d[\d.:,]*\d|\d", "0", text)
    text = re.sub(r"on \S+( with \S+ \(0\))?(?= test=)", "on HOST", re.sub(r"\s+", " ", text))
    for part in OPTIONAL:
        text = re.sub(part, "", text)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"(fault 0: [^:]*: [^:]*: PASS )(\1)+", r"\1", text)


def main():
    what, args = sys.argv[1], sys.argv[2:]
    if what == "fits":
        for line in open(args[1], encoding="utf-8"):
            line = line.rstrip("\n")
            table = "  " in line.strip() or " | " in line
            if len(line.split()) == 1 or re.match(r"(preflight [^ ]+|sweep): ", line):
                continue
            if len(line) > (110 if table else int(args[0])):
                sys.exit(f"wider than {args[0]}: {line}")
    elif what == "join":
        for width in (60, 80, 120):
            print(f"----- {width} columns -----")
            print(open(f"w{width}", encoding="utf-8").read().strip("\n"))
    else:
        old, new = (shape(open(f, encoding="utf-8").read()) for f in args)
        if old != new:
            at = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
            sys.exit(f"another shape:\n  {old[max(0, at - 60):at + 60]}\n  {new[max(0, at - 60):at + 60]}")


main()
