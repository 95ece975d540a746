#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ports.py [listen]: prints the first of 16 TCP ports in a row that nobody has, and holds them until it is ended.

They are bound, not listened on (unless the argument says so): connections are refused until a server, which binds with SO_REUSEADDR, listens. Nobody else
is given one of them meanwhile, by this file or by the kernel. Below the ports that the kernel chooses from itself."""
import os
import signal
import socket
import sys

_held = []


def hold(n=16):
    while True:
        first, new = 10000 + int.from_bytes(os.urandom(2), "big") % (22000 - n), []
        try:
            for port in range(first, first + n):
                new.append(socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET))
                new[-1].bind(("", port))
        except OSError:
            for s in new:
                s.close()
            continue
        for s in new:  # only now, so that two holders cannot have the same one
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.extend(new)
        return first


if __name__ == "__main__":
    first = hold()
    for one in _held if sys.argv[1:] else ():
        one.listen()
    print(first, flush=True)
    os.close(sys.stdout.fileno())
    signal.pause()
