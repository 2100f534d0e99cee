"""The plan of a run's rounds: made once from the settings, and taken by engine, round loop and accountant alike.

Rule, formats, sampler, clip bound, noise, privacy plan and error bound follow from one object, so that they cannot
disagree: an engine was made from a plan, training refuses an engine of another one, and the servers compare the plan's
digest. Noise and epsilon are two readings of the same fields.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RoundParameters
from mpc_programs.verification import LARGEST_BOUND, LEAST_BOUND, LIE_PASSES
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import COUNT_BITS, LARGEST_COUNT_NOISE, VectorFormat, clip_error
from orchestrator.privacy.bands import ROUNDING, column_norm, growth
from orchestrator.privacy.client_noise import client_stddev, tau
from orchestrator.privacy.plan import NoisySum, PrivacyPlan, server_stddev
from orchestrator.privacy.quantile import COUNT_SENSITIVITY
from orchestrator.privacy.sensitivity import BOUNDS, bounds_of, l2_sensitivity, weights_error

__all__ = ["FINEST_NOISE_BITS", "HIDING_COHORT", "LARGEST_RATIO", "Noise", "RoundPlan", "Terms"]

HIDING_COHORT = 4
"""In a smaller cohort without noise a member learns much of the others."""

_SAMPLERS: dict[str, Literal["fixed", "poisson", "cyclic"]] = {
    "distinct": "fixed",
    "poisson": "poisson",
    "cyclic": "cyclic",
}
"""What accountants know the ways of sampling as; there is none for sampling with replacement."""

MASKED_ERROR = 2.0**-30
"""Above what float64 errs by in the norm of an update of up to 2^22 elements, relative to it."""

_LONGEST = 2.0**40
"""No vector has more elements: it would be one of eight terabytes."""

_DROWNING = 0.75
"""Noise of both servers on the count, as a share of the cohort, beyond which an adaptive clip bound follows noise."""

LARGEST_RATIO = 2.0**20
"""Update norms up to this many times the clip norm are clipped on shares; the documented domain of the clip."""

FINEST_NOISE_BITS = 40
"""Noise of an accounted run is at least this many bits above the ring's grid; docs/privacy.md says what that gives."""


@dataclass(frozen=True)
class Terms:
    """What is public about a round besides its cohort and may differ from round to round.

    Attributes:
        clip_norm: C; None where updates are not clipped.
        noise_stddev: absolute standard deviation of the noise that each server adds to its share; 0 for none.
        client_stddev: of the noise that each client adds to what it shares; 0 for none.
        count_stddev: of the noise that each adds to the number of updates whose norm is at most C, which is released
            too; None where they are not counted.
    """

    clip_norm: float | None = None
    noise_stddev: float = 0.0
    count_stddev: float | None = None
    client_stddev: float = 0.0

    def check(self, parameters: RoundParameters) -> None:
        """Raises ConfigError where a personal rule's updates would be clipped or noised: it has neither."""
        if parameters.personal and self != Terms():
            raise ConfigError(f"privacy: {parameters.rule} gives every client its own model, without clipping or noise")


@dataclass(frozen=True)
class Noise:
    """What the servers add to what is released, and what is claimed for it.

    Attributes:
        multiplier: sigma, relative to the L2 sensitivity of a round's aggregate; 0 for none.
        servers: "each_full" or "split", or "clients", who then add it instead, as in `PrivacyPlan`.
        sensitivity: "worst_case" or "bounded_weights", as in `l2_sensitivity`.
        count_multiplier: of the number of updates within the clip bound, relative to that count's sensitivity; None
            where they are not counted.
        accountant: of the epsilon that is stated; None: none is.
        delta: of (epsilon, delta)-differential privacy.
        budget: the largest epsilon that may be reached; None for no limit.
        honest: with "clients", as in `PrivacyPlan`.
    """

    multiplier: float = 0.0
    servers: Literal["each_full", "split", "clients"] = "each_full"
    sensitivity: Literal["worst_case", "bounded_weights"] = "worst_case"
    count_multiplier: float | None = None
    accountant: str | None = "tightest"
    delta: float = 1e-5
    budget: float | None = None
    honest: int | None = None


@dataclass(frozen=True)
class RoundPlan:
    """What every round of a run is; all of it public.

    Attributes:
        parameters: the public side of the arithmetic, for a cohort of the usual size and the usual clip bound; None
            where a method aggregates nothing.
        vectors: fixed-point format of updates and model.
        clip_norm: C, with an adaptive bound that of one round; None where updates are not clipped.
        noise: see `Noise`.
        sampling: "distinct", "with_replacement", "poisson" or "cyclic".
        clients: n, of whom cohorts are drawn.
        min_cohort: the least number of clients whose round is released.
        engine: "embedded", "mpspdz", "plaintext" or "masking": whose arithmetic it is.
        program: what is done with the vectors; one of `mpc_programs.programs.PROGRAMS`.
        protocol: of MP-SPDZ.
        adaptive: whether the clip bound follows a quantile of the norms.
        unaccounted: what clients hear of each other besides the rounds; see `registry.Method`.
        stateful: whether anything stays with a client between its rounds.
        accumulates: whether a round starts from what the last one released; else all start from the first model.
        sums: what is released besides, with or without noise.
        bands: of the noise over the rounds, see `orchestrator.privacy.bands`; empty where every round's is its own.
    """

    parameters: RoundParameters | None
    vectors: VectorFormat
    clip_norm: float | None = None
    noise: Noise = Noise()
    sampling: Literal["distinct", "with_replacement", "poisson", "cyclic"] = "distinct"
    clients: int = 2**20
    min_cohort: int = 0
    engine: str = "embedded"
    program: str = "assisted"
    protocol: Literal["semi2k", "dealer-ring"] = "semi2k"
    adaptive: bool = False
    unaccounted: str = ""
    stateful: bool = False
    accumulates: bool = True
    sums: tuple[NoisySum, ...] = ()
    bands: tuple[int, ...] = ()

    @property
    def rule(self) -> RoundParameters:
        """`parameters`, of a plan that has a round to compute. Raises ConfigError where there is none."""
        if self.parameters is None:
            raise ConfigError("method.name: this method aggregates nothing, so there is no round to compute")
        return self.parameters

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, for servers to compare; hexadecimal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def lasting(self) -> str:
        """The digest of what stays when a run is given more rounds, and on which epsilon depends."""
        return replace(self, bands=()).digest

    def at(self, clip_norm: float | None) -> RoundPlan:
        """The plan of a round with this clip bound; sensitivity and noise follow."""
        return self if clip_norm == self.clip_norm else replace(self, clip_norm=clip_norm)

    def parameters_of(self, cohort: int, clip_norm: float | None) -> RoundParameters:
        """The public side of the arithmetic of a round of this size on this clip bound, as all parties hold it.

        Raises:
            ConfigError: clients are not trusted, and the round has no bound to check them with.
        """
        parameters = replace(self.rule, cohort=cohort)
        if clip_norm == self.clip_norm:
            return parameters
        if parameters.bound is not None:
            if clip_norm is None:
                raise ConfigError("federation.clients = untrusted: a round needs a clip bound that can be checked")
            return replace(parameters, bound=clip_norm)
        ratio = None if clip_norm is None else self.vectors.limit / clip_norm
        # A power of two, so that rounds whose clip bounds are alike are one program.
        return replace(parameters, ratio_max=ratio and 2.0 ** math.ceil(math.log2(ratio)))

    @cached_property
    def terms(self) -> Terms:
        """What is public about a round and follows from the clip bound.

        Raises:
            ConfigError: the noise does not fit, or that of the count of updates within the bound is too coarse, or
                drowns it.
        """
        if self.parameters is None:
            return Terms()
        self.vectors.check_noise(self._stddev * growth(self.bands), 20 if self.bands else 10)
        if self.noise.honest is not None:
            together = self._client_stddev * math.sqrt(self.rule.cohort)
            self.vectors.check_noise(together, whose="all clients of a round")
            return Terms(self.clip_norm, client_stddev=self._client_stddev)
        if not self.adaptive:
            return Terms(self.clip_norm, self._stddev)
        if self.noise.multiplier == 0 or self.noise.count_multiplier is None:
            return Terms(self.clip_norm, 0.0, 0.0)
        count_stddev = server_stddev(self.noise.count_multiplier, COUNT_SENSITIVITY, self.noise.servers)
        finest, largest = 2.0 ** (FINEST_NOISE_BITS - COUNT_BITS), LARGEST_COUNT_NOISE
        if not finest <= count_stddev <= largest:
            raise ConfigError(
                f"privacy.quantile.bit_noise_multiplier = {self.noise.count_multiplier:g}: noise of {count_stddev:g} "
                f"on the count from each server; expected {finest:g} to {largest:g}"
            )
        most = _DROWNING * self.rule.cohort / math.sqrt(2.0)
        if count_stddev > most:
            enough = most * self.noise.count_multiplier / count_stddev
            raise ConfigError(
                f"privacy.quantile.bit_noise_multiplier = {self.noise.count_multiplier:g}: noise of "
                f"{math.sqrt(2.0) * count_stddev:.3g} drowns the count of a cohort of {self.rule.cohort}; expected at "
                f"most {enough:.3g}, a larger cohort, or privacy.clip = fixed"
            )
        return Terms(self.clip_norm, self._stddev, count_stddev)

    @cached_property
    def unproven(self) -> str | None:
        """Why no epsilon is stated in spite of noise, as in "no epsilon is stated: ..."; None where one is."""
        if self.noise.accountant is None:
            return "none was asked for (privacy.accountant)"
        if self.sampling not in _SAMPLERS:
            return f"no accountant is valid for federation.sampling = {self.sampling}"
        if self.unaccounted:
            return f"{self.unaccounted} (method.name)"
        if self.rule.rule not in BOUNDS:
            return f"the rule {self.rule.rule} declares no bounds of its weights"
        if bare := [noisy.name for noisy in self.sums if noisy.noise_multiplier == 0]:
            return f"the sum '{bare[0]}' over clients is released without noise"
        if not self._proven:
            return "none is proven for MP-SPDZ's arithmetic and for engine.program = faithful"
        return None

    @cached_property
    def privacy(self) -> PrivacyPlan | None:
        """What the run may claim; None without noise, and where `unproven` says why.

        Raises:
            ConfigError: the noise is too fine for the ring's grid, the budget does not allow a single round, or nothing
                can watch over it.
        """
        noise = self.noise
        if noise.multiplier == 0:
            return None
        if self.unproven is not None or noise.accountant is None:
            if noise.budget is not None:
                raise ConfigError(f"privacy.epsilon_budget: no epsilon can be stated: {self.unproven}")
            return None
        most = self.clients if self.sampling == "poisson" else self.rule.cohort
        summands, each = 2, self._stddev
        if noise.honest is not None:
            summands, each = self.rule.cohort, self._client_stddev
        fine = math.ldexp(each, self.vectors.model_bits)
        if fine < 2.0**FINEST_NOISE_BITS:
            whose = "server" if noise.honest is None else "client"
            raise ConfigError(
                f"privacy.noise_multiplier = {noise.multiplier:g}: each {whose}'s noise of {each:.3g} is below "
                f"2^{FINEST_NOISE_BITS} steps of the ring's grid, too coarse to be accounted as Gaussian; raise it, "
                "or set privacy.accountant to null"
            )
        plan = PrivacyPlan(
            sampler=_SAMPLERS[self.sampling],
            clients=self.clients,
            cohort=self.rule.cohort,
            noise_multiplier=noise.multiplier,
            delta=noise.delta,
            accountant=noise.accountant,
            noise=noise.servers,
            sensitivity=self.sensitivity,
            bit_noise_multiplier=noise.count_multiplier,
            sums=self.sums,
            lies=0.0 if self.rule.bound is None else most * LIE_PASSES,
            amplified=not (self.stateful and _SAMPLERS[self.sampling] == "fixed"),
            honest=noise.honest,
            mismatch=_LONGEST * tau(summands, fine) / 2,
        )
        if self.bands and math.ldexp(plan.sensitivity, self.vectors.model_bits) < 2.0**FINEST_NOISE_BITS:
            raise ConfigError(
                f"privacy.bands: a client moves the sum by {plan.sensitivity:.3g}, below 2^{FINEST_NOISE_BITS} steps "
                "of the ring's grid, beside which rounding counts; set privacy.bands = 1, or raise privacy.clip_norm"
            )
        if noise.budget is not None and (first := plan.epsilon(1)) is not None and first > noise.budget:
            raise ConfigError(
                f"privacy.epsilon_budget = {noise.budget:g} does not allow a single round, which costs epsilon "
                f"{first:.4g} at privacy.delta = {noise.delta:g}"
            )
        return plan

    @property
    def _proven(self) -> bool:
        """Whether the sensitivity's proof covers the arithmetic, docs/privacy.md: what plaintext simulates it does."""
        if self.engine == "masking":
            return self.noise.honest is not None
        return self.engine == "plaintext" or (self.engine == "embedded" and PROGRAMS[self.program].proven)

    @cached_property
    def sensitivity(self) -> float:
        """L2 sensitivity of one round's aggregate, absolute; there is a clip bound wherever there is noise."""
        assert self.clip_norm is not None
        if self.engine == "masking":  # the sum's, of integers that clients clip: docs/privacy.md, (14)
            return 2.0 * self.clip_norm * (1.0 + MASKED_ERROR)
        poisson = self.sampling == "poisson"
        return l2_sensitivity(
            self.rule,
            self.clip_norm,
            self.vectors,
            self.noise.sensitivity,
            "poisson" if poisson else "fixed",
            largest_cohort=self.clients if poisson else None,
            least_cohort=None if poisson else self.min_cohort,
        )

    @property
    def _client_stddev(self) -> float:
        """Absolute standard deviation of each client's noise, where clients add it; 0 for none."""
        if self.noise.multiplier == 0 or self.noise.honest is None:
            return 0.0
        return client_stddev(self.noise.multiplier, self.sensitivity, self.noise.honest)

    @property
    def _stddev(self) -> float:
        """Absolute standard deviation of each server's fresh noise on the aggregate; 0 for none."""
        if self.noise.multiplier == 0:
            return 0.0
        moved = self.sensitivity * (column_norm(self.bands) * (1 + ROUNDING) if self.bands else 1.0)
        return server_stddev(self.noise.multiplier, moved, self.noise.servers)

    def clip_limits(self) -> tuple[float, float]:
        """The least and the largest adaptive clip bound.

        Norms of up to 2^20 times the bound can be clipped on shares, no norm reaches the format's limit, and the noise
        that belongs to the bound must be fine enough and fit.
        """
        low, high = self.vectors.limit / LARGEST_RATIO, self.vectors.limit
        if self.rule.bound is not None:
            steps = -self.vectors.update_bits
            low, high = max(low, math.ldexp(LEAST_BOUND, steps)), min(high, math.ldexp(LARGEST_BOUND, steps))
        # Noise is an affine function of the bound; see `l2_sensitivity`.
        least, most = (self.at(bound)._stddev for bound in (low, high))
        if slope := (most - least) / (high - low):
            finest, largest = 2.0 ** (FINEST_NOISE_BITS - self.vectors.model_bits), self.vectors.limit / 10
            # A little inside, so that rounding does not lead out of what the checks allow.
            at = [low + (stddev - least) / slope for stddev in (finest * (1 + 1e-9), largest * (1 - 1e-9))]
            low, high = max(low, at[0]), min(high, at[1])
        return low, high

    def error_bound(self, cohort: int, largest_coordinate: float) -> float:
        """Bound on |released - float64| per coordinate of a round, without Gaussian noise, for the plan's engine.

        By `VectorFormat.error_bound`, from the sum of the factors' errors: the rule's own, `Rule.error_ulp`, and
        `clip_error` except under personal rules, which do not clip. What the program adds is the program's.

        Args:
            cohort: how many clients take part.
            largest_coordinate: of their updates, in size.
        """
        parameters, program = replace(self.rule, cohort=max(1, cohort)), PROGRAMS[self.program]
        factors, total = weights_error(parameters), 1.0
        if parameters.expected is not None:
            total = cohort * bounds_of(parameters).own(parameters)[0]
        if not parameters.personal:
            factors += clip_error(cohort, total)
        bound = self.vectors.error_bound(cohort, largest_coordinate, factors, total)
        if parameters.bound is not None:  # clients that shorten their updates themselves round towards zero
            bound += math.ldexp(total, -self.vectors.update_bits)
        if self.engine == "mpspdz":
            return bound + program.mpspdz_error(parameters, cohort, largest_coordinate)
        return bound + program.error(cohort, total, self.vectors.model_bits)
