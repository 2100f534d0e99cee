"""What servers are told about a round before its uploads, as it follows from the run's plan."""

from __future__ import annotations

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.wire.orders import Announcement

__all__ = ["announcement"]


def announcement(plan: RoundPlan, size: int, terms: Terms) -> Announcement:
    """Of a round for a cohort of a size.

    Args:
        terms: the plan's own, or those of another clip bound.

    Raises:
        ConfigError: as `RoundPlan.parameters_of`.
    """
    return Announcement(plan.parameters_of(size, terms.clip_norm), terms.noise_stddev, terms.count_stddev)
