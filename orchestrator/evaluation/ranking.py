"""How well scores rank nodes of a class above others."""

from __future__ import annotations

import numpy as np

__all__ = ["auc"]


def auc(logits: np.ndarray, labels: np.ndarray) -> float | None:
    """Area under the ROC curve; of several classes the mean over one against the rest, as scikit-learn's macro "ovr".

    Classes that no node has, or all have, are left out of the mean; None where that is every class.

    Args:
        logits: finite, shape (n, C).
        labels: in [0, C), shape (n,).
    """
    classes = logits.shape[1]
    if classes == 2:  # both classes have the same
        areas = [_area(logits[:, 1] - logits[:, 0], labels == 1)]
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        scores = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        areas = [_area(scores[:, c], labels == c) for c in range(classes)]
    known = [area for area in areas if area is not None]
    return sum(known) / len(known) if known else None


def _area(scores: np.ndarray, members: np.ndarray) -> float | None:
    """How often a member has the higher score than another node; equal ones count half."""
    own, others = scores[members], np.sort(scores[~members])
    if not len(own) or not len(others):
        return None
    below, up_to = (others.searchsorted(own, side).sum() for side in ("left", "right"))
    return float(below + up_to) / (2 * len(own) * len(others))
