"""What a run is of: its settings, and fingerprints of its data, its clients and its network.

They stand in the run folder from before the first round on. A run goes on with the same only; what may change without
changing what the run means is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.config import Config, validated
from orchestrator.errors import ConfigError, RunError

if TYPE_CHECKING:  # pandas and torch take long to import
    from orchestrator.graphs.graph import Graph
    from orchestrator.models import Network

__all__ = ["Inputs", "changes", "check_settings"]

_FREE = (
    "federation.rounds",
    "data.",  # how the graph is read; what it is has a fingerprint
    "run.",
    "engine.client_processes",
    "engine.ports",
    "engine.certificates",
    "engine.mpspdz_home",
    "engine.startup_timeout_sec",
    "engine.timeout_sec",
    "engine.training_timeout_sec",
)
_SHOWN = 3


@dataclass(frozen=True)
class Inputs:
    """What has to stay the same.

    Attributes:
        settings: the tree, of plain values.
        graph: SHA-256 of each of the graph's arrays by name.
        clients: SHA-256 of who holds which node or, where clients brought graphs, of these.
        network: the parameters' shapes by name, and an own module as torch prints it. What its `forward` does with its
            layers is in neither.
    """

    settings: Mapping[str, Any] = field(repr=False)
    graph: Mapping[str, str] = field(repr=False)
    clients: str = field(repr=False)
    network: Mapping[str, Any]

    @classmethod
    def of(cls, config: Config, graph: Graph, clients: Sequence[Graph], network: Network) -> Inputs:
        """Of a run that is about to begin or to go on. O(the graph's size)."""
        from orchestrator.graphs.partition import Subgraphs

        if isinstance(clients, Subgraphs):
            held = _digest(*(clients.nodes(client) for client in range(len(clients))))
        else:
            held = hashlib.sha256("".join(d for own in clients for d in _arrays(own).values()).encode()).hexdigest()
        made: dict[str, Any] = {"shapes": {name: list(shape) for name, shape in network.shapes.items()}}
        if config.model.name == "own":
            made["module"] = str(network.module(network.initial_parameters(0)))
        return cls(config.absolute().model_dump(mode="json"), _arrays(graph), held, made)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self, before: Mapping[str, Any]) -> list[str]:
        """Compare with what the run began with, as `as_dict` gave it; returns what differs and may.

        Raises:
            RunError: saying in one line what differs and may not.
        """
        told = check_settings(self.settings, before.get("settings"))
        stored = before.get("graph")
        if not isinstance(stored, Mapping):
            raise RunError("inputs.json is damaged: it does not say which graph the run is of")
        if differing := [name for name in {**stored, **self.graph} if stored.get(name) != self.graph.get(name)]:
            how = f"; settings that changed: {_listed(told)}" if told else ""
            raise RunError(f"the graph is another one than the run began with: {', '.join(differing)} differ{how}")
        if before.get("network") != self.network:
            raise RunError("the network is another one than the run began with; give the same module again")
        if before.get("clients") != self.clients:
            raise RunError(
                "the clients hold other nodes than when the run began; where they are cut by the settings, another "
                "version of a library cuts them"
            )
        return told


def check_settings(after: Mapping[str, Any], before: Any) -> list[str]:
    """Compare two trees of plain values; returns what differs and may. Raises RunError for what may not."""
    found = [change for change in changes(after, before) if not change.startswith("run.dir ")]  # where it was made
    if refused := [change for change in found if not change.startswith(_FREE)]:
        raise RunError(
            f"settings are not those that it began with: {_listed(refused)}; restore config.yaml, or begin a new run"
        )
    return found


def changes(after: Mapping[str, Any], before: Any) -> list[str]:
    """Settings in which two trees differ, as "federation.cohort = 4, was 3". What an older version did not know had
    its default.

    Raises:
        RunError: the older tree is none.
    """
    try:
        known = dict(_leaves(validated(before).model_dump(mode="json")))
    except (ConfigError, TypeError, AttributeError) as error:
        raise RunError(f"the settings that the run began with cannot be read: {error}") from None
    now, missing = dict(_leaves(after)), object()
    names = [name for name in {**known, **now} if known.get(name, missing) != now.get(name, missing)]
    return [f"{name} = {_shown(now, name)}, was {_shown(known, name)}" for name in names]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _shown(tree: Mapping[str, Any], name: str) -> str:
    return str(tree[name]) if name in tree else "not set"


def _listed(found: Sequence[str]) -> str:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _arrays(graph: Graph) -> dict[str, str]:
    """A digest of each array of a graph, and of the numbers beside them."""
    values = {each.name: getattr(graph, each.name) for each in fields(graph)}
    arrays = {name: value for name, value in values.items() if value is None or isinstance(value, np.ndarray)}
    digests = {name: "none" if value is None else _digest(value) for name, value in arrays.items()}
    return {**digests, "classes": str(graph.classes)}


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
