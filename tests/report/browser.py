#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Opens pages of `dualrail report` in headless Chromium and checks what is seen there.

usage: browser.py [--shots DIR] [--axe FILE] [--odd PAGE.html]... PAGE.html...

Of each page, light and dark, wide and phone: no message on the console, no request to anywhere, every chart that the page
announces has been drawn, no chart is wider than the page. The page has what tables.py wants of the embedded documents, the time
line names each cell of --matrix, a phone shows gap and cause of the faults first, and without script the verdict is shown. Pages after --odd are of documents that are hostile or of odd types: their charts may be
missing, their tables not. The charts answer to the keyboard, and a heat map of 1,000 x 1,000 cells is drawn in time. With --shots
screenshots are written; with --axe (axe.min.js of axe-core) no rule of WCAG 2 A and AA may be broken. Prints
`N passed, N failed, N skipped`. Exit status 77: no Chromium.

It speaks the DevTools protocol over a WebSocket (RFC 6455), with nothing but the standard library.
"""
import argparse
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

import tables

VIEWS = {"wide": (1280, 900, False), "phone": (375, 812, True)}
WAIT_S = 60


class Tab:
    """A page target of a Chromium of its own."""

    def __init__(self, program, folder):
        self.number, self.messages, self.buffer = 0, [], b""
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", "--user-data-dir=" + folder, "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port, path = self.wait_for_port(os.path.join(folder, "DevToolsActivePort"))
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                           "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (path, port, key)).encode())
        while b"\r\n\r\n" not in self.buffer:
            self.read()
        self.buffer = self.buffer.split(b"\r\n\r\n", 1)[1]
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def wait_for_port(self, path):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                sys.exit("Chromium ended with status %d" % self.process.returncode)
            try:
                with open(path, encoding="ascii") as f:
                    lines = f.read().split("\n")
                if len(lines) > 1 and lines[1]:
                    return int(lines[0]), lines[1]
            except OSError:
                pass
            time.sleep(0.02)
        sys.exit("Chromium does not listen")

    def read(self):
        data = self.sock.recv(1 << 20)
        if not data:
            sys.exit("Chromium closed the connection")
        self.buffer += data

    def bytes(self, n):
        while len(self.buffer) < n:
            self.read()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def receive(self):
        text = b""
        while True:
            first, second = self.bytes(2)
            size = second & 127
            if size > 125:
                size = struct.unpack(">H" if size == 126 else ">Q", self.bytes(2 if size == 126 else 8))[0]
            text += self.bytes(size)
            if first & 128 and first & 15 in (0, 1):
                return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data, mask = json.dumps(message).encode(), os.urandom(4)
        size = struct.pack(">BBH", 0x81, 0x80 | 126, len(data)) if len(data) < 65536 else struct.pack(
            ">BBQ", 0x81, 0x80 | 127, len(data))
        pad = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(data), "big")
        self.sock.sendall(size + mask + masked)
        while True:
            answer = self.receive()
            if answer.get("id") != self.number:
                self.messages.append(answer)
            elif "error" in answer:
                raise RuntimeError("%s: %s" % (method, answer["error"]))
            else:
                return answer["result"]

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return answer["result"].get("value")

    def until(self, script):
        end = time.monotonic() + WAIT_S
        while not self.run(script):
            if time.monotonic() > end:
                raise RuntimeError("never true: " + script)
            time.sleep(0.02)

    def open(self, url, width, height, phone, dark):
        self.messages.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && document.documentElement.dataset.ready === '1'")

    def open_without_script(self, url):
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href.startsWith('file:')")
        shown = self.run("[...document.querySelectorAll('section noscript table')].map(t => t.clientHeight ? t.innerText : '')")
        self.call("Emulation.setScriptExecutionDisabled", value=False)
        return shown

    def complaints(self, url, odd=False):
        """Console messages, exceptions, violations of the policy, requests to elsewhere. odd: charts may complain."""
        out = []
        for m in self.messages:
            p = m.get("params", {})
            if m.get("method") == "Runtime.consoleAPICalled":
                words = " ".join(str(a.get("value", a.get("description"))) for a in p["args"])
                out += [] if odd and words.startswith("chart ") else [words]
            elif m.get("method") == "Runtime.exceptionThrown":
                out.append(str(p["exceptionDetails"].get("exception", {}).get("description")))
            elif m.get("method") == "Log.entryAdded":
                out.append(p["entry"]["text"])
            elif m.get("method") == "Network.requestWillBeSent":
                to = p["request"]["url"]
                if to != url and not to.startswith(("data:", "blob:")) and to != "about:blank":
                    out.append("request to " + to)
        return out

    def end(self):
        self.process.terminate()
        self.process.wait()


EMPTY = """[...document.querySelectorAll('figure[data-chart]')].filter(f => !f.classList.contains('ready') ||
    f.querySelector('.plot').clientHeight < 20).map(f => f.dataset.chart)"""
BLANK = """[...document.querySelectorAll('figure canvas')].filter(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    return d.every(x => x === d[0]) }).length"""
COLOUR = """window.dualrailColour = e => ['good', 'bad', 'soft', 'fg'].find(name => { const probe = document.createElement('i');
    probe.style.color = 'var(--' + name + ')'; document.body.append(probe); const c = getComputedStyle(probe).color; probe.remove();
    return c === getComputedStyle(e).color; }); 0"""
SECTIONS = """[...document.querySelectorAll('section[data-result]')].map(s => ({ text: s.textContent,
    doc: JSON.parse(document.getElementById('data-' + s.dataset.result).textContent),
    verdict: s.querySelector('.verdict strong').textContent, colour: dualrailColour(s.querySelector('.verdict strong')),
    red: [...s.querySelectorAll('td')].filter(d => dualrailColour(d) === 'bad').map(d => d.textContent),
    tiles: [...s.querySelectorAll('.tiles > div')].map(d => [...d.children].map(c => c.textContent.trim())),
    rows: [...s.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent.trim())),
    charts: [...s.querySelectorAll('figure')].map(f => f.dataset.chart), parts: s.querySelectorAll('h2[id]').length,
    links: [...s.querySelectorAll('nav a')].filter(a => document.getElementById(a.hash.slice(1))).length }))"""
FOREIGN = """[...document.querySelectorAll('main *')].filter(e => ['IMG', 'B', 'SCRIPT', 'IFRAME'].includes(e.tagName) ||
    e.getAttributeNames().some(n => n.startsWith('on')) || (!e.closest('.plot') &&
    ((e.tagName === 'TH' && !e.scope) || (e.tagName === 'TABLE' && !e.caption)))).map(e => e.outerHTML.slice(0, 80))"""
WIDE = "document.documentElement.scrollWidth - innerWidth"
FIRST = """[...document.querySelectorAll('section[data-result] table')].flatMap(t => { const heads = [...t.querySelectorAll('th')];
    if (!heads.some(h => h.textContent === 'kind') || !heads.some(h => h.textContent.startsWith('gap'))) return [];
    if (t.closest('details')) t.closest('details').open = true;
    return heads.filter(h => /^(kind|gap( p50)?, ms|cause)$/.test(h.textContent)).map(h => [h.textContent,
        Math.round(h.getBoundingClientRect().right)]); })"""
LEGEND = """[...document.querySelectorAll('section[data-result]')].map(s => { const over = s.querySelector('[data-chart=timeline] .u-over');
    if (!over) return { legend: [], options: [] };
    const box = over.getBoundingClientRect(), told = new Set();
    for (let x = 0; x < box.width; x++) { over.dispatchEvent(new MouseEvent('mousemove', { clientX: box.left + x, clientY: box.top + 50 }));
        told.add(s.querySelector('[data-chart=timeline] .u-value').textContent.replace(/^[0-9.]*(, )?/, '')); }
    return { legend: [...told], options: [...s.querySelectorAll('[data-chart=timeline] option')].map(o => o.textContent) }; })"""
KEYS = """(() => { const box = document.querySelector('figure.ready[data-chart=timeline] .plot'); if (!box) return 'none';
    const c = box.querySelector('canvas'), shot = () => c.toDataURL(), send = k => box.dispatchEvent(new KeyboardEvent('keydown', { key: k }));
    return new Promise(done => { const a = shot(); send('+'); setTimeout(() => { const b = shot(); send('0'); setTimeout(() =>
        done(a !== b && shot() === a ? 'zooms' : 'does not answer'), 100) }, 100) }) })()"""
BIG = """(() => { const box = document.createElement('div'), n = 1000; document.querySelector('main').append(box);
    const t = performance.now(), names = [...Array(n).keys()].map(i => 'node' + i);
    dualrailReport.heatmap(box, { rows: names, cols: names, value: (r, c) => (r * 7 + c * 13) % 101, unit: 'Gb/s', rowTitle: 'from', colTitle: 'to' });
    const drawn = performance.now() - t, canvas = box.querySelector('canvas'), u = performance.now();
    for (let i = 0; i < 50; i++) canvas.dispatchEvent(new KeyboardEvent('keydown', { key: ['ArrowDown', 'ArrowRight', '+', '-'][i % 4] }));
    const moved = (performance.now() - u) / 50, text = box.querySelector('[role=status]').textContent;
    box.remove(); return { drawn, moved, text } })()"""


class Checks:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, good, detail=""):
        self.passed += bool(good)
        self.failed += not good
        print("%s  report: %s%s" % ("PASS" if good else "FAIL", name, "" if good else ": %s" % (detail,)), flush=True)


def check_tables(tab, checks, base, url):
    tab.run(COLOUR)
    sections = tab.run(SECTIONS)
    for i, (s, line) in enumerate(zip(sections, tab.run(LEGEND))):
        found = list(tables.wrong(s["doc"], s))
        checks.check("%s, document %d: verdict, headline and units" % (base, i), not found, found[:5])
        found = {n: tables.cells(s["doc"]) - set(shown) for n, shown in line.items()}
        checks.check("%s, document %d: the time line names the cells" % (base, i), not any(found.values()), (found, line))
        found = list(tables.missing(s["doc"], s["rows"], s["charts"], s["text"]))
        checks.check("%s, document %d: the tables have its figures" % (base, i), not found, found[:5])
        checks.check("%s, document %d: every part has a link" % (base, i), 0 < s["links"] == s["parts"], (s["links"], s["parts"]))
    found = tab.run(FOREIGN)
    checks.check(base + ": text is no markup, tables have captions and scopes", found == [], found[:3])
    shown = tab.open_without_script(url)
    checks.check(base + ": the verdict without script", len(shown) == len(sections) and all("status" in t for t in shown), shown)


def check_page(tab, checks, path, args):
    url, base = "file://" + os.path.abspath(path), os.path.splitext(os.path.basename(path))[0]
    for view, (width, height, phone) in VIEWS.items():
        for dark in (False, True):
            name = "%s, %s, %s" % (base, view, "dark" if dark else "light")
            tab.open(url, width, height, phone, dark)
            if path not in args.odd:
                found = tab.run(EMPTY)
                checks.check(name + ": every chart is drawn", found == [] and tab.run(BLANK) == 0, found)
            checks.check(name + ": nothing is wider than the page", tab.run(WIDE) <= 0, tab.run(WIDE))
            if phone and not dark and path not in args.odd and tab.run(FIRST):
                found = [h for h in tab.run(FIRST) if h[1] > width]
                checks.check(name + ": gap and cause of the faults are seen at once", not found, found)
            if args.axe:
                with open(args.axe, encoding="utf-8") as f:
                    tab.run(f.read() + "; 0")
                broken = tab.run("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa']}).then(r => r.violations.map("
                                 "v => v.id + ' ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(', ')))")
                checks.check(name + ": axe-core finds nothing", broken == [], broken)
            if view == "wide" and not dark:
                answer = tab.run(KEYS)
                checks.check(name + ": the time line answers to the keyboard", answer in ("zooms", "none"), answer)
                paint = tab.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
                print("      first picture after %s ms, page of %.2f MB" % (
                    round(paint) if paint else "?", os.path.getsize(path) / 1e6))
            bad = tab.complaints(url, path in args.odd)
            checks.check(name + ": nothing on the console, no request", not bad, bad[:3])
            if args.shots:
                shot(tab, os.path.join(args.shots, "%s-%s-%s.png" % (base, view, "dark" if dark else "light")), width)
    check_tables(tab, checks, base, url)


def shot(tab, path, width):
    height = min(tab.run("document.documentElement.scrollHeight"), 4200)
    data = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                    clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})["data"]
    with open(path, "wb") as f:
        f.write(base64.b64decode(data))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shots")
    p.add_argument("--axe")
    p.add_argument("--odd", action="append", default=[])
    p.add_argument("pages", nargs="+")
    args = p.parse_args()
    program = next((w for w in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if w), None)
    if not program:
        print("no Chromium (Debian: chromium)")
        sys.exit(77)
    checks = Checks()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tab = Tab(program, folder)
        try:
            for path in args.pages + args.odd:
                check_page(tab, checks, path, args)
            tab.open("file://" + os.path.abspath(args.pages[0]), *VIEWS["wide"], False)
            big = tab.run(BIG)
            print("      1,000 x 1,000 cells: drawn in %.0f ms, %.1f ms for a step" % (big["drawn"], big["moved"]))
            checks.check("1,000 x 1,000 cells: drawn, and steps are told", big["drawn"] < 5000 and big["moved"] < 500 and
                         "node" in big["text"], big)
        finally:
            tab.end()
    print("%d passed, %d failed, %d skipped" % (checks.passed, checks.failed, checks.skipped))
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
