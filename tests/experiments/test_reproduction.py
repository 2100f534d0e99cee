"""The experiments on a tiny graph: every setting and seed is run, and the table says what they gave."""

from statistics import mean, stdev

import pandas as pd
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, DataError
from orchestrator.evaluation.metrics import METRICS, moving_average
from orchestrator.experiments.privacy_settings import configuration, settings_of
from orchestrator.experiments.reproduction import Reproduction, Row, reproduce
from orchestrator.experiments.tables import Spread, markdown

TINY = [
    "data.synthetic.nodes=120",
    "data.synthetic.edges=400",
    "data.synthetic.features=4",
    "clients.count=6",
    "clients.hops=1",
    "model.hidden=4",
    "method.local_epochs=1",
    "federation={rounds: 2, cohort: 3}",
    "engine.name=plaintext",
]


def tiny(tmp_path, *more):
    return load_config((), None, [*TINY, f"run.dir={tmp_path}", *more])


def test_table2_runs_the_papers_settings_with_every_seed(tmp_path):
    seen = []
    config = tiny(tmp_path)
    settings = settings_of("table2", config)
    result = reproduce("table2", config, settings, 2, observe=lambda name, seed, outcome: seen.append((name, seed)))
    assert [row.noise_multiplier for row in result.rows] == [0.0, 1.341, 0.03166, 0.001]
    assert seen == [(row.name, seed) for seed in (31, 32) for row in result.rows for _ in range(2)]
    runs = [RunFolder(path) for path in sorted(result.folder.iterdir()) if path.name.startswith("non-private")]
    finals = [moving_average([record["val"]["auc"] for record in run.records()])[-1] for run in runs]
    assert result.rows[0].metrics["auc"] == (pytest.approx(mean(finals)), pytest.approx(stdev(finals)))
    assert {"table.md", "table.csv", "curves.png", "config.yaml"} <= {path.name for path in result.folder.iterdir()}
    assert list(pd.read_csv(result.folder / "table.csv")["noise_multiplier"]) == [0.0, 1.341, 0.03166, 0.001]


def test_the_papers_epsilons_stand_beside_honest_ones():
    config = load_config(("synthetic-pokec-n", "paper"))
    record = {"round": 500, "val": dict.fromkeys(METRICS, 0.5)}
    rows = {name: Row.of(name, own, [[record]]) for name, own in settings_of("table2", config).items()}
    assert rows["σ = 1.341"].epsilon_paper == pytest.approx(9.43, abs=0.005)
    # Clients of the paper keep state, so that sampling is not counted on: as for a server that knows none of the noise.
    assert rows["σ = 1.341"].epsilon["outsider"] == pytest.approx(189.63, abs=0.005)
    assert rows["σ = 1.341"].epsilon["server"] > 300
    stateless = load_config(("synthetic-pokec-n", "paper"), overrides=["method.stateful=false"])
    rows = {name: Row.of(name, own, [[record]]) for name, own in settings_of("table2", stateless).items()}
    assert rows["σ = 1.341"].epsilon["outsider"] == pytest.approx(8.87, abs=0.005)
    assert rows["σ = 0.03166"].epsilon_paper == pytest.approx(4.97e5, rel=0.002)
    assert rows["non-private"].epsilon is None


def test_the_operating_point_keeps_its_targets(tmp_path):
    config = tiny(tmp_path, "privacy={clip_norm: 1, sensitivity: bounded_weights, accountant: rdp}")
    settings = settings_of("operating-point", config)
    assert list(settings) == ["fedavg, non-private", "non-private", "ε = 8", "ε = 4", "ε = 2", "ε = 1"]
    assert [own.method.name for own in settings.values()] == ["fedavg", *5 * ["f2gnn"]]
    sigmas = [own.privacy.noise_multiplier for own in settings.values()]
    assert sigmas[:2] == [0, 0] and sigmas[2:] == sorted(sigmas[2:])
    for own, target in zip([*settings.values()][2:], (8, 4, 2, 1), strict=True):
        assert target * 0.999 < plan_of(own).privacy.epsilon(config.federation.rounds) <= target


def test_the_table_says_what_is_undefined_and_what_has_no_epsilon():
    metrics = {**dict.fromkeys(METRICS, Spread(0.5, 0.1)), "delta_eo": Spread(None, None)}
    [row] = Reproduction(None, 1e-5, [Row("a", 0.0, None, None, metrics)]).table()
    assert markdown([row]).splitlines() == [
        "| setting | σ | ε, paper's accounting | ε, outsider | ε, client | ε, server | accuracy | auc | delta_sp "
        "| delta_eo |",
        "|---|---|---|---|---|---|---|---|---|---|",
        "| a | – | – | – | – | – | 0.5000 ± 0.1000 | 0.5000 ± 0.1000 | 0.5000 ± 0.1000 | undefined |",
    ]


def test_one_seed_has_no_deviation():
    config = load_config(("synthetic",))
    record = {"round": 1, "val": dict.fromkeys(METRICS, 0.5) | {"gaps": {"delta_eo": {"n_s0": 7, "n_s1": 4}}}}
    row = Row.of("a", config, [[record] * 2])
    assert row.cells()["delta_eo"] == "0.5000 (n = 7, 4)" and row.cells()["delta_sp"] == "0.5000"
    assert (row.as_dict()["delta_eo_n_s0"], row.as_dict()["delta_eo_n_s1"]) == (7, 4)
    assert Row.of("a", config, [[record]]).metrics["auc"] == (None, None)  # one round is no mean of rounds
    assert row.as_dict()["auc"] == 0.5 and row.as_dict()["auc_sd"] is None and row.cells()["auc"] == "0.5000"


# Where the data are missing


def test_the_stand_in_of_a_preset_takes_its_place_and_other_presets_stay(tmp_path):
    nowhere = f"data.dir='{tmp_path}'"
    config, said = configuration("table2", ("pokec-n", "reference"), None, [nowhere, "federation.rounds=7"])
    expected = load_config(("synthetic-pokec-n", "reference"), None, [nowhere, "federation.rounds=7"])
    assert config == expected and config.data.name == "synthetic" and config.federation.rounds == 7
    assert said.endswith("; the synthetic stand-in takes its place") and str(tmp_path) in said
    assert configuration("table2", (), None, [nowhere])[0] == load_config(
        ("synthetic-pokec-n", "paper"), None, [nowhere]
    )


def test_data_that_are_there_are_taken():
    assert configuration("table2", ("synthetic",)) == (load_config(("synthetic", "paper")), "")


@pytest.mark.parametrize(
    ("presets", "more"), [(("nba",), []), (("pokec-n",), ["data.name=nba"]), (("synthetic",), ["data.name=pokec-n"])]
)
def test_data_without_stand_in_are_missing(tmp_path, presets, more):
    with pytest.raises(DataError):
        configuration("table2", presets, None, [f"data.dir='{tmp_path}'", *more])


def test_unknown_experiments_and_samplings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no experiment 'table3'; there are: table2, operating-point"):
        settings_of("table3", tiny(tmp_path))
    config = tiny(tmp_path, "privacy.clip_norm=1", "federation.sampling=with_replacement")
    with pytest.raises(ConfigError, match=r"federation\.sampling"):
        settings_of("operating-point", config)
