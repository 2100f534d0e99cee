"""Which runs belong together, and what one has more than another."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.experiments.plan import GridPlan
from orchestrator.page.arms import Arms, read_runs
from tests.page.folders import make_run


@pytest.fixture
def read(tiny, tmp_path):
    def make(*several: tuple[str, ...], **options) -> Arms:
        paths = [make_run(tmp_path / f"run-{k}", tiny(tmp_path, *own), **options).path for k, own in enumerate(several)]
        return Arms.of(read_runs(paths)[0])

    return make


def test_arms_are_named_by_the_fewest_settings_and_seeds_make_none(read):
    arms = read(("seed=1",), ("seed=2",), ("seed=1", "method.name=fedavg"), ("seed=1", "engine.client_processes=1"))
    assert {name: list(own) for name, own in arms.runs.items()} == {"f2gnn": [1, 2], "fedavg": [1]}
    assert arms.baseline == "fedavg" and arms.differing["method.name"] == {"f2gnn": "f2gnn", "fedavg": "fedavg"}
    assert len(arms.doubles) == 1 and "another run of f2gnn has seed 1" in arms.doubles[0]


def test_other_settings_name_arms_where_methods_do_not(read):
    arms = read(("method.tau=2",), ("method.tau=3",), ("method.tau=3", "engine.name=embedded"))
    assert list(arms.runs) == ["plaintext, tau 2.0", "plaintext, tau 3.0", "embedded, tau 3.0"]
    assert arms.baseline == "plaintext, tau 2.0"


def test_differences_are_of_the_last_rounds_of_the_seeds_that_both_have(read):
    arms = read(
        *[
            (f"seed={k}", f"method.name={m}")
            for m, seeds in (("fedavg", (1, 2, 3)), ("fairdual", (4, 2, 3)))
            for k in seeds
        ]
    )
    paired, seeds = arms.paired("fairdual", "delta_sp")
    own, other = arms.values("fairdual", "delta_sp"), arms.values("fedavg", "delta_sp")
    assert seeds == 2 and paired.mean == pytest.approx(sum(own[k] - other[k] for k in (2, 3)) / 2)
    rows = arms.runs["fedavg"][1].rounds
    assert other[1] == pytest.approx(sum(row["test"]["delta_sp"] for row in rows) / len(rows))
    assert arms.unpaired == ""


def test_a_comparison_gives_its_own_names_also_while_runs_are_missing(tiny, tmp_path):
    common = tiny(tmp_path, "evaluation.where=clients")
    settings = {name: common.changed(method={"name": name}) for name in ("local", "fedavg")}
    plan, folder = GridPlan("methods", common, settings, 2), tmp_path / "grid"
    folder.mkdir()
    (folder / "config.yaml").write_text(common.absolute().to_yaml())
    plan.save(folder)
    runs = list(plan.runs(folder))
    for name, seed, path in runs[:3]:
        make_run(path, settings[name].changed(seed=seed), rounds=2)
    found, missing = read_runs([folder])
    assert [name for name, _ in found] == ["local", "fedavg", "local"]
    assert missing == [f"{Path(runs[3][2]).name}: the comparison has not come to this run yet"]
