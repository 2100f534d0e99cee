"""Reproducible generators for training, data splits and tests. Never for secrets, masks or privacy noise.

One run has one seed. Every use names its purpose, so that adding a use never shifts the stream of another.
"""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["derived_seed", "seeded_generator"]


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. ``derived_seed(31, "dropout", client, round)``."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def seeded_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator of its own for one purpose."""
    return np.random.default_rng(derived_seed(seed, *purpose))
