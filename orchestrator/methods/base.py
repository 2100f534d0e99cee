"""What a federated method is on the client's side; the engine and the round loop know no more than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orchestrator.config import Config
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.ranking import auc

if TYPE_CHECKING:  # see the folder's `__init__`
    from orchestrator.graphs.graph import Graph

__all__ = ["LocalMethod", "LocalUpdate"]


@dataclass(frozen=True)
class LocalUpdate:
    """What one local training hands to the engine. Plaintext: it never leaves the client's process as it is.

    Attributes:
        delta: float64, shape (d,); w_global - w_local (SaFeGNN, Algorithm 1, line 37).
        norm: its Euclidean norm.
        scores: the secret numbers that the method's aggregation rule takes, by name; a vector is float64, shape (m,).
    """

    delta: np.ndarray = field(repr=False)
    norm: float = field(repr=False)
    scores: Mapping[str, float | np.ndarray] = field(repr=False)


class LocalMethod(ABC):
    """One client: its graph and its training state. Created once, asked to train whenever it is in the cohort.

    Before the first round, and in each, clients may add up numbers of theirs on shares, as `MethodSettings.statistics`
    says. Before the first they may also prepare together, in as many steps as `preparations` says. In each step every
    client asks a question, all others answer it, and the asker hears the sum of the answers, made on shares.

    Attributes:
        graph: the client's own subgraph; its labels and masks suffice.
    """

    graph: Graph

    @abstractmethod
    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        """Args: graph: the client's own subgraph; client: its number, from which its seeds derive."""

    @abstractmethod
    def train(self, parameters: np.ndarray) -> LocalUpdate:
        """Train from the released global model (float64, shape (d,)), or from a model of the client's own.

        Where a model is made for each client alone, the global one stays what it was at the start.
        """

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        """What `train` of each of these distinct clients gives, up to rounding; a method may do it in one pass."""
        return [client.train(parameters) for client in clients]

    @classmethod
    def beside(cls, config: Config) -> np.ndarray:
        """What the released vector holds after the model's d numbers, at the start; float64, shape (m,), here none.

        Clients update these numbers as they do weights, by differences, which are aggregated, clipped and noised with
        the model; `train` takes and gives vectors of d + m.
        """
        return np.empty(0)

    def receive(self, parameters: np.ndarray) -> None:
        """Take the model that the round made for this client alone, float64 (d,)."""
        raise NotImplementedError(f"{type(self).__name__} makes no model for one client alone")

    @abstractmethod
    def logits(self, parameters: np.ndarray, own: bool) -> np.ndarray:
        """Logits of every class and node of `graph`, float32 (n, C).

        Args:
            parameters: the global model, float64 (d,).
            own: use the client's own model instead, as its last training or `receive` left it, if it has one.
        """

    def predict(self, parameters: np.ndarray, own: bool) -> np.ndarray:
        """The predicted class of every node of `graph`, int64 (n,); arguments as for `logits`."""
        return self.logits(parameters, own).argmax(axis=1)

    def model(self, parameters: np.ndarray) -> np.ndarray | None:
        """The model, float64 (d,), with which ``predict(parameters, own=True)`` predicts; None: it is no vector."""
        return None

    def evaluate(self, parameters: np.ndarray, own: bool) -> dict[str, Any]:
        """What the client says of a model on its own nodes; arguments as for `logits`.

        Returns:
            ``val`` and ``test``, the counts of a `GroupTable` of these nodes, int64 (G, C, C); ``val_auc`` and
            ``test_auc``, NaN where there is none; and the figures of `facts`.
        """
        logits, graph = self.logits(parameters, own), self.graph
        said: dict[str, Any] = {}
        for name, mask in (("val", graph.val), ("test", graph.test)):
            scores, labels = logits[mask], graph.labels[mask]
            groups = None if graph.sensitive is None else graph.sensitive[mask]
            said[name] = GroupTable.of(groups, labels, scores.argmax(axis=1), graph.classes).counts
            area = auc(scores, labels) if np.isfinite(scores).all() else None
            said[f"{name}_auc"] = np.nan if area is None else area
        return {**said, **self.facts()}

    def facts(self) -> Mapping[str, float]:
        """Further figures of the client's model, which are recorded as means over the clients."""
        return {}

    def statistic(self, name: str) -> np.ndarray:
        """This client's numbers for the secure sum of that name, float64 (m,); m as `SecureSum.length` says."""
        raise NotImplementedError(f"{type(self).__name__} has no numbers for the sum '{name}'")

    def hear_total(self, name: str, total: np.ndarray) -> None:
        """The sum of that name over all clients, or of a round over its cohort, float64 (m,), which everybody hears.

        A resumed run tells it again, before `load_state_dict`, in the order of the sums: it need not be in the state.
        """
        raise NotImplementedError(f"{type(self).__name__} does not listen to the sum '{name}'")

    @classmethod
    def preparations(cls, config: Config) -> int:
        """How many steps clients prepare together before the first round."""
        return 0

    def ask(self, step: int) -> Mapping[str, np.ndarray]:
        """The question of a step, from 0, to all other clients. Nothing else leaves the client."""
        raise NotImplementedError

    def answer(self, step: int, questions: Mapping[int, Mapping[str, np.ndarray]]) -> np.ndarray:
        """The answers to all clients' questions, one after the other and equally long, zeros to its own: float64 (m,).

        It goes into a secure sum, `MethodSettings.answers`, which says what m is.
        """
        raise NotImplementedError

    def hear(self, step: int, answer: np.ndarray | None) -> None:
        """The sum of all others' answers to the question of this step; None where no answers are added up."""
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that the next `train` depends on besides its argument: numbers, and arrays."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, in this or another process."""
