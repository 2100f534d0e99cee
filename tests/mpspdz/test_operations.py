"""The small programs on real parties against float64: the bounds that `arithmetic` states hold on MP-SPDZ too."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.mpspdz.installation import PROTOCOLS
from orchestrator.mpspdz.shape import Operation
from tests.mpspdz.real import compute, evaluate

ULP = 2.0**-32
FAR = 1e5
RNG = np.random.default_rng(1)

pytestmark = pytest.mark.parametrize("protocol", PROTOCOLS)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


SOFTMAX = [
    ([0.3], 1.0),
    ([0.5, 0.5, 0.5], 1.0),
    (RNG.random(30), 1.0),
    ([FAR], FAR),
    ([7.0, 7.0, 7.0], FAR),
    ([FAR, 0.0, FAR - 1], FAR),
    (RNG.uniform(0, FAR, 10), FAR),
]


@pytest.mark.parametrize(("x", "high"), SOFTMAX, ids=lambda value: len(value) if hasattr(value, "__len__") else value)
def test_softmax(installation, cache, tmp_path, protocol, x, high):
    x = np.array(x)
    job = Operation("softmax", protocol, (len(x), 0.0, high))
    result = evaluate(installation, cache, tmp_path, job, x)
    assert np.abs(result - softmax(np.rint(x / ULP) * ULP)).max() <= (64 + len(x)) * ULP


@pytest.mark.parametrize(("low", "high", "squarings"), [(0.0, 1.0, 0), (-24.0, 0.0, 4), (-2.0, 2.0, 1)])
def test_exp(installation, cache, tmp_path, protocol, low, high, squarings):
    x = np.array([low, high, (low + high) / 2, *RNG.uniform(low, high, 97)])
    result = evaluate(installation, cache, tmp_path, Operation("exp", protocol, (len(x), low, high)), x)
    assert np.abs(result - np.exp(x)).max() <= 2**squarings * 12 * max(1.0, np.exp(high)) * ULP


@pytest.mark.parametrize("largest", [64.0, 2.0**20])
def test_clip(installation, cache, tmp_path, protocol, largest):
    edges = [0.0, 1e-9, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0, 3.99, 4.0, largest - 1e-6, largest]
    x = np.array([*edges, *RNG.uniform(0, largest, 10)])
    result = evaluate(installation, cache, tmp_path, Operation("clip", protocol, (len(x), largest)), x)
    assert np.abs(result - 1 / np.maximum(1, x)).max() <= 24 * ULP


@pytest.mark.parametrize(("q", "d"), [(1, 1), (3, 200)])
def test_weighted_sum(installation, cache, tmp_path, protocol, q, d):
    """Exact on integers: nothing is truncated. What shares exceed 2^64 by must not show in the lowest 64 bits."""
    weights = [int(weight * 2**32) for weight in RNG.random(q)]
    vectors = [int(value) for value in RNG.integers(-(2**30), 2**30, q * d)]
    masks = [int(mask) for mask in RNG.integers(0, 2**63, q * d)]
    carried = [value % 2**64 + mask // 2**62 * 2**64 for value, mask in zip(vectors, masks, strict=True)]
    job = Operation("weighted-sum", protocol, (q, d))
    results, _ = compute(installation, cache, tmp_path, job, weights + carried, d)
    exact = [sum(weights[i] * vectors[i * d + k] for i in range(q)) for k in range(d)]
    assert [value % 2**64 for value in results] == [value % 2**64 for value in exact]
