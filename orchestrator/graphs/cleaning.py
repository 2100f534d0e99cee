"""What is done to labels and masks before they are a graph, wherever they come from."""

from __future__ import annotations

import math

import numpy as np

from orchestrator.errors import DataError
from orchestrator.seeding import seeded_generator

__all__ = ["MISSING", "check_several", "check_varying", "split_masks"]

MISSING = -1
"""Label of a node whose label is unknown; such a node is in no mask."""

_ROUNDING = 1e-6
"""What floating point may take from a count that is whole, such as 0.29 of 100 nodes."""


def check_several(values: np.ndarray, source: str, what: str, cure: str = "") -> None:
    """Raises DataError where the values are all the same, or none. Args: cure: ends the message."""
    if len(found := np.unique(values)) < 2:
        got = ", ".join(map(str, found)) or "none"
        raise DataError(f"{source}: the kept nodes have only {what} {got}; expected two or more{cure}")


def check_varying(features: np.ndarray, name: str) -> None:
    """Raises DataError where every feature, shape (n, f), is the same at all nodes."""
    if (features.min(axis=0) == features.max(axis=0)).all():
        raise DataError(f"{name}: every feature is constant over the kept nodes")


def split_masks(
    labels: np.ndarray,
    groups: np.ndarray | None,
    shares: tuple[float, float, float],
    stratified: bool,
    source: str,
    seed: int,
) -> np.ndarray:
    """Masks of training, validation and test nodes, bool, shape (3, n).

    - Stratified: every class of every group is split by the shares, to a few nodes. Of a group, and of a class of a
      group, with as many labelled nodes as there are masks of some share, every such mask has one or more.
    - Else: a seeded shuffle of the labelled nodes is cut at the cumulative shares, rounded down.

    Args:
        groups: shape (n,); None: there are none.

    Raises:
        DataError: there are too few labelled nodes for the shares.
    """
    order = seeded_generator(seed, "split").permutation(np.flatnonzero(labels != MISSING))
    needed = math.ceil(1 / min(share for share in shares if share) - _ROUNDING)
    if len(order) < needed:
        wanted = "/".join(f"{100 * share:g}" for share in shares)
        raise DataError(f"{source}: {len(order)} labelled nodes are left; a {wanted} split needs at least {needed}")
    if stratified:
        parts = _stratified(order, labels, np.zeros_like(labels) if groups is None else groups, shares)
    else:
        parts = np.split(order, [math.floor(len(order) * end + _ROUNDING) for end in np.cumsum(shares)[:2]])
    masks = np.zeros((3, len(labels)), bool)
    for mask, part in zip(masks, parts, strict=True):
        mask[part] = True
    return masks


def _stratified(
    order: np.ndarray, labels: np.ndarray, groups: np.ndarray, shares: tuple[float, float, float]
) -> list[np.ndarray]:
    """The nodes of `order` for each mask: one after the other goes to the mask that its group lacks most of.

    Before that counts, a mask of which the group has none yet, and one of which the class of the group has none.
    """
    used = [mask for mask in range(3) if shares[mask] > 0]
    parts: list[list[int]] = [[], [], []]
    for group in np.unique(groups[order]):
        members = order[groups[order] == group]
        in_group = [0, 0, 0]
        for label in np.unique(labels[members]):
            stratum = members[labels[members] == label].tolist()
            in_stratum = [0, 0, 0]
            for node in stratum:
                empty = [mask for mask in used if not in_group[mask]]
                if not empty and len(stratum) >= len(used):
                    empty = [mask for mask in used if not in_stratum[mask]]
                lacking = [share * (sum(in_group) + 1) - count for share, count in zip(shares, in_group, strict=True)]
                chosen = max(empty or used, key=lacking.__getitem__)
                parts[chosen].append(node)
                in_group[chosen] += 1
                in_stratum[chosen] += 1
    return [np.array(part, np.int64) for part in parts]
