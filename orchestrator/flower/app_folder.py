"""The folder that `flwr run` takes: names of the two apps, and the settings that a run may be given.

It holds no code but two imports. Sites that run the installed `ClientApp` (`safegnn flower node`) never unpack it.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import RunError
from orchestrator.files import atomic_write

__all__ = ["DEFAULTS", "write_app"]

DEFAULTS = {"preset": "", "config": "", "rounds": 0, "set": "", "folder": ""}
"""Every key that ``--run-config`` may set; Flower refuses others. See `orchestrator.flower.run_config`."""

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
serverapp = "safegnn_app.server:app"
clientapp = "safegnn_app.client:app"

[tool.flwr.app.config]
{defaults}
"""

_MODULE = """\
from orchestrator.flower import {module}

app = {module}.{name}  # Flower looks for an assignment
"""
