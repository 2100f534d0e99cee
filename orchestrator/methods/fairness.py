"""Fairness penalties of a local model and divergences between two models' predictions; pure functions.

Formulas: SaFeGNN, section 3.1. Every gap is the absolute value of a fixed linear form of the predicted probabilities,
so a client computes the coefficients of its two forms once and the penalty of an epoch is one small product.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.special import expit, rel_entr, softmax
from torch import Tensor

__all__ = ["gap_coefficients", "gaps", "js_distance_over_nodes", "js_divergence"]

_BROADCAST_EPSILON = 1e-5
"""What the reference code adds to every denominator."""


def gap_coefficients(
    labels: Tensor,
    sensitive: Tensor,
    penalty: Literal["gaps", "broadcast"] = "gaps",
    eo_denominator: Literal["positives", "group"] = "positives",
) -> Tensor:
    """Coefficients c_SP and c_EO, float64, shape (2, n), with gap = |c . p| for probabilities p of shape (n,).

    With n_g nodes in group g and m_g positives among them:

    * ``gaps``: SP is ``|sum_{s=1} p / n_1 - sum_{s=0} p / n_0|``; EO is the same sum over nodes with y = 1, divided by
      m_g (``positives``: a difference of true-positive rates) or by n_g (``group``: as the reference code).
    * ``broadcast``: the reference code multiplies probabilities of shape (n, 1) by masks of shape (n,). Summed over the
      n x n product, every probability meets every mask, so that with ``e = 1e-5``

          SP = sum(p) |n_1 / (n_1 + e) - n_0 / (n_0 + e)|      about 0 unless a group is empty, then sum(p)
          EO = sum(p) |m_1 / (k_1 + e) - m_0 / (k_0 + e)|      k_g = n_g (``group``) or m_g (``positives``)

    ==============================  =========================
    edge case of ``gaps``           result
    ==============================  =========================
    no nodes, or an empty group     both gaps 0, gradient 0
    a group without positives       EO gap 0, gradient 0
    ==============================  =========================

    Args:
        labels, sensitive: shape (n,), of 0 and 1.
    """
    y, s = labels.double(), sensitive.double()
    groups = torch.stack([s, 1 - s])
    positives = groups * y
    sizes, hits = groups.sum(1), positives.sum(1)
    eo_sizes = hits if eo_denominator == "positives" else sizes
    if penalty == "broadcast":
        parity = sizes / (sizes + _BROADCAST_EPSILON)
        opportunity = hits / (eo_sizes + _BROADCAST_EPSILON)
        return torch.stack([parity[0] - parity[1], opportunity[0] - opportunity[1]])[:, None].repeat(1, len(y))
    coefficients = torch.zeros(2, len(y), dtype=torch.float64)
    if (sizes > 0).all():
        coefficients[0] = groups[0] / sizes[0] - groups[1] / sizes[1]
    if (hits > 0).all():
        coefficients[1] = positives[0] / eo_sizes[0] - positives[1] / eo_sizes[1]
    return coefficients


def gaps(probabilities: Tensor, coefficients: Tensor) -> Tensor:
    """The SP and the EO gap, shape (2,); their sum is the fairness penalty l_fair of SaFeGNN, section 3.1.

    Differentiable, with gradient 0 where a gap is exactly 0.

    Args:
        probabilities: shape (n,); of the nodes for which `gap_coefficients` was called, in its order.
    """
    return (coefficients.to(probabilities.dtype) @ probabilities).abs()


def js_divergence(local: np.ndarray, released: np.ndarray, temperature: float) -> float:
    """js of SaFeGNN, section 3.1: how far the local model's predictions are from the global model's.

    Mean over the nodes of the base-2 Jensen-Shannon divergence between the Bernoulli distributions with
    P(1) = sigmoid(logit / temperature). Symmetric; in [0, 1] and finite for all finite logits; 0 for equal logits.
    Without nodes there is nothing to compare and the global model is taken as it is: 1.

    Args:
        local, released: logits of the same nodes, shape (n,).
    """
    if not len(local):
        return 1.0
    z, w = (np.asarray(x, np.float64) / temperature for x in (local, released))
    nats = _js_terms(expit(z), expit(w)) + _js_terms(expit(-z), expit(-w))
    return float(np.clip(nats / np.log(2), 0, 1).mean())


def js_distance_over_nodes(local: np.ndarray, released: np.ndarray, temperature: float) -> float:
    """The reference code's variant of `js_divergence`.

    Hard 0/1 predictions over the temperature become one distribution over the nodes by a softmax; the result is the
    natural-log Jensen-Shannon *distance*, the square root of the divergence: in [0, sqrt(log 2)], about 0.8326.
    One node, or constant predictions of both models, give 0; no nodes give 1.
    """
    if not len(local):
        return 1.0
    p, q = (softmax((np.asarray(x) > 0) / temperature) for x in (local, released))
    return float(np.sqrt(np.clip(_js_terms(p, q).sum(), 0, np.log(2))))


def _js_terms(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Terms of JS(p, q) = (KL(p | m) + KL(q | m)) / 2 in nats, m = (p + q) / 2; doubled, so that m cannot underflow."""
    return (rel_entr(2 * p, p + q) + rel_entr(2 * q, p + q)) / 4
