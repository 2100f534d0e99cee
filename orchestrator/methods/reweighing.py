"""Reweighing: weights under which group and label are independent; a pure function.

Kamiran and Calders, "Data preprocessing techniques for classification without discrimination", Knowledge and
Information Systems 33, 2012.
"""

from __future__ import annotations

import numpy as np

__all__ = ["reweighing"]


def reweighing(counts: np.ndarray) -> np.ndarray:
    """W(s, y) = P(s) P(y) / P(s, y), float64, shape (2, 2); 0 where no node has that group and label, 1 without nodes.

    Args:
        counts: of nodes by group and label, shape (2, 2), or anything in proportion to them; what is negative, as noise
            may make it, counts as 0.
    """
    joint = np.maximum(np.asarray(counts, np.float64), 0.0)
    total = joint.sum()
    if total <= 0:
        return np.ones((2, 2))
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True) / total
    return np.divide(independent, joint, out=np.zeros((2, 2)), where=joint > 0)
