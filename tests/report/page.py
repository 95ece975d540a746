#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a page of `dualrail report` without a browser.

usage: page.py PAGE.html DOCUMENT.json...

DOCUMENTs are of runs or of sweeps. The page is well-formed, has no element, attribute or address that could load or run
something, except its own two scripts and two style sheets, whose hashes are in its policy. The embedded documents are the given
ones. Without script the verdict of each is shown: status, exit status, reasons, totals. browser.py looks at what the script draws.
"""
import base64
import hashlib
import html.parser
import json
import sys

import tables

VOID = {"meta", "link", "br", "input"}
TAGS = {"html", "head", "meta", "link", "title", "style", "body", "a", "header", "h1", "h2", "main", "section", "noscript", "p",
        "table", "caption", "tbody", "tr", "th", "td", "footer", "script"}
REASONS = 20


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.bad, self.raw, self.results = [], [], [], []
        self.policy = ""

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag not in TAGS:
            self.bad.append("element " + tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "style", "srcdoc", "action"):
                self.bad.append("attribute %s of %s" % (name, tag))
            if name == "href" and not (value.startswith("#") or value == "data:,"):
                self.bad.append("address " + value)
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy":
            self.policy = a["content"]
        if tag == "section":
            self.results.append([])
        if tag == "tr":
            self.results[-1].append([])
        if tag in ("td", "th"):
            self.results[-1][-1].append("")
        if tag in ("script", "style"):
            self.raw.append([tag, a, ""])
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.bad.append("end of " + tag)

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("script", "style"):
            self.raw[-1][2] += data
        elif {"td", "th"} & set(self.stack):
            self.results[-1][-1][-1] += data


def verdict(doc):
    """Rows that a reader without script needs."""
    yield ["status", tables.verdict(doc)[0]]
    if "exit_code" in doc:
        yield ["exit status", str(doc["exit_code"])]
    for reason in doc.get("errors", [])[:REASONS] + doc.get("findings", [])[:REASONS]:
        if reason["text"].isascii():
            yield ["reason", reason["text"]]
    if doc.get("verdict"):
        yield ["reason", doc["verdict"]]
    for end in "server", "client":
        gbps = (doc.get("total") or {}).get("to_%s_gbps" % end)
        if gbps is not None:
            yield ["bandwidth to the " + end, "%.6g Gb/s" % gbps]
    for kind in (doc.get("failover") or {}).get("summary", []):
        gap = [kind["gap_us"][p] for p in ("p50", "p99")]
        if None not in gap:
            yield ["gap", "%s at the %s%s: p50 %.4g ms, p99 %.4g ms (%d of %d hit data)" % (
                kind["kind"], kind["side"], ", " + kind["dir"] if kind["dir"] else "", gap[0] / 1000, gap[1] / 1000,
                kind["hit"], kind["trials"])]
    if doc.get("measured"):
        yield ["pairs with figures", str(doc["measured"]["ok"])]


def check(page, text, docs):
    for problem in page.bad:
        yield problem
    if page.stack:
        yield "not closed: %s" % page.stack
    scripts = [r for r in page.raw if r[0] == "script" and "type" not in r[1]]
    data = [r for r in page.raw if r[0] == "script" and r[1].get("type") == "application/json"]
    styles = [r for r in page.raw if r[0] == "style"]
    if len(scripts) != 2 or len(styles) != 2 or len(scripts) + len(styles) + len(data) != len(page.raw):
        yield "scripts or styles that are not the page's own"
    if "default-src 'none'" not in page.policy or "unsafe" in page.policy:
        yield "policy: " + page.policy
    for r in scripts + styles:
        digest = base64.b64encode(hashlib.sha256(r[2].encode()).digest()).decode()
        if "'sha256-%s'" % digest not in page.policy:
            yield "the policy has no hash of a %s of %d characters" % (r[0], len(r[2]))
    if [json.loads(r[2]) for r in data] != docs:
        yield "the embedded documents are not the given ones"
    if len(page.results) != len(docs):
        yield "%d sections of %d documents" % (len(page.results), len(docs))
    for doc, rows in zip(docs, page.results):
        for row in verdict(doc):
            if row not in rows:
                yield "without script there is no %s" % row
    if len(text) > 1 << 20 and sum(len(r[2]) for r in data) < 500000:
        yield "%d bytes" % len(text)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read()
    docs = []
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as f:
            docs.append(json.load(f))
    page = Page()
    page.feed(text)
    page.close()
    problems = list(check(page, text, docs))
    for problem in problems[:20]:
        print("%s: %s" % (sys.argv[1], problem))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
