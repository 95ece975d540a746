#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a page of `dualrail report` without a browser.

usage: page.py PAGE.html DOCUMENT.json...

DOCUMENTs are of runs or of sweeps. The page is well-formed, has no element, attribute or address that could load or run something, except its own two scripts and two
style sheets, whose hashes are in its policy. The embedded documents are the given ones. Every GPU, NIC, trial and option of the
documents stands in a table, and each chart has its table. Of a sweep, every finding, NIC and pair without figures does.
"""
import base64
import hashlib
import html.parser
import json
import sys

VOID = {"meta", "link", "br", "input"}
TAGS = {"html", "head", "meta", "link", "title", "style", "body", "a", "header", "h1", "h2", "h3", "main", "section", "div", "strong",
        "span", "p", "ul", "li", "nav", "dl", "dt", "dd", "small", "table", "caption", "thead", "tbody", "tr", "th", "td", "meter",
        "figure", "figcaption", "details", "summary", "pre", "footer", "script"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.bad, self.raw, self.charts, self.cells, self.rows = [], [], [], [], [], []
        self.policy, self.text = "", ""

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
        if tag == "figure":
            self.charts.append(a["data-chart"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
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
            return
        self.text += data
        if self.rows and {"td", "th"} & set(self.stack):
            self.rows[-1][-1] += data


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
    rows = [" | ".join(c.strip() for c in r) for r in page.rows]

    def row(*words):
        return any(all(str(w) in r.split(" | ") for w in words) for r in rows)
    def of_a_sweep(doc):
        names = {n["rank"]: ("%d %s" % (n["rank"], n["host"] or "")).strip() for n in doc["nodes"]}
        missing = [f["text"] for f in doc["findings"][:300] if not row(f["kind"], f["text"])]
        missing += [p for p in [p for p in doc["pairs"] if p["state"] != "ok"][:300]
                    if not row(names[p["client"]], names[p["server"]], p["state"])]
        missing += [(names[n["rank"]], c["name"]) for n in doc["nodes"][:100] for c in n["nics"] if not row(names[n["rank"]], c["name"])]
        low = sorted((x["percent"], p["client"], p["server"], x["direction"]) for p in doc["pairs"] for x in p["lanes"]
                     if x["percent"] is not None)[:5]
        for percent, *ends, direction in low:
            ends = ends if direction == "to-server" else ends[::-1]
            missing += [] if row(*(names[e] for e in ends)) else [(percent, ends)]
        return missing + ([] if "sweep" in page.charts else ["node x node"])

    for doc in docs:
        if doc["schema"] == "dualrail-sweep/1":
            if {"pass": "PASS", "fail": "FAIL"}[doc["status"]] not in page.text or doc["verdict"] not in page.text:
                yield "no verdict"
            for name in of_a_sweep(doc) + [k for k, v in doc["options"].items() if v is not None and not row(k)]:
                yield "not in a table: %s" % (name,)
            continue
        if {"pass": "PASS", "fail": "FAIL", "error": "ERROR"}.get(doc["status"], "NOT OVER") not in page.text:
            yield "no verdict"
        missing = [b["gpu"] for b in doc["bandwidth"][:300] if not row(b["gpu"], b["direction"])]
        missing += [n["name"] for n in doc["nics"] if not row(n["name"], n["side"])]
        missing += [x["gpu"] for x in doc["latency"][:300] if not row(x["gpu"], x["samples"])]
        missing += [f["trial"] for f in doc["failover"]["faults"][:300] if not row(f["trial"], f["kind"], f["verdict"])]
        missing += [k for k, v in doc["options"].items() if v is not None and not row(k)]
        missing += [e["text"] for e in doc["errors"][:300] if e["text"].isascii() and e["text"] not in page.text]
        for name in missing:
            yield "not in a table: %s" % name
        charts = {"timeline": doc["intervals"], "histogram": doc["latency"], "gaps": doc["failover"]["faults"],
                  "matrix": (doc["matrix"] or {}).get("cells")}
        for name, needs in charts.items():
            if bool(needs) and name not in page.charts:
                yield "no chart " + name
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
