"""What servers are told about a round before its uploads, as it follows from the run's plan."""

from __future__ import annotations

import math
from dataclasses import replace

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.errors import ConfigError
from orchestrator.wire.orders import Announcement

__all__ = ["announcement"]


def announcement(plan: RoundPlan, size: int, terms: Terms) -> Announcement:
    """Of a round for a cohort of a size.

    Args:
        terms: the plan's own, or those of another clip bound.

    Raises:
        ConfigError: the round has no clip bound, and its uploads are to be checked against one.
    """
    parameters = replace(plan.rule, cohort=size)
    if terms.clip_norm != plan.clip_norm:
        if parameters.bound is not None:
            if terms.clip_norm is None:
                raise ConfigError("federation.clients = untrusted: a round needs a clip bound that can be checked")
            return Announcement(replace(parameters, bound=terms.clip_norm), terms.noise_stddev, terms.count_stddev)
        ratio = None if terms.clip_norm is None else plan.vectors.limit / terms.clip_norm
        # A power of two, so that rounds whose clip bounds are alike are one program.
        parameters = replace(parameters, ratio_max=ratio and 2.0 ** math.ceil(math.log2(ratio)))
    return Announcement(parameters, terms.noise_stddev, terms.count_stddev)
