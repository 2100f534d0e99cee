"""What a round's metrics are of: the global model on the whole graph, or every client's model on its own nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.evaluation.figures import Evaluation, nothing, of_clients, of_sum
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.evaluation.summed import MASKS, CountsLayout, binned_auc
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.partition import Subgraphs
from orchestrator.registry import METHODS

__all__ = ["RoundEvaluation", "round_evaluation"]


_DROWNED = 0.25
"""Noise on the number of nodes, as a share of it, beyond which nothing is said of them."""


class Clients(Protocol):
    """Whoever hosts the clients."""

    def evaluate(
        self, round: int, clients: Iterable[int], parameters: np.ndarray, own: bool
    ) -> dict[int, dict[str, Any]]:
        """By client, what it says of a model on its own nodes; see `LocalMethod.evaluate`."""


class Sum(Protocol):
    """What all clients' counts came to; see `CountsLayout`."""

    @property
    def numbers(self) -> np.ndarray:
        """Float64, with noise where there is any."""

    @property
    def left_out(self) -> Mapping[int, str]:
        """By client, why its counts are not in it."""


class Tables(Protocol):
    """Whoever has the clients' counts added up.

    Attributes:
        layout: which number is what.
        clients: how many there are.
        bound: of the Euclidean norm of a client's counts.
    """

    layout: CountsLayout
    clients: int
    bound: float

    @property
    def noise_stddev(self) -> float:
        """Of the noise on every number; 0: none."""

    @property
    def error(self) -> float:
        """The most that any number is off by, before noise."""

    def add_up(self, round: int, parameters: np.ndarray, own: bool) -> Sum:
        """Of a model on the clients' nodes."""


class RoundEvaluation(ABC):
    """Follows the rounds and says after each what the metrics are.

    Attributes:
        said: by client, what it said of its model last; what a checkpoint must keep.
        every: rounds between evaluations, beside that of the last round; 0: that alone.
    """

    said: Mapping[int, Mapping[str, Any]]
    every: int = 1

    @abstractmethod
    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        """The cohort has trained from the model, and nothing is aggregated yet."""

    @abstractmethod
    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        """The round is over; the model is the global one, if there is any."""

    def passed(self, round: int) -> None:
        """The round is over, and is none whose model is evaluated."""
        raise NotImplementedError(f"{type(self).__name__} evaluates every round")

    @abstractmethod
    def evaluations(self) -> Mapping[str, Evaluation]:
        """By mask, "val" and "test"."""

    def facts(self) -> dict[str, Any]:
        """Further figures: means over the clients, or what is said of the evaluation itself."""
        return {}


class _Nowhere(RoundEvaluation):
    def __init__(self) -> None:
        self.said = {}

    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        pass

    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        pass

    def evaluations(self) -> Mapping[str, Evaluation]:
        unknown = Evaluation({"accuracy": None}, {}, {}, {"accuracy": "evaluation.where = nowhere"})
        return dict.fromkeys(MASKS, unknown)


class _OfTheSum(RoundEvaluation):
    """Knows what all clients' nodes say together, and no client's table."""

    def __init__(self, tables: Tables, own: bool, every: int, independent: Mapping[str, float]) -> None:
        self.said, self.every = {}, every
        self._tables, self._own, self._independent = tables, own, independent
        layout = tables.layout
        self._empty = of_sum(GroupTable(np.zeros((layout.groups, layout.classes, layout.classes))), None, "")

    def trained(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        pass

    def passed(self, round: int) -> None:
        self._say("not evaluated in this round (evaluation.every)")

    def aggregated(self, round: int, cohort: Sequence[int], model: np.ndarray) -> None:
        tables, noise = self._tables, self._tables.noise_stddev
        total = tables.add_up(round, model, self._own)
        counts, clients = tables.layout.read(total.numbers)
        if not noise and tables.clients - len(total.left_out) - clients > tables.error:
            self._say(f"a client's counts are longer than evaluation.bound = {tables.bound:g}; raise it")
            return
        self._current, self._facts = {}, self._about(total, clients)
        for mask, own in counts.items():
            table, scores = (np.maximum(values, 0) if noise else np.rint(values) for values in (own.table, own.scores))
            table = table if noise else table.astype(np.int64)
            if noise * table.size**0.5 > _DROWNED * table.sum():
                self._current[mask] = nothing(self._empty, f"drowned by noise of {noise:.4g} on every count")
                continue
            area, error = binned_auc(scores)
            # How many clients hold a node is data of theirs too, which noise on the counts does not cover.
            independent = 1.0 if noise else self._independent[mask]
            self._current[mask] = of_sum(GroupTable(table), area, self._no_auc, independent, noise)
            if tables.layout.bins:
                self._facts[f"{mask}_auc_error"] = error

    @property
    def _no_auc(self) -> str:
        if self._tables.layout.classes > 2:
            return "tables are summed, and of several classes hold no scores"
        if self._own:
            return "nobody ranks nodes of different clients' models"
        return "all labels are alike" if self._tables.layout.bins else "tables are summed without scores (bins)"

    def _say(self, reason: str) -> None:
        """There are no metrics."""
        self._current = dict.fromkeys(MASKS, nothing(self._empty, reason))
        self._facts = self._about(None, None)

    def _about(self, total: Sum | None, clients: float | None) -> dict[str, Any]:
        left_out = {} if total is None else total.left_out
        errors = {f"{mask}_auc_error": None for mask in MASKS if self._tables.layout.bins}
        return {
            "clients_evaluated": clients,
            "evaluation_noise": None if clients is None else self._tables.noise_stddev,
            "evaluation_left_out": [{"client": client, "reason": reason} for client, reason in left_out.items()],
            **errors,
        }

    def evaluations(self) -> Mapping[str, Evaluation]:
        return self._current

    def facts(self) -> dict[str, Any]:
        return dict(self._facts)


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

    def facts(self) -> dict[str, float | None]:
        """Means over the clients whose figure is a number; None where there is no such client."""
        names = [name for name in next(iter(self.said.values())) if name.removesuffix("_auc") not in MASKS]
        figures = {name: np.array([said[name] for said in self.said.values()], float) for name in names}
        known = {name: values[~np.isnan(values)] for name, values in figures.items()}
        return {name: float(np.mean(values)) if len(values) else None for name, values in known.items()}


def round_evaluation(
    config: Config,
    graph: Graph | None,
    pool: Clients,
    said: Mapping[int, Mapping[str, Any]],
    parts: Sequence[Graph] = (),
    tables: Tables | None = None,
    every: int = 1,
) -> RoundEvaluation:
    """What the section `evaluation` asks for.

    Args:
        graph: the whole; None where nobody has it.
        said: `RoundEvaluation.said` of the checkpoint from which the run goes on.
        parts: the clients' graphs.
        tables, every: where tables are summed, who does that, and `RoundEvaluation.every`.
    """
    if config.evaluation.where == "nowhere":
        return _Nowhere()
    independent = {mask: 1.0 if graph is None else _independent(getattr(graph, mask), parts) for mask in MASKS}
    if tables is not None:
        return _OfTheSum(tables, METHODS[config.method.name].personal, every, independent)
    if config.evaluation.where == "whole_graph":
        if graph is None:
            raise ConfigError("evaluation.where = whole_graph: nobody has it; set it to clients or nowhere")
        return _OnTheWholeGraph(config, graph)
    return _ByClients(config, pool, said, independent)


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
