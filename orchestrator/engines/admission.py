"""Before an update is encoded: it is refused where it cannot be, or, in a run with noise, brought into range.

A refusal ends the run, and that it did tells about one client's data what no noise covers. With noise the client
therefore changes its own update, within the ranges for which the sensitivity is proven (docs/privacy.md), and says so
in its own log only.

==================================  =======================  ===================================
update                              refused without noise    changed with noise
==================================  =======================  ===================================
norm not below 2^integer_bits       yes                      shortened to just below it
NaN or infinity in it               yes                      zero
score outside its public range      yes                      the nearer end of the range
score that is no number             yes                      the lower end of the range
==================================  =======================  ===================================
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import numpy as np

from mpc_programs.rules import RULES, RoundParameters
from orchestrator.errors import RangeError
from orchestrator.sharing.fixed_point import VectorFormat

__all__ = ["admit"]

_LOG = logging.getLogger(__name__)


def admit(
    vectors: VectorFormat,
    parameters: RoundParameters,
    delta: np.ndarray,
    scores: Mapping[str, float],
    *,
    confine: bool,
    place: str,
) -> tuple[np.ndarray, dict[str, float]]:
    """The encoded update, uint64 (d,) at `update_bits`, and the scores that the rule takes, in its order.

    Args:
        delta: float64 (d,).
        confine: whether what cannot be encoded is changed rather than refused.
        place: round and client, for messages.

    Raises:
        RangeError: naming the place but no value, where an update is refused.
    """
    ranges = RULES[parameters.rule].ranges(parameters)
    try:
        values = {name: _within(name, scores[name], low, high) for name, (low, high) in ranges.items()}
        return vectors.encode_update(delta), values
    except RangeError as error:
        if not confine:
            raise RangeError(f"{place}: {error}") from None
        _LOG.warning("%s: the update was brought into range: %s", place, error)
    values = {name: _confined(scores[name], low, high) for name, (low, high) in ranges.items()}
    return vectors.confine_update(delta), values


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise RangeError(f"the {name} score lies outside its public range [{low:g}, {high:g}]")
    return value


def _confined(value: float, low: float, high: float) -> float:
    return low if math.isnan(value) else min(max(value, low), high)
