"""Secure sums as the round loop asks for them: clients' numbers in, their sum out, by an engine of its own.

The engine is the one of the rounds, on the sum's plan: plaintext where these are, else the two embedded servers, also
where MP-SPDZ computes the rounds. They are servers of its own for each sum, which live as long as it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from orchestrator.agreement.evaluation_sum import counts_layout, summed_tables
from orchestrator.client.summands import Summand, TablesOf
from orchestrator.config import Config
from orchestrator.coordinator.engine import Engine, RoundCost, too_few
from orchestrator.coordinator.population import Hosts
from orchestrator.coordinator.round_result import reason_of
from orchestrator.secure_sum import SecureSum, Sizes

__all__ = ["Summation", "SummedTables", "Total"]


@dataclass(frozen=True)
class Total:
    """What a sum came to.

    Attributes:
        numbers: float64, shape (m,).
        cost: of the engine.
        left_out: by client, why its numbers are not in it.
    """

    numbers: np.ndarray = field(repr=False)
    cost: RoundCost
    left_out: Mapping[int, str]


class Summation:
    """One sum over clients, as often as it is asked for; servers are started when it first is. A context manager."""

    def __init__(self, described: SecureSum, length: int, engine: Engine) -> None:
        """Args: length: m; engine: of the sum's `sum_plan`, not started."""
        self.described, self.length, self.plan = described, length, engine.plan
        self._engine, self._started = engine, False

    def total(self, number: int, clients: Sequence[int], pool: Hosts, summand: Summand) -> Total:
        """The sum over these clients, fewer where some failed.

        Args:
            number: of the round that it belongs to; larger than that of the last one.
            summand: what each client adds.

        Raises:
            CohortError: too few clients are left. Nothing was released.
            ProtocolError: naming peer, phase and round.
        """
        engine, least = self._engine, self.plan.min_cohort
        if not self._started:
            engine.start(np.zeros(self.length))
            self._started = True
        engine.prepare(number, len(clients))
        submitted: list[int] = []

        def submit(slot: int, client: int, upload: object) -> None:
            submitted.append(slot)
            engine.submit(number, slot, client, upload)

        missing = pool.contribute(number, clients, summand, self.described.bound, self.length, engine.encoder, submit)
        reasons = {slot: reason_of(error) for slot, error in missing.items()}
        if len(submitted) < least:
            raise too_few(number, clients, reasons, least) from next(iter(missing.values()), None)
        aggregation = engine.aggregate(number, clients)
        assert aggregation.parameters is not None  # the mean is no personal rule
        left_out = {**aggregation.left_out, **reasons}
        numbers = self.described.bound * aggregation.parameters
        return Total(numbers, aggregation.cost, {clients[slot]: why for slot, why in sorted(left_out.items())})

    @property
    def noise_stddev(self) -> float:
        """Absolute standard deviation of the noise on every number, of both servers together."""
        return self.described.bound * self.plan.terms.noise_stddev * 2.0**0.5

    @property
    def error(self) -> float:
        """The most that fixed point puts any number off by."""
        return self.described.bound * self.plan.error_bound(self.plan.clients, 1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()


class SummedTables(Summation):
    """All clients' counts of a model's predictions; what `RoundEvaluation` takes as its `Tables`.

    Attributes:
        layout: which number is what.
        clients: how many there are.
        bound: of the Euclidean norm of a client's counts.
        cost: of the last sum.
    """

    def __init__(self, config: Config, sizes: Sizes, pool: Hosts, engine: Engine) -> None:
        described = summed_tables(config)
        super().__init__(described, described.length(sizes), engine)
        self.layout, self.clients, self.bound = counts_layout(config, sizes), sizes.clients, described.bound
        self.cost, self._pool = RoundCost(), pool

    def add_up(self, round: int, parameters: np.ndarray, own: bool) -> Total:
        total = self.total(round, range(self.clients), self._pool, TablesOf(self.layout, parameters, own))
        self.cost = total.cost
        return total
