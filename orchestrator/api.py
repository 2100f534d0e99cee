"""Training from Python: the one function that trains, also for the command line, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from threadpoolctl import threadpool_limits

from orchestrator.config import Config, load_config
from orchestrator.coordinator.client_pool import warm_up
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, RunError
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.joined import join_clients
from orchestrator.registry import METHODS

if TYPE_CHECKING:  # torch takes long to import, and client processes are started meanwhile
    from torch import nn

    from orchestrator.coordinator.round_result import RoundResult
    from orchestrator.models import OwnModule
    from orchestrator.models.trained import TrainedModel

__all__ = ["Run", "train"]


@dataclass(frozen=True)
class Run:
    """What a run left in its folder, also one that is not finished.

    Attributes:
        folder: where everything lies.
        settings: the whole tree.
    """

    folder: Path
    settings: Config = field(repr=False)
    _own: OwnModule | None = field(default=None, repr=False)

    @classmethod
    def load(cls, folder: Path | str, model: Callable[[int, int], nn.Module] | None = None) -> Run:
        """A run on disk.

        Args:
            model: the module of a run that trained an own one, as it was given to `train`; its code is in no file.

        Raises:
            RunError: the folder holds no run.
        """
        opened, settings = RunFolder.open(Path(folder).expanduser())
        return cls(opened.path, settings, _own_module(model))

    @property
    def metrics(self) -> dict[str, Any]:
        """Those of the last round, a line of `metrics.jsonl`. Raises RunError where no round was completed."""
        if not (records := RunFolder(self.folder).records()):
            raise RunError(f"{self.folder}: no round was completed")
        return records[-1]

    def dataframe(self) -> pd.DataFrame:
        """A row a round: `metrics.csv`. Raises RunError where no round was completed."""
        self.metrics  # noqa: B018 - says what is wrong with the run
        return pd.read_csv(self.folder / "metrics.csv")

    @property
    def costs(self) -> dict[str, float]:
        """Medians over the rounds of what `costs.csv` holds."""
        return self.summary()["costs"]

    @property
    def privacy(self) -> dict[str, Any] | None:
        """What the run may claim for its clients; None where it may claim nothing. See `privacy_report`."""
        from orchestrator.reports.run import privacy_report

        return privacy_report(RunFolder(self.folder), self.settings)

    def summary(self) -> dict[str, Any]:
        """The JSON document of ``safegnn train``. Raises RunError where no round was completed."""
        from orchestrator.reports.run import no_epsilon, summarise_run

        return {
            **summarise_run(RunFolder(self.folder)),
            "privacy": self.privacy,
            "no_epsilon": no_epsilon(self.settings),
        }

    def figures(self) -> dict[str, Path]:
        """The pictures by name: "curves", "costs", and "similarity" where there is one.

        The first two are drawn where there are none or rounds were added since.

        Raises:
            RunError: no round was completed.
        """
        from orchestrator.reports.run import draw_run

        self.metrics  # noqa: B018 - says what is wrong with the run
        drawn = self.folder / "curves.png"
        if not drawn.exists() or drawn.stat().st_mtime < (self.folder / "metrics.jsonl").stat().st_mtime:
            names = self.settings.data.name, self.settings.method.name, f"{self.settings.engine.name} engine"
            draw_run(RunFolder(self.folder), ", ".join(names))
        return {path.stem: path for path in sorted(self.folder.glob("*.png"))}

    def report(self, path: Path | str | None = None, exact_metrics: bool = False) -> Path:
        """Write what the run says into one HTML file, and return where it is.

        Args:
            path: the file; None: `report.html` in the run's folder.
            exact_metrics: also show metrics that stand exact beside noise, which no epsilon covers.

        Raises:
            RunError: the file cannot be written.
        """
        from orchestrator.page import REPORT
        from orchestrator.page.build import write_report

        chosen = self.folder / REPORT if path is None else Path(path).expanduser()
        write_report([self.folder], chosen, exact_metrics=exact_metrics)
        return chosen

    @property
    def model(self) -> nn.Module | None:
        """The final global model, a module of ``(x, edge_index)`` that gives logits and is in evaluation mode.

        It takes features that are scaled; `predict` scales them. None where training has not ended, or every client has
        a model of its own.

        Raises:
            RunError: the file is damaged, or the network is an own one and was not given to `load`.
        """
        return self.trained().module() if RunFolder(self.folder).model().exists() else None

    def trained(self, client: int | None = None) -> TrainedModel:
        """The final model with all that its predictions need.

        Args:
            client: whose, from 0, where every client has a model of its own.

        Raises:
            RunError: training has not ended; there is one model for all, or one a client; the file is damaged; the
                network is an own one and was not given to `load`.
        """
        from orchestrator.models.trained import load_model

        personal, count = METHODS[self.settings.method.name].personal, self.settings.clients.count
        if client is None and personal:
            raise RunError(f"{self.folder}: every client has a model of its own; choose a client, 0 to {count - 1}")
        if client is not None and not personal:
            raise RunError(f"{self.folder}: there is one model for all clients; leave client {client} out")
        if client is not None and not 0 <= client < count:
            raise RunError(f"{self.folder}: there is no client {client}; expected 0 to {count - 1}")
        path = RunFolder(self.folder).model(client)
        if not path.exists():
            raise RunError(f"{path}: no such file; training has not ended, or left no model")
        return load_model(path, self._own)

    def predict(self, graph: Graph, client: int | None = None) -> pd.DataFrame:
        """Probabilities and classes of all nodes: `TrainedModel.predict` of what `trained` gives.

        Args:
            graph: with features as they came, or the one that was trained on.
            client: see `trained`.
        """
        return self.trained(client).predict(graph)


def train(
    graph: Graph | None = None,
    *,
    model: Callable[[int, int], nn.Module] | Mapping[str, Any] | None = None,
    clients: Sequence[Graph] | Mapping[str, Any] | None = None,
    settings: Config | None = None,
    presets: Sequence[str] = (),
    resume: Path | str | None = None,
    audit: bool = False,
    observe: Callable[[RoundResult], None] = lambda result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
    **sections: Any,
) -> Run:
    """Train one federated model and leave a run folder.

    Settings are those of `settings` or of `presets`, changed by `sections`, e.g. ``federation={"rounds": 50}, seed=7``.

    Args:
        graph: the whole, to be cut into clients as ``clients.partition`` says; None: what the settings name.
        model: a class or function of ``(in_features, out_features)`` that makes a torch module whose
            ``forward(x, edge_index)`` gives logits of shape (n, classes), or (n,) of two classes; or a section of
            settings, as any other.
        clients: every client's own graph; or a section of settings, as any other.
        resume: the folder of a run to continue, with its own settings, of which `federation.rounds` alone can be set,
            to extend it. What was given as `graph`, `clients` and `model` is not in it and has to be given again.
        audit: also compute each aggregation in float64 from the clients' plaintext; simulation only.
        observe: called after every round.
        announce: called with what goes on before the first round, where that takes time.
        started: called with the folder once there is one.

    Raises:
        SafeGNNError: with one line. Settings, data and modules at fault leave no folder behind.
    """
    parts, own = None, None
    if isinstance(clients, Mapping):
        sections["clients"] = clients
    elif clients is not None:
        parts = list(clients)
    if isinstance(model, Mapping):
        sections["model"] = model
    else:
        own = model
    if parts is not None:
        if graph is not None:
            raise ConfigError("graph: it is cut into clients; leave it out where clients bring graphs of their own")
        graph = join_clients(parts)
    with ExitStack() as held:
        if resume is None:
            folder = None
            settings = _settings(settings, presets, sections, graph, parts, own is not None)
        else:
            folder, kept = RunFolder.open(Path(resume).expanduser())
            held.enter_context(folder.lock)
            folder.check_settings(kept)
            _check_resumed(kept, graph, parts, own is not None)
            settings = _extended(kept, settings, presets, sections)
        warm_up()
        from orchestrator.experiments.run import check
        from orchestrator.experiments.run import run as run_rounds
        from orchestrator.models import own_network

        module = _own_module(own)
        held.enter_context(own_network(module))
        # The round loop takes one thread, for good; a notebook that trains wants its own back.
        held.enter_context(threadpool_limits(None))
        engine, whole = check(settings, graph, parts)
        folder = folder or RunFolder.create(settings)
        held.enter_context(folder.lock)
        started(folder.path)
        run_rounds(
            settings,
            folder,
            resume=resume is not None,
            audit=audit,
            observe=observe,
            announce=announce,
            graph=whole,
            clients=parts,
            engine=engine,
        )
        run = Run(folder.path, settings, module)
        run.figures()
        run.report()
        return run


def _settings(
    settings: Config | None,
    presets: Sequence[str],
    sections: dict[str, Any],
    graph: Graph | None,
    parts: Sequence[Graph] | None,
    own_model: bool,
) -> Config:
    """The settings of a new run, which say what is brought and not named by them."""
    if settings is not None and presets:
        raise ConfigError("presets: they are layers below settings, load_config(presets); give one of the two")
    if graph is not None:
        if "data" in sections:
            raise ConfigError("data: these settings are for graphs that are read; an own one is ready to train on")
        sections["data"] = {"name": "own"}
    if parts is not None:
        sections["clients"] = {"partition": "own", "count": len(parts)}
    if own_model:
        sections["model"] = {"name": "own"}
    if settings is None:
        settings = load_config([presets] if isinstance(presets, str) else presets)
    return settings.changed(**sections)


def _check_resumed(settings: Config, graph: Graph | None, parts: Sequence[Graph] | None, own_model: bool) -> None:
    """Raises ConfigError where something is missing that the run was given, or given that it was not."""
    own_clients = settings.clients.partition == "own"
    for argument, is_given, is_own in (
        ("graph", graph is not None and parts is None, settings.data.name == "own" and not own_clients),
        ("clients", parts is not None, own_clients),
        ("model", own_model, settings.model.name == "own"),
    ):
        if is_given != is_own:
            cure = "give it again" if is_own else "leave it out"
            raise ConfigError(f"resume: the run {'had' if is_own else 'had not'} {argument} given in Python; {cure}")


def _extended(kept: Config, wanted: Config | None, presets: Sequence[str], sections: dict[str, Any]) -> Config:
    """A run's settings with as many rounds as are wanted now. Raises ConfigError where anything else would change."""
    wanted = (wanted or kept).changed(**sections)
    extended = kept.changed(federation={"rounds": wanted.federation.rounds})
    if presets or wanted != extended:
        raise ConfigError(
            "resume: the run continues with its own settings; leave others out, but for federation.rounds, to extend it"
        )
    return extended


def _own_module(model: Callable[[int, int], nn.Module] | None) -> OwnModule | None:
    if model is None:
        return None
    from orchestrator.models import OwnModule

    return OwnModule(model)
