"""One server's part of an aggregation round, from its shares of the uploads to its share of the new model.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one; clients follow the protocol and collude
with no server. What each learns: the cohort and the public parameters; masked openings, each uniform. The new model's
share is masked by the clients' fresh randomness, so even both output shares together show only their sum.
Channel: authenticated and private between the two servers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpc_programs.lockstep import run
from mpc_programs.rules import RULES, RoundParameters, factors
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.openings import open_ring64
from orchestrator.engines.embedded.preprocessing import Demand, Source, Tally
from orchestrator.sharing.fixed_point import SCALAR_BITS, VectorFormat
from orchestrator.sharing.ring import reduce64, truncate128
from orchestrator.sharing.shares import ScalarShare, VectorShare
from orchestrator.sharing.upload import Upload

__all__ = ["aggregate", "demand", "score_names", "secret_factors"]


def score_names(parameters: RoundParameters) -> list[str]:
    """The scalars that a client shares, in order; the norm ratio ||Delta|| / C comes last where updates are clipped."""
    names = list(RULES[parameters.rule].ranges(parameters))
    return names if parameters.ratio_max is None else [*names, "ratio"]


async def secret_factors(ops: SharedArithmetic, parameters: RoundParameters, scalars: np.ndarray) -> ScalarShare:
    """Shares of s_i from shares of the scores; scalars: object, shape (q, k). The factors are never opened."""
    columns = {
        name: ScalarShare(scalars[:, k], SCALAR_BITS, ops.owner) for k, name in enumerate(score_names(parameters))
    }
    ratio = columns.pop("ratio", None)
    return await factors(ops, parameters, columns, ratio)


async def aggregate(
    ops: SharedArithmetic,
    parameters: RoundParameters,
    vectors: VectorFormat,
    uploads: Sequence[Upload],
    model: VectorShare,
) -> VectorShare:
    """This server's share of w - sum_i s_i Delta_i (SaFeGNN, Algorithm 1, line 23).

    Inputs: uploads of the q slots in order; model at `vectors.model_bits`. Output: the same scale, Z_2^64.
    Rounds: those of the rule, clip in lock-step, + 1. Bytes for the vectors: 8 q, whatever d is: the servers open
    e_i = s_i - a_i and compute <s_i Delta_i> = M_i <s_i> - e_i <lam_i> - <a_i lam_i> alone.
    Error: `VectorFormat.error_bound`. Leakage: none; e_i is masked by the client's a_i.
    """
    owner = ops.owner
    scalars = np.array([upload.scalars for upload in uploads], dtype=object).reshape(len(uploads), -1)
    weights = await secret_factors(ops, parameters, scalars)
    cut = SCALAR_BITS - vectors.weight_bits
    narrowed = truncate128(weights.values, cut, owner) if cut else weights.values
    shares = reduce64(narrowed)
    factor_masks = np.array([upload.factor_mask for upload in uploads], dtype=np.uint64)
    masked = VectorShare(shares - factor_masks, vectors.weight_bits, owner)
    opened = await open_ring64(masked, reason="factors masked by each client's own random element")
    total = model.values.copy()
    product = np.empty_like(total)
    for share, difference, upload in zip(shares, opened, uploads, strict=True):
        np.multiply(upload.masked, share, out=product)
        total -= product
        np.multiply(upload.mask, difference, out=product)
        total += product
        total += upload.product
    return VectorShare(total, vectors.model_bits, owner)


def demand(parameters: RoundParameters) -> Demand:
    """Exactly what one round takes from preprocessing, counted by running the program on zeros."""
    tally: Source = Tally()
    ops = SharedArithmetic(0, tally)
    zeros = np.zeros((parameters.cohort, len(score_names(parameters))), dtype=object)
    run(secret_factors(ops, parameters, zeros), lambda payload: payload)
    return tally.taken
