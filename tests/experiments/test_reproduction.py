"""The experiments on a tiny graph: every setting and seed is run, and the table says what they gave."""

import json
import math
from statistics import mean, stdev

import pandas as pd
import pytest
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.config import load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import METRICS, moving_average
from orchestrator.experiments.reproduction import Reproduction, Row, markdown, reproduce, settings_of
from orchestrator.privacy.plan import VIEWS

TINY = [
    "data.synthetic.nodes=120",
    "data.synthetic.edges=400",
    "data.synthetic.features=4",
    "clients.count=6",
    "clients.hops=1",
    "model.hidden=4",
    "method.local_epochs=1",
    "federation.rounds=2",
    "engine.name=plaintext",
]


def tiny(tmp_path, *more):
    return load_config((), None, [*TINY, f"run.dir={tmp_path}", *more])


def test_table2_runs_the_papers_settings_with_every_seed(tmp_path):
    seen = []
    config = tiny(tmp_path)
    settings = settings_of("table2", config)
    result = reproduce("table2", config, settings, 2, lambda name, outcome: seen.append((name, outcome.round)))
    assert [row.noise_multiplier for row in result.rows] == [0.0, 1.341, 0.03166, 0.001]
    assert seen[:4] == [
        ("non-private, seed 31", 1),
        ("non-private, seed 31", 2),
        ("non-private, seed 32", 1),
        ("non-private, seed 32", 2),
    ]
    assert len(seen) == 4 * 2 * 2
    runs = [RunFolder(path) for path in sorted(result.folder.iterdir()) if path.name.startswith("non-private")]
    finals = [moving_average([record["val"]["auc"] for record in run.records()])[-1] for run in runs]
    assert result.rows[0].metrics["auc"] == (pytest.approx(mean(finals)), pytest.approx(stdev(finals)))
    assert {"table.md", "table.csv", "curves.png", "config.yaml"} <= {path.name for path in result.folder.iterdir()}
    assert list(pd.read_csv(result.folder / "table.csv")["noise_multiplier"]) == [0.0, 1.341, 0.03166, 0.001]


def test_the_papers_epsilons_stand_beside_honest_ones():
    config = load_config(("synthetic-pokec-n",))
    from orchestrator.experiments.reproduction import _row

    record = {"round": 500, "val": dict.fromkeys(METRICS, 0.5)}
    rows = {name: _row(name, own, [[record]]) for name, own in settings_of("table2", config).items()}
    assert rows["σ = 1.341"].epsilon_paper == pytest.approx(9.43, abs=0.005)
    assert rows["σ = 1.341"].epsilon["outsider"] == pytest.approx(20.18, abs=0.005)
    assert rows["σ = 0.03166"].epsilon_paper == pytest.approx(4.97e5, rel=0.002)
    assert rows["non-private"].epsilon is None


def test_the_operating_point_keeps_its_targets(tmp_path):
    config = tiny(tmp_path, "privacy.clip_norm=1", "privacy.sensitivity=bounded_weights")
    settings = settings_of("operating-point", config)
    assert list(settings) == ["non-private", "ε = 8", "ε = 4", "ε = 2", "ε = 1"]
    sigmas = [own.privacy.noise_multiplier for own in settings.values()]
    assert sigmas[0] == 0 and sigmas[1:] == sorted(sigmas[1:])
    result = reproduce("operating-point", config, settings, 1)
    for row, target in zip(result.rows[1:], (8, 4, 2, 1), strict=True):
        assert target * 0.999 < row.epsilon["outsider"] <= target


def test_an_undefined_metric_is_said_to_be():
    row = Row("a", 0.0, None, None, {**dict.fromkeys(METRICS, (0.5, 0.1)), "delta_eo": None})
    text = markdown(Reproduction(None, 1e-5, [row]))
    assert "0.5000 ± 0.1000" in text and "undefined" in text


def test_unknown_experiments_and_samplings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no experiment 'table3'; there are: table2, operating-point"):
        settings_of("table3", tiny(tmp_path))
    config = tiny(tmp_path, "privacy.clip_norm=1", "federation.sampling=with_replacement")
    with pytest.raises(ConfigError, match=r"federation\.sampling"):
        settings_of("operating-point", config)


def test_the_command_prints_one_json_document(tmp_path):
    options = [part for override in [*TINY[:-1], f"run.dir={tmp_path}"] for part in ("--set", override)]
    result = CliRunner().invoke(app, ["reproduce", "table2", "--preset", "demo", "--seeds", "1", "--json", *options])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["delta"] == 1e-3 and len(document["rows"]) == 4
    noisy = document["rows"][1]
    assert all(math.isfinite(noisy[f"epsilon_{view}"]) for view in VIEWS)
