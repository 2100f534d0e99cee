"""One server's part of an aggregation round, from its shares of the uploads to its share of the new model.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one; clients follow the protocol and collude
with no server. What each learns: the cohort and the public parameters; masked openings, each uniform. The new model's
share is masked by the clients' fresh randomness, so even both output shares together show only their sum.
Channel: authenticated and private between the two servers, by mutual TLS (`tls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from mpc_programs.lockstep import run
from mpc_programs.rules import PROGRAMS, RULES, RoundParameters, factors, weights_and_clip
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.openings import open_ring64
from orchestrator.engines.embedded.preprocessing import Demand, Tally
from orchestrator.sharing.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat
from orchestrator.sharing.ring import MASK128, reduce64, truncate
from orchestrator.sharing.shares import ScalarShare, VectorShare
from orchestrator.sharing.upload import Correlated, Upload

__all__ = [
    "PROGRAMS",
    "absorb",
    "aggregate",
    "demand",
    "scaled_sum",
    "score_names",
    "secret_factors",
    "separate_count",
]


def score_names(parameters: RoundParameters) -> list[str]:
    """The scalars that a client shares, in order; the norm ratio ||Delta|| / C comes last where updates are clipped."""
    names = list(RULES[parameters.rule].ranges(parameters))
    return names if parameters.ratio_max is None else [*names, "ratio"]


def _columns(
    owner: int, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
) -> tuple[dict[str, ScalarShare], ScalarShare | None]:
    """The scores by name, and the norm ratio; scalars: k of each of the q clients."""
    columns = {
        name: ScalarShare([client[k] for client in scalars], SCALAR_BITS, owner)
        for k, name in enumerate(score_names(parameters))
    }
    ratio = columns.pop("ratio", None)
    return columns, ratio


async def secret_factors(
    ops: SharedArithmetic, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
) -> ScalarShare:
    """Shares of s_i from shares of the scores; scalars: k of each of the q clients. The factors are never opened."""
    return await factors(ops, parameters, *_columns(ops.owner, parameters, scalars))


async def aggregate(
    ops: SharedArithmetic,
    parameters: RoundParameters,
    vectors: VectorFormat,
    uploads: Sequence[Upload],
    model: VectorShare,
    program: str = "assisted",
) -> VectorShare:
    """This server's share of w - sum_i s_i Delta_i (SaFeGNN, Algorithm 1, line 23).

    Inputs: uploads of the q slots in order; model at `vectors.model_bits`, for "assisted" with every upload absorbed
    (`absorb`). Output: the same scale, Z_2^64.
    Error: `VectorFormat.error_bound`. Leakage: none; whatever is opened is masked.
    Rounds and bytes from each server: those of the scores (docs/protocol.md) and, for the vectors,

    ==============  ======  ==========  ==================================================================
    program         rounds  bytes       what it is
    ==============  ======  ==========  ==================================================================
    assisted        1       8 q         clients supply the correlation; traffic does not depend on d
    scalar-first    1       8 q (d+1)   the same product, the correlation from the servers' preprocessing
    faithful        1 or 2  32 q d each the paper's text: every element is clipped, then weighed, by triples
    ==============  ======  ==========  ==================================================================
    """
    scalars = [upload.scalars for upload in uploads]
    if program == "faithful":
        return await _elementwise(ops, parameters, vectors, scalars, uploads, model)
    weights = await secret_factors(ops, parameters, scalars)
    return await scaled_sum(ops, vectors, weights, uploads, model)


def absorb(model: VectorShare, update: Correlated) -> VectorShare:
    """The model's share plus <a lam> of one upload: the part of the round that can be done when the upload arrives."""
    return VectorShare(model.values + update.product, model.scale_bits, model.owner)


def separate_count(uploads: Sequence[Upload], owner: int) -> tuple[list[Upload], VectorShare]:
    """The uploads without their last scalar, and the sum of these: how many norms are at most C.

    Inputs: bits at `COUNT_BITS`. Output: one element at that scale, Z_2^64; exact. Leakage: none, nothing is opened. It
    is masked by every client's own randomness, so that both servers' shares show only their sum.
    """
    total = reduce64([sum(upload.scalars[-1] for upload in uploads)])
    return [replace(upload, scalars=upload.scalars[:-1]) for upload in uploads], VectorShare(total, COUNT_BITS, owner)


async def scaled_sum(
    ops: SharedArithmetic,
    vectors: VectorFormat,
    weights: ScalarShare,
    uploads: Sequence[Upload],
    model: VectorShare,
) -> VectorShare:
    """w - sum_i s_i Delta_i by <s_i Delta_i> = M_i <s_i> - e_i <lam_i> - <a_i lam_i> with e_i = s_i - a_i opened."""
    owner = ops.owner
    cut = SCALAR_BITS - vectors.weight_bits
    shares = reduce64(truncate(weights.values, cut, owner))
    updates = [upload.update for upload in uploads]
    if isinstance(updates[0], Correlated):
        factor_masks = np.array([update.factor_mask for update in updates], dtype=np.uint64)
        masked = VectorShare(shares - factor_masks, vectors.weight_bits, owner)
        differences = await open_ring64(masked, reason="factors masked by each client's own random element")
    else:
        factor_masks, masks, products = ops.vectors(len(uploads), len(model.values))
        both = np.concatenate([shares - factor_masks, (np.stack(updates) + masks).ravel()])
        masked = VectorShare(both, vectors.weight_bits, owner)
        opened = await open_ring64(masked, reason="factors and updates masked by fresh scaled vectors")
        differences, lifted = opened[: len(uploads)], opened[len(uploads) :].reshape(masks.shape)
        updates = [Correlated(*parts) for parts in zip(lifted, masks, factor_masks, products, strict=True)]
        model = VectorShare(model.values + products.sum(axis=0, dtype=np.uint64), model.scale_bits, owner)
    total = model.values.copy()
    product = np.empty_like(total)
    for share, difference, update in zip(shares, differences, updates, strict=True):
        np.multiply(update.masked, share, out=product)
        total -= product
        np.multiply(update.mask, difference, out=product)
        total += product
    return VectorShare(total, vectors.model_bits, owner)


async def _elementwise(
    ops: SharedArithmetic,
    parameters: RoundParameters,
    vectors: VectorFormat,
    scalars: Sequence[Sequence[int]],
    uploads: Sequence[Upload],
    model: VectorShare,
) -> VectorShare:
    """w - sum_i gamma_i (min(1, C/||Delta_i||) Delta_i), every product elementwise in Z_2^128."""
    weights, clip = await weights_and_clip(ops, parameters, *_columns(ops.owner, parameters, scalars))
    d = len(model.values)
    spread = [slot for slot in range(len(uploads)) for _ in range(d)]
    lift = SCALAR_BITS - vectors.update_bits
    values = _shift([value for upload in uploads for value in upload.update], lift, ops.owner)
    updates = ScalarShare(values, SCALAR_BITS, ops.owner)
    for factor in (clip, weights):
        if factor is not None:
            [updates] = await ops.multiply((ops.take(factor, spread), updates))
    summed = _shift(ops.sums(updates, d).values, vectors.model_bits - SCALAR_BITS, ops.owner)
    return VectorShare(model.values - reduce64(summed), vectors.model_bits, ops.owner)


def _shift(share: list[int], bits: int, owner: int) -> list[int]:
    """The share of x * 2^bits; below one unit off where bits < 0."""
    return [value << bits & MASK128 for value in share] if bits >= 0 else truncate(share, -bits, owner)


@lru_cache(maxsize=64)
def demand(parameters: RoundParameters, length: int, program: str = "assisted") -> Demand:
    """Exactly what one round takes from preprocessing, counted by running the scores' part on zeros.

    Args:
        length: d, the number of model parameters.
    """
    tally = Tally()
    ops = SharedArithmetic(0, tally)
    q = parameters.cohort
    zeros = [[0] * len(score_names(parameters))] * q
    if program == "faithful":
        run(weights_and_clip(ops, parameters, *_columns(0, parameters, zeros)), lambda payload: payload)
        products = 1 if parameters.ratio_max is None else 2
        return replace(tally.taken, triples=tally.taken.triples + products * q * length)
    run(secret_factors(ops, parameters, zeros), lambda payload: payload)
    return replace(tally.taken, vectors=q, length=length) if program == "scalar-first" else tally.taken
