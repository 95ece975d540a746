#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""collector.py PORT: takes one POST into collector.body, and prints "listening", then its path and type."""
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("collector.body", "wb") as f:
            f.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        print(self.path, self.headers["Content-Type"], flush=True)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("", int(sys.argv[1])), Handler)
print("listening", flush=True)
server.handle_request()
