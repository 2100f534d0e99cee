"""What `reproduce fairness` says: differences paired by seed, and what so few nodes can show at all."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.experiments.fairness import Arm, FairnessComparison, Paired, compare_fairness
from orchestrator.experiments.fairness_settings import BASELINE, fairness_settings
from orchestrator.experiments.privacy_settings import configuration, settings_of
from orchestrator.seeding import seeded_generator

VALUES = st.lists(st.tuples(*2 * [st.floats(0, 1)]), min_size=2, max_size=9)


@given(VALUES)
def test_differences_are_paired_by_seed_as_scipys_t_test_has_them(pairs):
    values, baseline = zip(*pairs, strict=True)
    found = Paired.of(values, baseline)
    assert found.mean == pytest.approx(np.mean(values) - np.mean(baseline), abs=1e-12)
    if np.std(np.subtract(values, baseline)) > 1e-9:
        oracle = stats.ttest_rel(values, baseline).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-9)
    else:
        assert found.low == pytest.approx(found.high, abs=1e-6)


def test_one_seed_has_no_interval_and_an_undefined_value_no_difference():
    assert Paired.of([0.5], [0.25]) == (0.25, None, None) and str(Paired.of([0.5], [0.25])) == "+0.2500"
    assert Paired.of([0.5, None], [0.25, 0.5]) == (None, None, None)
    assert str(Paired.of([0.5, None], [0.25, 0.5])) == "undefined"


def test_what_chance_alone_makes_of_a_gap_is_what_simulation_says():
    n0, n1 = 120, 60
    arm = Arm("a", {"delta_sp": (0.1,)}, {"delta_sp": (n0, n1), "delta_eo": None})
    rng = seeded_generator(1, "chance")
    gaps = np.abs(rng.binomial(n0, 0.5, 20_000) / n0 - rng.binomial(n1, 0.5, 20_000) / n1)
    assert arm.chance("delta_sp") == pytest.approx(gaps.mean(), rel=0.03)
    assert arm.chance("delta_eo") is None


def test_the_arms_share_everything_but_the_method():
    config, note = configuration("fairness")
    arms = settings_of("fairness", config)
    assert note == "" and next(iter(arms)) == BASELINE and {"centralised", "f2gnn", "fairdual"} <= arms.keys()
    for name, own in arms.items():
        plain = own.changed(method={"name": "fedavg"})
        assert plain == arms["centralised" if name.startswith("centralised") else BASELINE]
    assert "local" not in arms
    assert "local" in fairness_settings(config.changed(evaluation={"where": "clients"}))


def test_a_small_one_leaves_table_curves_and_plane(tiny, tmp_path):
    config = tiny(tmp_path)
    arms = {name: own for name, own in fairness_settings(config).items() if name in (BASELINE, "fairdual")}
    result = compare_fairness("fairness", config, arms, 2)
    assert [arm.name for arm in result.arms] == [BASELINE, "fairdual"]
    for arm in result.arms:
        for k, seed in enumerate((config.seed, config.seed + 1)):
            lines = (result.folder / f"{arm.name}-seed-{seed}" / "metrics.jsonl").read_text().splitlines()
            rounds = [json.loads(line)["test"]["delta_sp"] for line in lines]
            assert arm.values["delta_sp"][k] == pytest.approx(np.mean(rounds))
    table = (result.folder / "table.md").read_text()
    assert "delta_sp less fedavg's" in table and "differ by" in table
    with open(result.folder / "table.csv", newline="") as file:
        assert [row["arm"] for row in csv.DictReader(file)] == [BASELINE, "fairdual"]
    for picture in ("curves.png", "plane.png"):
        assert (result.folder / picture).read_bytes().startswith(b"\x89PNG")
    json.dumps(result.as_dict(), allow_nan=False)


def test_without_gaps_nothing_is_said_of_chance():
    arm = Arm(BASELINE, {"accuracy": (0.5,)}, {"accuracy": None})
    assert "differ by" not in FairnessComparison(None, 1, [arm]).closing
