"""Who takes part in a round."""

from __future__ import annotations

import numpy as np

from orchestrator.config import FederationConfig
from orchestrator.seeding import seeded_generator

__all__ = ["sample_cohort"]


def sample_cohort(config: FederationConfig, clients: int, seed: int, round: int) -> list[int]:
    """The cohort of a round, from the shared seed alone, so before anything is uploaded (Algorithm 1, line 9).

    Whoever knows the seed knows every cohort: sampling hides nobody from them.
    """
    generator = seeded_generator(seed, "cohort", round)
    if config.sampling == "poisson":
        return [int(client) for client in np.flatnonzero(generator.random(clients) < config.cohort / clients)]
    chosen = generator.choice(clients, size=config.cohort, replace=config.sampling == "with_replacement")
    return [int(client) for client in chosen]
