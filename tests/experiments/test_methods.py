"""Several methods on one partition: their settings, the table recomputed from the run folders, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import settings_class, validated
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError
from orchestrator.experiments.contenders import contender
from orchestrator.experiments.methods import MethodComparison, Score, best_round, compare_methods
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.tables import Spread
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.registry import CENTRALISED, METHODS

SEEDS = 2
GAPS = ("delta_sp", "delta_sp_mean", "delta_sp_worst", "delta_eo", "delta_eo_mean", "delta_eo_worst")
METRICS_OF_CLIENTS = ("accuracy", "macro_f1", "auc", "balanced_accuracy", *GAPS)
NAMES = ("fedavg", "fedpub", CENTRALISED)
BY_CLIENTS = (
    "evaluation.where=clients",
    "method.name=fedavg",
    "model.name=gcn-classifier",
    "clients={count: 4, partition: disjoint}",
)


# Settings


def test_a_contender_has_the_settings_of_the_others(tiny, tmp_path):
    config = tiny(tmp_path, *BY_CLIENTS, "method={name: fedpub, mask_penalty: 0.5, learning_rate: 0.02}")
    for name in METHODS:
        own, expected = contender(config, name).model_dump(), config.model_dump()
        known = settings_class(name).model_fields
        expected["method"] = {key: value for key, value in expected["method"].items() if key in known} | {"name": name}
        if METHODS[name].networks:
            expected["model"]["name"] = METHODS[name].networks[0]
        if METHODS[name].centralised:
            expected["clients"] |= {"count": 1, "partition": "whole"}
            expected["federation"]["cohort"] = 1
        assert validated(expected).model_dump() == own
    assert contender(config, "fedavg").method.learning_rate == 0.02
    assert contender(config, "fedpub") == config  # with its mask_penalty, which no other method knows
    assert contender(tiny(tmp_path, *BY_CLIENTS, "model.name=sage"), "fedavg").model.name == "sage"


def test_centralised_is_one_client_alone_with_the_whole_graph(tiny, tmp_path):
    config = tiny(tmp_path, *BY_CLIENTS, "clients={count: 6, partition: overlapping, copies: 3}")
    own, expected = contender(config, CENTRALISED).model_dump(), config.model_dump()
    expected["method"] = contender(config, "local").model_dump()["method"]
    expected["clients"] |= {"count": 1, "partition": "whole"}
    expected["federation"]["cohort"] = 1
    assert own == expected
    graph = load_graph(config.data, config.seed)
    [client] = client_graphs(graph, contender(config, CENTRALISED).clients, config.seed)
    np.testing.assert_array_equal(client.edges, graph.edges)
    np.testing.assert_array_equal(client.features, graph.features)


def test_centralised_trains_in_every_round_however_clients_are_sampled(tiny, tmp_path):
    for sampling in ("poisson", "with_replacement"):
        own = contender(tiny(tmp_path, *BY_CLIENTS, f"federation.sampling={sampling}"), CENTRALISED)
        assert own.federation.sampling == "distinct"


def test_an_unknown_method_is_told_those_that_there_are(tiny, tmp_path):
    with pytest.raises(ConfigError) as caught:
        compare_methods(tiny(tmp_path, *BY_CLIENTS), ["fedavg", "nearby"], 1)
    assert str(caught.value) == f"--methods nearby: expected one of {', '.join(METHODS)}, centralised"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["evaluation.where=whole_graph"],
            "--methods fedpub: method.name = fedpub makes no global model: set evaluation.where to clients",
        ),
        (
            ["engine={name: embedded, program: faithful}"],
            "method.name = fedpub gives every client its own model and does not go with engine.program = faithful",
        ),
    ],
)
def test_settings_that_do_not_fit_are_one_line_before_anything_is_trained(tiny, tmp_path, overrides, message):
    with pytest.raises(ConfigError) as caught:
        compare_methods(tiny(tmp_path, *BY_CLIENTS, *overrides), ["fedavg", "fedpub"], 1)
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


# A comparison


@pytest.fixture(scope="module")
def compared(tiny, tmp_path_factory):
    seen = []
    config = tiny(tmp_path_factory.mktemp("methods"), *BY_CLIENTS, "federation.rounds=4", "method.local_epochs=4")
    result = compare_methods(config, NAMES, SEEDS, observe=lambda name, seed, round: seen.append((name, round.round)))
    return config, result, seen


pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def test_every_method_runs_with_every_seed_on_the_same_clients(compared):
    config, result, seen = compared
    assert seen == [(name, number) for _ in range(SEEDS) for name in NAMES for number in (1, 2, 3, 4)]
    for seed in (config.seed, config.seed + 1):
        for name in NAMES:
            _, own = RunFolder.open(result.folder / f"{name}-seed-{seed}")
            assert own.seed == seed and own.data == config.data
            assert own.clients == config.clients or name == CENTRALISED
            own = own.model_copy(update={"seed": config.seed, "run": config.run})
            assert own == contender(config, name)
        counts = [RunFolder(result.folder / f"{name}-seed-{seed}").records()[0]["test"]["counts"] for name in NAMES]
        assert [count["clients"] for count in counts] == [4, 4, 1]
        assert len({count["nodes"] for count in counts}) == 1  # the parts are disjoint and cover the graph


def test_the_files(compared):
    _, result, _ = compared
    assert {path.name for path in result.folder.iterdir() if path.is_file()} == {
        ".lock",
        "config.yaml",
        "environment.json",
        "plan.json",
        "curves.png",
        "table.csv",
        "table.md",
    }
    assert (result.folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (result.folder / "table.md").read_text(encoding="utf-8") == f"{result.text()}\n"
    drawn = {path.parent.name.partition("-seed")[0] for path in result.folder.glob("*/similarity.png")}
    assert drawn == {"fedpub"}


def test_the_table_is_that_of_the_run_folders(compared):
    """From metrics.csv, with NumPy."""
    config, result, _ = compared
    expected = {}
    for name in NAMES:
        tables = [pd.read_csv(result.folder / f"{name}-seed-{config.seed + k}" / "metrics.csv") for k in range(SEEDS)]
        for metric in METRICS_OF_CLIENTS:
            best = [table[f"test_{metric}"][np.argmax(table["val_accuracy"])] for table in tables]
            last = [table[f"test_{metric}"].iloc[-1] for table in tables]
            expected[name, metric] = [np.mean(best), np.std(best, ddof=1), np.mean(last), np.std(last, ddof=1), best]
    assert [(score.method, score.metric) for score in result.scores] == list(expected)
    for score in result.scores:
        *numbers, best = expected[score.method, score.metric]
        assert known([*score.best, *score.last]) == pytest.approx(numbers, abs=1e-12, nan_ok=True)
        assert known(score.values) == pytest.approx(best, nan_ok=True)
    table = pd.read_csv(result.folder / "table.csv")
    for column, values in (
        ("best", [score.best.mean for score in result.scores]),
        ("last_sd", [score.last.sd for score in result.scores]),
        ("n_s1", [score.nodes and score.nodes[1] for score in result.scores]),
    ):
        assert table[column].tolist() == pytest.approx(known(values), nan_ok=True)
    alone = [score for score in result.scores if score.method == CENTRALISED and score.best.mean is None]
    assert [score.metric for score in alone] == [name for name in GAPS if name.endswith(("_mean", "_worst"))]


def known(values):
    """As a table of numbers has them."""
    return [np.nan if value is None else value for value in values]


def test_the_document_is_plain_json(compared):
    _, result, _ = compared
    document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert document["folder"] == str(result.folder) and document["seeds"] == SEEDS
    assert [score["method"] for score in document["scores"]] == [name for name in NAMES for _ in METRICS_OF_CLIENTS]
    assert list(document["scores"][0]) == [
        "method", "metric", "best", "best_sd", "last", "last_sd", "low", "high", "n_s0", "n_s1",
        "difference", "difference_low", "difference_high", "values",
    ]  # fmt: skip


def test_methods_are_compared_with_the_first_seed_by_seed(compared):
    _, result, _ = compared
    values = {(score.method, score.metric): score.values for score in result.scores}
    assert all(score.difference is None for score in result.scores if score.method == NAMES[0])
    for score in result.scores:
        if score.method != NAMES[0]:
            assert score.difference == Paired.of(score.values, values[NAMES[0], score.metric])
    rows = result.differences()
    assert [row[f"less {NAMES[0]}"] for row in rows] == list(NAMES[1:])
    assert f"| less {NAMES[0]} | accuracy | " in result.text()
    assert replace(result, seeds=1).differences() == []


# The table, by hand


def run(*accuracies, test=None):
    """Records with these validation accuracies; the test accuracy of a round says which it is."""
    return [
        {"val": {"accuracy": value}, "test": {"accuracy": k / 100 if test is None else test}}
        for k, value in enumerate(accuracies)
    ]


@pytest.mark.parametrize(
    ("accuracies", "chosen"),
    [((0.1, 0.3, 0.2), 1), ((0.3, 0.5, 0.5), 1), ((0.4, 0.4), 0), ((None, 0.0), 1), ((None, None), 0), ((0.7,), 0)],
)
def test_the_first_of_the_best_validation_rounds_is_chosen(accuracies, chosen):
    assert best_round(run(*accuracies))["test"]["accuracy"] == chosen / 100


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=5))
def test_scores_are_means_and_sample_deviations_over_seeds(seeds):
    score = Score.of("m", "accuracy", [run(*values) for values in seeds])
    best = [np.argmax(values) / 100 for values in seeds]
    assert score.best == pytest.approx((np.mean(best), np.std(best, ddof=1)), abs=1e-12)
    assert score.last == pytest.approx((0.02, 0), abs=1e-12)


def test_one_seed_has_no_deviation_and_an_undefined_seed_makes_the_mean_undefined():
    alone = Spread(0.01, None)
    assert Score.of("m", "accuracy", [run(0.1, 0.2)]) == Score("m", "accuracy", alone, alone, (0.01,))
    undefined = run(0.5)
    undefined[0]["test"]["accuracy"] = None
    score = Score.of("m", "accuracy", [run(0.1, 0.2), undefined])
    assert score.best == score.last == (None, None)
    assert score.values == (0.01, None)


def test_the_table(tmp_path):
    scores = [
        Score("fedpub", "accuracy", Spread(0.81446, 0.0026), Spread(0.8, 0.01), (0.8, 0.82)),
        Score("fedpub", "macro_f1", Spread(None, None), Spread(0.5, None), (None, 0.5)),
    ]
    assert MethodComparison(tmp_path, 2, scores).table() == [
        {
            "method": "fedpub",
            "accuracy, best validation round": "0.8145 ± 0.0026",
            "accuracy, last round": "0.8000 ± 0.0100",
            "macro_f1, best validation round": "undefined",
            "macro_f1, last round": "0.5000",
        }
    ]
