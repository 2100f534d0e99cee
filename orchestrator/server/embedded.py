"""One aggregation server that computes by our own protocols, as a process: `python -m` this module."""

from __future__ import annotations

import time
from typing import Any

from mpc_programs.rules import RoundParameters
from orchestrator.errors import DisagreementError
from orchestrator.mpc.offline.correlations import Demand
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import VectorShare
from orchestrator.server.aggregation import aggregate, demand
from orchestrator.server.base import Present, run_with
from orchestrator.server.checking import CheckingServer
from orchestrator.server.main import main
from orchestrator.server.pool import Prepared
from orchestrator.transport.channel import Channel
from orchestrator.wire.orders import Prepare, Setup

__all__ = ["EmbeddedServer"]


class EmbeddedServer(CheckingServer):
    """Computes a round by the protocols of `aggregation`, with correlations from a pool."""

    def setup(self, order: Setup, peer: Channel, supply: Channel) -> None:
        super().setup(order, peer, supply)
        self._supplied(supply)

    def prepare(self, order: Prepare) -> None:
        super().prepare(order)
        if self._parameters.cohort:
            self._pool.fill((order.round, self._demand(self._parameters)))

    def _end(self, number: int) -> None:
        super()._end(number)
        self._pool.forget(lambda key: key[0] <= number)

    def compute(self, number: int, present: Present) -> tuple[VectorShare, dict[str, Any]]:
        asked = time.perf_counter()
        prepared = self._correlations(number, present.parameters)
        self._agree_on_round(number, present)  # by then both have their correlations
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._position.enter("online", number)
        ops = SharedArithmetic(self.index, prepared.batch)
        protocol = aggregate(ops, present.parameters, self._vectors, present.uploads, present.start, self._program)
        result = run_with(protocol, self._peer)
        return result, {
            "online_seconds": time.perf_counter() - started,
            "online_bytes": self._peer.sent_bytes - sent,
            "rounds": self._peer.exchanges - exchanges,
            "preprocessing_seconds": prepared.seconds,
            "preprocessing_bytes": prepared.bytes,
            "waited_seconds": started - asked,
            "startup_seconds": 0.0,
        }

    def _correlations(self, number: int, parameters: RoundParameters) -> Prepared:
        """What was made for all who were asked, which mostly serves fewer; else what fewer need is made now.

        With scores in a wide range a maximum of 33 values takes fewer comparisons than one of 32, and a division by a
        sum of 17 fewer products than one of 16, so that not every cohort's correlations cover those of a smaller one.
        """
        prepared, _ = self._taken(self._pool, (number, self._demand(self._parameters)))
        if not (needed := self._demand(parameters)).within(prepared.batch.demand):
            further, _ = self._taken(self._pool, (number, needed))
            prepared = Prepared(further.batch, prepared.seconds + further.seconds, prepared.bytes + further.bytes)
        return prepared

    def _demand(self, parameters: RoundParameters) -> Demand:
        """What a round takes from preprocessing; that nothing can be computed with it is the coordinator's fault."""
        try:
            return demand(parameters, len(self._model.values), self._program)
        except (ValueError, TypeError, ArithmeticError) as error:
            reason = f"announced parameters that nothing can be computed with: {error}"
            raise self._coordinator.error(DisagreementError, reason) from None


if __name__ == "__main__":
    main(EmbeddedServer)
