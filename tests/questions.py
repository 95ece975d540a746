#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/QUESTIONS.md that say what dualrail prints under which condition.

questions.py said CONDITION <OUTPUT    the output has the sentence of that row; status 1: it has not, or there is no such row
questions.py rows FILE.bats...         each row has a test with `says CONDITION`, and each such test a row; prints the others

A row's condition is its first cell, without the marks of code. Its sentence is the first code span of the second cell
with a blank; in a table of reasons, the condition. A word with a digit and a word in capitals of ANY stand for any word.
"""
import os
import re
import sys

ANY = "ADDRESS NIC NIC2 PORT MAC NAME".split()
DOCUMENT = os.path.join(os.path.dirname(__file__), "../docs/QUESTIONS.md")


def rows():
    """Condition: sentence."""
    found, kind = {}, None
    for line in open(DOCUMENT, encoding="utf-8"):
        cells = [c.strip() for c in line.split("|")[1:-1]]
        if not cells:
            kind = None
        elif kind is None:
            kind = cells[0] if cells[0] == "reason" or cells[1:2] == ["what dualrail prints"] else ""
        elif kind == "reason":
            found.update({span: span for span in re.findall("`([^`]+)`", cells[0])})
        elif kind and not cells[0].startswith("--"):
            sentences = [span for span in re.findall("`([^`]+)`", cells[1]) if " " in span]
            found[cells[0].replace("`", "")] = (sentences or [""])[0]
    return found


def pattern(sentence, reason):
    words = []
    for word in sentence.split():
        core = word.strip("():,")
        free = core in ANY or re.search(r"\d", core)
        words.append(re.escape(word).replace(re.escape(core), r"\S+") if free else re.escape(word))
    text = r"\s+".join(words)
    return text if not reason else r"(?m)(:\s|\s\s|^){}($|[;\"])".format(text)


def main(what, *args):
    table = rows()
    if what == "said":
        if not table.get(args[0]):
            sys.exit("docs/QUESTIONS.md has no such row: " + args[0])
        if not re.search(pattern(table[args[0]], table[args[0]] == args[0]), sys.stdin.read()):
            sys.exit("docs/QUESTIONS.md says what is not in the output: " + table[args[0]])
        return
    asked = set()
    for file in args:
        with open(file, encoding="utf-8") as f:
            asked.update(m[1] for m in re.findall(r"""\bsays (["'])(.+?)\1""", f.read()))
    wrong = ["no test: " + c for c in table if c not in asked] + ["no row: " + c for c in asked if c not in table]
    print("\n".join(wrong) or "%d rows" % len(table))
    sys.exit(bool(wrong))


main(*sys.argv[1:])
