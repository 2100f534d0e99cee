"""What `flwr run --run-config` says, as settings. Flower knows the keys of the app's own file only.

``--run-config "preset='nba' rounds=50 set='privacy.clip_norm=0.5 federation.cohort=10'"``
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config import Config, load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError

__all__ = ["KEYS", "begun", "checked", "settings_of"]

KEYS: dict[str, type[str] | type[int]] = {
    "preset": str,
    "config": str,
    "rounds": int,
    "set": str,
    "folder": str,
    "resume": str,
    "coordinator": str,
}
"""By key, its kind; 0 and the empty text stand for one that is not given. Paths are of the ServerApp's machine.

preset: shipped settings, several by spaces. config: a YAML file. rounds: short for ``federation.rounds``.
set: settings as of ``--set``, by spaces, quoted as in a shell. folder: the run's name in ``run.dir``.
resume: the folder of a run that goes on, with its own settings, of which ``rounds`` alone may be given.
coordinator: the coordinator's own file.
"""


def checked(run_config: Mapping[str, object]) -> dict[str, str | int]:
    """Every key with its value. Raises ConfigError for one of another kind than it should be."""
    given = {}
    for key, kind in KEYS.items():
        value = run_config.get(key, kind())
        if type(value) is not kind:
            raise ConfigError(f"run-config {key} = {value!r}: expected {'a number' if kind is int else 'text'}")
        given[key] = value
    return given


def settings_of(run_config: Mapping[str, object]) -> Config:
    """The settings of a new run, merged as `safegnn train` merges its options.

    Raises:
        ConfigError: a key is of another kind than it should be, or the settings do not hold.
    """
    given = checked(run_config)
    try:
        overrides = shlex.split(str(given["set"]))
    except ValueError as error:
        raise ConfigError(f"run-config set = {given['set']!r}: {error}") from None
    if given["rounds"]:
        overrides.append(f"federation.rounds={given['rounds']}")
    file = Path(str(given["config"])) if given["config"] else None
    return load_config(str(given["preset"]).split(), file, overrides)


def begun(run_config: Mapping[str, object]) -> tuple[Config, RunFolder | None]:
    """The settings, and the folder of a run that goes on; None: the run is new.

    Raises:
        SafeGNNError: as `settings_of`; the folder is none; a run that goes on is given other settings.
    """
    given = checked(run_config)
    if not given["resume"]:
        return settings_of(run_config), None
    if others := [key for key in ("preset", "config", "set", "folder") if given[key]]:
        raise ConfigError(f"run-config {others[0]}: a run that goes on has its own settings; give rounds alone")
    folder, kept = RunFolder.open(Path(str(given["resume"])).expanduser())
    return (kept.changed(federation={"rounds": given["rounds"]}) if given["rounds"] else kept), folder
