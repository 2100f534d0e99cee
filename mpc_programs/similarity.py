"""FED-PUB's weights: how much every client of a cohort takes of every other one's model (Baek et al., ICML 2023).

Client i has a functional embedding h_i, of Euclidean norm at most one: what its model makes of inputs that all share.

    S_ij = h_i . h_j for i != j,   S_ii = 1,   alpha_ij = exp(tau (S_ij - 1)) / sum_k exp(tau (S_ik - 1))

S_ii is public and the largest of its row, so that the softmax needs no maximum and its divisor lies in [1, q]. S is
symmetric, so that q (q-1) / 2 inner products and exponentials do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from mpc_programs.arithmetic import WIDE, divide, exp

__all__ = ["Similarity"]


@dataclass(frozen=True)
class Similarity:
    """The rule's constants, its coroutine and its error.

    Attributes:
        cohort: q.
        length: m, of an embedding.
        tau: scale of the similarities; 2 tau <= CLAMP.
    """

    cohort: int
    length: int
    tau: float

    async def weights(self, ops: Any, embeddings: Any) -> Any:
        """alpha, row by row: q weights of client 0, then of client 1, and so on.

        Args:
            embeddings: m q numbers in [-1, 1]: the first coordinate of all clients, then the second, and so on.

        Triples on shares: m q (q-1) / 2 for the inner products, and those of as many exp and of one division of q^2
        numbers by q. Rounds: 1, and those of exp and divide; 1 client needs none. Error: `error_ulp`.
        """
        q = self.cohort
        if q == 1:
            return ops.constants([1.0])
        pairs = list(combinations(range(q), 2))
        left, right = ([c * q + pair[k] for c in range(self.length) for pair in pairs] for k in (0, 1))
        gram = await ops.inner(ops.take(embeddings, left), ops.take(embeddings, right), len(pairs))
        e = await exp(ops, ops.combine([(gram, self.tau)], -self.tau), -2.0 * self.tau, 0.0)
        place = {pair: k for k, pair in enumerate(pairs)}
        columns = [place.get((min(i, j), max(i, j)), len(pairs)) for j in range(q) for i in range(q)]
        e = ops.take(ops.concat([e, ops.constants([1.0])]), columns)  # column j holds exp(tau (S_ij - 1)) for all i
        alpha = await divide(ops, e, ops.sums(e, q), 1.0, float(q))
        return ops.take(alpha, [j * q + i for i in range(q) for j in range(q)])

    @property
    def error_ulp(self) -> float:
        """Bound on the sum of |error| over one client's weights on shares, in ulp of 2^-32.

        With E the error of an exponential, a row's sum is off by at most (q-1) E. As the sum is at least one, that and
        the exponentials' own errors move the weights by no more than 2 (q-1) E in total; the division adds D to each.

            E = tau (1 + sqrt(m)) + 2 + 13 * 2^k
            D = 9 (steps + 2) for q <= 16, else 9

        An inner product is off by one ulp for its truncation and by sqrt(m) for its factors' encoding, since
        ||h||_1 <= sqrt(m); tau S - tau by 3/2 more. k squarings undo the scaling in exp, whose polynomials, also
        float64's, add a twelfth to its 12 * 2^k; the division's is an eighth.
        """
        q = self.cohort
        if q == 1:
            return 1.0
        squarings = max(0, math.ceil(math.log2(2.0 * self.tau / 2.5)))
        exponential = self.tau * (1.0 + math.sqrt(self.length)) + 2.0 + 13.0 * 2.0**squarings
        steps = math.ceil(math.log2(math.acosh(2.0**33) / math.acosh((q + 1.0) / (q - 1.0))))
        return 2.0 * (q - 1) * exponential + 9.0 * q * (1.0 if q > WIDE else steps + 2.0)
