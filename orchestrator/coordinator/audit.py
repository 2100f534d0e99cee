"""What a round must agree with: float64 aggregation of the same updates, which only a simulation knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpc_programs.lockstep import run_locally
from mpc_programs.rules import RULES, RoundParameters, factors
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.client.interface import Encoder
from orchestrator.client.plain import AuditEncoder, plain_encoder
from orchestrator.errors import ProtocolError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.float64 import Float64

__all__ = ["audit", "auditor", "float64_aggregate", "float64_personal"]


def auditor(plan: RoundPlan) -> Encoder | None:
    """What the audit takes from clients; None where noise hides what it would compare."""
    if plan.noise.multiplier > 0:
        return None
    return plain_encoder if plan.engine == "plaintext" else AuditEncoder(plan.vectors)


def audit(
    plan: RoundPlan, round: int, before: np.ndarray, after: Sequence[np.ndarray], audits: Sequence[LocalUpdate]
) -> tuple[float | None, float | None]:
    """The largest difference from float64 aggregation of the same uploads, and its bound; None without an audit.

    Args:
        after: the released model, or that of every client that took part; none where nothing is aggregated.
        audits: the plaintext of the uploads that were aggregated.

    Raises:
        ProtocolError: the bound is exceeded; nothing of the round has been recorded yet.
    """
    if not audits or not after:
        return None, None
    if plan.rule.personal:
        expected: Sequence[np.ndarray] = list(float64_personal(before, plan.rule, audits)[1])
    else:
        expected = [float64_aggregate(before, plan.rule, plan.clip_norm, audits)]
    largest = max(float(np.abs(upload.delta).max(initial=0.0)) for upload in audits)
    bound = plan.error_bound(len(audits), largest)
    difference = max(float(np.abs(own - exact).max()) for own, exact in zip(after, expected, strict=True))
    if not difference <= bound:
        reason = f"the model differs from float64 by {difference:.3g}, more than the bound {bound:.3g}"
        raise ProtocolError(f"engine {plan.engine}", "audit", round, reason)
    return difference, bound


def float64_aggregate(
    model: np.ndarray, parameters: RoundParameters, clip_norm: float | None, uploads: Sequence[LocalUpdate]
) -> np.ndarray:
    """w - sum_i s_i Delta_i in float64 (SaFeGNN, Algorithm 1, line 23): what the other engines must agree with.

    Args:
        parameters: of any round; how many clients there are, and how large their norms, is taken from the uploads.
        clip_norm: C; None where updates are not clipped.
    """
    if not uploads:
        return model.copy()
    weights = _factors(parameters, clip_norm, uploads)
    return model - sum(weight * upload.delta for weight, upload in zip(weights, uploads, strict=True))


def float64_personal(
    model: np.ndarray, parameters: RoundParameters, uploads: Sequence[LocalUpdate]
) -> tuple[np.ndarray, np.ndarray]:
    """A personal rule's weights s, shape (q, q), and w - sum_j s_ij Delta_j for every client i, shape (q, d).

    What the other engines must agree with, as `float64_aggregate`.
    """
    q = len(uploads)
    if q == 0:
        return np.zeros((0, 0)), np.zeros((0, len(model)))
    weights = _factors(parameters, None, uploads).reshape(q, q)
    return weights, model - weights @ np.stack([upload.delta for upload in uploads])


def _factors(parameters: RoundParameters, clip_norm: float | None, uploads: Sequence[LocalUpdate]) -> np.ndarray:
    scores = {
        name: np.stack([np.ravel(upload.scores[name]) for upload in uploads], axis=1).ravel()
        for name in RULES[parameters.rule].ranges(parameters)
    }
    ratio = None if clip_norm is None else np.array([upload.norm for upload in uploads]) / clip_norm
    parameters = replace(parameters, cohort=len(uploads), ratio_max=None if ratio is None else float(ratio.max()))
    return run_locally(factors(Float64(), parameters, scores, ratio))
