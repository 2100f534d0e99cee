"""A run's privacy budget as state: what has been released so far, what the next round would cost, where it ends.

A round is charged before its noisy result exists and the charge is written to the disk, so that no crash can make a
release free. A round that is repeated after a crash counts as one mechanism with less noise, not as a fresh sample:
its cohort is the same. So does each of several rounds that are repeated together from an older checkpoint. The first of
them asks its sample for the same sum again, whatever was released since; the next one depends on that repetition alone,
and so on: in the order 1, 1', 2, 2' every release depends on earlier ones only. State only grows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from orchestrator.errors import RunError
from orchestrator.privacy.accountant import Accountant
from orchestrator.privacy.plan import PrivacyPlan, View

__all__ = ["Budget"]


class Budget:
    """Charges rounds and sums to an accountant of the plan's kind, from an outsider's view."""

    def __init__(self, plan: PrivacyPlan, limit: float | None = None, run: str = "") -> None:
        """Args:
        limit: the largest epsilon that may be reached; None for no limit.
        run: tells apart runs that the plan does not; state of one is no state of another.
        """
        self.plan, self.run = plan, run
        self.limit = math.inf if limit is None else limit
        self._attempts: list[int] = []
        """How often each round was released, from round 1 on."""
        self._sums: dict[str, int] = {}
        """How often each sum was released."""

    @property
    def last(self) -> int:
        """The last round that was charged; 0 before the first."""
        return len(self._attempts)

    @property
    def epsilon(self) -> float:
        """Epsilon of all that was charged, at the plan's delta."""
        return self._epsilon(self._attempts, self._sums)

    def seen_by(self, view: View, participations: int | None = None) -> float:
        """Epsilon of all that was charged, from another view.

        Args:
            participations: for a server, in how many rounds the client took part at most; None for all of them.
                Rounds that were repeated are taken for ones in which it did.
        """
        left = participations if view == "server" else None
        return self._epsilon(self._attempts, self._sums, view, left)

    def next_epsilon(self, round: int) -> float:
        """What `epsilon` would be with one more release of a round, whether a new one or one to be repeated.

        Sums that follow rounds are counted once more: training may end with this one.
        """
        recurring = [noisy.name for noisy in self.plan.sums if noisy.every is not None]
        return self._epsilon(self._charged(round), self._with(*recurring))

    def allows(self, round: int) -> bool:
        """Whether the round can be released within the limit."""
        return self.limit == math.inf or self.next_epsilon(round) <= self.limit

    def charge(self, round: int) -> None:
        """Count one release of a round, before it is made.

        Raises:
            RunError: a round before it was not charged, or the limit would be exceeded.
        """
        if not self.allows(round):
            raise RunError(self.refusal(round))
        self._attempts = self._charged(round)

    def released(self, name: str) -> int:
        """How often a sum was charged."""
        return self._sums.get(name, 0)

    def covers(self, name: str) -> bool:
        """Whether the plan has such a sum besides the rounds."""
        return any(noisy.name == name and not noisy.of_cohort for noisy in self.plan.sums)

    def charge_sum(self, name: str) -> None:
        """Count one release of a sum, before it is made.

        Raises:
            RunError: the plan has no such sum, or the limit would be exceeded.
        """
        if not self.covers(name):
            raise RunError(f"the sum '{name}' cannot be released: no epsilon counts it")
        sums = self._with(name)
        if self.limit < math.inf and (epsilon := self._epsilon(self._attempts, sums)) > self.limit:
            raise RunError(
                f"the sum '{name}' would bring epsilon from {self.epsilon:.4g} to {epsilon:.4g} (delta "
                f"{self.plan.delta:g}), beyond privacy.epsilon_budget = {self.limit:g}"
            )
        self._sums = sums

    def refusal(self, round: int) -> str:
        """Why a round is not allowed, in one line."""
        return (
            f"round {round} would bring epsilon from {self.epsilon:.4g} to {self.next_epsilon(round):.4g} "
            f"(delta {self.plan.delta:g}, {self.plan.adjacency}, accountant {self.plan.accountant}), "
            f"beyond privacy.epsilon_budget = {self.limit:g}"
        )

    def state(self) -> dict[str, Any]:
        """JSON; says what it was counted for, so that another plan's state is refused."""
        return {"plan": self._identity(), "attempts": list(self._attempts), "sums": dict(self._sums)}

    def restore(self, state: Mapping[str, Any]) -> Budget:
        """Take over what `state` returned; returns self. Raises RunError where it belongs to another plan."""
        try:
            plan, attempts = state["plan"], [int(times) for times in state["attempts"]]
            sums = {str(name): int(times) for name, times in state.get("sums", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"the privacy state is damaged: {error}") from error
        if plan != self._identity():
            raise RunError("the privacy state was counted for other settings; a run keeps its own")
        if min([*attempts, *sums.values()], default=1) < 1:
            raise RunError("the privacy state is damaged: a round was released less than once")
        if unknown := sums.keys() - {noisy.name for noisy in self.plan.sums}:
            raise RunError(
                f"the privacy state is damaged: it counts a sum '{min(unknown)}' that the plan does not have"
            )
        self._attempts, self._sums = attempts, sums
        return self

    def _charged(self, round: int) -> list[int]:
        """How often each round has been released with one more release of this one."""
        if not 1 <= round <= self.last + 1:
            raise RunError(f"round {round} cannot be released: {self.last} rounds were")
        attempts = [*self._attempts, *[0] * (round - self.last)]
        attempts[round - 1] += 1
        return attempts

    def _with(self, *names: str) -> dict[str, int]:
        """How often each sum has been released with one more release of these."""
        return {**self._sums, **{name: self._sums.get(name, 0) + 1 for name in names}}

    def compose(self, accountant: Accountant, view: View, participations: int | None = None) -> float:
        """Tell an accountant all that was charged, for a view as in `seen_by`.

        Where clients take turns, participations are counted for every view, and where there were more than turns these.
        Returns the probability that any truncation in it went wrong (`PrivacyPlan.failing`).
        """
        left = participations if view == "server" else None
        if self.plan.sampler == "cyclic" and participations is not None:
            left = max(participations, self.plan.turns(self.last))
        return self.plan.failing(*self._tell(accountant, self._attempts, self._sums, view, left))

    def _epsilon(
        self, attempts: Sequence[int], sums: Mapping[str, int], view: View = "outsider", left: int | None = None
    ) -> float:
        accountant = self.plan.new_accountant()
        return self.plan.stated(accountant, *self._tell(accountant, attempts, sums, view, left))

    def _tell(
        self, accountant: Accountant, attempts: Sequence[int], sums: Mapping[str, int], view: View, left: int | None
    ) -> tuple[int, int]:
        """Compose all releases; returns how many there were of rounds, and of sums over all clients.

        Args:
            left: of so many rounds at most, those that were repeated first; None: of a client's `turns`.
        """
        rounds, total, left = 0, 0, self.plan.turns(len(attempts)) if left is None else left
        for times, count in sorted(Counter(attempts).items(), reverse=True):
            counted = min(left, count)
            accountant.compose(self.plan.release(view, times), counted)
            left, rounds = left - counted, rounds + times * counted
        for noisy in self.plan.sums:
            released = sums.get(noisy.name, 0)
            accountant.compose(self.plan.sum_release(noisy, view), released)
            total += released
        return rounds, total

    def _identity(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "sampler": plan.sampler,
            "clients": plan.clients,
            "cohort": plan.cohort,
            "multiplier": plan.effective_multiplier,
            "accountant": plan.accountant,
            "delta": plan.delta,
            "noise": plan.noise,
            "honest": plan.honest,
            "amplified": plan.amplified,
            "sums": [list(astuple(noisy)) for noisy in plan.sums],
            "run": self.run,
        }
