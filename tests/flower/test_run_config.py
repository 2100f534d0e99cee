"""`--run-config` as settings. Needs no Flower."""

from __future__ import annotations

import pytest

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.flower.run_config import KEYS, settings_of


def test_the_keys_are_merged_as_the_options_of_train():
    told = {"preset": "nba demo", "rounds": 7, "set": "privacy.clip_norm=0.5 'data.dir=/a folder'"}

    expected = load_config(
        ["nba", "demo"], None, ["privacy.clip_norm=0.5", "data.dir=/a folder", "federation.rounds=7"]
    )
    assert settings_of(told) == expected


def test_what_is_not_given_is_as_by_default(tmp_path):
    assert settings_of({key: kind() for key, kind in KEYS.items()}) == load_config()
    file = tmp_path / "own.yaml"
    file.write_text("federation: {rounds: 3}\n")
    assert settings_of({"config": str(file)}).federation.rounds == 3


@pytest.mark.parametrize(
    "told",
    [{"rounds": "7"}, {"rounds": True}, {"preset": 1}, {"set": "'open"}, {"set": "unknown.key=1"}, {"rounds": -1}],
)
def test_what_does_not_hold_is_refused(told):
    with pytest.raises(ConfigError):
        settings_of(told)
