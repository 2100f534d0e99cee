"""One run, as the command line and every experiment do it: checked, trained, with all that its settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.config import Config
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.population import Population
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.experiments.memory import check_graph, check_model
from orchestrator.graphs import client_facts, client_graphs, graph_facts, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.models import create_network
from orchestrator.reports.similarity import draw_similarity
from orchestrator.reports.tensorboard import tensorboard_observer

__all__ = ["check", "run"]

_MOST_CLIENTS = 1000
"""Of more it is not said what each holds: nobody reads it, and every one of them would be cut out once more."""


def check(config: Config, graph: Graph | None = None, clients: Sequence[Graph] | None = None) -> tuple[Engine, Graph]:
    """The engine and the graph of a run. Settings, data, modules at fault are refused here, before there is a folder.

    Args:
        graph, clients: instead of what the configuration names, for callers that have them already.

    Raises:
        ConfigError: the settings do not fit each other, or what the engine needs is not there.
        DataError: the data set is missing, damaged, or cannot be cut into the clients.
    """
    engine = create_engine(config)
    if graph is None:
        check_graph(config)
        graph = load_graph(config.data, config.seed)
    features, classes = graph.num_features, graph.classes

    def size(hidden: int) -> int:
        return create_network(features, classes, config.model.model_copy(update={"hidden": hidden})).size

    check_model(config, size)
    if clients is None:
        client_graphs(graph, config.clients, config.seed)
    return engine, graph


def run(
    config: Config,
    folder: RunFolder,
    *,
    graph: Graph,
    clients: Sequence[Graph] | None = None,
    engine: Engine | None = None,
    resume: bool = False,
    audit: bool = False,
    observe: Callable[[RoundResult], None] = lambda result: None,
    announce: Callable[[str], None] = lambda text: None,
    population: Population | None = None,
) -> None:
    """Train as `orchestrator.coordinator.training.train` does, whose arguments these are.

    TensorBoard logs are written where the settings ask for them, and the picture of the clients' similarities is drawn
    where the run knows them.
    """
    said = graph_facts(graph)
    folder.save_data(said)
    if config.privacy.noise_multiplier == 0 and config.clients.count <= _MOST_CLIENTS:
        parts = clients or client_graphs(graph, config.clients, config.seed)
        folder.save_clients(client_facts(parts, config.clients.balance_self_loops))
    for line in (*([named] if (named := said["meaning"]) else []), *said["notes"]):
        announce(line)
    log = tensorboard_observer(folder) if config.run.tensorboard else None

    def watch(result: RoundResult) -> None:
        if log is not None:
            log(result)
        observe(result)

    train(
        config,
        folder,
        resume=resume,
        audit=audit,
        observe=watch,
        announce=announce,
        graph=graph,
        clients=clients,
        engine=engine,
        population=population,
    )
    draw_similarity(folder, graph, config, clients)
