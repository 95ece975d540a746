#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of the benchmarks: reads result documents, judges ratios and gaps, prints tables.

A ratio is judged by the median of the paired ratios and its 95 % bootstrap interval:
  met        the interval is narrower than +-5 % (BENCH_HALF_WIDTH) of the median and does not contradict the bar
  not met    the whole interval is on the wrong side of the bar
  undecided  anything else, and with fewer than 15 pairs: more pairs, or a quieter machine
A percentile is met when it is within the bar, not met when even the lower end of its 95 % interval (of
order statistics) is above it, undecided otherwise and with fewer samples than it takes (p99: 100).
"""
import json
import math
import os
import platform
import random
import re
import resource
import signal
import statistics
import subprocess
import sys

HALF_WIDTH_MAX = float(os.environ.get("BENCH_HALF_WIDTH", 0.05))  # 0.15 in the lab: scripts/lab/lib.sh
PAIRS_MIN = 15
RESAMPLES = 10000


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def walk(doc, expression):
    for word in expression.split("."):
        doc = doc[int(word)] if isinstance(doc, list) else doc[word]
    return doc


def interval(values):
    """95 % interval of the median, by resampling; the same values give the same interval."""
    rng = random.Random(1)
    n = len(values)
    medians = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def judge(pairs, median, low, high, bar):
    match = re.fullmatch(r"([<>])=([0-9.]+)", bar)
    if not match:
        return "-"
    if pairs < PAIRS_MIN:
        return "undecided"
    limit = float(match[2])
    if (match[1] == ">" and high < limit) or (match[1] == "<" and low > limit):
        return "not met"
    return "met" if (high - low) / 2 <= HALF_WIDTH_MAX * median else "undecided"


def percentile(values, p):
    """Nearest rank: the smallest value that p percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]


def percentile_low(values, p):
    """Lower end of the 95 % interval of a percentile: the sample whose rank is the binomial's 2.5 %."""
    n, q, total = len(values), p / 100, 0.0
    for k in range(n + 1):
        choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        total += math.exp(choose + k * math.log(q) + (n - k) * math.log(1 - q))
        if total > 0.025:
            return sorted(values)[max(0, k - 1)]
    return max(values)


def add(path, row):
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps(row) + "\n")
    print("  " + " | ".join(cells(row)), file=sys.stderr)


def short(value):
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# ------------------------------- rows -------------------------------


def ratio_row(key, title, unit, bar, pairs):
    peer, ours = [p[0] for p in pairs], [p[1] for p in pairs]
    ratios = [o / p for p, o in pairs]
    low, high = interval(ratios)
    median = statistics.median(ratios)
    return {"kind": "ratio", "id": key, "title": title, "unit": unit, "bar": bar,
            "pairs": len(pairs), "peer": statistics.median(peer), "ours": statistics.median(ours),
            "ratio": median, "low": low, "high": high,
            "verdict": judge(len(pairs), median, low, high, bar),
            "peer_values": peer, "ours_values": ours}


def cmd_pairs(rows, key, title, unit, bar):
    pairs = [tuple(map(float, line.split())) for line in sys.stdin if line.strip()]
    add(rows, ratio_row(key, title, unit, bar, pairs))


def cmd_figure(rows, key, title, value, bar, verdict):
    add(rows, {"kind": "figure", "id": key, "title": title, "value": value, "bar": bar,
               "verdict": verdict})


BROKEN = ("lost", "duplicated", "reordered", "corrupted")
PARTS = ("detect", "fence", "handshake", "replay", "first_delivery")


def known(rows, key):
    return [r[key] for r in rows if r.get(key) is not None]


def gap_bars(text, gaps):
    """"p50<=3 p99<=20" in ms, each against the gaps in us."""
    verdicts = []
    for word in text.split():
        match = re.fullmatch(r"p(\d+)<=([0-9.]+)", word)
        if not match or not gaps:
            return "-"
        if len(gaps) < 100 / (100 - int(match[1])):
            verdicts.append("undecided")
        else:
            p, limit_us = int(match[1]), float(match[2]) * 1e3
            above = "not met" if percentile_low(gaps, p) > limit_us else "undecided"
            verdicts.append("met" if percentile(gaps, p) <= limit_us else above)
    for worst in ("not met", "undecided", "met"):
        if worst in verdicts:
            return worst
    return "-"


def excess_us(row):
    """The gap less what it may last anyway: the cadence, and the time that the replayed bytes take."""
    cadence, before = row["cadence_us"]["p99"], row["bandwidth_before_gbps"]
    if row["gap_us"] is None or cadence is None or not before:
        return None
    return row["gap_us"] - cadence - (row["replayed_bytes"] or 0) * 8 / before / 1e3


def early(doc):
    """Switches of --detect conservative for another reason than the NIC's completion error."""
    if doc["detection"]["mode"] != "conservative":
        return 0
    return sum(not s["planned"] and s["self_detected"] and s["trial"] is not None
               and s["error"] not in ("ETIMEDOUT", "EREMOTEIO") for s in doc["failover"]["switches"])


def cmd_gaps(rows, paths, key, title, bar, mode="gap"):
    """One line for one campaign, of whose documents the paths stand with commas between them.
    mode excess: the bar is about the gap's excess (see excess_us)."""
    docs = [load(path) for path in paths.split(",")]
    faults = [fault for doc in docs for fault in doc["failover"]["faults"]]
    hit = [f for f in faults if f["verdict"] != "MISSED_FAULT"]
    gaps = known(hit, "gap_us")
    excess = [x for x in map(excess_us, hit) if x is not None]
    verdicts = {}
    for fault in faults:
        verdicts[fault["verdict"]] = verdicts.get(fault["verdict"], 0) + 1
    data = {k: sum(doc["integrity"][k] or 0 for doc in docs) for k in BROKEN}
    false = sum(doc["failover"]["false_failovers"] or 0 for doc in docs)
    if false:
        verdicts["switches without a fault"] = false
    if any(map(early, docs)):
        verdicts["switches before the NIC gave up"] = sum(map(early, docs))
    broken = any(data.values()) or any(v not in ("PASS", "MISSED_FAULT") for v in verdicts)
    bad = broken or not faults
    judged = gap_bars(bar, excess if mode == "excess" else gaps)
    ms = lambda values, p: percentile(values, p) / 1e3 if values else None
    add(rows, {
        "kind": "gap", "id": key, "title": title, "mode": mode, "trials": len(faults),
        "hit": len(hit), "p50": ms(gaps, 50), "p90": ms(gaps, 90), "p99": ms(gaps, 99),
        "max": ms(gaps, 100), "excess_p99": ms(excess, 99),
        "parts": {p: ms(known(hit, p + "_us"), 50) for p in PARTS},
        "verdicts": verdicts, "integrity": data, "false_failovers": false,
        "bar": bar, "verdict": "failed" if bad else judged,
        "bound_ms": docs[0]["detection"]["bound_ms"], "gap_values_us": gaps})
    return 1 if bad else 0


def cmd_gap_median(doc_path):
    """Median gap of a campaign in us, over the trials that hit; wrong data or verdicts are a failure."""
    doc = load(doc_path)
    hit = [f for f in doc["failover"]["faults"] if f["verdict"] != "MISSED_FAULT"]
    gaps = known(hit, "gap_us")
    broken = any(doc["integrity"][k] for k in BROKEN)
    if broken or not gaps or any(f["verdict"] != "PASS" for f in hit):
        print(f"{doc_path}: wrong data, a failed trial or no gap", file=sys.stderr)
        return 1
    print(statistics.median(gaps))
    return 0


def gap_row(key, title, bar, gaps, trials):
    return {"kind": "gap", "id": key, "title": title, "mode": "gap", "trials": trials,
            "hit": len(gaps), "bar": bar, "verdict": gap_bars(bar, gaps),
            "parts": {}, "verdicts": {}, "gap_values_us": gaps,
            **{f"p{p}" if p < 100 else "max": percentile(gaps, p) / 1e3 if gaps else None
               for p in (50, 90, 99, 100)}}


def cmd_gap_list(rows, key, title, bar):
    """Gaps in us, one a line, measured by somebody else."""
    gaps = [float(line) for line in sys.stdin if line.strip()]
    add(rows, gap_row(key, title, bar, gaps, len(gaps)))


def cmd_failback(rows, doc_path):
    """Bandwidth after against before, and the gap of the failback, over the faults of a campaign."""
    faults = load(doc_path)["failover"]["faults"]
    pairs = [(f["bandwidth_before_gbps"], f["bandwidth_after_gbps"]) for f in faults
             if f["bandwidth_before_gbps"] and f["bandwidth_after_gbps"]]
    gaps = known(faults, "failback_gap_us")
    if not pairs or not gaps:
        cmd_figure(rows, "failback", "failback", "no trial came back", "-", "failed")
        return 1
    add(rows, ratio_row("failback-bw", "bandwidth after failback / before the fault", "Gb/s",
                        ">=0.97", pairs))
    add(rows, gap_row("failback-gap", "gap of the failback", "p99<=5", gaps, len(faults)))
    return 0


def cmd_switches(doc_path):
    """Switches that nobody planned, of all ends; false failovers (or -); what broke; exit status."""
    doc = load(doc_path)
    data = doc["integrity"]
    broken = sum(data[k] or 0 for k in BROKEN)
    false = doc["failover"]["false_failovers"]
    unplanned = [s for s in doc["failover"]["switches"] if not s["planned"]]
    print(len(unplanned), "-" if false is None else false, broken, doc["exit_code"],
          ",".join(sorted({str(s["cause"]).replace(" ", "_") for s in unplanned})) or "-")


# ------------------------------- documents -------------------------------


def cmd_get(path, expression):
    value = walk(load(path), expression)
    if value is None:
        print(f"{path}: {expression} is null", file=sys.stderr)
        return 1
    print(value)
    return 0


def first_line(*command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    text = (out.stdout or out.stderr).strip()
    return text.splitlines()[0].strip() if text else None


def cmd_cpu(path, *command):
    """Run a command, write its user and system seconds, children included; its status."""
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: child.send_signal(n))
    status = child.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{used.ru_utime} {used.ru_stime}\n")
    return status if status >= 0 else 128 - status


def cmd_machine(mtu):
    cpu = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    tools = {"iperf3": ("iperf3", "--version"), "qperf": ("qperf", "--version"),
             "ucx": ("ucx_info", "-v"), "stress-ng": ("stress-ng", "--version")}
    json.dump({"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(),
               "mtu_bytes": int(mtu), "load": os.getloadavg()[0],
               "tools": {k: first_line(*v) for k, v in tools.items()}}, sys.stdout)


def machine_line(m):
    return (f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}, veth MTU {m['mtu_bytes']}, "
            f"load {m['load']:.1f}")


def cmd_finish(name, work):
    rows = [json.loads(line) for line in open(f"{work}/rows", encoding="utf-8")]
    with open(f"{work}/commands", encoding="utf-8") as f:
        commands = f.read().splitlines()
    json.dump({"bench": name, "machine": load(f"{work}/machine"), "commands": commands,
               "rows": rows}, sys.stdout, indent=1)
    return 0 if rows else 1


def cmd_merge(*paths):
    """The ratios of several results as one: pairs of the same id together, judged again."""
    merged = {}
    for row in (r for p in paths for r in load(p)["rows"] if r["kind"] == "ratio"):
        mine = merged.setdefault(row["id"], dict(row, peer_values=[], ours_values=[]))
        mine["peer_values"] += row["peer_values"]
        mine["ours_values"] += row["ours_values"]
    rows = [ratio_row(r["id"], r["title"], r["unit"], r["bar"],
                      list(zip(r["peer_values"], r["ours_values"]))) for r in merged.values()]
    print_rows("ratio", rows)


# ------------------------------- tables -------------------------------


def cells(row):
    if row["kind"] == "ratio":
        width = 100 * (row["high"] - row["low"]) / 2 / row["ratio"]
        return [row["title"], f"{short(row['peer'])} {row['unit']}",
                f"{short(row['ours'])} {row['unit']}",
                f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}] ±{width:.1f} %",
                str(row["pairs"]), row["bar"], row["verdict"]]
    if row["kind"] == "gap":
        parts = " / ".join(short(row["parts"].get(p)) for p in PARTS) if row["parts"] else "-"
        words = ", ".join(f"{v} {k}" for k, v in sorted(row["verdicts"].items())) or "-"
        bar = row["bar"] + (" over allowance" if row["mode"] == "excess" else "")
        if row["mode"] == "excess":
            bar += f" (is {short(row['excess_p99'])})"
        return [row["title"], f"{row['hit']}/{row['trials']}",
                *(short(row[k]) for k in ("p50", "p90", "p99", "max")), parts, words, bar,
                row["verdict"]]
    return [row["title"], row["value"], row["bar"], row["verdict"]]


HEADS = {
    "ratio": ["comparison", "peer", "ours", "ratio, 95 % interval", "pairs", "bar", "verdict"],
    "gap": ["gap, ms", "hit/trials", "p50", "p90", "p99", "max",
            "detect / fence / handshake / replay / first delivery (medians)", "verdicts", "bar, ms",
            "verdict"],
    "figure": ["what", "value", "bar", "verdict"],
}


def print_rows(kind, rows):
    head = HEADS[kind]
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(c.replace('|', '/') for c in cells(row))} |")


def cmd_table(*paths):
    docs = [load(p) for p in paths]
    for kind in HEADS:
        rows = [r for d in docs for r in d["rows"] if r["kind"] == kind]
        if rows:
            print_rows(kind, rows)
    lines = dict.fromkeys(machine_line(d["machine"]) for d in docs)
    print("\nMachine: " + "; ".join(lines))


def cmd_machine_line(path):
    print(machine_line(load(path)))


def main():
    command = "cmd_" + sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if command not in globals():
        sys.exit(f"usage: stats.py {'|'.join(n[4:] for n in globals() if n.startswith('cmd_'))} ...")
    sys.exit(globals()[command](*sys.argv[2:]) or 0)


if __name__ == "__main__":
    main()
