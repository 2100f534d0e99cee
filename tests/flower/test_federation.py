"""A SuperLink with TLS and node authentication, three SuperNodes, and an app of the test's that asks their workers."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

pytest.importorskip("flwr", reason="needs safegnn[flower]")

from tests.flower.federation import Federation, worker

pytestmark = pytest.mark.timeout(300)  # half a minute on a machine that is not busy

SERVER = """
import json
from pathlib import Path

from flwr.serverapp import ServerApp

from orchestrator.flower.grid_sites import GridSites
from orchestrator.flower.post import FlowerPost

app = ServerApp()


@app.main()
def main(grid, context):
    sites = GridSites(FlowerPost(grid), ["a", "b", "c", "d"], absent_sec=0)
    said = {"missing": sites.gather(["a", "b", "c"], 60)}
    small, large = b"small", bytes(9 * 2**20)
    said["small"] = {site: reply == small for site, reply in sites.ask(dict.fromkeys("abc", small), 60)}
    said["large"] = {site: reply == large for site, reply in sites.ask({"a": large}, 60)}
    said["gone"] = {
        site: f"{type(reply).__name__}: {reply}" for site, reply in sites.ask({"b": b"", "d": small}, 60)
    }
    Path(context.run_config["result"]).write_text(json.dumps(said))
"""

CLIENT = """
import os
from pathlib import Path

from orchestrator.flower import client_app

Path(os.environ["SHIPPED"]).touch()  # the coordinator's code runs at this site

app = client_app.app
"""

PROJECT = """
[project]
name = "asks"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "safegnn"
[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"
[tool.flwr.app.config]
result = ""
"""


@pytest.fixture
def app(tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    for name, text in {"pyproject.toml": PROJECT, "server.py": SERVER, "client.py": CLIENT}.items():
        (folder / name).write_text(text)
    return folder


def test_requests_reach_workers_through_authenticated_nodes(tmp_path, app):
    """a and b run the installed ClientApp, c the one that the coordinator ships; d has no node."""
    with ExitStack() as held:
        federation = held.enter_context(Federation(tmp_path / "f"))
        federation.start_link()
        for site in "abc":
            federation.register(site)
            federation.start_node(site, resident=site != "c", SHIPPED=str(tmp_path / f"shipped {site}"))
            if site != "b":
                held.enter_context(worker(federation.socket(site)))
        result = tmp_path / "result.json"

        printed = federation.run(app, f"result='{result}'", timeout_sec=250)

        assert result.exists(), printed
        said = json.loads(result.read_text())
    assert said["missing"] == []
    assert said["small"] == {"a": True, "b": False, "c": True}
    assert said["large"] == {"a": True}
    assert said["gone"]["b"].startswith("PeerLostError: round 0, phase flower: site b: its worker is not there")
    assert said["gone"]["d"].startswith("PeerLostError: round 0, phase flower: site d: no SuperNode says")
    assert sorted(path.name for path in tmp_path.glob("shipped *")) == ["shipped c"]


def test_a_node_whose_key_is_not_registered_is_refused(tmp_path):
    with Federation(tmp_path / "f") as federation:
        federation.start_link()
        federation.register("a")
        federation.folder.joinpath("b.key").write_bytes(other_key())
        federation.start_node("b", resident=True)

        federation.processes["node b"].wait(timeout=120)

        assert federation.processes["node b"].returncode != 0


def other_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
