"""How well scores rank nodes of a class above others."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

__all__ = ["auc"]


def auc(logits: np.ndarray, labels: np.ndarray) -> float | None:
    """Area under the ROC curve; of several classes the mean over one against the rest, as scikit-learn's macro "ovr".

    Classes that no node has, or all have, are left out of the mean; None where that is every class.

    Args:
        logits: finite, shape (n, C).
        labels: in [0, C), shape (n,).
    """
    nodes, classes = logits.shape
    members = np.bincount(labels, minlength=classes)
    split = np.flatnonzero((members > 0) & (members < nodes))
    if not len(split):
        return None
    if classes == 2:  # both classes have the same
        split, scores = split[1:], logits[:, 1:] - logits[:, :1]
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        scores = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))[:, split]
    ranks = rankdata(scores, axis=0)
    own = members[split]
    sums = (ranks * (labels[:, None] == split)).sum(axis=0)
    return float(np.mean((sums - own * (own + 1) / 2) / (own * (nodes - own))))
