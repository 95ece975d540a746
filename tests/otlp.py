#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks traces against the rules of the OTLP JSON encoding and of traces.

usage: otlp.py FILE...     the files are those of one trace, of one or of both ends

Rules: known fields only; ids in hex, 32 and 16 digits, not all 0; 64-bit integers as strings, enums as numbers;
attributes with one value of one kind, each name once; no span twice in a file; a begin before its end; one trace; one
root; parents and linked spans exist; a child's time lies within that of its parent in the same file. Prints each
violation; exit status 1 if there was one.
"""
import json
import re
import sys

SPAN_FIELDS = {"traceId", "spanId", "parentSpanId", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano",
               "attributes", "events", "links", "status"}
REQUIRED = {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"}
VALUES = {"stringValue": str, "boolValue": bool, "doubleValue": (int, float), "intValue": str}
LATEST_NS = 1 << 63


def is_id(text, digits):
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) and set(text) != {"0"}


def is_time(text):
    return isinstance(text, str) and re.fullmatch("[1-9][0-9]*", text) and int(text) < LATEST_NS


def attribute_rules(where, attributes):
    seen = set()
    for a in attributes:
        value = a.get("value", {})
        if a.keys() != {"key", "value"} or not a["key"] or a["key"] in seen:
            yield f"{where}: attribute {a}: no name, a name twice or other fields"
        seen.add(a.get("key"))
        kind = next(iter(value), None)
        if len(value) != 1 or kind not in VALUES or not isinstance(value[kind], VALUES[kind]):
            yield f"{where}: attribute {a}: not one value of a kind"
        elif kind == "intValue" and not re.fullmatch("-?[0-9]+", value[kind]):
            yield f"{where}: attribute {a}: not an integer"


def span_rules(s):
    where = f"span {s.get('name')} {s.get('spanId')}"
    if not REQUIRED <= s.keys() <= SPAN_FIELDS:
        yield f"{where}: fields {sorted(s.keys() ^ REQUIRED)}"
        return
    if not is_id(s["traceId"], 32) or not is_id(s["spanId"], 16) or not is_id(s.get("parentSpanId", "1" * 16), 16):
        yield f"{where}: a bad id"
    if not s["name"] or s["kind"] not in range(1, 6) or not isinstance(s["kind"], int):
        yield f"{where}: no name, or kind {s['kind']}"
    if not is_time(s["startTimeUnixNano"]) or not is_time(s["endTimeUnixNano"]):
        yield f"{where}: a bad time"
    elif int(s["startTimeUnixNano"]) > int(s["endTimeUnixNano"]):
        yield f"{where}: ends before it begins"
    yield from attribute_rules(where, s.get("attributes", []))
    for e in s.get("events", []):
        if not {"timeUnixNano", "name"} <= e.keys() <= {"timeUnixNano", "name", "attributes"} or \
                not is_time(e["timeUnixNano"]) or not e["name"]:
            yield f"{where}: event {e}"
        yield from attribute_rules(where, e.get("attributes", []))
    for link in s.get("links", []):
        if link.keys() != {"traceId", "spanId"}:
            yield f"{where}: link {link}"
    status = s.get("status", {})
    if not status.keys() <= {"code", "message"} or status.get("code", 0) not in (0, 1, 2):
        yield f"{where}: status {status}"


def spans_of(doc):
    """The spans of a document; what is not in its place is a violation, as text."""
    if doc.keys() != {"resourceSpans"}:
        yield f"fields of the document: {sorted(doc)}"
    for r in doc.get("resourceSpans", []):
        if r.keys() != {"resource", "scopeSpans"}:
            yield f"fields of resourceSpans: {sorted(r)}"
        attributes = r.get("resource", {}).get("attributes", [])
        yield from attribute_rules("resource", attributes)
        if not any(a["key"] == "service.name" for a in attributes):
            yield "resource: no service.name"
        for scope in r.get("scopeSpans", []):
            if scope.keys() != {"scope", "spans"} or not scope["scope"].get("name"):
                yield f"fields of scopeSpans: {sorted(scope)}"
            yield from scope.get("spans", [])


def tree_rules(own, everywhere):
    """own: the spans of a file by id; everywhere: those of all files."""
    for s in own.values():
        where = f"span {s['name']} {s['spanId']}"
        parent = s.get("parentSpanId")
        for link in s.get("links", []):
            if link["spanId"] not in everywhere or link["traceId"] != s["traceId"]:
                yield f"{where}: linked span {link['spanId']} does not exist"
        if parent is None:
            continue
        if parent not in everywhere:
            yield f"{where}: parent {parent} does not exist"
        elif parent in own:
            p = own[parent]
            if int(s["startTimeUnixNano"]) < int(p["startTimeUnixNano"]) or \
                    int(s["endTimeUnixNano"]) > int(p["endTimeUnixNano"]):
                yield f"{where}: not within the time of its parent {p['name']}"
        elif s.get("flags", 0) & 0x300 != 0x300:
            yield f"{where}: its parent is in another file, and flags do not say so"


def main():
    problems, files, everywhere = [], [], {}
    for path in sys.argv[1:]:
        own = {}
        with open(path, encoding="utf-8") as f:
            for s in spans_of(json.load(f)):
                found = [s] if isinstance(s, str) else list(span_rules(s))
                problems += [f"{path}: {p}" for p in found]
                if found:
                    continue
                if s["spanId"] in own:
                    problems.append(f"{path}: span {s['name']} {s['spanId']} twice")
                own[s["spanId"]] = s
        if not own:
            problems.append(f"{path}: no spans")
        files.append((path, own))
        everywhere.update(own)
    for path, own in files:
        problems += [f"{path}: {p}" for p in tree_rules(own, everywhere)]
    if len({s["traceId"] for s in everywhere.values()}) > 1:
        problems.append("more than one trace")
    roots = {i for i, s in everywhere.items() if "parentSpanId" not in s}
    if everywhere and len(roots) != 1:
        problems.append(f"{len(roots)} roots")
    for p in problems[:20]:
        print(p)
    sys.exit(bool(problems))


main()
