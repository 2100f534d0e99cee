"""One server's part of an aggregation round, from its shares of the uploads to its share of the new model.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one; clients follow the protocol and collude
with no server. What each learns: the cohort and the public parameters; masked openings, each uniform. The new model's
share is masked by the clients' fresh randomness, so even both output shares together show only their sum. Under a
personal rule that holds for each client's own model, whose shares only this client sees (`aggregate` says why).
Channel: authenticated and private between the two servers, by mutual TLS (`tls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mpc_programs.lockstep import run
from mpc_programs.rules import RoundParameters, factors, score_names, weights_and_clip
from orchestrator.mpc.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat
from orchestrator.mpc.offline.correlations import Demand, Tally
from orchestrator.mpc.openings import open_ring64
from orchestrator.mpc.ring import MASK128, reduce64, truncate
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import ScalarShare, VectorShare
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload

__all__ = [
    "SUMS",
    "WeightedSum",
    "absorb",
    "aggregate",
    "demand",
    "only",
    "scaled_sums",
    "secret_factors",
    "separate_count",
]


_CACHED = 1 << 15
"""Of so many elements products are made and added up at a time, which then stay in the processor's cache."""


def _columns(
    owner: int, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
) -> tuple[dict[str, ScalarShare], ScalarShare | None]:
    """The scores by name, as `Rule.weights` takes them, and the norm ratio; scalars: k of each of the q clients."""
    columns: dict[str, list[int]] = {}
    for k, name in enumerate(score_names(parameters)):
        columns.setdefault(name, []).extend(client[k] for client in scalars)
    shares = {name: ScalarShare(values, SCALAR_BITS, owner) for name, values in columns.items()}
    return shares, shares.pop("ratio", None)


async def secret_factors(
    ops: SharedArithmetic, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
) -> ScalarShare:
    """Shares of the factors from shares of the scores, k of each of the q clients. The factors are never opened."""
    return await factors(ops, parameters, *_columns(ops.owner, parameters, scalars))


async def aggregate(
    ops: SharedArithmetic,
    parameters: RoundParameters,
    vectors: VectorFormat,
    uploads: Sequence[Upload],
    model: VectorShare,
    program: str = "assisted",
) -> VectorShare:
    """This server's share of w - sum_i s_i Delta_i (SaFeGNN, Algorithm 1, line 23), or of every client's own model.

    Inputs: uploads of the q slots in order; model at `vectors.model_bits`, for "assisted" with every upload absorbed
    (`absorb`); under a personal rule, which takes "assisted" only, of shape (q, d). Output: the same scale and shape.
    Error: `VectorFormat.error_bound`, with `Similarity.error_ulp` under FED-PUB.
    Leakage: none; whatever is opened is masked.

    Who gets both shares of an output learns their sum alone. Server 0's share holds -<a_ij Delta_j>_0 of every client
    j: output of a generator that client j seeded for this upload, each element used in this one sum. It is uniform to
    whoever has not all of the seeds, and server 1's share is the sum minus it. A client i that gets the shares of its
    own model lacks the seeds of the others; where it is the only client the model is its own upload. So is what several
    clients together see, as every model has elements of its own of every other client's generator.

    Rounds and bytes from each server: those of the scores (docs/protocol.md) and, for the vectors,

    ==============  ======  ==========  ==================================================================
    program         rounds  bytes       what it is
    ==============  ======  ==========  ==================================================================
    assisted        1       8 q         clients supply the correlation; traffic does not depend on d
      personal      1       8 q^2       the same, for q weights of each update
    scalar-first    1       8 q (d+1)   the same product, the correlation from the servers' preprocessing
    faithful        1 or 2  32 q d each the paper's text: every element is clipped, then weighed, by triples
    ==============  ======  ==========  ==================================================================
    """
    how = SUMS[program]
    found = await how.factors(ops, parameters, [upload.scalars for upload in uploads])
    return await how.subtract(ops, vectors, found, uploads, model)


def absorb(model: VectorShare, upload: Upload) -> tuple[VectorShare, Upload]:
    """The model's share minus <a Delta> of one upload: the part of the round that can be done before all have come.

    The upload comes back without these products, which would take q^2 d elements of q clients under a personal rule,
    and without the message that held them. One that brings none, but plain shares, comes back as it is.
    """
    update = upload.update
    if not isinstance(update, Correlated):
        return model, upload
    total = VectorShare(model.values - update.products.reshape(model.values.shape), model.scale_bits, model.owner)
    # Copies: views of these few parts would hold the whole message in memory.
    kept = replace(update, share=update.share.copy(), products=update.products[:0].copy())
    return total, replace(upload, update=kept)


def only(upload: Upload, slots: Sequence[int]) -> Upload:
    """An upload under a personal rule for the models of these slots alone, where other clients were left out."""
    update = upload.update
    assert isinstance(update, Correlated)
    return replace(upload, update=replace(update, factor_masks=update.factor_masks[list(slots)]))


def separate_count(uploads: Sequence[Upload], owner: int) -> tuple[list[Upload], VectorShare]:
    """The uploads without their last scalar, and the sum of these: how many norms are at most C.

    Inputs: bits at `COUNT_BITS`. Output: one element at that scale, Z_2^64; exact. Leakage: none, nothing is opened. It
    is masked by every client's own randomness, so that both servers' shares show only their sum.
    """
    total = reduce64([sum(upload.scalars[-1] for upload in uploads)])
    return [replace(upload, scalars=upload.scalars[:-1]) for upload in uploads], VectorShare(total, COUNT_BITS, owner)


async def scaled_sums(
    ops: SharedArithmetic,
    vectors: VectorFormat,
    weights: ScalarShare,
    uploads: Sequence[Upload],
    model: VectorShare,
) -> VectorShare:
    """w - sum_j s_ij Delta_j for every row i of the weights, of which there are as many as `model` has vectors.

    <s_ij Delta_j> = e_ij <Delta_j> + <a_ij Delta_j> with e_ij = s_ij - a_ij opened, for weights in rows of q. Where the
    client brings no <a_j Delta_j>, it comes from a correlation <lam_j>, <a_j>, <a_j lam_j> of the servers' own: with
    M_j = Delta_j + lam_j opened, <a_j Delta_j> = M_j <a_j> - <a_j lam_j>.
    """
    owner, q = ops.owner, len(uploads)
    cut = SCALAR_BITS - vectors.weight_bits
    # In the large ring, which has the room that truncation without interaction takes; Z_2^64 is full.
    shares = reduce64(truncate(weights.values, cut, owner))
    total = model.values.copy()  # a shared or read-only array: under personal rules the public model stays
    updates = [upload.update for upload in uploads if isinstance(upload.update, Correlated)]
    if updates:
        factor_masks = np.stack([update.factor_masks for update in updates], axis=1).ravel()
        masked = VectorShare(shares - factor_masks, vectors.weight_bits, owner)
        differences = await open_ring64(masked, reason="factors masked by each client's own random elements")
    else:
        shared = [upload.update for upload in uploads if isinstance(upload.update, np.ndarray)]
        factor_masks, masks, products = ops.vectors(q, len(total))
        shares_of = np.stack(shared)
        # In one message, hence one round.
        both = np.concatenate([shares - factor_masks, (shares_of + masks).ravel()])
        masked = VectorShare(both, vectors.weight_bits, owner)
        opened = await open_ring64(masked, reason="factors and updates masked by fresh scaled vectors")
        differences, lifted = opened[:q], opened[q:].reshape(masks.shape)
        for lift, factor_mask, product in zip(lifted, factor_masks, products, strict=True):
            total -= lift * factor_mask - product
        updates = [Correlated(share, factor_masks, products) for share in shares_of]
    rows = total.reshape(-1, total.shape[-1])
    columns = list(zip(differences.reshape(-1, q, 1).swapaxes(0, 1), updates, strict=True))
    width = max(1, _CACHED // len(rows))
    for start in range(0, rows.shape[1], width):
        part = rows[:, start : start + width]
        for difference, update in columns:
            part -= update.share[start : start + width] * difference
    return VectorShare(total, vectors.model_bits, owner)


def _shift(share: list[int], bits: int, owner: int) -> list[int]:
    """The share of x * 2^bits; below one unit off where bits < 0."""
    return [value << bits & MASK128 for value in share] if bits >= 0 else truncate(share, -bits, owner)


class WeightedSum:
    """How a program takes the weighted sum of updates from the model; here as `assisted`, by uploads' correlations."""

    async def factors(
        self, ops: SharedArithmetic, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
    ) -> Any:
        """What the updates are multiplied by, from shares of the scores, k of each of the q clients."""
        return await secret_factors(ops, parameters, scalars)

    async def subtract(
        self, ops: SharedArithmetic, vectors: VectorFormat, factors: Any, uploads: Sequence[Upload], model: VectorShare
    ) -> VectorShare:
        """The model's share without the sum. Args: factors: what the coroutine of this name returns."""
        return await scaled_sums(ops, vectors, factors, uploads, model)

    def demand(self, scalars: Demand, parameters: RoundParameters, length: int) -> Demand:
        """What both take from preprocessing. Args: scalars: what `factors` does; length: d."""
        return scalars


class _ScalarFirst(WeightedSum):
    def demand(self, scalars: Demand, parameters: RoundParameters, length: int) -> Demand:
        return replace(scalars, vectors=parameters.cohort, length=length)


class _Elementwise(WeightedSum):
    """w - sum_i gamma_i (min(1, C/||Delta_i||) Delta_i), every product elementwise in Z_2^128."""

    async def factors(
        self, ops: SharedArithmetic, parameters: RoundParameters, scalars: Sequence[Sequence[int]]
    ) -> Any:
        return await weights_and_clip(ops, parameters, *_columns(ops.owner, parameters, scalars))

    async def subtract(
        self, ops: SharedArithmetic, vectors: VectorFormat, factors: Any, uploads: Sequence[Upload], model: VectorShare
    ) -> VectorShare:
        weights, clip = factors
        d = len(model.values)
        spread = [slot for slot in range(len(uploads)) for _ in range(d)]
        lift = SCALAR_BITS - vectors.update_bits
        elements = [value for upload in uploads if isinstance(upload.update, list) for value in upload.update]
        updates = ScalarShare(_shift(elements, lift, ops.owner), SCALAR_BITS, ops.owner)
        for factor in (clip, weights):
            if factor is not None:
                [updates] = await ops.multiply((ops.take(factor, spread), updates))
        summed = _shift(ops.sums(updates, d).values, vectors.model_bits - SCALAR_BITS, ops.owner)
        return VectorShare(model.values - reduce64(summed), vectors.model_bits, ops.owner)

    def demand(self, scalars: Demand, parameters: RoundParameters, length: int) -> Demand:
        products = 1 if parameters.ratio_max is None else 2
        return replace(scalars, triples=scalars.triples + products * parameters.cohort * length)


SUMS: dict[str, WeightedSum] = {
    "assisted": WeightedSum(),
    "scalar-first": _ScalarFirst(),
    "faithful": _Elementwise(),
}
"""By program."""


@lru_cache(maxsize=64)  # asked for online too, where the other server waits
def demand(parameters: RoundParameters, length: int, program: str = "assisted") -> Demand:
    """Exactly what one round takes from preprocessing, counted by running the scores' part on zeros.

    Args:
        length: d, the number of model parameters.
    """
    tally, how = Tally(), SUMS[program]
    zeros = [[0] * len(score_names(parameters))] * parameters.cohort
    run(how.factors(SharedArithmetic(0, tally), parameters, zeros), lambda payload: payload)
    return how.demand(tally.taken, parameters, length)
