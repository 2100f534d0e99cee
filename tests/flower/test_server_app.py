"""A whole run over Flower: the round loop, two services, three hospitals' workers behind nodes."""

from __future__ import annotations

from contextlib import ExitStack, closing

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs safegnn[flower]")

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.flower.app_folder import write_app
from orchestrator.flower.server_app import coordinate
from orchestrator.graphs.joined import join_clients
from tests.aggregator.services import Threads, free_ports
from tests.flower.federation import Federation, worker
from tests.flower.grid import FakePost, Node
from tests.site.hospitals import NAMES, make_hospitals, settings

pytestmark = pytest.mark.usefixtures("one_thread")

BOUND = 2.0**-20
"""As in the test of deployed runs without Flower."""


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    ports, folder = free_ports(4), tmp_path_factory.mktemp("consortium")
    made = make_hospitals(folder, ports[:2])
    keys = [made.keys[name] for name in ("uni-x", "uni-y")]
    with closing(Threads(made.roster, keys, folder, ports[2:])):
        yield made


@pytest.fixture
def config(tmp_path):
    return settings("federation.rounds=2").changed(run={"dir": tmp_path / "runs"})


@pytest.fixture
def told(hospitals, config, tmp_path):
    """What a run is told."""
    (tmp_path / "run.yaml").write_text(config.to_yaml())
    return {"coordinator": str(own_file(hospitals, "hub", tmp_path)), "config": str(tmp_path / "run.yaml")}


def own_file(hospitals, name, folder):
    path = folder / f"{name}.yaml"
    path.write_text(f"identity: {hospitals.folder / 'keys' / name}\nroster: {hospitals.folder / 'consortium.yaml'}\n")
    return path


def expected(hospitals, config):
    """The model of `safegnn train` on the same graphs, in the clear."""
    config = config.changed(engine={"name": "plaintext"})
    graphs = hospitals.graphs
    return train(config, RunFolder.create(config, "simulated"), graph=join_clients(graphs), clients=graphs)


def nodes(hospitals, tmp_path, names=NAMES):
    """A node a site, of a network of the test's own."""
    return {k: Node(name, hospitals.worker(tmp_path, name).reply, delay_sec=0.0) for k, name in enumerate(names, 70)}


def test_the_model_is_that_of_the_simulation_on_the_same_graphs(hospitals, config, told, tmp_path):
    folder = coordinate(told, FakePost(nodes(hospitals, tmp_path)))

    model = RunFolder.open(folder)[0].load().parameters
    assert np.abs(model - expected(hospitals, config)).max() < BOUND


def test_a_run_goes_on_over_other_nodes(hospitals, config, told, tmp_path, capsys):
    workers = nodes(hospitals, tmp_path)
    folder = coordinate({**told, "rounds": 1}, FakePost(workers))
    renumbered = {number + 100: node for number, node in workers.items()}

    again = {"coordinator": told["coordinator"], "resume": str(folder), "rounds": 2}
    assert coordinate(again, FakePost(renumbered)) == folder

    model = RunFolder.open(folder)[0].load().parameters
    assert np.abs(model - expected(hospitals, config)).max() < BOUND
    assert "round 2 of 2: 3 sites" in capsys.readouterr().out


def test_a_site_without_a_node_is_told_of_and_the_others_go_on(hospitals, told, tmp_path, capsys):
    few = "federation.rounds=1 federation.min_cohort=2 engine.startup_timeout_sec=3"

    coordinate({**told, "set": few}, FakePost(nodes(hospitals, tmp_path, NAMES[:2])))

    said = capsys.readouterr().out
    assert "site clinic-c: no SuperNode says that it is this site; going on without" in said
    assert "round 1 of 1: 2 sites" in said


def test_only_the_rosters_coordinator_runs(hospitals, told, tmp_path):
    post = FakePost({})
    with pytest.raises(ConfigError, match=r"run-config coordinator: give the path"):
        coordinate({**told, "coordinator": ""}, post)
    with pytest.raises(ConfigError, match="clinic-a is site clinic-a in trial; expected the coordinator"):
        coordinate({**told, "coordinator": str(own_file(hospitals, "clinic-a", tmp_path))}, post)


@pytest.mark.timeout(600)
def test_flower_run_trains_with_sites_behind_supernodes(hospitals, config, told, tmp_path):
    """Everything but the sites' workers and the aggregators is a process of its own."""
    write_app(tmp_path / "app")
    with ExitStack() as held:
        federation = held.enter_context(Federation(tmp_path / "f"))
        federation.start_link()
        for name in NAMES:
            held.enter_context(worker(federation.socket(name), hospitals.worker(tmp_path, name).reply))
            federation.register(name)
            federation.start_node(name, resident=True)
        run_config = " ".join(f"{key}='{value}'" for key, value in {**told, "folder": "over-flower"}.items())

        printed = federation.run(tmp_path / "app", run_config, timeout_sec=500)

    assert "round 2 of 2: 3 sites" in printed
    model = RunFolder.open(config.run.dir / "over-flower")[0].load().parameters
    assert np.abs(model - expected(hospitals, config)).max() < BOUND
