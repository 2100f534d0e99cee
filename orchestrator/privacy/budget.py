"""A run's privacy budget as state: what has been released so far, what the next round would cost, where it ends.

A round is charged before its noisy result exists and the charge is written to the disk, so that no crash can make a
release free. A round that is repeated after a crash counts as one mechanism with less noise, not as a fresh sample:
its cohort is the same. State only grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import RunError
from orchestrator.privacy.plan import PrivacyPlan, View

__all__ = ["Budget"]


class Budget:
    """Charges rounds to an accountant of the plan's kind, from an outsider's view."""

    def __init__(self, plan: PrivacyPlan, limit: float | None = None) -> None:
        """Args: limit: the largest epsilon that may be reached; None for no limit."""
        self.plan = plan
        self.limit = math.inf if limit is None else limit
        self._rounds: dict[int, int] = {}
        """How many rounds were released how many times."""
        self._last, self._attempts = 0, 0

    @property
    def last(self) -> int:
        """The last round that was charged; 0 before the first."""
        return self._last

    @property
    def epsilon(self) -> float:
        """Epsilon of all that was charged, at the plan's delta."""
        return self._epsilon(self._rounds)

    def seen_by(self, view: View, participations: int | None = None) -> float:
        """Epsilon of all that was charged, from another view.

        Args:
            participations: for a server, in how many rounds the client took part at most; None for all of them.
                Rounds that were repeated are taken for ones in which it did.
        """
        left = participations if view == "server" and participations is not None else sum(self._rounds.values())
        accountant = self.plan.new_accountant()
        for attempts, count in sorted(self._rounds.items(), reverse=True):
            accountant.compose(self.plan.release(view, attempts), min(left, count))
            left -= min(left, count)
        return accountant.epsilon(self.plan.delta)

    def next_epsilon(self, round: int) -> float:
        """What `epsilon` would be with one more release of a round, whether a new one or one to be repeated."""
        return self._epsilon(self._charged(round)[0])

    def allows(self, round: int) -> bool:
        """Whether the round can be released within the limit."""
        return self.next_epsilon(round) <= self.limit

    def charge(self, round: int) -> None:
        """Count one release of a round, before it is made.

        Raises:
            RunError: the round is older than the last one charged, or the limit would be exceeded.
        """
        if not self.allows(round):
            raise RunError(self.refusal(round))
        self._rounds, self._attempts = self._charged(round)
        self._last = round

    def refusal(self, round: int) -> str:
        """Why a round is not allowed, in one line."""
        return (
            f"round {round} would bring epsilon from {self.epsilon:.4g} to {self.next_epsilon(round):.4g} "
            f"(delta {self.plan.delta:g}, {self.plan.adjacency}, accountant {self.plan.accountant}), "
            f"beyond privacy.epsilon_budget = {self.limit:g}"
        )

    def state(self) -> dict[str, Any]:
        """JSON; says what it was counted for, so that another plan's state is refused."""
        rounds = [[attempts, count] for attempts, count in sorted(self._rounds.items())]
        return {"plan": self._identity(), "rounds": rounds, "last": self._last, "attempts": self._attempts}

    def restore(self, state: Mapping[str, Any]) -> Budget:
        """Take over what `state` returned; returns self. Raises RunError where it belongs to another plan."""
        try:
            rounds = {int(attempts): int(count) for attempts, count in state["rounds"]}
            plan, last, attempts = state["plan"], int(state["last"]), int(state["attempts"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the privacy state is damaged: {error}") from error
        if plan != self._identity():
            raise RunError("the privacy state was counted for other settings; a run keeps its own")
        if min([*rounds, *rounds.values(), 1]) < 1 or last < 0 or attempts < 0:
            raise RunError("the privacy state is damaged: a count is negative")
        self._rounds, self._last, self._attempts = rounds, last, attempts
        return self

    def _charged(self, round: int) -> tuple[dict[int, int], int]:
        """The counts with one more release of the round, and how often it has been released then."""
        if round < self._last:
            raise RunError(f"round {round} was released before round {self._last}; it cannot be released again")
        rounds, attempts = dict(self._rounds), 1
        if round == self._last:
            attempts = self._attempts + 1
            rounds[self._attempts] -= 1
            if not rounds[self._attempts]:
                del rounds[self._attempts]
        rounds[attempts] = rounds.get(attempts, 0) + 1
        return rounds, attempts

    def _epsilon(self, rounds: Mapping[int, int]) -> float:
        accountant = self.plan.new_accountant()
        for attempts, count in rounds.items():
            accountant.compose(self.plan.release(attempts=attempts), count)
        return accountant.epsilon(self.plan.delta)

    def _identity(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "sampler": plan.sampler,
            "clients": plan.clients,
            "cohort": plan.cohort,
            "multiplier": plan.effective_multiplier,
            "accountant": plan.accountant,
            "delta": plan.delta,
        }
