#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Are the metrics and labels of a Grafana dashboard and of alert rules those that the program exports?

usage: metricnames.py DASHBOARD.json RULES.yaml OUTPUT.prom... [--expressions FILE]

The outputs are Prometheus text of real runs. Every metric and every label of an expression, a legend, a text of an
alert or a variable has to be in one of them; instance is Prometheus' own. --expressions writes the dashboard's expressions as
recording rules, with its variables replaced, for promtool check rules. Prints each violation; exit status 1 if
there was one.
"""
import json
import re
import sys

SAMPLE = re.compile(r"^(dualrail_[a-z0-9_]+)(\{.*\})? \S+$")
OWN = {"instance"}


def exported(paths):
    names, labels = set(), set(OWN)
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for m in filter(None, map(SAMPLE.match, f)):
                names.add(m[1])
                labels |= set(re.findall(r'([a-z_]+)="', m[2] or ""))
    return names, labels


def texts(node, keys):
    """The strings below these keys, anywhere in the dashboard."""
    if isinstance(node, list):
        for x in node:
            yield from texts(x, keys)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in keys and isinstance(value, str):
                yield value
            else:
                yield from texts(value, keys)


def labels_of(text):
    for selector in re.findall(r"\{([^{}]*)\}", text):
        yield from re.findall(r"([a-z_]+)\s*(?:=~|!=|!~|=)", selector)
    for group in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", text):
        yield from re.findall(r"[a-z_]+", group)
    yield from re.findall(r"\{\{\s*([a-z_]+)\s*\}\}", text)
    yield from re.findall(r"\$labels\.([a-z_]+)", text)
    yield from re.findall(r"label_values\([^,]*,\s*([a-z_]+)\)", text)


def main():
    args = sys.argv[1:]
    where = args.index("--expressions") if "--expressions" in args else None
    out = args[where + 1] if where is not None else None
    args = args[:where]
    with open(args[0], encoding="utf-8") as f:
        dashboard = json.load(f)
    with open(args[1], encoding="utf-8") as f:
        rules = [line for line in f if not line.startswith("#")]
    names, labels = exported(args[2:])
    expressions = list(texts(dashboard, {"expr"}))
    used = [(args[0], t) for t in expressions + list(texts(dashboard, {"legendFormat", "query"}))]
    used += [(args[1], t) for t in rules]
    problems = [] if names and expressions and rules else ["nothing to compare"]
    for path, text in used:
        problems += [f"{path}: no run exports {n}" for n in re.findall(r"\bdualrail_[a-z0-9_]+", text) if n not in names]
        problems += [f"{path}: no metric has a label {n}: {text.strip()}" for n in labels_of(text) if n not in labels]
    if out:
        with open(out, "w", encoding="utf-8") as f:
            f.write("groups:\n  - name: dashboard\n    rules:\n")
            for i, e in enumerate(expressions):
                e = e.replace("$__rate_interval", "5m").replace("$host", "x").replace("$instance", "x")
                f.write(f"      - {{ record: panel_{i}, expr: {json.dumps(e)} }}\n")
    for p in problems:
        print(p)
    sys.exit(bool(problems))


main()
