#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks Prometheus text against the rules of the exposition format and of metric names.

usage: promtext.py FILE...

Rules: HELP and TYPE once and before the samples of a family; the samples of a family follow each other; no series
twice; counters end in _total; no unit but seconds, bytes, ratio; no type in a name; no reserved label; a histogram has
cumulative buckets up to +Inf, which equals _count. Prints each violation; exit status 1 if there was one.
"""
import re
import sys

SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
TYPES = ("counter", "gauge", "histogram", "summary")
UNITS = ("milliseconds", "microseconds", "nanoseconds", "ms", "us", "ns", "bits", "percent", "gbps", "kilobytes",
         "megabytes", "gigabytes", "minutes", "hours")


class Family:
    def __init__(self, name):
        self.name, self.type, self.help, self.closed = name, None, None, False
        self.series, self.buckets, self.counts = set(), {}, {}


def family_of(families, name):
    for suffix in ("_bucket", "_sum", "_count"):
        base = name[:-len(suffix)] if name.endswith(suffix) else None
        if base in families and suffix in SUFFIXES.get(families[base].type, ()):
            return families[base], suffix
    return families.get(name), ""


def name_rules(f):
    words = f.name.split("_")
    if f.type == "counter" and words[-1] != "total":
        yield f"counter {f.name} does not end in _total"
    if f.type != "counter" and words[-1] in ("total", "count", "sum", "bucket", "info") and f.name != "dualrail_info":
        yield f"{f.type} {f.name} ends in _{words[-1]}"
    for word in words:
        if word in TYPES:
            yield f"{f.name} has the type {word} in its name"
        if word in UNITS:
            yield f"{f.name} is not in a base unit ({word})"
    if f.name != f.name.lower():
        yield f"{f.name} has capitals"
    if not f.help:
        yield f"{f.name} has no help"


def histogram_rules(f):
    for key, buckets in f.buckets.items():
        bounds = [float(b) for b, _ in buckets]
        values = [v for _, v in buckets]
        if bounds != sorted(bounds) or values != sorted(values):
            yield f"{f.name}{key}: buckets do not rise"
        if bounds[-1] != float("inf") or values[-1] != f.counts.get(key):
            yield f"{f.name}{key}: the last bucket is not +Inf with the value of _count"


def add_sample(families, name, labels, value):
    f, suffix = family_of(families, name)
    if not f or not f.type:
        return None, f"{name} has no TYPE before it"
    names = [k for k, _ in labels]
    allowed = {"histogram": ["le"], "summary": ["quantile"]}.get(f.type, [])
    problems = [f"{name}: label {k} is reserved" for k in names
                if k.startswith("__") or k in ("le", "quantile") and k not in allowed]
    if len(set(names)) != len(names):
        problems.append(f"{name}: a label twice")
    series = (name, tuple(sorted(labels)))
    if series in f.series:
        problems.append(f"{name}{dict(labels)} twice")
    f.series.add(series)
    key = tuple(sorted(l for l in labels if l[0] != "le"))
    if f.type == "histogram" and suffix == "_bucket":
        f.buckets.setdefault(key, []).append((dict(labels).get("le", "nan"), value))
    if suffix == "_count":
        f.counts[key] = value
    if f.type == "counter" and not value >= 0:
        problems.append(f"{name} is negative")
    return f, "; ".join(problems)


def check(text):
    families, current = {}, None
    if text and not text.endswith("\n"):
        yield "no newline at the end"
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(" ", 3)
        if words[0] == "#" and len(words) > 2 and words[1] in ("HELP", "TYPE"):
            f = families.setdefault(words[2], Family(words[2]))
            if getattr(f, words[1].lower()) is not None or f.series:
                yield f"line {number}: {words[1]} of {f.name} again, or after its samples"
            setattr(f, words[1].lower(), words[3] if len(words) > 3 else "")
            if words[1] == "TYPE" and f.type not in TYPES:
                yield f"line {number}: unknown type {f.type}"
            continue
        m = SAMPLE.match(line)
        if not m:
            yield f"line {number}: neither a comment nor a sample: {line[:80]}"
            continue
        try:
            value = float(m[3])
        except ValueError:
            yield f"line {number}: {m[3]} is no number"
            continue
        f, problem = add_sample(families, m[1], LABEL.findall(m[2] or ""), value)
        if problem:
            yield f"line {number}: {problem}"
        if f and f is not current:
            if f.closed:
                yield f"line {number}: {f.name} goes on after other families"
            if current:
                current.closed = True
            current = f
    for f in families.values():
        yield from name_rules(f)
        yield from histogram_rules(f)
    if not families:
        yield "no metric"


def main():
    bad = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            for problem in check(f.read()):
                print(f"{path}: {problem}")
                bad = 1
    return bad


sys.exit(main())
