"""What `reproduce fairness` says: differences paired by seed, and what so few nodes can show at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import ConfigError
from orchestrator.experiments.fairness import Arm, FairnessComparison, compare_fairness, reference_round
from orchestrator.experiments.fairness_settings import BASELINE, chosen_arms, fairness_settings, family
from orchestrator.experiments.privacy_settings import configuration, settings_of
from orchestrator.seeding import seeded_generator


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
        like = arms["centralised" if family(name) == "centralised" else BASELINE]
        assert own.model_dump(exclude={"method"}) == like.model_dump(exclude={"method"})
    assert "local" not in arms
    at_clients = fairness_settings(config.changed(evaluation={"where": "clients"}))
    assert at_clients.keys() - arms.keys() == {"local", "centralised edits"}


def test_a_method_with_a_star_stands_for_all_its_arms_and_the_baseline_is_always_there():
    arms = dict.fromkeys([BASELINE, "a", "a x = 1", "b", "b y"])
    assert [*chosen_arms(arms, ["a*", "b y"])] == [BASELINE, "a", "a x = 1", "b y"]
    assert [*chosen_arms(arms, ["a"])] == [BASELINE, "a"]
    assert [*chosen_arms(arms, [])] == [BASELINE]
    with pytest.raises(ConfigError, match=r"--arms c: expected some of fedavg, a, a x = 1, b, b y; METHOD\*"):
        chosen_arms(arms, ["a", "c"])


def records(*rounds):
    """Of (accuracy, gap) on the validation nodes; test nodes have the round's number as AUC."""
    gaps = {"gaps": {"delta_sp": {"n_s0": 9, "n_s1": 9}, "delta_eo": {"n_s0": 9, "n_s1": 9}}}
    return [
        {mask: {"accuracy": a, "auc": auc, "balanced_accuracy": a, "delta_sp": g, "delta_eo": 0.0, **gaps}
         for mask, auc in (("val", a), ("test", float(k)))}
        for k, (a, g) in enumerate(rounds)
    ]  # fmt: skip


def test_the_reference_code_takes_the_fairest_round_that_is_accurate_enough_and_else_the_most_accurate():
    run = records((0.65, 0.0), (0.67, 0.2), (0.7, 0.1), (0.9, 0.3), (0.8, None))
    assert reference_round(run) is run[2] and Arm.of("a", [run], reference=True).values["auc"] == (2.0,)
    assert (
        reference_round(run[:1]) is run[0]
        and reference_round(records((0.5, 0.0), (0.6, 0.3)))["val"]["accuracy"] == 0.6
    )
    assert Arm.of("a", [run]).values["auc"] == (2.0,) and Arm.of("a", [run[:2]]).values["auc"] == (0.5,)


def test_the_validation_nodes_choose_the_fairest_arm_that_costs_little():
    def arm(name, utility, gap, seen=0.5):
        return Arm.of(name, [records(*2 * [(utility, gap)])])

    arms = [arm(BASELINE, 0.7, 0.3), arm("a x = 1", 0.695, 0.2), arm("a x = 2", 0.691, 0.1), arm("a x = 3", 0.6, 0.0)]
    arms += [arm("b", 0.7, 0.0), arm("c one", 0.5, 0.0), arm("c two", 0.6, 0.0)]
    arms += [arm("centralised", 0.8, 0.0), arm("centralised x", 0.8, 0.0)]
    result = FairnessComparison(Path(), 1, arms)
    assert [own.name for own in result.selected] == ["a x = 2"] == result.as_dict()["selected"]
    assert "the validation nodes choose: a x = 2 (" in result.closing


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
    assert (
        "delta_sp less fedavg's" in table and "differ by" in table and "fairdual instead of fedavg takes auc" in table
    )
    with open(result.folder / "table.csv", newline="") as file:
        assert [row["arm"] for row in csv.DictReader(file)] == [BASELINE, "fairdual"]
    for picture in ("curves.png", "plane.png"):
        assert (result.folder / picture).read_bytes().startswith(b"\x89PNG")
    json.dumps(result.as_dict(), allow_nan=False)


def test_without_gaps_nothing_is_said_of_chance():
    arm = Arm(BASELINE, {"accuracy": (0.5,)}, {"accuracy": None})
    assert "differ by" not in FairnessComparison(None, 1, [arm]).closing
