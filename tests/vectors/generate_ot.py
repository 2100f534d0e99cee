"""Writes the test vectors of oblivious transfer: `python -m tests.vectors.generate_ot`.

An implementation of its own, from the papers and RFC 8032 alone: nothing of `coordinator` is imported. Where a vector
depends on a convention (the order of bits, what is hashed into a key), the convention is written down here once more.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

FOLDER = Path(__file__).parent
TRANSFERS = 8
BATCHES = (9, 5)

# Ed25519 in affine coordinates (RFC 8032, section 5.1)

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def point_of(y: int, sign: int) -> tuple[int, int]:
    """Raises ValueError where no point of the curve has this y."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    if x * x % P != square:
        raise ValueError("no square root")
    return (P - x if x % 2 != sign and x else x), y


BASE = point_of(4 * pow(5, -1, P) % P, 0)
NEUTRAL = (0, 1)


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P)
    return x % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def times(k: int, a: tuple[int, int]) -> tuple[int, int]:
    result = NEUTRAL
    for bit in bin(k)[2:]:
        result = add(result, result)
        if bit == "1":
            result = add(result, a)
    return result


def encode(a: tuple[int, int]) -> bytes:
    x, y = a
    return (y | x % 2 << 255).to_bytes(32, "little")


# Inputs, which the test takes from here


def derived(*names: object, size: int = 16) -> bytes:
    """Bytes that stand for random ones."""
    return hashlib.shake_128("/".join(map(str, names)).encode()).digest(size)


def scalar(*names: object) -> int:
    return int.from_bytes(derived(*names, size=64), "little") % ORDER


def bits(count: int, *names: object) -> list[int]:
    return [byte & 1 for byte in derived(*names, size=count)]


# Base transfers (Chou and Orlandi, 2015): R = r B + c S; the keys are H(i, S, R, s R), H(i, S, R, s (R - S))


def key(i: int, sender: bytes, receiver: bytes, shared: bytes) -> str:
    return hashlib.sha256(b"safegnn base ot" + i.to_bytes(4, "little") + sender + receiver + shared).digest()[:16].hex()


def base() -> dict:
    """One server's side; its peer is played with scalars and choices of its own."""
    secret, peer = scalar("own"), scalar("peer")
    own, theirs = times(secret, BASE), times(peer, BASE)
    choices, peer_choices = bits(TRANSFERS, "choices"), bits(TRANSFERS, "peer", "choices")
    sent, received, pairs, chosen = [], [], [], []
    for i in range(TRANSFERS):
        blind, point = scalar("blind", i), times(scalar("peer", "blind", i), BASE)
        sent.append(add(times(blind, BASE), theirs) if choices[i] else times(blind, BASE))
        received.append(add(point, own) if peer_choices[i] else point)
        minus = P - own[0], own[1]
        shared = times(secret, received[i]), times(secret, add(received[i], minus))
        pairs.append([key(i, encode(own), encode(received[i]), encode(each)) for each in shared])
        chosen.append(key(i, encode(theirs), encode(sent[i]), encode(times(blind, theirs))))
        if peer_choices[i]:  # the peer, too, can compute the key that it chose
            assert pairs[i][1] == key(
                i, encode(own), encode(received[i]), encode(times(scalar("peer", "blind", i), own))
            )
    return {
        "sent": [encode(own).hex(), b"".join(map(encode, sent)).hex()],
        "received": [encode(theirs).hex(), b"".join(map(encode, received)).hex()],
        "pairs": pairs,
        "chosen": chosen,
    }


def refused() -> dict[str, str]:
    """Encodings that are no element of the prime-order group, or not the canonical one of it."""
    eighth = next(
        point
        for y in range(2, 100)
        for point in [times(ORDER, on_curve(y))]
        if times(4, point) != NEUTRAL and times(8, point) == NEUTRAL
    )
    off_curve = next(y for y in range(2, 100) if on_curve(y) == NEUTRAL)
    return {
        "neutral": encode(NEUTRAL).hex(),
        "order_2": encode((0, P - 1)).hex(),
        "order_4": encode((ROOT, 0)).hex(),
        "order_8": encode(eighth).hex(),
        "base_plus_order_2": encode(add(BASE, (0, P - 1))).hex(),
        "base_plus_order_8": encode(add(BASE, eighth)).hex(),
        "off_curve": off_curve.to_bytes(32, "little").hex(),
        "neutral_not_reduced": (P + 1).to_bytes(32, "little").hex(),
        "all_ones": (b"\xff" * 32).hex(),
    }


def on_curve(y: int) -> tuple[int, int]:
    """A point with this y; the neutral element where there is none."""
    try:
        return point_of(y, 0)
    except ValueError:
        return NEUTRAL


# Extension (Ishai, Kilian, Nissim, Petrank, 2003), hashed by TMMO (Guo, Katz, Wang, Yu, 2020)


class Stream:
    """AES-128 in counter mode from zero, read bit by bit: the lowest of a byte first."""

    def __init__(self, seed: bytes) -> None:
        self._stream = Cipher(algorithms.AES128(seed), modes.CTR(bytes(16))).encryptor()

    def bits(self, count: int) -> list[int]:
        """Whole bytes are used up."""
        data = self._stream.update(bytes((count + 7) // 8))
        return [data[k // 8] >> k % 8 & 1 for k in range(count)]


def permute(block: int) -> int:
    cipher = Cipher(algorithms.AES128(hashlib.sha256(b"safegnn ot hash").digest()[:16]), modes.ECB()).encryptor()
    return int.from_bytes(cipher.update(block.to_bytes(16, "little")), "little")


def tmmo(block: int, tweak: int) -> str:
    inner = permute(block)
    return (permute(inner ^ tweak) ^ inner).to_bytes(16, "little").hex()


def block(columns: list[list[int]], row: int) -> int:
    return sum(column[row] << i for i, column in enumerate(columns))


def extension(tweak: str) -> list[dict]:
    """Two batches of one server. Args: tweak: "advancing" as it must be, or how it must not: "dropped", "repeated"."""
    secret, result, count = bits(128, "secret"), [], 0
    chosen = [Stream(derived("chosen", i)) for i in range(128)]
    zeros, ones = ([Stream(derived(name, i)) for i in range(128)] for name in ("zero", "one"))
    for batch, m in enumerate(BATCHES):
        width = (m + 7) // 8 * 8
        choices = bits(m, "bits", batch) + [0] * (width - m)
        message = derived("message", batch, size=16 * width)
        received = [[message[i * width // 8 + k // 8] >> k % 8 & 1 for k in range(width)] for i in range(128)]
        t = [stream.bits(width) for stream in zeros]
        sent = [[a ^ b ^ c for a, b, c in zip(t[i], ones[i].bits(width), choices, strict=True)] for i in range(128)]
        q = [
            [a ^ s & b for a, b in zip(stream.bits(width), column, strict=True)]
            for stream, s, column in zip(chosen, secret, received, strict=True)
        ]
        offset = sum(bit << i for i, bit in enumerate(secret))
        numbers = [{"advancing": count + j, "dropped": 0, "repeated": j}[tweak] for j in range(m)]
        packed = bytes(sum(bit << k for k, bit in enumerate(c[s : s + 8])) for c in sent for s in range(0, width, 8))
        result.append(
            {
                "sent": packed.hex(),
                "first": [tmmo(block(q, j), number) for j, number in enumerate(numbers)],
                "second": [tmmo(block(q, j) ^ offset, number) for j, number in enumerate(numbers)],
                "chosen": [tmmo(block(t, j), number) for j, number in enumerate(numbers)],
            }
        )
        count += m
    return result


def main() -> None:
    content = {
        "version": 1,
        "base": base(),
        "refused_points": refused(),
        "extension": extension("advancing"),
        "wrong_extensions": {name: extension(name) for name in ("dropped", "repeated")},
    }
    (FOLDER / "ot-1.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
