"""`--run-config` as settings. Needs no Flower."""

from __future__ import annotations

import pytest

from orchestrator.config import load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, RunError
from orchestrator.flower.run_config import KEYS, begun, settings_of


def test_the_keys_are_merged_as_the_options_of_train():
    told = {"preset": "nba demo", "rounds": 7, "set": "privacy.clip_norm=0.5 'data.dir=/a folder'"}

    options = ["privacy.clip_norm=0.5", "data.dir=/a folder", "federation.rounds=7"]
    assert settings_of(told) == load_config(["nba", "demo"], None, options)


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


def test_a_run_goes_on_with_its_own_settings_and_perhaps_more_rounds(tiny, tmp_path):
    kept = tiny(tmp_path, "federation.rounds=3")
    folder = RunFolder.create(kept, "run").path

    assert begun({"preset": "demo"}) == (load_config(["demo"]), None)
    config, found = begun({"resume": str(folder)})
    assert (config, found.path) == (RunFolder.open(folder)[1], folder)
    assert begun({"resume": str(folder), "rounds": 9})[0].federation.rounds == 9
    with pytest.raises(ConfigError, match="rounds alone"):
        begun({"resume": str(folder), "set": "seed=1"})
    with pytest.raises(RunError, match="no run folder"):
        begun({"resume": str(tmp_path)})
