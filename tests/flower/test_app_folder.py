"""The folder that `flwr run` takes."""

from __future__ import annotations

import tomllib

import pytest

from orchestrator.errors import ConfigError
from orchestrator.flower.app_folder import write_app
from orchestrator.flower.run_config import KEYS


@pytest.mark.parametrize("simulation", [False, True])
def test_flower_takes_it(tmp_path, simulation):
    config = pytest.importorskip("flwr.common.config", reason="needs safegnn[flower]")
    build = pytest.importorskip("flwr.cli.build", reason="needs safegnn[flower]")
    write_app(tmp_path / "app", simulation)

    assert config.get_fab_config(build.build_fab_from_disk(tmp_path / "app"))


def test_it_has_every_key_with_its_kind(tmp_path):
    write_app(tmp_path / "app")

    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"] == {key: kind() for key, kind in KEYS.items()}


def test_a_folder_that_exists_is_left_alone(tmp_path):
    with pytest.raises(ConfigError, match="exists"):
        write_app(tmp_path)
