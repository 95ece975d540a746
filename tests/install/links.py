#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each relative link of the installed Markdown files leads to an installed file.

usage: links.py FOLDER
"""
import os
import re
import sys

LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def main():
    found, dead = 0, []
    for folder, _, names in os.walk(sys.argv[1]):
        for name in names:
            if not name.endswith(".md"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                links = LINK.findall(f.read())
            found += len(links)
            dead += [(name, to) for to in links if not os.path.exists(os.path.join(folder, to))]
    for name, to in dead:
        print("%s links to %s, which is not installed" % (name, to))
    if not found:
        print("no links in " + sys.argv[1])
    sys.exit(bool(dead) or not found)


if __name__ == "__main__":
    main()
