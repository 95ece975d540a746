# SPDX-License-Identifier: Apache-2.0
"""What a page must show of a document, of a run or of a sweep. Members of odd types need not be shown."""
import re
import unicodedata

ROWS = 300
STATUS = {"pass": "PASS", "fail": "FAIL", "error": "ERROR"}
BAD = {"WRONG", "HANG", "CLEAN_ERROR", "MISSED_FAULT", "FAIL", "INCOMPLETE", "below", "not-in-run", "not-in-baseline", "slow", "left",
       "idle", "awaited", "lost", "failed", "missing"}
BYTES = re.compile("bytes$|^(chunk|size|begin|end|sockbuf|mtu|tcp_[rw]mem)$")


def objects(v):
    return [x for x in v if isinstance(x, dict)] if isinstance(v, list) else []


def member(v, *keys):
    for key in keys:
        v = v.get(key) if isinstance(v, dict) else None
    return v


def clean(text):
    """As the page shows it."""
    return "".join("?" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text[:512]).strip()


def shown(v):
    return clean(v) if isinstance(v, str) else str(v)


def fixed(v):
    return "%.*f" % (0 if v == 0 else 3 if abs(v) < 1 else 2 if abs(v) < 100 else 1 if abs(v) < 10000 else 0, v)


def verdict(doc):
    """The word, and the colour: neutral if the page cannot know what it means."""
    status = doc.get("status") if isinstance(doc.get("status"), str) else ""
    known = status in STATUS and doc["schema"] in ("dualrail/1", "dualrail-sweep/1")
    return (STATUS.get(status, "UNKNOWN" if status else "NOT OVER"), "soft" if not known else "good" if status == "pass" else "bad")


def cells(doc):
    """Names of the cells of --matrix that have intervals."""
    measured = {i.get("phase") for i in objects(doc.get("intervals")) if i.get("gpu") is None}
    return {"%s, %s ↔ %s" % ("all GPUs" if c["gpu"] is None else "GPU %d" % c["gpu"], c["nic"], c["peer_nic"])
            for c in objects(member(doc, "matrix", "cells")) if c["phase"] in measured}


def byte_counts(v, name=""):
    """Texts that a page without units would have."""
    if isinstance(v, dict):
        for key, value in v.items():
            yield from byte_counts(value, key)
    elif isinstance(v, list):
        for value in v:
            yield from byte_counts(value)
    elif BYTES.search(name) and re.fullmatch(r"\d+(\s+\d+)*", str(v)):
        yield str(v)


def wrong(doc, seen):
    """Yields what is shown and should not be, of the verdict's colour, the headline, and the tables."""
    if (seen["verdict"], seen["colour"]) != verdict(doc):
        yield "verdict %s, %s instead of %s" % (seen["verdict"], seen["colour"], verdict(doc))
    bad = BAD | {f.get("kind") for f in objects(doc.get("findings"))}
    for words in seen["red"]:
        if words not in bad:
            yield "red: " + words
    verdicts = [f.get("verdict") for f in objects(member(doc, "failover", "faults"))]
    for words in verdicts + [f.get("kind") for f in objects(doc.get("findings"))]:
        if isinstance(words, str) and words in bad and words not in seen["red"]:
            yield "not red: " + words
    kinds = objects(member(doc, "failover", "summary"))
    gaps = [t for t in seen["tiles"] if t[0].startswith("Gap")]
    for kind in [k for k in kinds if isinstance(k.get("gap_us"), dict)]:
        figures = ["– ms" if kind["gap_us"][p] is None else fixed(kind["gap_us"][p] / 1000) + " ms" for p in ("p50", "p99")]
        remark = "p99 %s (%d of %d hit data)" % (figures[1], kind["hit"], kind["trials"])
        if not any(kind["kind"] + " at the " + kind["side"] in t[0] and t[1:] == [figures[0], remark] for t in gaps):
            yield "no gap of %s in the headline: %s" % (kind["kind"], gaps)
    if len(gaps) != len(kinds):
        yield "%d gaps in the headline, of %d kinds" % (len(gaps), len(kinds))
    counts = {c for c in byte_counts(doc) if len(c) > 3}  # other figures are small numbers, too
    for row in seen["rows"]:
        if counts & set(row):
            yield "bytes without a unit: %s" % row


def missing(doc, rows, charts, text):
    """Yields what is not there. rows: lists of cells; charts: names; text: everything that is shown."""
    def row(*words):
        words = [shown(w) for w in words if isinstance(w, (str, int, float))]
        return any(all(w in r for w in words) for r in rows)

    wanted = [(k,) for k, v in (doc.get("options") or {}).items() if v is not None] if isinstance(doc.get("options"), dict) else []
    wanted += of_a_sweep(doc) if doc["schema"] == "dualrail-sweep/1" else of_a_run(doc)
    for words in wanted:
        if not row(*words):
            yield "not in a table: %s" % (words,)
    for words in [shown(e["text"]) for e in objects(doc.get("errors"))[:ROWS] if isinstance(e.get("text"), str)]:
        if words not in text:
            yield "error " + words
    needs = {"timeline": objects(doc.get("intervals")), "histogram": objects(doc.get("latency")),
             "gaps": objects(member(doc, "failover", "faults")), "matrix": objects(member(doc, "matrix", "cells")),
             "sweep": doc["schema"] == "dualrail-sweep/1"}
    for name, there in needs.items():
        if there and name not in charts:
            yield "no chart " + name
    if member(doc, "detection", "mode") == "transport" and needs["gaps"] and "The transport moves to another NIC by itself" not in text:
        yield "what a gap is where the transport moves by itself"


def of_a_run(doc):
    wanted = [(x.get("gpu"), x.get("direction")) for x in objects(doc.get("bandwidth"))[:ROWS]]
    wanted += [(x.get("name"), x.get("side")) for x in objects(doc.get("nics"))[:ROWS]]
    wanted += [(x.get("gpu"), x.get("samples"), x.get("nic")) for x in objects(doc.get("latency"))[:ROWS]]
    wanted += [(x.get("trial"), x.get("kind"), x.get("verdict")) for x in objects(member(doc, "failover", "faults"))[:ROWS]]
    wanted += [(x.get("ifname"), x.get("address"), x.get("peer_address")) for x in objects(member(doc, "topology", "rails"))]
    return wanted


def of_a_sweep(doc):
    names = {n["rank"]: ("%d %s" % (n["rank"], n.get("host") or "")).strip() for n in objects(doc.get("nodes")) if isinstance(n["rank"], int)}
    pairs = objects(doc.get("pairs"))

    def name(rank):
        return names.get(rank, str(rank)) if isinstance(rank, int) else None

    wanted = [(f["kind"], f["text"]) for f in objects(doc.get("findings"))[:ROWS]]
    wanted += [(name(p.get("client")), name(p.get("server")), p.get("state")) for p in [p for p in pairs if p.get("state") != "ok"][:ROWS]]
    wanted += [(name(n["rank"]), c["name"]) for n in objects(doc.get("nodes"))[:100] for c in objects(n.get("nics"))]
    low = sorted((x["percent"], p["client"], p["server"], x["direction"]) for p in pairs for x in objects(p.get("lanes"))
                 if isinstance(x.get("percent"), (int, float)))[:5]
    return wanted + [tuple(name(e) for e in ends) for _, *ends, _ in low]
