# SPDX-License-Identifier: Apache-2.0
"""Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b with the standard library alone, from docs/PROTOCOL.md and RFC 7748 and 8439."""
import hashlib
import os
import struct

P = 2 ** 255 - 19
NAME = b"Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b"


class Refused(Exception):
    """What was received is not what the peer sealed."""


def x25519(scalar, u):
    k = int.from_bytes(bytes([scalar[0] & 248]) + scalar[1:31] + bytes([scalar[31] & 127 | 64]), "little")
    x1 = int.from_bytes(u, "little") & (2 ** 255 - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def block(key, counter, nonce):
    start = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    s = start[:]
    for i in range(20):
        for a in range(4):
            shift = i & 1
            b, c, d = 4 + (a + shift) % 4, 8 + (a + 2 * shift) % 4, 12 + (a + 3 * shift) % 4
            for n, m, o, r in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[n] = s[n] + s[m] & 0xffffffff
                x = s[o] ^ s[n]
                s[o] = (x << r | x >> 32 - r) & 0xffffffff
    return struct.pack("<16I", *(x + y & 0xffffffff for x, y in zip(s, start)))


def stream(key, nonce, data):
    out = bytearray()
    for i in range(0, len(data), 64):
        out += bytes(x ^ y for x, y in zip(data[i:i + 64], block(key, 1 + i // 64, nonce)))
    return bytes(out)


def tag(key, nonce, ad, data):
    one = block(key, 0, nonce)[:32]
    r = int.from_bytes(one[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff
    acc = 0
    text = ad + bytes(-len(ad) % 16) + data + bytes(-len(data) % 16) + struct.pack("<QQ", len(ad), len(data))
    for i in range(0, len(text), 16):
        acc = (acc + int.from_bytes(text[i:i + 16] + b"\1", "little")) * r % (2 ** 130 - 5)
    return (acc + int.from_bytes(one[16:], "little") & 2 ** 128 - 1).to_bytes(16, "little")


class Cipher:
    def __init__(self, key):
        self.key, self.n = key[:32], 0

    def nonce(self):
        self.n += 1
        return struct.pack("<IQ", 0, self.n - 1)

    def seal(self, data, ad=b""):
        nonce = self.nonce()
        data = stream(self.key, nonce, data)
        return data + tag(self.key, nonce, ad, data)

    def open(self, data, ad=b""):
        nonce = self.nonce()
        if tag(self.key, nonce, ad, data[:-16]) != data[-16:]:
            raise Refused
        return stream(self.key, nonce, data[:-16])


def digest(*parts):
    return hashlib.blake2b(b"".join(parts)).digest()


def hmac(key, data):
    key += bytes(128 - len(key))
    return digest(bytes(x ^ 0x5c for x in key), digest(bytes(x ^ 0x36 for x in key), data))


def hkdf(chain, material, n):
    temp, out = hmac(chain, material), [b""]
    for i in range(n):
        out.append(hmac(temp, out[-1] + bytes([i + 1])))
    return out[1:]


class Handshake:
    """The server is the initiator."""

    def __init__(self, initiator, psk, prologue):
        self.initiator, self.secret = initiator, os.urandom(32)
        self.h = self.chain = NAME + bytes(64 - len(NAME))
        self.h = digest(self.h, prologue)
        self.chain, mixed, key = hkdf(self.chain, psk, 3)
        self.h = digest(self.h, mixed)
        self.cipher = Cipher(key)

    def mix(self, material):
        self.chain, key = hkdf(self.chain, material, 2)
        self.cipher = Cipher(key)

    def ephemeral(self, public):
        self.h = digest(self.h, public)
        self.mix(public)

    def write(self):
        public = x25519(self.secret, bytes([9]) + bytes(31))
        self.ephemeral(public)
        if not self.initiator:
            self.mix(x25519(self.secret, self.peer))
        seal = self.cipher.seal(b"", self.h)
        self.h = digest(self.h, seal)
        return public + seal

    def read(self, message):
        self.peer = message[:32]
        self.ephemeral(self.peer)
        if self.initiator:
            self.mix(x25519(self.secret, self.peer))
        self.cipher.open(message[32:], self.h)
        self.h = digest(self.h, message[32:])

    def split(self):
        """Ciphers to send and to receive with."""
        a, b = (Cipher(k) for k in hkdf(self.chain, b"", 2))
        return (a, b) if self.initiator else (b, a)
