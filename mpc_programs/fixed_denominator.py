"""F2GNN's weights for cohorts of random size: each depends on its own client's scores and public constants alone.

The sums in the denominators of the three softmaxes are replaced by m times a typical summand, m being the expected size
of a cohort:

    a_i = e^B_i / (m e_B),   c_i = e^l_i / (m e_l),   w_i = exp((lam a_i + exp(c_i)) / tau - z) / m,

with e_B and e_l the means of e^B and e^l over their ranges, but at least e/m and e^width/m, so that a_i and c_i are at
most one as a softmax's weights are, and z = (lam/m + exp(1/m)) / tau, so that a client with average exponentials weighs
exactly 1/m. Hence a client that is added or removed moves sum_i w_i u_i by at most C `largest_weight`, whoever else
takes part. docs/privacy.md has what follows from that, and the derivation of `error_ulp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mpc_programs.arithmetic import exp
from mpc_programs.lockstep import gather

__all__ = ["FixedDenominator"]


@dataclass(frozen=True)
class FixedDenominator:
    """The rule's constants, and its coroutine.

    Attributes:
        expected: m.
        lam, tau: as in the rule.
        fairness_max: upper end of the range of l. It and the exponents must be ones that `exp` takes.
    """

    expected: int
    lam: float
    tau: float
    fairness_max: float

    @property
    def balance_mean(self) -> float:
        """e_B."""
        return max(math.e - 1.0, math.e / self.expected)

    @property
    def fairness_mean(self) -> float:
        """e_l."""
        return max(math.expm1(self.fairness_max) / self.fairness_max, math.exp(self.fairness_max) / self.expected)

    @property
    def typical(self) -> float:
        """z, the combined score of a client of weight 1/m."""
        return (self.lam / self.expected + math.exp(1.0 / self.expected)) / self.tau

    @property
    def exponents(self) -> tuple[float, float]:
        """Public range of (lam a_i + exp(c_i)) / tau - z."""
        ends = []
        for balance, fairness in ((0.0, 0.0), (1.0, self.fairness_max)):
            a = math.exp(balance) / (self.expected * self.balance_mean)
            c = math.exp(fairness) / (self.expected * self.fairness_mean)
            ends.append((self.lam * a + math.exp(c)) / self.tau - self.typical)
        return ends[0], ends[1]

    @property
    def largest_weight(self) -> float:
        """Attained at B = 1, l = fairness_max."""
        return math.exp(self.exponents[1]) / self.expected

    @property
    def error_ulp(self) -> float:
        """Bound on the error of a weight on shares, in ulp; generous, see docs/privacy.md, (10)."""
        gain = max(1.0, (self.lam + math.e) / self.tau)
        return 8192 * gain * (self.largest_weight + 1.0 / self.expected) + 4

    async def weights(self, ops: Any, balance: Any, fairness: Any) -> Any:
        """w of as many clients as the vectors have elements. No division and no sum.

        Rounds: those of three exp, one after the other: 10 to 11 for fairness_max up to 5/2 and exponents within 5.
        """
        m, tau = self.expected, self.tau
        e_balance, e_fairness = await gather(exp(ops, balance, 0.0, 1.0), exp(ops, fairness, 0.0, self.fairness_max))
        c = await exp(ops, ops.combine([(e_fairness, 1.0 / (m * self.fairness_mean))]), 0.0, 1.0)
        terms = [(e_balance, self.lam / (tau * m * self.balance_mean)), (c, 1.0 / tau)]
        weight = await exp(ops, ops.combine(terms, -self.typical), *self.exponents)
        return ops.combine([(weight, 1.0 / m)])
