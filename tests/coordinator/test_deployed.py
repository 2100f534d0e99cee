"""A whole run between organisations: sites with files of their own, two services, and the round loop of simulations."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from orchestrator.coordinator.deployed import Deployed
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, ConsentError
from orchestrator.graphs.joined import join_clients
from orchestrator.models.trained import load_model
from tests.aggregator.services import Threads, free_ports
from tests.site.hospitals import NAMES, NOISE, Beside, make_hospitals, settings

pytestmark = pytest.mark.usefixtures("one_thread")

BOUND = 2.0**-20
"""On what fixed point and three rounds of training from models that differ by it put a model off by."""

SUMMED = ("evaluation={where: clients, tables: summed}",)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """Three hospitals and both services, which allow everything."""
    ports, folder = free_ports(4), tmp_path_factory.mktemp("deployed")
    hospitals = make_hospitals(folder, ports[:2])
    keys = [hospitals.keys[name] for name in ("uni-x", "uni-y")]
    with closing(Threads(hospitals.roster, keys, folder, ports[2:])) as services:
        yield hospitals, services


def deployed(consortium, config, tmp_path, policy=""):
    """The run folder, the model, and what was said."""
    hospitals, _ = consortium
    allowed = policy or '{"exact_metrics": true}'
    workers = Beside({name: hospitals.worker(tmp_path, name, allowed) for name in NAMES})
    config = config.changed(run={"dir": tmp_path / "runs"})
    folder, said, results = RunFolder.create(config), [], []
    population = Deployed(config, hospitals.roster, hospitals.keys["hub"], workers)
    model = train(config, folder, population=population, announce=said.append, observe=results.append)
    return folder, model, said, results


def simulated(consortium, config, tmp_path):
    """What `safegnn train` makes of the same graphs, in the clear."""
    graphs, results = consortium[0].graphs, []
    config = config.changed(engine={"name": "plaintext"}, run={"dir": tmp_path / "runs"})
    folder = RunFolder.create(config)
    return train(config, folder, graph=join_clients(graphs), clients=graphs, observe=results.append), results


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("method={name: fedavg, local_epochs: 2, learning_rate: 1e-2}", *SUMMED),
        ("method={name: fairdual, local_epochs: 2, learning_rate: 1e-2}", *SUMMED),
    ],
    ids=["f2gnn", "fedavg", "fairdual"],
)
def test_the_model_is_that_of_the_simulation_on_the_same_graphs(consortium, tmp_path, overrides):
    config = settings(*overrides)
    folder, model, _, results = deployed(consortium, config, tmp_path)
    expected, theirs = simulated(consortium, config, tmp_path)
    assert np.abs(model - expected).max() < BOUND
    assert not any(result.left_out for result in results)
    if overrides:
        for ours, other in zip(results, theirs, strict=True):
            assert ours.evaluations["val"].metrics == other.evaluations["val"].metrics
    network = load_model(folder.model())
    assert np.array_equal(network.parameters, model[: len(network.parameters)])


def test_with_noise_a_run_is_accounted_for_and_services_added_it(consortium, tmp_path):
    config = settings(*NOISE, "federation.rounds=2")
    folder, model, _, results = deployed(consortium, config, tmp_path)
    assert results[-1].epsilon is not None
    assert np.std(model) > 0.1  # noise of sigma 1 on a model of values near 0.1
    assert "checkpoint" in {path.name for path in folder.path.iterdir()}


def test_a_run_goes_on_where_it_stood(consortium, tmp_path):
    """Sites keep their states, the coordinator its checkpoint; sessions are new ones."""
    hospitals, _ = consortium
    config = settings("federation.rounds=3").changed(run={"dir": tmp_path / "runs"})
    workers = {name: hospitals.worker(tmp_path, name) for name in NAMES}
    folder = RunFolder.create(config)

    class Stop(Exception):
        pass

    def stop(result):
        if result.round == 2:
            raise Stop

    population = Deployed(config, hospitals.roster, hospitals.keys["hub"], Beside(dict(workers)))
    with pytest.raises(Stop):
        train(config, folder, population=population, observe=stop)
    again = Deployed(config, hospitals.roster, hospitals.keys["hub"], Beside(dict(workers)))
    model = train(config, folder, population=again, resume=True)
    expected, _ = simulated(consortium, config, tmp_path)
    assert np.abs(model - expected).max() < BOUND


def test_a_site_that_refuses_is_told_of_and_the_others_go_on(consortium, tmp_path):
    hospitals, _ = consortium
    config = settings("federation={rounds: 1, cohort: 3, min_cohort: 2}").changed(run={"dir": tmp_path / "runs"})
    workers = {name: hospitals.worker(tmp_path, name) for name in NAMES[:2]}
    workers[NAMES[2]] = hospitals.worker(tmp_path, NAMES[2], '{"noise_multiplier": 1.0}')
    population = Deployed(config, hospitals.roster, hospitals.keys["hub"], Beside(workers))
    said, results = [], []
    train(config, RunFolder.create(config), population=population, announce=said.append, observe=results.append)
    assert any("clinic-c refuses: needs noise_multiplier >= 1, the run says 0" in line for line in said)
    assert set(results[0].left_out) == {results[0].cohort.index(2)}


def test_what_does_not_fit_sites_is_refused_before_there_is_a_round(consortium, tmp_path):
    hospitals, _ = consortium
    workers = Beside({name: hospitals.worker(tmp_path, name) for name in NAMES})
    for overrides, text in (
        (("evaluation.where=whole_graph",), "evaluation.where = whole_graph"),
        (("clients.count=4",), "clients.count = 4, and the roster trial has 3 sites"),
        (("engine.name=plaintext",), "engine.name = plaintext"),
    ):
        with pytest.raises(ConfigError, match=text):
            Deployed(settings(*overrides), hospitals.roster, hospitals.keys["hub"], workers)


def test_services_that_refuse_end_the_run_in_one_line(tmp_path, tmp_path_factory):
    ports, folder = free_ports(4), tmp_path_factory.mktemp("strict")
    hospitals = make_hospitals(folder, ports[:2])
    keys = [hospitals.keys[name] for name in ("uni-x", "uni-y")]
    with closing(Threads(hospitals.roster, keys, folder, ports[2:], largest_epsilon=1.0)) as services:
        config = settings(*NOISE)
        with pytest.raises(ConsentError, match=r"^aggregator uni-x refuses: needs largest_epsilon <= 1, the run comes"):
            deployed((hospitals, services), config, tmp_path)
