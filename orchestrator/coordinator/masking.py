"""Engine of one server and pairwise masks, Bonawitz et al.'s, simulated: a comparison of cost and trust.

It sums what clients send, no more: weights have to be public, so that FedAvg's mean is what it can do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.noisy import NoisyEncoder
from orchestrator.client.plain import plain_decoder, plain_encoder
from orchestrator.config import Config
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost, too_few
from orchestrator.coordinator.masked_sum import masked_sum, threshold
from orchestrator.errors import ConfigError, RangeError
from orchestrator.methods.base import LocalUpdate

__all__ = ["MaskingEngine", "refuse_unmaskable"]


def refuse_unmaskable(config: Config, plan: RoundPlan) -> None:
    """Raises ConfigError, naming the setting at fault and why, where one server with masks cannot do a run."""
    if plan.rule.rule != "fedavg":
        raise ConfigError(
            f"engine.name = masking: method.name = {config.method.name} weighs clients by what they keep secret, and "
            "one server with masks only adds up; choose a method of FedAvg's rule, or engine.name = embedded"
        )
    own = plan.noise.honest is not None
    if not own and (config.privacy.clip_norm is not None or config.privacy.noise_multiplier > 0):
        raise ConfigError(
            "engine.name = masking: one server sees no norm, so it cannot clip, and noise that it drew it would know; "
            "leave privacy.clip_norm and privacy.noise_multiplier out, or let clients do both, privacy.noise = clients"
        )
    if own and plan.clip_norm is not None:
        cohort = plan.rule.cohort
        most = plan.clip_norm * cohort + 10 * plan.terms.client_stddev * math.sqrt(cohort)
        if most >= plan.vectors.limit:
            raise ConfigError(
                f"engine.name = masking: the sum of {cohort} updates and their noise may reach {most:.4g}, beyond "
                f"2^sharing.integer_bits = {plan.vectors.limit:.0f}: raise sharing.integer_bits (and lower "
                "sharing.update_bits by as much), or lower privacy.clip_norm"
            )
    if config.method.statistics() or config.evaluation.tables == "summed":
        raise ConfigError(
            f"engine.name = masking: sums besides the model, of method.name = {config.method.name} or "
            "evaluation.tables = summed, are for two servers; choose engine.name = embedded"
        )


class MaskingEngine(Engine):
    """Clients' and server's parts of the protocol all run here, so that it protects nothing: a simulation.

    A client whose upload does not come has dropped out after it shared its seeds; the round costs what that costs. More
    than two thirds must be left. Where clients add noise they clip their updates themselves, and what is added up is
    noisy already: docs/privacy.md, (14). `RoundCost`: online seconds are the slowest client's and the server's, as if
    clients computed beside each other and a network took no time; the server's bytes are those that it sends to all
    clients.
    """

    def __init__(self, plan: RoundPlan) -> None:
        self.plan = plan
        self._model = np.zeros(0)
        self._uploads: dict[int, np.ndarray] = {}
        self._refused: dict[int, str] = {}

    @property
    def encoder(self) -> Encoder:
        terms = self.plan.terms
        if not terms.client_stddev or terms.clip_norm is None:
            return plain_encoder
        return NoisyEncoder(self.plan.rule, self.plan.vectors, terms.clip_norm, terms.client_stddev)

    @property
    def decoder(self) -> Decoder:
        return plain_decoder

    def start(self, parameters: np.ndarray) -> None:
        self._model = parameters.astype(np.float64)

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        if terms not in (None, self.plan.terms):
            raise ConfigError("engine.name = masking: one server neither clips nor adds noise")

    def submit(self, round: int, slot: int, client: int, upload: LocalUpdate | np.ndarray) -> None:
        if self.plan.noise.honest is not None:
            if isinstance(upload, np.ndarray) and (upload.dtype, upload.shape) == (np.uint64, self._model.shape):
                self._uploads[slot] = upload
            else:
                self._refused[slot] = "its upload is no noisy update of this model"
            return
        if not isinstance(upload, LocalUpdate) or np.shape(upload.delta) != self._model.shape:
            self._refused[slot] = "its upload is no update of this model"
            return
        try:
            self._uploads[slot] = self.plan.vectors.encode_update(upload.delta)
        except RangeError as error:
            self._refused[slot] = str(error)

    def aggregate(self, round: int, cohort: Sequence[int]) -> Aggregation:
        uploads, self._uploads = self._uploads, {}
        left_out = {s: self._refused.get(s, "nothing arrived") for s in range(len(cohort)) if s not in uploads}
        self._refused = {}
        least = max(self.plan.min_cohort, threshold(len(cohort))) if cohort else 0
        if len(uploads) < least:
            raise too_few(round, cohort, left_out, least)
        if not cohort:
            return Aggregation(self._model.copy(), RoundCost())
        found = masked_sum(uploads, len(cohort))
        weight = 1 / (self.plan.rule.expected or len(uploads))
        bits = self.plan.vectors.update_bits if self.plan.noise.honest is None else self.plan.vectors.model_bits
        self._model = self._model - weight * np.ldexp(found.total.view(np.int64).astype(np.float64), -bits)
        cost = RoundCost(
            online_seconds=found.client_seconds + found.server_seconds,
            online_bytes=(found.received * len(cohort), 0),
            rounds=found.exchanges,
            upload_bytes=found.sent,
            download_bytes=found.received + self._model.nbytes,
        )
        return Aggregation(self._model.copy(), cost, left_out=left_out)

    def close(self) -> None:
        pass
