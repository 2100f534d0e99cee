"""The clients' tables of counts as a secure sum, and what of a run's metrics an epsilon covers."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.evaluation.summed import CountsLayout
from orchestrator.privacy.plan import NoisySum
from orchestrator.registry import METHODS
from orchestrator.secure_sum import EVALUATION, SecureSum, Sizes

__all__ = [
    "EVALUATION",
    "counts_layout",
    "evaluated_every",
    "evaluation_noise",
    "exact_metrics",
    "noisy_evaluation",
    "summed_tables",
]


def evaluation_noise(config: Config) -> float:
    """The noise multiplier of summed tables; 0: none."""
    own = config.evaluation.noise_multiplier
    return config.privacy.noise_multiplier if own is None else own


def noisy_evaluation(config: Config) -> list[NoisySum]:
    """The sum of the tables as accountants are told it, where it has noise."""
    if config.evaluation.tables != "summed" or not evaluation_noise(config):
        return []
    return [NoisySum(EVALUATION, evaluation_noise(config), evaluated_every(config))]


def evaluated_every(config: Config) -> int:
    """Rounds between evaluations, beside that of the last round; 0: that alone."""
    every = config.evaluation.every
    return (0 if evaluation_noise(config) else 1) if every is None else every


def exact_metrics(config: Config) -> str | None:
    """The setting by which exact metrics of clients' nodes are recorded; None where they have noise, or are none."""
    own = config.evaluation
    if own.where == "nowhere" or noisy_evaluation(config):
        return None
    if own.tables == "summed":
        return "evaluation.noise_multiplier = 0"
    return "evaluation.where = whole_graph" if own.where == "whole_graph" else "evaluation.tables = each"


def summed_tables(config: Config) -> SecureSum:
    """The sum of all clients' `CountsLayout` vectors."""
    return SecureSum(
        EVALUATION,
        config.evaluation.bound,
        lambda sizes: counts_layout(config, sizes).length,
        evaluation_noise(config),
    )


def counts_layout(config: Config, sizes: Sizes) -> CountsLayout:
    """Scores are counted where all clients' nodes are ranked by one model, of two classes."""
    ranked = sizes.classes == 2 and not METHODS[config.method.name].personal
    return CountsLayout(sizes.groups, sizes.classes, config.evaluation.bins if ranked else 0)
