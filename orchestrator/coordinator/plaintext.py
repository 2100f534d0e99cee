"""The plaintext engine: the round's arithmetic in float64. It protects nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpc_programs.rules import RULES
from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.plain import SimulatingEncoder, is_finite, plain_decoder, plain_encoder
from orchestrator.coordinator.audit import float64_aggregate, float64_personal
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost, too_few
from orchestrator.methods.base import LocalUpdate
from orchestrator.privacy.bands import BAND_BITS

__all__ = ["PlaintextEngine"]


class PlaintextEngine(Engine):
    """Everything in this process, nothing protected.

    The noise has the variance of both servers' together, or of all clients' that take part. It is drawn in floating
    point, thirty times faster than exact noise and for no other purpose than to see what such noise does: nothing is
    claimed for it. Where shares are simulated the servers' dither is too; elsewhere the released model is exact.
    """

    def __init__(self, plan: RoundPlan) -> None:
        """Args: plan: of the rounds. With noise the shares of updates are simulated, else these are taken as they are.

        Raises:
            ConfigError: a personal rule's updates would be clipped or noised.
        """
        self.plan, self._parameters = plan, plan.rule
        self._terms = self._usual = plan.terms
        self._usual.check(self._parameters)
        self._model = np.zeros(0)
        self._noises: deque[np.ndarray] = deque(maxlen=len(plan.bands))
        self._uploads: dict[int, LocalUpdate] = {}
        self._refused: dict[int, str] = {}

    @property
    def encoder(self) -> Encoder:
        if self.plan.noise.multiplier == 0:
            return plain_encoder
        return SimulatingEncoder(self._parameters, self.plan.vectors)

    @property
    def decoder(self) -> Decoder:
        return plain_decoder

    def start(self, parameters: np.ndarray) -> None:
        self._model = parameters.astype(np.float64)
        self._noises.clear()

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        self._terms = terms or self._usual
        self._terms.check(self._parameters)

    def submit(self, round: int, slot: int, client: int, upload: LocalUpdate) -> None:
        if self._whole(upload):
            self._uploads[slot] = upload
        else:
            self._refused[slot] = "its upload is no update of this model with the rule's scores"

    def _whole(self, upload: Any) -> bool:
        """Whether the arithmetic can take it."""
        if not isinstance(upload, LocalUpdate) or np.shape(upload.delta) != self._model.shape:
            return False
        ranges = RULES[self._parameters.rule].ranges(self._parameters)
        sized = all(np.size(upload.scores.get(name, ())) == limits.size for name, limits in ranges.items())
        return sized and is_finite(upload)

    def aggregate(self, round: int, cohort: Sequence[int]) -> Aggregation:
        started = time.perf_counter()
        slots, terms, within = sorted(self._uploads), self._terms, None
        uploads, size = [self._uploads.pop(slot) for slot in slots], self._model.nbytes
        absent = [slot for slot in range(len(cohort)) if slot not in slots]
        left_out = {slot: self._refused.get(slot, "nothing arrived") for slot in absent}
        self._refused.clear()
        if len(uploads) < self.plan.min_cohort:
            raise too_few(round, cohort, left_out, self.plan.min_cohort)
        if self._parameters.personal:
            weights, models = float64_personal(self._model, self._parameters, uploads)
            cost = self._cost(started, size if cohort else 0, size if cohort else 0)
            answers = dict(zip(slots, models, strict=True))
            return Aggregation(None, cost, answers=answers, weights=weights, left_out=left_out)
        released = float64_aggregate(self._model, self._parameters, terms.clip_norm, uploads)
        if terms.noise_stddev:
            released = released + self._banded(_noise(terms.noise_stddev, len(released)))
        if terms.client_stddev:
            released = released + _noise(terms.client_stddev, len(released), adding=len(uploads))
        if self.plan.noise.multiplier > 0:
            released = released + _dither(self.plan.vectors.dither_bound, len(released))
        if self.plan.accumulates:
            self._model = released
        if terms.count_stddev is not None and terms.clip_norm is not None:
            within = sum(upload.norm <= terms.clip_norm for upload in uploads) + float(_noise(terms.count_stddev, 1)[0])
        cost = self._cost(started, size if cohort else 0, size)
        return Aggregation(released.copy(), cost, within, left_out=left_out)

    def _banded(self, fresh: np.ndarray) -> np.ndarray:
        """As `BandedNoise.next`, of both servers' noise."""
        for band, noise in zip(self.plan.bands, self._noises, strict=False):
            fresh = fresh - math.ldexp(band, -BAND_BITS) * noise
        self._noises.appendleft(fresh)
        return fresh

    def close(self) -> None:
        pass

    def _cost(self, started: float, upload_bytes: int, download_bytes: int) -> RoundCost:
        seconds = time.perf_counter() - started
        return RoundCost(online_seconds=seconds, upload_bytes=upload_bytes, download_bytes=download_bytes)


def _noise(stddev: float, count: int, adding: int = 2) -> np.ndarray:
    """What two servers, or so many clients, add together; float64, shape (count,)."""
    return np.random.default_rng().normal(0.0, math.sqrt(adding) * stddev, count)


def _dither(largest: float, count: int) -> np.ndarray:
    """What two servers' dithers come to, at most `largest`; float64, shape (count,)."""
    return np.random.default_rng().uniform(-largest / 2, largest / 2, (2, count)).sum(axis=0)
