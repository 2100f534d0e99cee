"""A method in one file and one line: the example of docs/methods.md, registered here and run end to end."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import softmax

from mpc_programs import arithmetic, rules
from orchestrator import registry
from orchestrator.config import Config, load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.experiments.methods import compare_methods
from orchestrator.methods import create
from orchestrator.methods.base import LocalUpdate
from orchestrator.models import create_network
from orchestrator.models.trained import load_model
from orchestrator.registry import Method
from orchestrator.reports.run import draw_run, summarise_run
from tests.class_graphs import PygGCN, class_graph
from tests.support import compute, share
from tests.training_runs import Crash, CrashingFolder, run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ENTRY = Method("tests.examples.nearby:Nearby", "tests.examples.nearby:NearbySettings", "fedavg")
GRAPH = class_graph(120, edges=300)
NEARBY = ("method.name=nearby", "model.name=gcn-classifier", "evaluation.where=clients", "clients.partition=disjoint")

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(autouse=True)
def one_line(monkeypatch):
    monkeypatch.setitem(registry.METHODS, "nearby", ENTRY)


def config(**method) -> Config:
    return Config(
        model={"name": "gcn-classifier", "hidden": 6, "dropout": 0.0},
        method={"name": "nearby", "local_epochs": 4, "learning_rate": 1e-2, "weight_decay": 0.0} | method,
        evaluation={"where": "clients"},
    )


def start(graph, own):
    vector = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    return vector.astype(np.float32).astype(np.float64)


# The page


def test_the_page_shows_the_file():
    assert BLOCKS[0] == (ROOT / "tests" / "examples" / "nearby.py").read_text(encoding="utf-8")


def test_the_pages_sum_is_the_one_that_is_tested():
    assert BLOCKS[2] in (ROOT / "tests" / "examples" / "counting.py").read_text(encoding="utf-8")


def test_the_pages_line_is_the_entry_in_the_package():
    named = eval(f"{{{BLOCKS[1].strip()}}}", {"Method": Method})["nearby"]
    moved = (place.replace("tests.examples", "orchestrator.methods") for place in (ENTRY.client, ENTRY.settings))
    assert named == Method(*moved, ENTRY.rule)


def test_what_the_page_names_exists():
    for name in set(re.findall(r"`((?:coordinator|mpc_programs|tests|docs)/[\w/.]+)`", PAGE)):
        assert (ROOT / name).exists() or name == "orchestrator/methods/nearby.py", name
    described = re.findall(r"`(\w+)\(", PAGE[: PAGE.index("## An example")])
    for name in (*described, "statistic", "hear_total", "preparations", "ask", "answer", "hear"):
        assert hasattr(create(GRAPH, config(), 0), name), name


def test_the_pages_rule_gives_the_same_weights_in_float64_and_on_shares(monkeypatch):
    added = {}
    exec(BLOCKS[3], {"softmax": arithmetic.softmax, "Range": rules.Range, "Rule": rules.Rule, "RULES": added})
    [(name, rule)] = added.items()
    monkeypatch.setitem(rules.RULES, name, rule)
    parameters = rules.RoundParameters(name, 4)
    scores = np.array([0.1, 2.0, 0.7, 1.3])
    expected = softmax(scores)
    deltas = np.eye(4)
    uploads = [LocalUpdate(delta, 1.0, {"fairness": score}) for delta, score in zip(deltas, scores, strict=True)]
    np.testing.assert_allclose(float64_aggregate(np.zeros(4), parameters, None, uploads), -expected, atol=1e-9)

    async def weights(ops, fairness):
        return await rule.weights(ops, parameters, {"fairness": fairness})

    on_shares, _ = compute(weights, share(scores))
    np.testing.assert_allclose(on_shares, expected, atol=1e-7)


# The client


@pytest.mark.parametrize("radius", [0.01, 0.15, 100.0])
def test_training_is_that_of_the_formula(radius):
    own = config(radius=radius)
    released = start(GRAPH, own)
    found = released - create(GRAPH, own, 0).train(released).delta
    net = create_network(GRAPH.num_features, GRAPH.classes, own.model)
    anchor = torch.tensor(released, dtype=torch.float32)
    w, nodes = anchor.clone().requires_grad_(), torch.from_numpy(np.flatnonzero(GRAPH.train))
    labels = torch.from_numpy(GRAPH.labels.astype(np.int64))
    adam = torch.optim.Adam([w], lr=1e-2)
    for _ in range(4):
        adam.zero_grad()
        F.cross_entropy(PygGCN(net).logits(w, GRAPH)[nodes], labels[nodes]).backward()
        adam.step()
        with torch.no_grad():
            w.copy_(anchor + (w - anchor) * min(1.0, radius / float((w - anchor).norm())))
    np.testing.assert_allclose(found, w.detach().numpy(), atol=2e-5)


def test_no_update_is_longer_than_the_radius_and_a_huge_one_is_fedavg():
    def moved(**method):
        own = config(local_epochs=60, **method)
        return create(GRAPH, own, 0).train(start(GRAPH, own))

    np.testing.assert_array_equal(moved(radius=1e6).delta, moved(name="fedavg").delta)
    for radius in (0.01, 0.5):
        assert moved(radius=radius).norm == pytest.approx(radius, rel=1e-3)


def test_clients_in_a_batch_have_a_ball_each():
    own, graphs = config(radius=0.1), [class_graph(seed=k) for k in (1, 2)]
    released = start(graphs[0], own)
    together = [create(graph, own, c) for c, graph in enumerate(graphs)]
    for c, update in enumerate(type(together[0]).train_together(together, released)):
        np.testing.assert_allclose(update.delta, create(graphs[c], own, c).train(released).delta, atol=1e-6)


# End to end


def test_it_is_known_by_the_line_alone(monkeypatch):
    assert load_config(overrides=["method.name=nearby"]).method.name == "nearby"
    monkeypatch.delitem(registry.METHODS, "nearby")
    with pytest.raises(ConfigError, match=r"method\.name: expected one of .*got 'nearby'"):
        load_config(overrides=["method.name=nearby"])


def test_its_setting_is_its_own():
    assert load_config(overrides=["method={name: nearby, radius: 2}"]).method.radius == 2
    for wrong, message in {
        "method={name: nearby, radius: -1}": "method.radius: Input should be greater than 0, got -1",
        "method={name: nearby, radios: 1}": "method.radios: unknown setting of nearby (did you mean radius?)",
        "method={name: nearby, tau: 1}": "method.tau: a setting of f2gnn; nearby does not know it",
        "method={name: fedavg, radius: 1}": "method.radius: a setting of nearby; fedavg does not know it",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_config(overrides=[wrong])
        assert str(caught.value) == message


def test_a_run_its_folder_a_crash_and_the_plots(tiny, tmp_path):
    own = tiny(tmp_path, *NEARBY, "method.radius=0.1", "federation.rounds=5", "model.dropout=0.5")
    whole, results = run(own, graph=GRAPH, audit=True)
    broken = CrashingFolder.create(own)
    with pytest.raises(Crash):
        train(own, broken, graph=GRAPH, audit=True)
    resumed, read = RunFolder.open(broken.path)
    assert read == own
    model = train(read, resumed, graph=GRAPH, resume=True, audit=True)
    np.testing.assert_array_equal(model, results[-1].parameters)
    np.testing.assert_array_equal(model, load_model(resumed.path / "model.pt").parameters)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()
    draw_run(resumed, "nearby")
    summary = summarise_run(resumed)
    assert summary["rounds"] == 5 and 0 <= summary["test"]["accuracy"] <= 1
    for picture in ("curves.png", "costs.png"):
        assert (resumed.path / picture).read_bytes().startswith(b"\x89PNG")


def test_the_released_model_moves_no_further_than_the_radius_through_the_round_loop(tiny, tmp_path):
    def moved(radius):
        own = tiny(tmp_path, *NEARBY, f"method={{radius: {radius}, local_epochs: 40}}", "federation.rounds=2")
        _, results = run(own, graph=GRAPH)
        net = create_network(GRAPH.num_features, GRAPH.classes, own.model)
        return np.linalg.norm(results[-1].parameters - net.initial_parameters(31))

    assert moved(0.01) < 0.0201 < 0.15 < moved(100.0)


def test_on_secret_shares_it_is_the_same_method(tiny, tmp_path):
    models = {}
    for engine in ("plaintext", "embedded"):
        own = tiny(tmp_path, *NEARBY, "method.radius=0.1", f"engine={{name: {engine}, preprocessing: dealer}}")
        _, results = run(own, graph=GRAPH, audit=True)
        assert all(result.difference <= result.bound for result in results)
        models[engine] = results[-1].parameters
    np.testing.assert_allclose(models["embedded"], models["plaintext"], atol=1e-5)


def test_it_is_compared_with_the_others(tiny, tmp_path):
    result = compare_methods(tiny(tmp_path, *NEARBY, "method.radius=1", "federation.rounds=1"), ["nearby", "fedavg"], 1)
    assert {score.method for score in result.scores} == {"nearby", "fedavg"}
