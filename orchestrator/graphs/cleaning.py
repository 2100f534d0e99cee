"""What is done to labels, features and masks before they are a graph, wherever they come from."""

from __future__ import annotations

import math

import numpy as np

from orchestrator.errors import DataError
from orchestrator.seeding import seeded_generator

__all__ = ["MISSING", "check_several", "row_normalised", "split_masks", "standardised"]

MISSING = -1
"""Label of a node whose label is unknown; such a node is in no mask."""

_ROUNDING = 1e-6
"""What floating point may take from a count that is whole, such as 0.29 of 100 nodes."""


def check_several(values: np.ndarray, source: str, what: str, cure: str = "") -> None:
    """Raises DataError where the values are all the same, or none. Args: cure: ends the message."""
    if len(found := np.unique(values)) < 2:
        got = ", ".join(map(str, found)) or "none"
        raise DataError(f"{source}: the kept nodes have only {what} {got}; expected two or more{cure}")


def standardised(features: np.ndarray, name: str) -> np.ndarray:
    """Varying columns scaled to mean 0 and (n - 1) variance 1, constant ones left out; float32.

    Column by column in float64, so that memory stays at one float32 copy.

    Raises:
        DataError: every column is constant.
    """
    varying = np.flatnonzero(features.min(axis=0) < features.max(axis=0))
    if not len(varying):
        raise DataError(f"{name}: every feature is constant over the kept nodes")
    scaled = np.empty((len(features), len(varying)), np.float32)
    for position, column in enumerate(varying):
        values = features[:, column].astype(np.float64)
        scaled[:, position] = (values - values.mean()) / values.std(ddof=1)
    return scaled


def row_normalised(features: np.ndarray, name: str) -> np.ndarray:
    """Every row divided by its sum, a row of zeros left as it is; float32. Raises DataError for a negative feature."""
    if features.min(initial=0) < 0:
        raise DataError(f"{name}: data.features = row_normalised needs features that are not negative")
    total = features.sum(axis=1, keepdims=True, dtype=np.float64)
    return (features / np.where(total > 0, total, 1)).astype(np.float32)


def split_masks(labels: np.ndarray, shares: tuple[float, float, float], source: str, seed: int) -> np.ndarray:
    """Masks of training, validation and test nodes, bool, shape (3, n).

    A seeded shuffle of the labelled nodes is cut at the cumulative shares, rounded down.

    Raises:
        DataError: there are too few labelled nodes for the shares.
    """
    order = seeded_generator(seed, "split").permutation(np.flatnonzero(labels != MISSING))
    needed = math.ceil(1 / min(share for share in shares if share) - _ROUNDING)
    if len(order) < needed:
        wanted = "/".join(f"{100 * share:g}" for share in shares)
        raise DataError(f"{source}: {len(order)} labelled nodes are left; a {wanted} split needs at least {needed}")
    ends = [math.floor(len(order) * share + _ROUNDING) for share in (shares[0], shares[0] + shares[1])]
    masks = np.zeros((3, len(labels)), bool)
    for mask, part in zip(masks, np.split(order, ends), strict=True):
        mask[part] = True
    return masks
