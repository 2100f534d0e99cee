"""Epsilon of several runs on the same data: what a client's ledger adds up.

Runs of one adjacency compose as one long run does, release by release, adaptively (docs/privacy.md, "A client's
ledger"). Runs of both, replace-one and add/remove, have no accountant in common. Half of delta is then for each kind,
and add/remove counts twice: replacing a client is removing one and adding one, so that (e, d) is (2e, (1 + exp(e)) d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.privacy.accountant import ACCOUNTANTS
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import ADJACENCY, View

__all__ = ["Spent", "composes", "epsilon_together"]

_ATTEMPTS = 40
"""To find how much of delta adding and removing may have; each takes less of it."""


@dataclass(frozen=True)
class Spent:
    """What one run released.

    Attributes:
        budget: with the run's plan, and its charges.
        participations: in how many rounds the client took part; what counts for a server, which sees who does.
    """

    budget: Budget
    participations: int


def composes(runs: Sequence[Spent]) -> bool:
    """Whether one accountant speaks about all of them; else basic composition does (Dwork and Roth, 2014, 3.16)."""
    return len({run.budget.plan.adjacency for run in runs}) <= 1


def epsilon_together(runs: Sequence[Spent], view: View, delta: float) -> float:
    """Epsilon of all runs, at a delta for all of them; of replace-one neighbours where there are both kinds.

    By the accountant that they share, and else by the tightest. May be infinite.
    """
    if composes(runs):
        return _composed(runs, view, delta)
    replaced, changed = (
        [run for run in runs if run.budget.plan.adjacency == adjacency]
        for adjacency in (ADJACENCY["fixed"], ADJACENCY["poisson"])
    )
    return _composed(replaced, view, delta / 2) + _twice(changed, view, delta / 2)


def _composed(runs: Sequence[Spent], view: View, delta: float) -> float:
    kinds = {run.budget.plan.accountant for run in runs}
    accountant = ACCOUNTANTS[kinds.pop() if len(kinds) == 1 else "tightest"]()
    failing = sum(run.budget.compose(accountant, view, run.participations) for run in runs)
    return accountant.epsilon(delta - failing) - math.log1p(-failing) if failing < delta else math.inf


def _twice(runs: Sequence[Spent], view: View, delta: float) -> float:
    """Of two steps of add/remove, at delta for both."""
    part = delta / 4
    for _ in range(_ATTEMPTS):
        epsilon = _composed(runs, view, part)
        if epsilon > 500 or (1 + math.exp(epsilon)) * part <= delta:
            break
        part = 0.9 * delta / (1 + math.exp(epsilon))
    return 2 * epsilon if epsilon <= 500 and (1 + math.exp(epsilon)) * part <= delta else math.inf
