"""The generator keeps its promises about counts, rates and homophily."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import DataConfig, SyntheticConfig
from orchestrator.errors import ConfigError, DataError
from orchestrator.graphs import load_graph
from orchestrator.graphs.synthetic import generate


@settings(max_examples=40, deadline=None)
@given(
    st.integers(10, 120),
    st.floats(0.01, 0.4),
    st.floats(0.05, 0.95),
    st.floats(0.05, 0.95),
    st.integers(0, 2**32),
)
def test_edge_count_is_exact_and_edges_are_simple(nodes, density, label_homophily, group_homophily, seed):
    edges = max(1, int(density * nodes * (nodes - 1) / 2))
    config = SyntheticConfig(
        nodes=nodes, edges=edges, features=3, label_homophily=label_homophily, group_homophily=group_homophily
    )
    raw = generate(config, seed)
    assert raw.edges.shape == (2, edges)
    assert (raw.edges[0] < raw.edges[1]).all() and raw.edges.min() >= 0 and raw.edges.max() < nodes
    assert len({tuple(edge) for edge in raw.edges.T.tolist()}) == edges
    if edges >= nodes:
        assert len(np.unique(raw.edges)) == nodes


def test_the_seed_decides():
    first, second, other = (generate(SyntheticConfig(), seed) for seed in (1, 1, 2))
    for field in ("features", "labels", "sensitive", "edges"):
        assert np.array_equal(getattr(first, field), getattr(second, field))
    assert not np.array_equal(first.edges, other.edges)


def test_rates_and_bias():
    config = SyntheticConfig(nodes=5_000, sensitive_rate=0.3, positive_rate=0.4, label_bias=0.2, missing_rate=0.0)
    raw = generate(config, 0)
    assert raw.sensitive.mean() == pytest.approx(0.3)
    assert raw.labels.mean() == pytest.approx(0.4, abs=1e-3)
    gap = raw.labels[raw.sensitive == 1].mean() - raw.labels[raw.sensitive == 0].mean()
    assert gap == pytest.approx(0.2, abs=1e-3)
    assert (generate(config.model_copy(update={"missing_rate": 0.87}), 0).labels == -1).sum() == 4_350


@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9])
def test_homophilies_are_the_share_of_equal_ends_for_even_halves(weight):
    even = {"nodes": 3_000, "edges": 15_000, "sensitive_rate": 0.5, "positive_rate": 0.5, "label_bias": 0.0}
    for field, setting in (("labels", "label_homophily"), ("sensitive", "group_homophily")):
        raw = generate(SyntheticConfig(**even, **{"label_homophily": 0.5, "group_homophily": 0.5, setting: weight}), 4)
        ends = getattr(raw, field)[raw.edges]
        assert (ends[0] == ends[1]).mean() == pytest.approx(weight, abs=0.03)


def test_feature_means_are_apart_by_the_signal():
    config = SyntheticConfig(nodes=20_000, edges=100, features=16, label_bias=0, signal=3, group_signal=0)
    raw = generate(config, 0)
    apart = raw.features[raw.labels == 1].mean(axis=0) - raw.features[raw.labels == 0].mean(axis=0)
    assert np.linalg.norm(apart) == pytest.approx(3, abs=0.1)


def test_degrees_have_a_heavy_tail():
    raw = generate(SyntheticConfig(nodes=5_000, edges=20_000), 0)
    degrees = np.bincount(raw.edges.ravel())
    assert degrees.min() >= 1
    assert degrees.max() > 10 * degrees.mean()


def test_contradictions():
    with pytest.raises(DataError, match=r"data\.synthetic\.edges = 46: 10 nodes hold at most 45 edges"):
        generate(SyntheticConfig(nodes=10, edges=46), 0)
    with pytest.raises(DataError, match=r"only \d+ distinct edges could be placed among 60 nodes"):
        generate(SyntheticConfig(nodes=60, edges=1_770, label_homophily=1 - 1e-9, group_homophily=1 - 1e-9), 0)
    with pytest.raises(ConfigError, match=r"label_bias = 0\.9 does not fit positive_rate = 0\.9"):
        generate(SyntheticConfig(label_bias=0.9, positive_rate=0.9), 0)


def test_nearly_everything_is_one_component():
    graph = load_graph(DataConfig(synthetic=SyntheticConfig(nodes=3_000, edges=4_500)), 1)
    assert graph.num_nodes > 2_900
