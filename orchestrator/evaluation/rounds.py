"""What a round's metrics are of: the global model on the whole graph, or every client's model on its own nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from orchestrator.config import Config
from orchestrator.evaluation.figures import Evaluation, of_clients
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.partition import Subgraphs
from orchestrator.registry import METHODS

__all__ = ["RoundEvaluation", "round_evaluation"]

MASKS = ("val", "test")


class Clients(Protocol):
    """Whoever hosts the clients."""

    def evaluate(
        self, round: int, clients: Iterable[int], parameters: np.ndarray, own: bool
    ) -> dict[int, dict[str, Any]]:
        """By client, what it says of a model on its own nodes; see `LocalMethod.evaluate`."""


class RoundEvaluation(ABC):
    """Follows the rounds and says after each what the metrics are."""

    said: Mapping[int, Mapping[str, Any]]
    """By client, what it said of its model last; what a checkpoint must keep."""

    @abstractmethod
    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        """The cohort has trained from the model, and nothing is aggregated yet."""

    @abstractmethod
    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        """The round is over; the model is the global one, if there is any."""

    @abstractmethod
    def evaluations(self) -> Mapping[str, Evaluation]:
        """By mask, "val" and "test"."""

    def facts(self) -> dict[str, float]:
        """Further figures, means over the clients."""
        return {}


class _OnTheWholeGraph(RoundEvaluation):
    def __init__(self, config: Config, graph: Graph) -> None:
        self._evaluator = Evaluator(graph, config.model)
        self.said = {}

    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        pass

    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        self._current = self._evaluator.evaluate(model, MASKS)

    def evaluations(self) -> Mapping[str, Evaluation]:
        return self._current


class _ByClients(RoundEvaluation):
    """Asks those whose model has changed, and those that have not been asked yet."""

    def __init__(
        self, config: Config, pool: Clients, said: Mapping[int, Mapping[str, Any]], independent: Mapping[str, float]
    ) -> None:
        self._pool, self._after_training = pool, config.evaluation.model == "trained"
        self._own = self._after_training or METHODS[config.method.name].personal
        self._everybody = range(config.clients.count)
        self.said, self._independent = dict(said), independent

    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        if self._after_training:
            self._ask(round, cohort, model)

    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        if not self._after_training:
            self._ask(round, cohort if self._own else self._everybody, model)

    def _ask(self, round: int, changed: Sequence[int], model: np.ndarray) -> None:
        unheard = [c for c in self._everybody if c not in self.said]
        answers = self._pool.evaluate(round, {*changed, *unheard}, model, self._own)
        # In the order of the clients, not of their answers: sums of floats depend on it in their last digit.
        self.said = dict(sorted({**self.said, **answers}.items()))

    def evaluations(self) -> Mapping[str, Evaluation]:
        said = self.said.values()
        return {
            mask: of_clients([own[mask] for own in said], [own[f"{mask}_auc"] for own in said], share)
            for mask, share in self._independent.items()
        }

    def facts(self) -> dict[str, float]:
        names = [name for name in next(iter(self.said.values())) if name.removesuffix("_auc") not in MASKS]
        return {name: float(np.mean([said[name] for said in self.said.values()])) for name in names}


def round_evaluation(
    config: Config, graph: Graph, pool: Clients, said: Mapping[int, Mapping[str, Any]], parts: Sequence[Graph] = ()
) -> RoundEvaluation:
    """What `evaluation.where` and `evaluation.model` ask for.

    Args:
        graph: the whole.
        said: `RoundEvaluation.said` of the checkpoint from which the run goes on.
        parts: the clients' graphs.
    """
    if config.evaluation.where == "whole_graph":
        return _OnTheWholeGraph(config, graph)
    return _ByClients(config, pool, said, {mask: _independent(getattr(graph, mask), parts) for mask in MASKS})


def _independent(mask: np.ndarray, parts: Sequence[Graph]) -> float:
    """The share of the clients' nodes that count as independent: 1 where they are cut out of a graph without overlap.

    Where node k is that of w_k clients it is Kish's effective sample size (Survey Sampling, 1965),
    ``(sum w)^2 / sum w^2``, over ``sum w``. Which nodes graphs of one's own have in common is not known.
    """
    if not isinstance(parts, Subgraphs):
        return 1.0
    nodes = np.concatenate([parts.nodes(client) for client in range(len(parts))])
    holders = np.bincount(nodes, minlength=len(mask))[mask].astype(float)
    return float(holders.sum() / max(1.0, (holders**2).sum()))
