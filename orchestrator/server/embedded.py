"""One aggregation server that computes by our own protocols, as a process: `python -m` this module."""

from __future__ import annotations

import hmac
import math
import operator
import secrets
import time
from dataclasses import replace
from typing import Any

from mpc_programs.rules import RoundParameters
from mpc_programs.verification import ROWS
from orchestrator.errors import DisagreementError
from orchestrator.mpc.offline.correlations import Demand
from orchestrator.mpc.prg import SEED_BYTES
from orchestrator.mpc.projection import Rows
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import VectorShare
from orchestrator.server.aggregation import aggregate, demand
from orchestrator.server.base import Present, Server, run_with
from orchestrator.server.main import main
from orchestrator.server.pool import Pool, Prepared
from orchestrator.server.providers import provider_of
from orchestrator.server.verification import Witness, verification_demand, verify
from orchestrator.transport.channel import Channel
from orchestrator.wire.orders import Prepare, Setup
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload

__all__ = ["EmbeddedServer"]


class EmbeddedServer(Server):
    """Computes a round by the protocols of `aggregation`, with correlations from a pool."""

    verifies = True

    def setup(self, order: Setup, peer: Channel, supply: Channel) -> None:
        self._rows: tuple[int, Rows] | None = None
        super().setup(order, peer, supply)
        self._provider = provider_of(supply, self.index)
        self._pool: Pool[tuple[int, Demand], Prepared] = Pool(self._make, "preprocessing")
        own = secrets.token_bytes(SEED_BYTES)
        # Of both servers: neither client nor one server's bad luck decides what uploads are multiplied with.
        self._key = bytes(map(operator.xor, own, peer.exchange(own)))

    def prepare(self, order: Prepare) -> None:
        super().prepare(order)
        if self._parameters.cohort:
            if self._parameters.bound is not None:
                self._pool.fill((order.round, self._checking(self._parameters)))
            self._pool.fill((order.round, self._demand(self._parameters)))

    def _end(self, number: int) -> None:
        super()._end(number)
        self._pool.forget(lambda key: key[0] <= number)

    def _begin(self) -> None:
        super()._begin()
        self._checked_with: Prepared | None = None

    def _witnessed(self, upload: Upload) -> Upload:
        if self._parameters.bound is None or not isinstance(upload.update, Correlated) or self._round is None:
            return upload
        if self._rows is None or self._rows[0] != self._round:
            seed = hmac.digest(self._key, f"rows/{self._round}".encode(), "sha256")[:SEED_BYTES]
            self._rows = self._round, Rows(seed, ROWS, len(self._model.values))
        share, product = self._rows[1].times([upload.update.share, upload.update.products[0]])
        return replace(upload, witness=(share, product))

    def _verify(self, number: int, agreed: dict[int, Upload]) -> dict[int, Upload]:
        assert self._parameters.bound is not None
        if self._checked_with is None:
            self._checked_with, _ = self._pool.take((number, self._checking(self._parameters)))
        self._position.enter("verification", number)
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        ops, slots = SharedArithmetic(self.index, self._checked_with.batch), sorted(agreed)
        bound = math.ldexp(self._parameters.bound, self._vectors.update_bits)
        counted, witnesses = self._announced.count_stddev is not None, [Witness.of(agreed[slot]) for slot in slots]
        protocol = verify(ops, bound, self._layout().widths, counted, witnesses)
        verdicts, scores = run_with(protocol, self._peer)
        self._checks.seconds += time.perf_counter() - started
        self._checks.bytes += self._peer.sent_bytes - sent
        self._checks.exchanges += self._peer.exchanges - exchanges
        passed = {}
        for slot, verdict, numbers in zip(slots, verdicts, scores, strict=True):
            if verdict is None:
                passed[slot] = replace(agreed[slot], scalars=numbers, witness=None)
            else:
                self._reception.refused[slot] = verdict
        return passed

    def _checking(self, parameters: RoundParameters) -> Demand:
        """What checking all who were asked takes from preprocessing."""
        return verification_demand(parameters.cohort, self._layout().widths)

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
        prepared, _ = self._pool.take((number, self._demand(self._parameters)))
        if not (needed := self._demand(parameters)).within(prepared.batch.demand):
            further, _ = self._pool.take((number, needed))
            prepared = Prepared(further.batch, prepared.seconds + further.seconds, prepared.bytes + further.bytes)
        if (checked := self._checked_with) is not None:
            prepared = Prepared(prepared.batch, prepared.seconds + checked.seconds, prepared.bytes + checked.bytes)
        return prepared

    def _make(self, key: tuple[int, Demand]) -> Prepared:
        """A round's correlations; runs in the pool's thread.

        The first batch after the start may be that of any round: a run may have been resumed.
        """
        round, needed = key
        self._supply.position.enter("preprocessing", round)
        started, before = time.perf_counter(), self._provider.bytes
        batch = self._provider.make(round, needed)
        return Prepared(batch, time.perf_counter() - started, self._provider.bytes - before)

    def _demand(self, parameters: RoundParameters) -> Demand:
        """What a round takes from preprocessing; that nothing can be computed with it is the coordinator's fault."""
        try:
            return demand(parameters, len(self._model.values), self._program)
        except (ValueError, TypeError, ArithmeticError) as error:
            reason = f"announced parameters that nothing can be computed with: {error}"
            raise self._coordinator.error(DisagreementError, reason) from None


if __name__ == "__main__":
    main(EmbeddedServer)
