"""The plaintext reference: the round's arithmetic in float64. It protects nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpc_programs.lockstep import run_locally
from mpc_programs.rules import RULES, RoundParameters, factors
from orchestrator.client.admission import admit
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost, too_few
from orchestrator.coordinator.round_plan import RoundPlan, Terms
from orchestrator.errors import RangeError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.envelope import Keypair

__all__ = [
    "AuditEncoder",
    "Float64",
    "PlainUpload",
    "PlaintextEngine",
    "SimulatingEncoder",
    "float64_aggregate",
    "float64_personal",
    "plain_decoder",
    "plain_encoder",
]


class Float64:
    """Backend of `mpc_programs.arithmetic` on float64 vectors, shape (n,); bits are boolean vectors."""

    def constants(self, values: Sequence[float]) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def take(self, x: np.ndarray, indices: Sequence[int]) -> np.ndarray:
        return x[np.asarray(indices, dtype=np.intp)]

    def sums(self, x: np.ndarray, groups: int) -> np.ndarray:
        return x.reshape(-1, groups).sum(axis=0)

    def concat(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def combine(self, terms: Sequence[tuple[np.ndarray, float]], constant: float = 0.0) -> np.ndarray:
        return np.asarray(constant + sum(c * x for x, c in terms))

    def weigh(self, bits: np.ndarray, constants: Sequence[float]) -> np.ndarray:
        return bits * np.asarray(constants, dtype=np.float64)

    def negate(self, bits: np.ndarray) -> np.ndarray:
        return ~bits

    async def multiply(self, *pairs: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
        return [x * y for x, y in pairs]

    async def inner(self, x: np.ndarray, y: np.ndarray, groups: int) -> np.ndarray:
        return self.sums(x * y, groups)

    async def less(self, x: np.ndarray, y: np.ndarray | float | Sequence[float]) -> np.ndarray:
        return x < np.asarray(y, dtype=np.float64)

    async def all(self, bits: np.ndarray, groups: int) -> np.ndarray:
        return np.asarray(bits.reshape(-1, groups).all(axis=0))

    async def numbers(self, bits: np.ndarray) -> np.ndarray:
        return bits.astype(np.float64)


@dataclass(frozen=True)
class PlainUpload:
    """An unprotected update: delta float64 (d,), its norm, and the scores by name."""

    delta: np.ndarray = field(repr=False)
    norm: float = field(repr=False)
    scores: Mapping[str, float | np.ndarray] = field(repr=False)


def plain_encoder(
    delta: np.ndarray,
    norm: float,
    scores: Mapping[str, float | np.ndarray],
    round: int,
    slot: int,
    client: int,
    reply_key: bytes = b"",
) -> PlainUpload:
    """The encoder of the plaintext engine. Raises RangeError for an update that is not finite."""
    if not _finite(delta, norm, scores):
        raise RangeError(f"round {round}, client {client}: the update holds NaN or infinity")
    return PlainUpload(delta, norm, scores)


def _finite(delta: np.ndarray, norm: float, scores: Mapping[str, float | np.ndarray]) -> bool:
    return all(np.isfinite(value).all() for value in (delta, norm, *scores.values()))


def plain_decoder(answer: np.ndarray, keypair: Keypair, round: int, slot: int, client: int) -> np.ndarray:
    """The decoder of the plaintext engine, whose answers are the models themselves."""
    return answer


@dataclass(frozen=True)
class AuditEncoder:
    """What another engine's encoder is given, in plaintext, with the norm that this shares: the encoded update's."""

    vectors: VectorFormat

    def __call__(
        self,
        delta: np.ndarray,
        norm: float,
        scores: Mapping[str, float | np.ndarray],
        round: int,
        slot: int,
        client: int,
        reply_key: bytes = b"",
    ) -> PlainUpload:
        upload = plain_encoder(delta, norm, scores, round, slot, client)
        return replace(upload, norm=self.vectors.norm(self.vectors.encode_update(delta)))


@dataclass(frozen=True)
class SimulatingEncoder:
    """What shares of an update in a run with noise would hold: on their grid, in their ranges, never refused."""

    parameters: RoundParameters
    vectors: VectorFormat

    def __call__(
        self,
        delta: np.ndarray,
        norm: float,
        scores: Mapping[str, float | np.ndarray],
        round: int,
        slot: int,
        client: int,
        reply_key: bytes = b"",
    ) -> PlainUpload:
        place = f"round {round}, client {client}"
        update, values = admit(self.vectors, self.parameters, delta, scores, confine=True, place=place)
        return PlainUpload(self.vectors.decode_update(update), self.vectors.norm(update), values)


def float64_aggregate(
    model: np.ndarray, parameters: RoundParameters, clip_norm: float | None, uploads: Sequence[PlainUpload]
) -> np.ndarray:
    """w - sum_i s_i Delta_i in float64 (SaFeGNN, Algorithm 1, line 23): what the other engines must agree with.

    Args:
        parameters: of any round; how many clients there are, and how large their norms, is taken from the uploads.
        clip_norm: C; None where updates are not clipped.
    """
    if not uploads:
        return model.copy()
    weights = _factors(parameters, clip_norm, uploads)
    return model - sum(weight * upload.delta for weight, upload in zip(weights, uploads, strict=True))


def float64_personal(
    model: np.ndarray, parameters: RoundParameters, uploads: Sequence[PlainUpload]
) -> tuple[np.ndarray, np.ndarray]:
    """A personal rule's weights s, shape (q, q), and w - sum_j s_ij Delta_j for every client i, shape (q, d).

    What the other engines must agree with, as `float64_aggregate`.
    """
    q = len(uploads)
    if q == 0:
        return np.zeros((0, 0)), np.zeros((0, len(model)))
    weights = _factors(parameters, None, uploads).reshape(q, q)
    return weights, model - weights @ np.stack([upload.delta for upload in uploads])


def _factors(parameters: RoundParameters, clip_norm: float | None, uploads: Sequence[PlainUpload]) -> np.ndarray:
    scores = {
        name: np.stack([np.ravel(upload.scores[name]) for upload in uploads], axis=1).ravel()
        for name in RULES[parameters.rule].ranges(parameters)
    }
    ratio = None if clip_norm is None else np.array([upload.norm for upload in uploads]) / clip_norm
    parameters = replace(parameters, cohort=len(uploads), ratio_max=None if ratio is None else float(ratio.max()))
    return run_locally(factors(Float64(), parameters, scores, ratio))


class PlaintextEngine(Engine):
    """Everything in this process, nothing protected.

    The noise has the variance of both servers' together. It is drawn in floating point, thirty times faster than exact
    noise and for no other purpose than to see what such noise does: nothing is claimed for it. Where shares are
    simulated the servers' dither is too; elsewhere the released model is the exact one.
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
        self._uploads: dict[int, PlainUpload] = {}
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

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        self._terms = terms or self._usual
        self._terms.check(self._parameters)

    def submit(self, round: int, slot: int, client: int, upload: PlainUpload) -> None:
        if self._whole(upload):
            self._uploads[slot] = upload
        else:
            self._refused[slot] = "its upload is no update of this model with the rule's scores"

    def _whole(self, upload: Any) -> bool:
        """Whether the arithmetic can take it."""
        if not isinstance(upload, PlainUpload) or np.shape(upload.delta) != self._model.shape:
            return False
        ranges = RULES[self._parameters.rule].ranges(self._parameters)
        sized = all(np.size(upload.scores.get(name, ())) == limits.size for name, limits in ranges.items())
        return sized and _finite(upload.delta, upload.norm, upload.scores)

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
        self._model = float64_aggregate(self._model, self._parameters, terms.clip_norm, uploads)
        if terms.noise_stddev:
            self._model = self._model + _noise(terms.noise_stddev, len(self._model))
        if self.plan.noise.multiplier > 0:
            self._model = self._model + _dither(self.plan.vectors.dither_bound, len(self._model))
        if terms.count_stddev is not None and terms.clip_norm is not None:
            within = sum(upload.norm <= terms.clip_norm for upload in uploads) + float(_noise(terms.count_stddev, 1)[0])
        cost = self._cost(started, size if cohort else 0, size)
        return Aggregation(self._model.copy(), cost, within, left_out=left_out)

    def close(self) -> None:
        pass

    def _cost(self, started: float, upload_bytes: int, download_bytes: int) -> RoundCost:
        seconds = time.perf_counter() - started
        return RoundCost(online_seconds=seconds, upload_bytes=upload_bytes, download_bytes=download_bytes)


def _noise(stddev: float, count: int) -> np.ndarray:
    """What two servers add together; float64, shape (count,)."""
    return np.random.default_rng().normal(0.0, 2.0**0.5 * stddev, count)


def _dither(largest: float, count: int) -> np.ndarray:
    """What two servers' dithers come to, at most `largest`; float64, shape (count,)."""
    return np.random.default_rng().uniform(-largest / 2, largest / 2, (2, count)).sum(axis=0)
