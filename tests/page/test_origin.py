"""How a run is made again: the command makes the same settings, and every setting has its meaning."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.page.origin import origin, settings


@pytest.mark.parametrize(
    ("presets", "overrides", "words"),
    [
        (("demo",), (), "safegnn train --preset demo"),
        (
            ("nba", "fair"),
            ("federation.rounds=7",),
            None,
        ),
        (("german",), ("method.name=fedavg", "seed=3"), None),
        ((), ("engine.name=plaintext",), "safegnn train --set engine.name=plaintext"),
        (("dp-large",), ("privacy.noise_multiplier=1.519", "data.dir='/a b/\"c\" $d'"), None),
    ],
)
def test_the_command_makes_the_settings_that_the_run_had(presets, overrides, words):
    config = load_config(presets, overrides=overrides)
    found = origin(config, Path("run"))
    assert words is None or found.command == words
    arguments = shlex.split(found.command)[2:]
    given = {"--preset": [], "--set": []}
    for option, value in zip(arguments[::2], arguments[1::2], strict=True):
        given[option].append(value)
    assert load_config(given["--preset"], overrides=given["--set"]) == config
    assert set(found.changed) == {each.partition("=")[0] for each in given["--set"]}


def test_many_changes_are_a_file_and_what_python_brought_is_no_command(tiny, tmp_path):
    many = tiny(tmp_path, "privacy.delta=1e-6", "sharing.weight_bits=30", "model.dropout=0.2", "clients.min_nodes=2")
    assert origin(many, tmp_path).command == f"safegnn train --config {tmp_path / 'config.yaml'}"
    own = load_config(overrides=["data.name=own"])
    assert "given in Python" in origin(own, tmp_path).command


def test_every_setting_has_a_meaning_and_a_mark_where_it_is_no_default():
    found = settings(load_config(("demo",)))
    rows = {row.name: row for own in found.values() for row in own}
    assert all(row.meaning for row in rows.values()) and len(rows) > 80
    assert rows["federation.rounds"][1:3] == ("120", "500") and rows["federation.rounds"].changed
    assert not rows["federation.cohort"].changed and rows["data.synthetic.nodes"].changed
    assert rows["method.tau"].meaning and not rows["method.tau"].changed
