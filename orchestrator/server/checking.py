"""What a server does that checks uploads of clients who are not trusted: rows, correlations for it, and verdicts.

Parties, adversary, what each learns: see `verification`. The engines' servers add what they compute with.
"""

from __future__ import annotations

import hmac
import math
import operator
import secrets
import time
from dataclasses import replace

from mpc_programs.verification import ROWS
from orchestrator.mpc.offline.correlations import Demand
from orchestrator.mpc.prg import SEED_BYTES
from orchestrator.mpc.projection import Rows
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.server.base import Server, run_with
from orchestrator.server.pool import Pool, Prepared
from orchestrator.server.providers import provider_of
from orchestrator.server.verification import Witness, verification_demand, verify
from orchestrator.transport.channel import Channel
from orchestrator.wire.orders import Prepare
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload

__all__ = ["CheckingServer"]


class CheckingServer(Server):
    """A server whose `_verify` checks what `_witnessed` noted as an upload came."""

    def _supplied(self, supply: Channel) -> None:
        """Begin to make correlations, over a connection beside that for the rounds."""
        self._supply, self._provider = supply, provider_of(supply, self.index)
        self._pool: Pool[tuple[int, Demand], Prepared] = Pool(self._make, "preprocessing")
        self._closing.append(self._pool.close)
        self._rows: tuple[int, Rows] | None = None
        own = secrets.token_bytes(SEED_BYTES)
        # Of both servers: neither a client nor one server alone decides what uploads are multiplied with.
        self._key = bytes(map(operator.xor, own, self._peer.exchange(own)))

    def prepare(self, order: Prepare) -> None:
        super().prepare(order)
        if self._parameters.cohort and self._parameters.bound is not None:
            self._pool.fill((order.round, self._checking()))

    def _begin(self) -> None:
        super()._begin()
        self._checked_with: Prepared | None = None

    def _end(self, number: int) -> None:
        super()._end(number)
        if self._parameters.bound is not None:
            self._pool.forget(lambda key: key[0] <= number)

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
            made = self._checked_with = self._taken(self._pool, (number, self._checking()))[0]
            self._checks.preprocessing_seconds, self._checks.preprocessing_bytes = made.seconds, made.bytes
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

    def _checking(self) -> Demand:
        """What checking all who were asked takes from preprocessing."""
        return verification_demand(self._parameters.cohort, self._layout().widths)

    def _make(self, key: tuple[int, Demand]) -> Prepared:
        """A round's correlations; runs in the pool's thread.

        The first batch after the start may be that of any round: a run may have been resumed.
        """
        round, needed = key
        self._supply.position.enter("preprocessing", round)
        started, before = time.perf_counter(), self._provider.bytes
        batch = self._provider.make(round, needed)
        return Prepared(batch, time.perf_counter() - started, self._provider.bytes - before)
