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

A score may be a vector; its coordinates must lie in the range, and its norm must not exceed the upper end by more than
what float32 may round. Vectors belong to personal rules, which have no noise.
"""

from __future__ import annotations

import logging

import numpy as np

from mpc_programs.rules import RULES, Range, RoundParameters
from orchestrator.errors import RangeError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.message import Place

__all__ = ["admit", "begin_run"]

_LOG = logging.getLogger(__name__)

_LONGEST = 1.0 + 1e-6

_STAYED_BEHIND = (
    "; with method.stateful = true a client starts from its last local model too, far behind a released one that noise "
    "has moved since; with false it starts from the released one alone"
)
_warned: set[str] = set()
"""Of what this process has warned in this run."""


def begin_run() -> None:
    """Warn anew; for a process that begins to serve a run."""
    _warned.clear()


def admit(
    vectors: VectorFormat,
    parameters: RoundParameters,
    update: LocalUpdate,
    place: Place,
    *,
    confine: bool,
) -> tuple[np.ndarray, dict[str, float | np.ndarray]]:
    """The encoded update, uint64 (d,) at `update_bits`, and the scores that the rule takes, in its order.

    Args:
        place: for messages.
        confine: whether what cannot be encoded is changed rather than refused.

    Raises:
        RangeError: naming the place but no value, where an update is refused.
    """
    ranges, delta, scores = RULES[parameters.rule].ranges(parameters), update.delta, update.scores
    try:
        values = {name: _within(name, scores[name], limits) for name, limits in ranges.items()}
    except RangeError as error:
        _refuse_or_warn(place, "scores", str(error), confine)
        values = {name: _confined(scores[name], limits) for name, limits in ranges.items()}
    try:
        return vectors.encode_update(delta), values
    except RangeError as error:
        # F2GNN's clients alone start from a model of their own.
        behind = confine and parameters.rule == "f2gnn" and np.isfinite(delta).all()
        _refuse_or_warn(place, "update", f"{error}{_STAYED_BEHIND if behind else ''}", confine)
    return vectors.confine_update(delta), values


def _refuse_or_warn(place: Place, what: str, reason: str, confine: bool) -> None:
    """Args: what: the kind of fault, of which one is enough."""
    if not confine:
        raise RangeError(f"{place}: {reason}") from None
    if what not in _warned:
        _warned.add(what)
        _LOG.warning("%s: the update was brought into range (later ones will not be reported): %s", place, reason)


def _within(name: str, value: float | np.ndarray, limits: Range) -> float | np.ndarray:
    if np.size(value) != limits.size:
        raise RangeError(f"the {name} score has {np.size(value)} coordinates, expected {limits.size}")
    if not (np.all(limits.low <= value) and np.all(value <= limits.high)):
        raise RangeError(f"the {name} score lies outside its public range [{limits.low:g}, {limits.high:g}]")
    if limits.size > 1 and np.linalg.norm(value) > limits.high * _LONGEST:
        raise RangeError(f"the {name} score has a norm above {limits.high:g}")
    return value


def _confined(value: float | np.ndarray, limits: Range) -> float | np.ndarray:
    return np.clip(np.where(np.isnan(value), limits.low, value), limits.low, limits.high)[()]
