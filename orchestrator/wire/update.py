"""How an upload brings an update, for each of the programs: shared with its own correlation, or shared alone.

Parties, adversary, what each learns: as in `wire.upload`, which seals what is made here and says why it shows nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.mpc.prg import Prg
from orchestrator.mpc.ring import MASK128, from_bytes128, to_bytes128

__all__ = ["CARRIERS", "Carrier", "Correlated", "complement"]


@dataclass(frozen=True)
class Correlated:
    """One server's part of an update that comes with its own correlation; uint64 in Z_2^64.

    Attributes:
        share: of Delta at `update_bits`; shape (d,).
        factor_masks: share of a, one element for each secret scalar that the update meets; shape (n,).
        products: share of a * Delta; shape (n, d). Empty once they have been added to the round's sums.
    """

    share: np.ndarray = field(repr=False)
    factor_masks: np.ndarray = field(repr=False)
    products: np.ndarray = field(repr=False)


class Carrier(ABC):
    """Splits an update of d elements that meets n secret factors, and expands one server's part.

    Server 0's part follows from its seed; what server 1's seed does not give is in fields of its own. `split` and
    `expand` draw the same elements of the seeds' streams.
    """

    @abstractmethod
    def fields(self, d: int, n: int) -> dict[str, int]:
        """Lengths of server 1's fields, bytes."""

    @abstractmethod
    def split(self, update: np.ndarray, n: int, first: Prg, second: Prg) -> dict[str, bytes]:
        """Server 1's fields. Args: update: encoded Delta, uint64, shape (d,); first, second: each server's stream."""

    def blur(self, parts: Mapping[str, bytes], noise: np.ndarray) -> dict[str, bytes]:
        """Server 1's fields, with noise in the shares of what is added up as it is; uint64, shape (d,)."""
        raise ValueError("Expected the program assisted: no other adds up what a client could put noise into.")

    @abstractmethod
    def expand(self, parts: Mapping[str, Any], d: int, n: int, prg: Prg, first: bool) -> Any:
        """A server's part. Args: parts: its fields by name; prg: its stream; first: whether it is server 0."""


class AssistedCarrier(Carrier):
    """With the client's correlation, `Correlated`; 8 (n + 1) d bytes."""

    def fields(self, d: int, n: int) -> dict[str, int]:
        return {"share": 8 * d, "products": 8 * n * d}

    def split(self, update: np.ndarray, n: int, first: Prg, second: Prg) -> dict[str, bytes]:
        share, factor_masks = update - first.uint64(len(update)), first.uint64(n) + second.uint64(n)
        products = [(one * update - first.uint64(len(update))).astype("<u8").tobytes() for one in factor_masks]
        return {"share": share.astype("<u8").tobytes(), "products": b"".join(products)}

    def blur(self, parts: Mapping[str, bytes], noise: np.ndarray) -> dict[str, bytes]:
        """The sum is e <Delta> + <a Delta + noise>: no secret factor meets the noise. Of a single factor."""
        products = np.frombuffer(parts["products"], dtype="<u8")
        if products.shape != noise.shape:
            raise ValueError(f"Expected noise of shape {products.shape}, got {noise.shape}.")
        return {**parts, "products": (products + noise).astype("<u8").tobytes()}

    def expand(self, parts: Mapping[str, Any], d: int, n: int, prg: Prg, first: bool) -> Correlated:
        share = prg.uint64(d) if first else np.frombuffer(parts["share"], dtype="<u8")
        factor_masks = prg.uint64(n)
        products = prg.uint64(n * d) if first else np.frombuffer(parts["products"], dtype="<u8")
        return Correlated(share, factor_masks, products.reshape(n, d))


class ScalarFirstCarrier(Carrier):
    """Shares of Delta in Z_2^64, a uint64 array; 8 d bytes."""

    def fields(self, d: int, n: int) -> dict[str, int]:
        return {"share": 8 * d}

    def split(self, update: np.ndarray, n: int, first: Prg, second: Prg) -> dict[str, bytes]:
        return {"share": (update - first.uint64(len(update))).astype("<u8").tobytes()}

    def expand(self, parts: Mapping[str, Any], d: int, n: int, prg: Prg, first: bool) -> np.ndarray:
        return prg.uint64(d) if first else np.frombuffer(parts["share"], dtype="<u8")


class FaithfulCarrier(Carrier):
    """Shares of Delta in Z_2^128, a list; 16 d bytes."""

    def fields(self, d: int, n: int) -> dict[str, int]:
        return {"share": 16 * d}

    def split(self, update: np.ndarray, n: int, first: Prg, second: Prg) -> dict[str, bytes]:
        return {"share": complement(update.view(np.int64).tolist(), first.ring128(len(update)))}

    def expand(self, parts: Mapping[str, Any], d: int, n: int, prg: Prg, first: bool) -> list[int]:
        return prg.ring128(d) if first else from_bytes128(parts["share"])


CARRIERS: dict[str, Carrier] = {
    "assisted": AssistedCarrier(),
    "scalar-first": ScalarFirstCarrier(),
    "faithful": FaithfulCarrier(),
}
"""By program."""


def complement(values: list[int], first: list[int]) -> bytes:
    """Server 1's shares in Z_2^128, packed, where server 0 has `first`."""
    return to_bytes128(value - share & MASK128 for value, share in zip(values, first, strict=True))
