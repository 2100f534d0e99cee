"""Secure aggregation by pairwise masks (Bonawitz et al., CCS 2017, for parties who follow the protocol), simulated.

One server and q clients, all of whom follow the protocol and may be curious. Server and clients that collude learn no
summand as long as fewer than t clients do. Everything travels through the server:

    keys      client u sends two X25519 public keys, for encryption and for masks, and hears everybody's
    shares    u draws a seed b_u and sends everybody a Shamir share of it and of its masks' secret key, sealed
    masked    u sends  x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)  in Z_2^64, s_uv agreed with v
    unmask    survivors send their shares of b_v of those whose vector came, and of the key of those whose did not

so that for nobody both are known, of whom the server would then know x_v. Shares are `Crypto.Protocol.SecretSharing`'s,
of 16 bytes: a secret key is two of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from orchestrator.mpc.prg import SEED_BYTES, Prg, fresh_seed

__all__ = ["Client", "MaskedSum", "Server", "masked_sum", "threshold"]

_ROUND = b"safegnn masked sum"
_EXCHANGES = 4


def threshold(cohort: int) -> int:
    """t: how many clients must be left, and how many shares give a secret away; more than two thirds."""
    return 2 * cohort // 3 + 1


def _agreed(own: X25519PrivateKey, other: bytes, purpose: bytes, length: int) -> bytes:
    """What two clients derive from each other's keys."""
    shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(SHA256(), length, None, _ROUND + purpose).derive(shared)


def _split(secret: bytes, least: int, count: int) -> list[bytes]:
    """Shamir shares of a secret of 16 k bytes, one a client; 16 k bytes each. One share of a threshold of 1 is it."""
    if least == 1:
        return [secret] * count
    parts = [secret[k : k + SEED_BYTES] for k in range(0, len(secret), SEED_BYTES)]
    shares = [dict(Shamir.split(least, count, part, ssss=False)) for part in parts]
    return [b"".join(share[number] for share in shares) for number in range(1, count + 1)]


def _joined(shares: Mapping[int, bytes], least: int) -> bytes:
    """The secret. Args: shares: by client, at least as many as the threshold."""
    chosen = sorted(shares)[:least]
    if least == 1:
        return shares[chosen[0]]
    length = len(shares[chosen[0]])
    cuts = range(0, length, SEED_BYTES)
    return b"".join(Shamir.combine([(u + 1, shares[u][k : k + SEED_BYTES]) for u in chosen], ssss=False) for k in cuts)


class Client:
    """One client in one round. Nothing of it is shown by `repr`.

    Attributes:
        number: u, its place in the cohort.
    """

    def __init__(self, number: int, cohort: int) -> None:
        self.number, self._cohort, self._least = number, cohort, threshold(cohort)
        self._sealing, self._masking = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._own = fresh_seed()
        self._keys: Sequence[tuple[bytes, bytes]] = ()
        self._shares: dict[int, bytes] = {}

    def keys(self) -> tuple[bytes, bytes]:
        """Public keys for sealing and for masks."""
        return self._sealing.public_key().public_bytes_raw(), self._masking.public_key().public_bytes_raw()

    def share(self, keys: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """For every client a sealed pair of shares: of the own seed, and of the secret key of the masks."""
        self._keys = keys
        of_seed = _split(self._own, self._least, self._cohort)
        of_key = _split(self._masking.private_bytes_raw(), self._least, self._cohort)
        pairs = [b + s for b, s in zip(of_seed, of_key, strict=True)]
        return [self._cipher(v, self.number, v).encrypt(bytes(12), pair, None) for v, pair in enumerate(pairs)]

    def _cipher(self, other: int, sender: int, receiver: int) -> ChaCha20Poly1305:
        """Of one message of the round: the key is used once, so that the nonce may be zero."""
        purpose = b" sealing %d %d" % (sender, receiver)
        return ChaCha20Poly1305(_agreed(self._sealing, self._keys[other][0], purpose, 32))

    def masked(self, sealed: Sequence[bytes], vector: np.ndarray) -> np.ndarray:
        """The vector under all masks, uint64, shape (d,). Args: sealed: by sender, what was sealed to this client."""
        for u, text in enumerate(sealed):
            self._shares[u] = self._cipher(u, u, self.number).decrypt(bytes(12), text, None)
        total = vector + Prg(self._own).uint64(len(vector))
        for v in range(self._cohort):
            if v != self.number:
                total = _with_mask(total, self._masking, self._keys[v][1], self.number, v)
        return total

    def reveal(self, present: Set[int]) -> list[bytes]:
        """A share of each client: of the own seed of those whose vector came, of the key of the others'."""
        return [pair[:SEED_BYTES] if u in present else pair[SEED_BYTES:] for u, pair in sorted(self._shares.items())]


def _with_mask(total: np.ndarray, own: X25519PrivateKey, other: bytes, u: int, v: int) -> np.ndarray:
    """What u holds, with its mask with v: added by the lower of the two, taken away by the higher."""
    mask = Prg(_agreed(own, other, b" mask", SEED_BYTES)).uint64(len(total))
    return total + mask if u < v else total - mask


class Server:
    """What the server makes of the masked vectors that came."""

    def __init__(self, keys: Sequence[tuple[bytes, bytes]]) -> None:
        self._keys, self._least = keys, threshold(len(keys))

    def unmask(self, masked: Mapping[int, np.ndarray], revealed: Mapping[int, Sequence[bytes]]) -> np.ndarray:
        """The sum of the vectors, uint64, shape (d,).

        Args:
            masked: by client, of those whose vector came.
            revealed: by survivor, what `Client.reveal` said; at least `threshold` of them.
        """
        total = np.zeros_like(next(iter(masked.values())))
        for vector in masked.values():
            total = total + vector
        for u in range(len(self._keys)):
            secret = _joined({v: said[u] for v, said in revealed.items()}, self._least)
            if u in masked:
                total = total - Prg(secret).uint64(len(total))
            else:  # u's masks with those whose vector came are still in it, with the signs that u's would have undone
                own = X25519PrivateKey.from_private_bytes(secret)
                for v in masked:
                    total = _with_mask(total, own, self._keys[v][1], u, v)
        return total


@dataclass(frozen=True)
class MaskedSum:
    """A sum, and what it took.

    Attributes:
        total: uint64, shape (d,).
        sent, received: bytes of one client, mean over the cohort; without framing and TLS.
        client_seconds: the slowest client's arithmetic.
        server_seconds: the server's.
        exchanges: between clients and server.
    """

    total: np.ndarray
    sent: int
    received: int
    client_seconds: float
    server_seconds: float
    exchanges: int = _EXCHANGES


def masked_sum(vectors: Mapping[int, np.ndarray], cohort: int) -> MaskedSum:
    """Run the protocol, all parties in this process; clients without a vector drop out before they send theirs.

    Args:
        vectors: by client, uint64, shape (d,); at least `threshold` of them, of clients 0 to cohort - 1.

    Raises:
        ValueError: fewer clients are left than give the masks away.
    """
    if len(vectors) < threshold(cohort):
        raise ValueError(f"{len(vectors)} of {cohort} clients are left; the masks need {threshold(cohort)}")
    clients = [Client(u, cohort) for u in range(cohort)]
    seconds = [0.0] * cohort
    sent, received = 64 * cohort, 64 * cohort * cohort

    def timed(u: int, started: float) -> None:
        seconds[u] += time.perf_counter() - started

    keys, sealed = [client.keys() for client in clients], []
    for u, client in enumerate(clients):
        started = time.perf_counter()
        sealed.append(client.share(keys))
        timed(u, started)
    each = sum(len(text) for text in sealed[0])
    sent, received = sent + cohort * each, received + cohort * each
    masked = {}
    for u, vector in vectors.items():
        started = time.perf_counter()
        masked[u] = clients[u].masked([sealed[v][u] for v in range(cohort)], vector)
        timed(u, started)
        sent += masked[u].nbytes
    revealed = {u: clients[u].reveal(masked.keys()) for u in masked}
    received += len(masked) * ((cohort + 7) // 8)  # who is there
    sent += sum(len(share) for said in revealed.values() for share in said)
    started = time.perf_counter()
    total = Server(keys).unmask(masked, revealed)
    server = time.perf_counter() - started
    return MaskedSum(total, sent // cohort, received // cohort, max(seconds), server)
