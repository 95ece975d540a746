#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Validates what dualrail wrote against the schemas that it prints.

usage: validate.py DUALRAIL FILE|DIRECTORY...     of a directory every file in it

A file is one JSON document or JSON lines. Each document says by its keys which schema it has; a file that is
neither, and a document of somebody else's, is passed over. A last line that a killed process left
incomplete is none. Prints each violation; exit status 1 if there was one.
"""
import json
import os
import subprocess
import sys

import jsonschema

BY_SCHEMA = {"dualrail/1": "result", "dualrail-doctor/1": "doctor", "dualrail-topo/1": "topo",
             "dualrail-compare/1": "compare", "dualrail-preflight/1": "preflight",
             "dualrail-sweep/1": "sweep"}
SHOWN = 5
validators = {}


def validator(name):
    if name not in validators:
        schema = subprocess.run([sys.argv[1], "schema", name], check=True, capture_output=True).stdout
        validators[name] = jsonschema.Draft202012Validator(json.loads(schema))
    return validators[name]


def kind_of(doc):
    if not isinstance(doc, dict):
        return None
    if str(doc.get("schema", "")).startswith("dualrail"):
        return BY_SCHEMA.get(doc["schema"], "?")
    if "event" in doc and "data" in doc:
        return "stream"
    return "log" if {"level", "component"} <= doc.keys() else None


def documents(path):
    """The documents in the file with their line numbers."""
    with open(path, encoding="utf-8", errors="replace") as f:
        if f.read(1) != "{":
            return
        f.seek(0)
        text = f.read()
    try:
        yield 1, json.loads(text)
        return
    except ValueError:
        pass
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            yield number, json.loads(line)
        except ValueError:
            continue


def parts(doc):
    """The document and those inside it."""
    yield doc
    if kind_of(doc) == "preflight":
        yield from (doc[key] for key in ("checks", "result") if doc.get(key))


def violations(path):
    for number, doc in ((n, part) for n, doc in documents(path) for part in parts(doc)):
        kind = kind_of(doc)
        if kind == "?":
            yield f"{path}:{number}: unknown schema {doc['schema']}"
        elif kind:
            for e in validator(kind).iter_errors(doc):
                at = "/".join(map(str, e.absolute_path))
                yield f"{path}:{number}: {kind}: /{at}: {e.message[:200]}"


def files(paths):
    for path in paths:
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            yield from (p for p in (os.path.join(path, n) for n in names) if os.path.isfile(p))
        else:
            yield path


def main():
    found = [v for path in files(sys.argv[2:]) for v in violations(path)]
    for v in found[:SHOWN]:
        print(v)
    if len(found) > SHOWN:
        print(f"... {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
