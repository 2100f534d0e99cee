"""What `flwr run --run-config` says, as settings. Flower knows the keys of the app's own file only.

``--run-config "preset='nba' rounds=50 set='privacy.clip_norm=0.5 federation.cohort=10'"``
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config import Config, load_config
from orchestrator.errors import ConfigError

__all__ = ["KEYS", "settings_of"]

KEYS: dict[str, type] = {"preset": str, "config": str, "rounds": int, "set": str, "folder": str}
"""By key, its kind; 0 and the empty text stand for one that is not given.

preset: shipped settings, several by spaces; config: a YAML file on the coordinator's machine; rounds: short for
``federation.rounds``; set: settings as of ``--set``, by spaces, quoted as in a shell; folder: the run's name in
``run.dir``.
"""


def settings_of(run_config: Mapping[str, object]) -> Config:
    """The settings that a run was given, merged as `safegnn train` merges its options.

    Raises:
        ConfigError: a key is of another kind than it should be, or the settings do not hold.
    """
    given = {key: run_config.get(key, kind()) for key, kind in KEYS.items()}
    for key, value in given.items():
        if type(value) is not KEYS[key]:
            raise ConfigError(f"run-config {key} = {value!r}: expected {'a number' if KEYS[key] is int else 'text'}")
    try:
        overrides = shlex.split(str(given["set"]))
    except ValueError as error:
        raise ConfigError(f"run-config set = {given['set']!r}: {error}") from None
    if given["rounds"]:
        overrides.append(f"federation.rounds={given['rounds']}")
    file = Path(str(given["config"])) if given["config"] else None
    return load_config(str(given["preset"]).split(), file, overrides)
