"""What one round lets an observer see, as accountants are told it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation

__all__ = ["Release"]


@dataclass(frozen=True)
class Release:
    """What one round adds to an observer's view: a Gaussian mechanism on a cohort that it does, or does not, know.

    Attributes:
        sampler: "fixed", q of n clients without replacement; "poisson", each with probability q/n; "known", the
            observer knows who takes part, so that sampling hides nobody.
        clients: n, among whom the observer cannot tell who takes part.
        cohort: q; the expected size where the sampler is "poisson".
        noise_multiplier: standard deviation of the noise that the observer cannot subtract, relative to the L2
            sensitivity under the sampler's adjacency; with a group, relative to what exchanging one client moves.
        group: 0: neighbours differ in one client, as the sampler's adjacency has it; k: in the data of k clients, all
            of which may be others, and n stays.
    """

    sampler: Literal["fixed", "poisson", "known"]
    clients: int
    cohort: int
    noise_multiplier: float
    group: int = 0

    @property
    def rate(self) -> float:
        """The probability with which a client takes part."""
        return min(1.0, self.cohort / self.clients)

    @property
    def sampled(self) -> bool:
        """Whether sampling hides anybody."""
        return self.sampler != "known" and self.rate < 1.0

    @property
    def unsampled_multiplier(self) -> float:
        """Of a Gaussian mechanism that tells no less: for whoever knows who takes part, and all that differ do."""
        return self.noise_multiplier / max(1, self.group)

    def shares(self) -> tuple[np.ndarray, float]:
        """How many of those that differ take part: the probabilities of 1, 2, ..., and of more than these.

        The last one is at most 1e-20. Hypergeometric for cohorts of fixed size, binomial for Poisson's.
        """
        group, cohort = max(1, self.group), min(self.cohort, self.clients)
        if group == 1:
            return np.array([self.rate]), 0.0
        from scipy.stats import binom, hypergeom  # a second, which runs that sample no group need not spend

        most = min(group, cohort) if self.sampler == "fixed" else group
        counts = np.arange(1, most + 1)
        fixed = self.sampler == "fixed"
        chances = hypergeom.pmf(counts, self.clients, cohort, group) if fixed else binom.pmf(counts, group, self.rate)
        beyond = np.append(np.cumsum(chances[:0:-1])[::-1], 0.0)  # more than 1, than 2, ...
        kept = 1 + int(np.argmax(beyond <= 1e-20))
        return chances[:kept], float(beyond[kept - 1])

    def event(self) -> DpEvent:
        """The same in dp-accounting's language, which knows of no group that is sampled."""
        import dp_accounting

        if self.noise_multiplier == 0.0:
            return dp_accounting.NonPrivateDpEvent()
        gaussian = dp_accounting.GaussianDpEvent(self.unsampled_multiplier)
        if not self.sampled or self.group:
            return gaussian
        if self.sampler == "poisson":
            return dp_accounting.PoissonSampledDpEvent(self.rate, gaussian)
        return dp_accounting.SampledWithoutReplacementDpEvent(self.clients, self.cohort, gaussian)

    def relation(self) -> NeighboringRelation:
        """What dp-accounting must assume of neighbours for this event.

        The sensitivity is that of the plan's adjacency already, so a Gaussian on a known cohort is one of distance one,
        which is dp-accounting's add-or-remove; its replace-one would double the distance.
        """
        from dp_accounting import NeighboringRelation

        fixed = self.sampler == "fixed" and self.sampled and not self.group
        return NeighboringRelation.REPLACE_ONE if fixed else NeighboringRelation.ADD_OR_REMOVE_ONE
