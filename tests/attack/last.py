#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""last.py DUALRAIL keyed|unkeyed: a client ends since a message of its server was altered, the last one or one in mid-run.

Neither end can tell the other why, and the client has closed its channels in order. Prints after how long the server serves the next
client. Exit status 1 if a server waits for half of --timeout.
"""
import sys
import threading
import time

import mitm
import wire

TIMEOUT_S = 60
LAST = 600  # bytes from the end of what the server says: in its results, whose length differs by some 200


def one(dualrail, words, back, out):
    """out[back]: seconds until the next client is served; None if it is not."""
    with wire.server(dualrail, "--timeout", "%ds" % TIMEOUT_S, *words) as (_, port):
        proxy = wire.Proxy(port).serve()
        wire.client(dualrail, proxy.port, *words)
        proxy.stop()
        said = len(proxy.seen[1])
        hit = threading.Event()
        proxy = wire.Proxy(port, mitm.change_at(1, said - (back or said // 2), hit)).serve()
        status, _ = wire.client(dualrail, proxy.port, *words)
        proxy.stop()
        if not hit.is_set():
            print("nothing was altered %d bytes before the end; " % back, end="")
        begin = time.monotonic()
        while hit.is_set() and status and time.monotonic() - begin < TIMEOUT_S / 2:
            if wire.client(dualrail, port, "--connect-timeout", "1s", *words)[0] == 0:
                out[back] = time.monotonic() - begin
                return


def main():
    dualrail, out = sys.argv[1], {LAST: None, 0: None}
    words, _ = wire.new_key(sys.argv[2] == "keyed")
    threads = [threading.Thread(target=one, args=(dualrail, words, back, out)) for back in out]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("served %s" % ", ".join("%.1f s later" % s if s else "not" for s in out.values()))
    return int(not all(out.values()))


if __name__ == "__main__":
    sys.exit(main())
