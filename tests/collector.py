#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A collector of OpenTelemetry for tests, on a free port of 127.0.0.1.

usage: collector.py DIR ANSWER...     the k-th request gets the k-th answer, further ones the last

ANSWER: a status, "503,retry=1" with Retry-After, "hang" (no answer), "partial" (200 with rejected spans), "500,message=TEXT".
Writes DIR/port, then of request k DIR/k.body and DIR/k.json (method, path, headers in lower case).
"""
import http.server
import itertools
import json
import os
import sys
import threading

folder, answers = sys.argv[1], sys.argv[2:]
count, lock = itertools.count(), threading.Lock()


def write(name, data):
    """A reader never sees half of it."""
    path = os.path.join(folder, name)
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.rename(path + ".new", path)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            k = next(count)
        head = {"method": self.command, "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()}}
        write(f"{k}.body", body)
        write(f"{k}.json", json.dumps(head).encode())
        self.answer(answers[min(k, len(answers) - 1)])

    def answer(self, word):
        word, _, more = word.partition(",")
        name, _, value = more.partition("=")
        if word == "hang":
            threading.Event().wait()
        doc = {}
        if word == "partial":
            doc = {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too \u001b[31mold"}}
        elif name == "message":
            doc = {"code": 13, "message": value}
        self.send_response(200 if word == "partial" else int(word))
        self.send_header("Content-Type", "application/json")
        if name == "retry":
            self.send_header("Retry-After", value)
        if word == "301":
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(json.dumps(doc).encode())

    def log_message(self, *_):
        pass


def main():
    os.makedirs(folder, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    write("port", str(server.server_port).encode())
    server.serve_forever()


main()
