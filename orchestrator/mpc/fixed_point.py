"""Fixed-point encodings and the validator that names the setting which breaks them.

Scalars (scores, ratios, weights) have 32 fractional bits in Z_2^128. Vectors live in Z_2^64 at two scales: updates
with `update_bits`, and the model and every aggregate with `update_bits + weight_bits`, the scale at which a product
of an update and a weight stands, so that nothing in the vector ring is ever truncated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import ConfigError, RangeError
from orchestrator.mpc.ring import MASK128, signed128

__all__ = [
    "COUNT_BITS",
    "LARGEST_COUNT_NOISE",
    "SCALAR_BITS",
    "VectorFormat",
    "clip_error",
    "decode_scalars",
    "encode_scalars",
]

SCALAR_BITS = 32
"""Fractional bits of every scalar."""

COUNT_BITS = 44
"""Fractional bits of a number of clients in Z_2^64: room for 2^18 of them, and for noise that is fine enough."""

LARGEST_COUNT_NOISE = 2.0 ** (63 - COUNT_BITS) / 40
"""Standard deviation of the noise of a count that fits there, 20 times over with both servers' noise together."""


def clip_error(cohort: int, total: float = 1.0) -> float:
    """Bound on what clipping adds to the sum of |error| of q = `cohort` weights (docs/privacy.md, (8)).

    25 ulp of weights that sum to `total`, and each product's rounding. The 25 are 24 of the clip factor, and one of the
    norm's ratio to C: half for float64, half for its encoding.
    """
    return (25 * total + cohort) * 2.0**-SCALAR_BITS


def encode_scalars(values: Iterable[float]) -> list[int]:
    """To Z_2^128 at `SCALAR_BITS`, rounded to nearest. Raises RangeError if not finite or not below 2^31 in size."""
    values = [float(value) for value in values]
    if not all(abs(value) < 2.0**31 for value in values):
        raise RangeError("a score is not finite or not below 2^31 in size")
    return [round(value * (1 << SCALAR_BITS)) & MASK128 for value in values]


def decode_scalars(values: Iterable[int], scale_bits: int = SCALAR_BITS) -> np.ndarray:
    """Inverse of `encode_scalars`; values in [0, 2^128) to float64."""
    return np.array(signed128(values), dtype=np.float64) * 2.0**-scale_bits


@dataclass(frozen=True)
class VectorFormat:
    """Scales and range of the vectors in Z_2^64.

    Attributes:
        update_bits: fractional bits of an update.
        weight_bits: fractional bits of a factor s_i when it meets an update; at most `SCALAR_BITS`.
        integer_bits: model parameters, update coordinates and update norms stay below 2^integer_bits.
    """

    update_bits: int
    weight_bits: int
    integer_bits: int

    def __post_init__(self) -> None:
        needed = self.update_bits + self.weight_bits + self.integer_bits + 1
        if needed > 64:
            room = 63 - self.weight_bits - self.integer_bits
            cure = f"sharing.update_bits to {room}" if room > 0 else f"sharing.integer_bits to {62 - self.weight_bits}"
            raise ConfigError(
                f"sharing.update_bits ({self.update_bits}) + sharing.weight_bits ({self.weight_bits}) + "
                f"sharing.integer_bits ({self.integer_bits}) + 1 = {needed} bits exceed the ring's 64: "
                f"lower {cure} or less"
            )
        if self.weight_bits > SCALAR_BITS:
            raise ConfigError(f"sharing.weight_bits = {self.weight_bits}: expected at most {SCALAR_BITS}")

    @property
    def model_bits(self) -> int:
        """Fractional bits of the model, of aggregates and of noise."""
        return self.update_bits + self.weight_bits

    @property
    def limit(self) -> float:
        return 2.0**self.integer_bits

    @property
    def dither_bound(self) -> float:
        """What both servers' dither of `weight_bits` bits moves a released value by at most: 2 * 2^(weight_bits - 1)
        steps of 2^-model_bits (`orchestrator.privacy.dither`)."""
        return 2.0**-self.update_bits

    def check_noise(self, stddev: float, room: int = 10, whose: str = "one server") -> None:
        """Refuse noise that one round could carry out of range: `room` standard deviations must stay below `limit`.

        10 are 7 of both servers' noise together, beside which their dither of 2^-update_bits is nothing. The
        released model is below `limit` / 2 before them, and is refused above that after them (`decode_model`); so it
        takes noise beyond `limit` to wrap a value around unnoticed: with a probability below 2e-12 a value. Privacy
        does not depend on it: reducing a sum modulo 2^64 is post-processing. One server's noise beyond 2^63 steps,
        which could not be held, has a probability below 2e-23.
        """
        if room * stddev >= self.limit:
            raise ConfigError(
                f"the noise of {whose} has standard deviation {stddev:.4g}, and {room} of them do not fit below "
                f"2^sharing.integer_bits = {self.limit:.0f}: raise sharing.integer_bits (and lower "
                "sharing.update_bits or sharing.weight_bits by as much), or lower privacy.noise_multiplier or "
                "privacy.clip_norm"
            )

    def encode_update(self, delta: np.ndarray) -> np.ndarray:
        """float64 (d,) to uint64 (d,) at `update_bits`, rounded to nearest.

        Raises:
            RangeError: an element is NaN or infinite, or the norm, also after rounding, reaches 2^integer_bits.
        """
        if not np.isfinite(delta).all():
            raise RangeError("the update holds NaN or infinity; lower method.learning_rate or check the features")
        if _norm(delta) < self.limit:
            encoded = _encode(delta, self.update_bits)
            if self.norm(encoded) < self.limit:
                return encoded
        raise RangeError(
            f"the update's norm is not below 2^sharing.integer_bits = {self.limit:.0f}; raise sharing.integer_bits"
        )

    def confine_update(self, delta: np.ndarray) -> np.ndarray:
        """As `encode_update`, but never refused: what is too long is shortened, what is not finite becomes zero."""
        try:
            return self.encode_update(delta)
        except RangeError:
            norm = _norm(delta)
        if not np.isfinite(norm):
            return np.zeros(len(delta), dtype=np.uint64)
        # 2^-20 below the limit, which is far more than float64 rounds in norm and product.
        shortened = delta * ((1.0 - 2.0**-20) * self.limit / norm)
        # Towards zero: rounding to nearest could make it longer again.
        return np.trunc(np.ldexp(shortened, self.update_bits)).astype(np.int64).view(np.uint64)

    def shorten_update(self, update: np.ndarray, longest: float) -> np.ndarray:
        """An encoded update of norm `longest` at most: as it is, or scaled and rounded towards zero."""
        norm = self.norm(update)
        if norm <= longest:
            return update
        scale = (1.0 - 2.0**-40) * longest / norm  # far below what rounding shortens, above what float64 errs by
        return np.trunc(update.view(np.int64).astype(np.float64) * scale).astype(np.int64).view(np.uint64)

    def decode_update(self, update: np.ndarray) -> np.ndarray:
        """Inverse of `encode_update`; float64 (d,)."""
        return np.ldexp(update.view(np.int64).astype(np.float64), -self.update_bits)

    def norm(self, update: np.ndarray) -> float:
        """The Euclidean norm of an encoded update: that of the integers, which rounding cannot push above a bound.

        Relative error: below (d + 2) 2^-53, a half ulp of the ratio to the clip norm, and of the factor that comes of
        it, for d up to 2^20.
        """
        return _norm(self.decode_update(update))

    def encode_model(self, parameters: np.ndarray) -> np.ndarray:
        """float64 (d,) to uint64 (d,) at `model_bits`. Raises RangeError where a parameter is out of range."""
        if not np.isfinite(parameters).all() or (np.abs(parameters) >= self.limit / 2).any():
            raise RangeError(
                f"a model parameter is not below half of 2^sharing.integer_bits = {self.limit:.0f}; "
                "raise sharing.integer_bits"
            )
        return _encode(parameters, self.model_bits)

    def decode_model(self, values: np.ndarray) -> np.ndarray:
        """uint64 (d,) at `model_bits` to float64 (d,).

        Raises:
            RangeError: a parameter lies in the upper half of the range, so that the next round could wrap around.
        """
        parameters = np.ldexp(values.view(np.int64).astype(np.float64), -self.model_bits)
        if (np.abs(parameters) >= self.limit / 2).any():
            raise RangeError(
                f"the released model leaves the range that the ring can carry (|w| < {self.limit / 2:.0f}): "
                "raise sharing.integer_bits and lower sharing.update_bits by as much"
            )
        return parameters

    def error_bound(
        self,
        cohort: int,
        largest_coordinate: float,
        factors: float,
        total: float = 1.0,
    ) -> float:
        """Bound on |released - float64| per coordinate and round, without Gaussian noise.

        largest_coordinate * (sum of the factors' errors + cohort * rounding to weight_bits) + the factors' sum *
        rounding of the updates + float64's own rounding of the model + both servers' dither.

        Args:
            factors: bound on the sum of |error| of all factors.
            total: the largest sum of factors.
        """
        factors += cohort * 2.0**-self.weight_bits if self.weight_bits < SCALAR_BITS else 0.0
        rounding = total * 2.0 ** -(self.update_bits + 1)
        return largest_coordinate * factors + rounding + self.limit * 2.0**-52 + self.dither_bound


def _encode(values: np.ndarray, bits: int) -> np.ndarray:
    return np.rint(np.ldexp(values, bits)).astype(np.int64).view(np.uint64)


def _norm(values: np.ndarray) -> float:
    """Infinite where a square is."""
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(values))
