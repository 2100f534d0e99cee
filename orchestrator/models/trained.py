"""A trained model with all that a prediction needs: network, parameters, scaling, and what everything is called.

It is one file of plain data: a file from elsewhere cannot run code. Of anybody's data it holds what was fitted to scale
them: with ``data.scaling: pooled`` the moments over all nodes, in a client's own model those over that client's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError, DataError, RunError
from orchestrator.files import write_atomically
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.meaning import UNKNOWN, Meaning
from orchestrator.graphs.scaling import AS_GIVEN, POLICIES, Scaling
from orchestrator.models import OwnModule, create_network, own_network
from orchestrator.models.network import Network

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMAT", "TrainedModel", "load_model"]

FORMAT = 1
"""Version of the file's layout."""

_NAMED = ("features", "labels", "groups")
_LISTED = 5
_NO_MODEL = (
    OSError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ConfigError,  # a network that cannot do with so many classes
)


@dataclass(frozen=True)
class TrainedModel:
    """What training leaves, ready to predict.

    Attributes:
        network, parameters: the architecture and its vector, float64 (d,).
        scaling: what was fitted for the model; ``by_client`` that was not is fitted to the nodes that are predicted.
        meaning: what features, as they came, classes and groups are called.
    """

    network: Network
    parameters: np.ndarray = field(repr=False)
    scaling: Scaling = field(default=AS_GIVEN, repr=False)
    meaning: Meaning = UNKNOWN

    def save(self, path: Path) -> None:
        """Write it, whole or not at all, such that `load_model` needs nothing else but an own module.

        Raises:
            RunError: it cannot be written.
        """
        content = {
            "format": FORMAT,
            "num_features": self.network.num_features,
            "classes": self.network.classes,
            "model": self.network.config.model_dump(),
            "parameters": torch.tensor(self.parameters, dtype=torch.float64),
            "scaling": {name.name: _tensor(getattr(self.scaling, name.name)) for name in fields(Scaling)},
            "meaning": {name: getattr(self.meaning, name) for name in _NAMED},
        }
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path.parent}: cannot be created: {error.strerror or error}") from error
        write_atomically(path, lambda file: torch.save(content, file))

    def module(self) -> nn.Module:
        """A module of ``(x, edge_index)`` that gives logits, in evaluation mode; x is scaled already."""
        return self.network.module(self.parameters).eval()

    def predict(self, graph: Graph) -> pd.DataFrame:
        """The probability of every class, and the predicted class, of every node; masks and labels do not count.

        Features are as they came, unscaled, and found by their names, in whatever order, where graph and model have
        names. A graph that was scaled for training, as the model's own, is taken as it is.

        Returns:
            A row a node; columns ``probability_<class>`` in the order of the classes, float32, and ``predicted``.

        Raises:
            DataError: the features are not those that the model was trained on, or are scaled otherwise.
        """
        import pandas as pd

        names = self._classes
        with torch.no_grad():
            models = torch.tensor(self.parameters, dtype=torch.float32)[None]
            logits = self.network.logits(models, self.network.tensors(self._scaled(graph)))
        probabilities = _probabilities(logits).numpy()
        frame = pd.DataFrame(probabilities, columns=[f"probability_{name}" for name in names])
        return frame.assign(predicted=np.array(names, object)[self.network.predictions(logits)])

    @property
    def _classes(self) -> tuple[str, ...]:
        """Their names, or numbers where they have none."""
        count = self.network.classes
        return self.meaning.labels if len(self.meaning.labels) == count else tuple(map(str, range(count)))

    def _scaled(self, graph: Graph) -> Graph:
        if graph.scaling.policy != "none" and graph.scaling.applied:
            by_holder = graph.scaling.policy == self.scaling.policy == "by_client"
            if (graph.scaling != self.scaling and not by_holder) or self.reordered(graph):
                raise DataError(
                    f"{graph.name}: features are scaled already ({graph.scaling.policy}), and not as the model's "
                    f"({self.scaling.policy}); give them as they came, scaling='none'"
                )
            self._check_count(graph, self.network.num_features)
            return graph
        features = graph.features[:, self._columns(graph)]
        raw = replace(graph, features=features, scaling=self.scaling)
        if self.scaling.applied:
            return replace(raw, features=self.scaling.apply(features, graph.name))
        if graph.num_nodes < 2:
            raise DataError(
                f"{graph.name}: one node; the model's features are scaled over the nodes that are there, expected two "
                "or more"
            )
        return raw.scaled_to_predict()

    def _check_count(self, graph: Graph, expected: int) -> None:
        if graph.num_features != expected:
            raise DataError(f"{graph.name}: {graph.num_features} features; the model was trained on {expected}")

    def _columns(self, graph: Graph) -> Sequence[int] | slice:
        """Where the model's features stand among the graph's."""
        expected, given = self.meaning.features, graph.meaning.features
        if expected and given:
            missing = [name for name in expected if name not in given]
            extra = [name for name in given if name not in expected]
            if missing or extra:
                faults = [f"{what} {_listed(which)}" for what, which in (("lack", missing), ("have", extra)) if which]
                cure = "expected those that the model was trained on" + ("; drop the others" if extra else "")
                raise DataError(f"{graph.name}: features {' and '.join(faults)}; {cure}")
            return [given.index(name) for name in expected]
        self._check_count(graph, self.network.num_features if self.scaling.mean is None else len(self.scaling.mean))
        return slice(None)

    def reordered(self, graph: Graph) -> bool:
        """Whether the graph has the model's features in another order."""
        return bool(self.meaning.features) and graph.meaning.features not in ((), self.meaning.features)


def load_model(path: Path | str, model: Callable[[int, int], nn.Module] | OwnModule | None = None) -> TrainedModel:
    """The model that training left in a file.

    Args:
        model: the module of a run that trained an own one, as it was given to `train`; its code is in no file.

    Raises:
        RunError: the file cannot be read, holds no such model, or one of another version; its network is an own one and
            was not given.
        ConfigError: what was given is no module of that kind.
    """
    path = Path(path)
    own = model if model is None or isinstance(model, OwnModule) else OwnModule(model)
    try:
        content = torch.load(path, weights_only=True)
        version, name = content.get("format"), content["model"]["name"]
    except _NO_MODEL as error:
        raise RunError(f"{path}: not a model of this program: {type(error).__name__}") from error
    if version != FORMAT:
        raise RunError(f"{path}: a model of format {version}, which this version does not read; expected {FORMAT}")
    if name == "own" and own is None:
        raise RunError(
            f"{path}: its network is an own one; give it, Run.load(folder, model=...) or load_model(path, model)"
        )
    try:
        with own_network(own):
            network = create_network(content["num_features"], content["classes"], ModelConfig(**content["model"]))
        parameters = np.asarray(content["parameters"], dtype=np.float64)
        if parameters.shape != (network.size,):
            raise ValueError("the vector has another length")
        return TrainedModel(network, parameters, _scaling(content["scaling"], network), _meaning(content["meaning"]))
    except _NO_MODEL as error:
        raise RunError(f"{path}: not a model of this program: {type(error).__name__}") from error


def _scaling(stored: dict[str, Any], network: Network) -> Scaling:
    """Raises ValueError, or what its arrays raise, for one that cannot be applied."""
    policy, mean, deviation = stored["policy"], _array(stored["mean"]), _array(stored["deviation"])
    scaling = Scaling(policy, mean, deviation, bool(stored["applied"]))
    if scaling.policy not in POLICIES:
        raise ValueError("no such scaling")
    if scaling.policy in ("pooled", "by_client") and scaling.applied:
        tried = scaling.apply(np.zeros((1, len(stored["mean"])), np.float32), "")
        if tried.shape[1] != network.num_features:
            raise ValueError("the scaling is of other features")
    return scaling


def _meaning(stored: dict[str, Any]) -> Meaning:
    features, labels, groups = (tuple(map(str, stored[name])) for name in _NAMED)
    return Meaning(features, labels, groups)


def _array(value: Any) -> np.ndarray | None:
    return None if value is None else np.asarray(value, np.float64)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _probabilities(logits: Tensor) -> Tensor:
    """Of each class, float32, shape (n, C); one logit is that of class 1 of two."""
    if logits.ndim == 1:
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=1)
    return torch.softmax(logits, dim=1)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more
