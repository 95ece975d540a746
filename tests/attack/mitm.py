#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mitm.py DUALRAIL keyed|unkeyed [POSITIONS]: both programs, and between their control connection a man in the middle.

In each run one bit of one byte of the control connection is changed, in the one direction and in the other. It is noticed if the run
ends with an error, or if an end closes the connection for it; control is then resumed, and the result is right. Prints
"N changes, N unnoticed: ..."; runs that last for longer than 20 s are counted apart. Exit status 1 if the server does not serve the next client.
"""
import re
import sys
import threading

import wire

LOST = re.compile(r"control connection (was |is )?lost|control.* lost|lost control")
TAIL = 200


def change_at(direction, at, hit):
    def change(d, offset, data):
        if d == direction and offset <= at < offset + len(data):
            hit.set()
            i = at - offset
            data = data[:i] + bytes([data[i] ^ 1]) + data[i + 1:]
        return data
    return change


def positions(length, n):
    """Each byte of hello and proof counts as much as many later ones: half of all are among the first 300."""
    first = min(300, length)
    at = {first * i // (n // 2) for i in range(n // 2)}
    return sorted(at | {first + (length - first) * i // (n - n // 2) for i in range(n - n // 2)})


def one(dualrail, port, words, direction, at):
    """None: the conversation was shorter, but for its last bytes. Else what became of the run."""
    hit = threading.Event()
    proxy = wire.Proxy(port, change_at(direction, at, hit)).serve()
    status, text = wire.client(dualrail, proxy.port, "--verify", "-v", "--connect-timeout", "5s", *words, limit_s=20)
    proxy.stop()
    if not hit.is_set():
        return None
    if status is None:
        return "late"
    if status:
        return "failed"
    if proxy.more or LOST.search(text):
        return "resumed"
    # What is said last is of no use any more to who hears it; how much there is before differs from run to run.
    return "unnoticed" if at < len(proxy.seen[direction]) - TAIL else None


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in ("keyed", "unkeyed"):
        print(__doc__.split(":")[0], file=sys.stderr)
        return 2
    dualrail, (words, _) = sys.argv[1], wire.new_key(sys.argv[2] == "keyed")
    count = {"failed": 0, "resumed": 0, "late": 0, "unnoticed": 0}
    first = ""
    # The server waits so long for a client whose control connection was broken when all its data had arrived.
    with wire.server(dualrail, "--verbose=0", "--timeout", "3s", *words) as (_, port):
        proxy = wire.Proxy(port).serve()
        status, text = wire.client(dualrail, proxy.port, "--verify", *words)
        proxy.stop()
        record = proxy.seen
        for direction in (0, 1):
            for at in positions(len(record[direction]) - TAIL, int(sys.argv[3]) if len(sys.argv) > 3 else 8):
                result = one(dualrail, port, words, direction, at)
                if result:
                    count[result] += 1
                if result in ("unnoticed", "late") and not first:
                    first = "; first: byte %d of the %s's" % (at, ("client", "server")[direction])
        status, text = wire.client(dualrail, port, "--verify", *words)
    print("%d changes, %d unnoticed: %d runs failed, %d made control again, %d had not ended after 20 s%s" % (
        sum(count.values()), count["unnoticed"], count["failed"], count["resumed"], count["late"], first))
    if status:
        print("the next client: status %s: %s" % (status, text))
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
