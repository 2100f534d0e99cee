"""Accountants: from what was released, round by round, to epsilon. The formulas are those of Google's dp-accounting.

A `Release` says what one round lets an observer see; an accountant adds up releases and converts the sum to epsilon at
a given delta. It never guesses: what it cannot compute it refuses.

Formal guarantees: composition is adaptive, so each round may depend on all earlier outputs. Epsilon never falls when
a release is added. State is plain JSON and restores exactly.

====================================  =========================================================
edge case                             result
====================================  =========================================================
nothing composed                      epsilon 0
noise multiplier 0                    epsilon infinite, however small the sampling rate
with-replacement sampling             no accountant: ConfigError
"pld" beyond its reach                ConfigError, where epsilon is asked for; "tightest" takes rdp's
====================================  =========================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from orchestrator.errors import ConfigError, RunError
from orchestrator.privacy.loss_distribution import composed_epsilon
from orchestrator.privacy.release import Release

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ACCOUNTANTS", "Accountant"]


class Accountant(ABC):
    """A ledger of releases and the epsilon that they amount to."""

    name: ClassVar[str]
    conversion: ClassVar[str]
    """How epsilon comes from the composed releases; named in every report, for figures differ by it."""

    def __init__(self) -> None:
        self._ledger: dict[Release, int] = {}

    def compose(self, release: Release, count: int = 1) -> Accountant:
        """Add a release `count` times; returns self."""
        if count < 0:
            raise ValueError(f"Expected count={count} >= 0: what was released cannot be taken back.")
        if count:
            self._ledger[release] = self._ledger.get(release, 0) + count
        return self

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that this accountant can prove at `delta` for all that was composed; may be infinite."""
        if not self._ledger:
            return 0.0
        if any(release.noise_multiplier == 0.0 for release in self._ledger):
            return math.inf
        with _quiet():
            return float(self._epsilon(delta))

    def copy(self) -> Accountant:
        """An independent accountant with the same ledger, to ask what would be."""
        other = type(self)()
        other._ledger = dict(self._ledger)
        return other

    def state(self) -> dict[str, Any]:
        """The ledger as JSON."""
        return {
            "accountant": self.name,
            "ledger": [{**asdict(release), "count": count} for release, count in self._ledger.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> Accountant:
        """Take over what `state` returned; returns self. Raises RunError for the state of something else."""
        try:
            if state["accountant"] != self.name:
                raise RunError(f"the checkpoint holds the state of accountant {state['accountant']}, not {self.name}")
            entries = [dict(entry) for entry in state["ledger"]]
            self._ledger = {}
            for entry in entries:
                count = entry.pop("count")
                self.compose(Release(**entry), count)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the checkpoint's privacy state is damaged: {error}") from error
        return self

    @abstractmethod
    def _epsilon(self, delta: float) -> float:
        """For a ledger that is not empty and has noise in every release."""


class RdpAccountant(Accountant):
    """Renyi differential privacy (Mironov, 2017), on dp-accounting's own grid of orders.

    Poisson sampling: Mironov, Talwar and Zhang, arXiv:1908.10530, section 3.3. Fixed-size cohorts without replacement:
    Wang, Balle and Kasiviswanathan, AISTATS 2019 (arXiv:1808.00087), theorem 27, where it is below what holds for
    whoever knows the cohort, which alone counts where neighbours differ in several clients. Conversion: Canonne, Kamath
    and Steinke, arXiv:2004.00010, proposition 12.
    """

    name = "rdp"
    conversion = "improved (Canonne, Kamath and Steinke, 2020)"

    def _epsilon(self, delta: float) -> float:
        from dp_accounting.rdp import compute_epsilon
        from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

        orders = tuple(DEFAULT_RDP_ORDERS)
        return compute_epsilon(np.array(orders), _composed(self._ledger, orders), delta)[0]


class PldAccountant(Accountant):
    """Privacy loss distributions, discretised towards more loss: tighter than RDP. Sources: `loss_distribution`.

    Raises ConfigError where they would take minutes, much memory or more than double precision.
    """

    name = "pld"
    conversion = "none needed: hockey-stick divergence of the composed loss"

    def _epsilon(self, delta: float) -> float:
        return _loss_epsilon(self._ledger, delta)


class TightestAccountant(RdpAccountant):
    """The smaller of RDP's epsilon and PLD's, as each is proven. Where PLD does not reach it is RDP's."""

    name = "tightest"
    conversion = "the smaller of rdp's and pld's"

    def _epsilon(self, delta: float) -> float:
        epsilon = super()._epsilon(delta)
        with suppress(ConfigError):
            epsilon = min(epsilon, _loss_epsilon(self._ledger, delta))
        return epsilon


class PaperAccountant(Accountant):
    """What SaFeGNN reports (section 6.3): for comparison with its table 2 only.

    The orders are not in the paper. A grid from 2 in steps of 0.3 reproduces all of its figures; dp-accounting's own
    grid gives 9.41 instead of 9.43, and half of the large ones, because it starts at 1.1.
    """

    name = "paper"
    conversion = "classic (Mironov, 2017)"
    fault = (
        "comparison only: a cohort of fixed size is accounted as a Poisson sample, against neighbours that it does not "
        "have; the conversion is not the best known; and what a server sees, which knows the cohort and its own "
        "noise, is not accounted, and far more"
    )

    _ORDERS: ClassVar[tuple[float, ...]] = (*(round(2 + 0.3 * k, 1) for k in range(207)), 128.0, 256.0, 512.0, 1024.0)

    def _epsilon(self, delta: float) -> float:
        as_poisson: dict[Release, int] = {}
        for release, count in self._ledger.items():
            other = replace(release, sampler="poisson")
            as_poisson[other] = as_poisson.get(other, 0) + count
        orders = np.array(self._ORDERS)
        return float((_composed(as_poisson, self._ORDERS) + math.log(1.0 / delta) / (orders - 1.0)).min())


ACCOUNTANTS: dict[str, type[Accountant]] = {
    kind.name: kind for kind in (TightestAccountant, RdpAccountant, PldAccountant, PaperAccountant)
}


def _loss_epsilon(ledger: Mapping[Release, int], delta: float) -> float:
    return composed_epsilon(tuple(sorted(ledger.items(), key=repr)), delta)


def _composed(ledger: Mapping[Release, int], orders: tuple[float, ...]) -> np.ndarray:
    """The sum of the releases' Renyi divergences, shape (len(orders),)."""
    return np.sum([count * _curve(release, orders) for release, count in ledger.items()], axis=0)


@lru_cache(maxsize=256)
def _curve(release: Release, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergences of one release, at each order the smaller of what holds with the sampling and without.

    Cached, so that composing any number of rounds costs one product.
    """
    from dp_accounting.rdp import RdpAccountant as Rdp

    sampled = Rdp(orders, release.relation()).compose(release.event()).rdp
    return np.minimum(sampled, np.array(orders) / (2 * release.unsampled_multiplier**2))


@contextmanager
def _quiet() -> Iterator[None]:
    """dp-accounting logs every order that its series does not reach, which is then left out, as it may be."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
