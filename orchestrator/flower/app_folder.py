"""The folder that `flwr run` takes: names of the two apps, and the settings that a run may be given.

It holds no code but two imports. Sites that run the installed `ClientApp` (`safegnn flower node`) never unpack it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from orchestrator.files import write_new_folder
from orchestrator.flower.run_config import KEYS

__all__ = ["write_app"]

_PROJECT = """\
# Written by `safegnn flower app`. `flwr run` sends this folder to the SuperLink.
[project]
name = "safegnn-app"
version = "{version}"
description = "Fair and private federated graph neural networks on two-server secret shares"
license = "Apache-2.0"
dependencies = []  # what it imports is installed with SafeGNN where it runs

[tool.flwr.app]
publisher = "safegnn"

[tool.flwr.app.components]
serverapp = "safegnn_server:app"
clientapp = "safegnn_client:app"

[tool.flwr.app.config]
{keys}
"""

_MODULE = """\
from orchestrator.flower import {module}

app = {module}.{name}  # Flower looks for an assignment
"""


def write_app(folder: Path, simulation: bool = False) -> None:
    """Make the folder, which must not exist.

    Args:
        simulation: for Flower's simulation engine, whose clients live in Ray actors, instead of sites.

    Raises:
        ConfigError: it exists, or cannot be written.
    """
    server, client = ("simulation.server", "simulation.client") if simulation else ("server_app.app", "client_app.app")
    keys = "\n".join(f"{key} = {0 if kind is int else chr(34) * 2}" for key, kind in KEYS.items())
    write_new_folder(
        folder,
        {
            "pyproject.toml": _PROJECT.format(version=version("safegnn"), keys=keys).encode(),
            "safegnn_server.py": _module(server),
            "safegnn_client.py": _module(client),
        },
    )


def _module(app: str) -> bytes:
    module, name = app.split(".")
    return _MODULE.format(module=module, name=name).encode()
