"""What one round lets an observer see, as accountants are told it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
            sensitivity under the sampler's adjacency.
    """

    sampler: Literal["fixed", "poisson", "known"]
    clients: int
    cohort: int
    noise_multiplier: float

    @property
    def rate(self) -> float:
        """The probability with which a client takes part."""
        return min(1.0, self.cohort / self.clients)

    @property
    def sampled(self) -> bool:
        """Whether sampling hides anybody."""
        return self.sampler != "known" and self.rate < 1.0

    def event(self) -> DpEvent:
        """The same in dp-accounting's language."""
        import dp_accounting

        if self.noise_multiplier == 0.0:
            return dp_accounting.NonPrivateDpEvent()
        gaussian = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        if not self.sampled:
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

        fixed = self.sampler == "fixed" and self.sampled
        return NeighboringRelation.REPLACE_ONE if fixed else NeighboringRelation.ADD_OR_REMOVE_ONE
