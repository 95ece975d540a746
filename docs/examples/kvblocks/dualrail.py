# SPDX-License-Identifier: Apache-2.0
"""libdualrail for Python, by cffi in ABI mode: declarations are read from dualrail.h.

DUALRAIL_HEADER and DUALRAIL_LIBRARY name the header and the library; without them they are looked for as installed.
Memory is any writable buffer (bytearray, mmap, numpy array); it is kept until the endpoint is closed.
"""

import os
import re

import cffi

ffi = cffi.FFI()


def _declarations():
    places = [os.environ.get("DUALRAIL_HEADER", ""), "/usr/local/include/dualrail.h", "/usr/include/dualrail.h"]
    with open(next(p for p in places if p and os.path.exists(p)), encoding="ascii") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    text = re.sub(r'^extern "C" \{$|^\}$', "", text, flags=re.M)
    return re.sub(r"^#.*$", "", text, flags=re.M)


ffi.cdef(_declarations())
lib = ffi.dlopen(os.environ.get("DUALRAIL_LIBRARY", "libdualrail.so.0"))


class Error(OSError):
    """A call failed; errno and strerror say why."""


def _check(rc, error=None):
    if rc < 0:
        text = ffi.string(error.text).decode() if error else os.strerror(-rc)
        raise Error(-rc, text)
    return rc


class Event:
    """One event, copied: kind, code, peer, cookie, gap_ns, data, text, lane."""

    def __init__(self, ev):
        self.kind, self.code, self.peer = ev.kind, ev.code, ev.peer
        self.cookie, self.gap_ns, self.lane = ev.cookie, ev.gap_ns, ev.lane
        self.data = bytes(ffi.buffer(ev.data, ev.len)) if ev.data != ffi.NULL else b""
        self.text = ffi.string(ev.text).decode()


class Endpoint:
    """struct dualrail."""

    def __init__(self, nics=None, **options):
        self._nics = ffi.new("char[]", nics.encode()) if nics else ffi.NULL
        o = ffi.new("struct dualrail_options *", {"size": ffi.sizeof("struct dualrail_options"), "nics": self._nics})
        for name, value in options.items():
            setattr(o, name, value)
        out, self._error = ffi.new("struct dualrail **"), ffi.new("struct dualrail_error *")
        _check(lib.dualrail_open(o, out, self._error), self._error)
        self._d, self._kept = out[0], []

    def register(self, memory, key=0):
        view = ffi.from_buffer(memory, require_writable=True)
        out = ffi.new("struct dualrail_memory **")
        _check(lib.dualrail_register(self._d, view, len(view), key, out, self._error), self._error)
        self._kept.append(view)
        return out[0]

    def listen(self):
        handle = ffi.new("uint8_t[]", lib.DUALRAIL_HANDLE_BYTES)
        _check(lib.dualrail_listen(self._d, handle, self._error), self._error)
        return bytes(handle)

    def connect(self, handle):
        out = ffi.new("struct dualrail_peer **")
        data = ffi.new("uint8_t[]", bytes(handle))
        _check(lib.dualrail_connect(self._d, data, out, self._error), self._error)
        return out[0]

    def fileno(self):
        return lib.dualrail_fd(self._d)

    def next(self):
        """The oldest event, or None."""
        ev = lib.dualrail_next(self._d)
        return Event(ev) if ev != ffi.NULL else None

    def close(self):
        _check(lib.dualrail_close(self._d, self._error), self._error)
        self._kept.clear()


def put(peer, blocks, note=b"", cookie=0):
    """blocks: (key, remote offset, memory, offset, bytes) each. Returns a struct dualrail_put *, for test and release."""
    out = ffi.new("struct dualrail_put **")
    _check(lib.dualrail_put(peer, ffi.new("struct dualrail_block[]", blocks), len(blocks), note, len(note), cookie, out))
    return out[0]


def test(transfer):
    return lib.dualrail_test(transfer) == 1 or _check(lib.dualrail_test(transfer)) == 1


def release(transfer):
    lib.dualrail_release(transfer)


def stats(peer):
    s = ffi.new("struct dualrail_stats *", {"size": ffi.sizeof("struct dualrail_stats")})
    _check(lib.dualrail_get_stats(peer, s))
    return s


def cut(peer, nic):
    _check(lib.dualrail_cut(peer, nic))
