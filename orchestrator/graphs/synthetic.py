"""Synthetic attributed graphs with prescribed size, degrees, bias and homophily.

Edges follow a degree-corrected block model (Chung-Lu degrees times a weight for the four label-by-group blocks):
P(u, v) is proportional to theta_u theta_v w(y_u, y_v, s_u, s_v). Memory is O(nodes x features + edges); 67,796 nodes,
882,765 edges and 276 features take a few seconds.
"""

from __future__ import annotations

import numpy as np

from orchestrator.config import SyntheticConfig
from orchestrator.errors import ConfigError, DataError
from orchestrator.graphs.graph import MISSING
from orchestrator.graphs.tables import RawGraph
from orchestrator.seeding import seeded_generator

__all__ = ["generate"]

_MAX_DRAWS = 500


def generate(config: SyntheticConfig, seed: int) -> RawGraph:
    """Draw a graph; the same configuration and seed give the same graph.

    - Groups, classes and missing labels have the asked-for counts up to rounding: round(n * sensitive_rate) nodes have
      s = 1; within each group P(y = 1 | s) is such that the difference is `label_bias` and the mean `positive_rate`.
    - The number of undirected edges is exactly `edges`. As long as edges >= nodes, every node has at least one, so
      that nearly all nodes form one component.
    - A same-label pair weighs `label_homophily`, another pair 1 - `label_homophily`; likewise for groups; the two
      factors multiply. 0.5 is neutral.
    - Features are N(0, I) around +-signal/2 along one random unit direction (label) and +-group_signal/2 along
      another (group). Nodes whose label is missing keep the features and edges of their true label.

    Raises:
        ConfigError: the rates contradict each other.
        DataError: the graph cannot hold the edges.
    """
    rng = seeded_generator(seed, "synthetic")
    sensitive = _exactly(config.sensitive_rate, config.nodes, rng)
    labels = _labels(config, sensitive, rng)
    edges = _edges(config, labels, sensitive, rng)
    features = rng.standard_normal((config.nodes, config.features), dtype=np.float32)
    for distance, attribute in ((config.signal, labels), (config.group_signal, sensitive)):
        direction = rng.standard_normal(config.features)
        direction *= distance / np.linalg.norm(direction)
        features += np.outer(attribute.astype(np.float32) - np.float32(0.5), direction.astype(np.float32))
    missing = rng.permutation(config.nodes)[: round(config.nodes * config.missing_rate)]
    labels[missing] = MISSING
    where = "data.synthetic"
    return RawGraph("synthetic", features, labels, sensitive, edges, f"{where}: label", f"{where}: sensitive", where)


def _exactly(rate: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """int8, shape (count,), with round(count * rate) ones in random places."""
    values = np.zeros(count, np.int8)
    values[rng.permutation(count)[: round(count * rate)]] = 1
    return values


def _labels(config: SyntheticConfig, sensitive: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    share = config.sensitive_rate
    rates = (config.positive_rate - share * config.label_bias, config.positive_rate + (1 - share) * config.label_bias)
    if not 0 <= min(rates) <= max(rates) <= 1:
        raise ConfigError(
            f"data.synthetic.label_bias = {config.label_bias} does not fit positive_rate = {config.positive_rate}: "
            f"P(y=1|s) would be {rates[0]:.3f} and {rates[1]:.3f}"
        )
    labels = np.empty(config.nodes, np.int8)
    for group, rate in enumerate(rates):
        members = sensitive == group
        labels[members] = _exactly(rate, int(members.sum()), rng)
    return labels


def _edges(config: SyntheticConfig, labels: np.ndarray, sensitive: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Exactly `config.edges` distinct pairs u < v, shape (2, m): repeated draws, duplicates and self-loops rejected."""
    n, m = config.nodes, config.edges
    if m > n * (n - 1) // 2:
        raise DataError(f"data.synthetic.edges = {m}: {n} nodes hold at most {n * (n - 1) // 2} edges")
    theta = rng.pareto(config.degree_exponent - 1, n) + 1
    theta = np.minimum(theta, theta.sum() / np.sqrt(2 * m))  # expected degree <= sqrt(2 m): else not Chung-Lu
    block = 2 * labels.astype(np.int64) + sensitive
    weight = _block_weights(config.label_homophily, config.group_homophily)
    order = np.argsort(block, kind="stable")
    cumulative = np.concatenate([[0.0], np.cumsum(theta[order])])
    start = cumulative[np.searchsorted(block[order], np.arange(5))]  # block b spans start[b] .. start[b + 1]
    partner_mass = weight * np.diff(start)
    source_cumulative = np.cumsum(theta * partner_mass.sum(axis=1)[block])

    keys = np.empty(0, np.int64)
    for _ in range(_MAX_DRAWS):
        bare = np.setdiff1d(np.arange(n), np.divmod(keys, n))
        if len(bare):  # first an edge for every node
            u = rng.permutation(bare)
        else:
            size = 2 * (m - len(keys)) + 1000
            u = np.searchsorted(source_cumulative, rng.random(size) * source_cumulative[-1], side="right")
        bounds = np.cumsum(partner_mass[block[u]], axis=1)
        partner = (bounds <= rng.random((len(u), 1)) * bounds[:, -1:]).sum(axis=1)
        place = start[partner] + rng.random(len(u)) * (start[partner + 1] - start[partner])
        v = order[np.clip(np.searchsorted(cumulative, place, side="right") - 1, 0, n - 1)]
        found = (np.minimum(u, v) * n + np.maximum(u, v))[u != v]
        keys = np.concatenate([keys, found])
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])][:m]  # first come, first kept
        if len(keys) == m:
            return np.stack(np.divmod(keys, n))
    raise DataError(
        f"data.synthetic.edges = {m}: only {len(keys)} distinct edges could be placed among {n} nodes; "
        "lower edges or bring the homophilies nearer to 0.5"
    )


def _block_weights(label_homophily: float, group_homophily: float) -> np.ndarray:
    """Weight of an edge between blocks 2 y + s, float64, shape (4, 4)."""
    y, s = np.divmod(np.arange(4), 2)
    same_label, same_group = y[:, None] == y, s[:, None] == s
    return np.where(same_label, label_homophily, 1 - label_homophily) * np.where(
        same_group, group_homophily, 1 - group_homophily
    )
