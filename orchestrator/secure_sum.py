"""What clients add up on shares besides the model: how a sum is described, before anybody knows a number of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.errors import ConfigError

__all__ = ["EVALUATION", "SecureSum", "Sizes"]

EVALUATION = "evaluation"
"""Name of the sum of the clients' tables of counts."""

_LEAST_NOISE, _MOST_NOISE = 1e-6, 1e6


@dataclass(frozen=True)
class Sizes:
    """What everybody knows of a run's data.

    Attributes:
        nodes, features, classes: of the whole graph.
        groups: 2, or 1 where no sensitive attribute is known.
        clients: how many there are.
    """

    nodes: int
    features: int
    classes: int
    groups: int
    clients: int


@dataclass(frozen=True)
class SecureSum:
    """A sum over clients of m numbers each, of which everybody learns the sum and nobody a summand. All of it public.

    Attributes:
        name: by which a client is asked for its numbers, and told the sum.
        bound: of the Euclidean norm of a client's numbers; longer ones are shortened to it, by the client and, whatever
            it says, on shares by the servers.
        length: m, from what is public about the data.
        noise_multiplier: standard deviation of the noise on the sum, relative to how far one client can move it, with
            the meaning of `privacy.noise` for each server; 0: none.
        each_round: whether each round's cohort adds up its numbers when it has trained; else all clients do, once,
            before the first round.

    Raises:
        ConfigError: bound or noise are out of range.
    """

    name: str
    bound: float
    length: Callable[[Sizes], int] = field(repr=False)
    noise_multiplier: float = 0.0
    each_round: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.bound < math.inf):
            raise ConfigError(f"the sum '{self.name}': a bound of {self.bound:g}; expected a number above 0")
        if self.noise_multiplier and not _LEAST_NOISE <= self.noise_multiplier <= _MOST_NOISE:
            raise ConfigError(
                f"the sum '{self.name}': a noise multiplier of {self.noise_multiplier:g}; expected 0, or a number from "
                f"{_LEAST_NOISE:g} to {_MOST_NOISE:g}"
            )
