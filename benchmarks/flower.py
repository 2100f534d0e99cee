"""Seconds of an empty round over Flower: two sites that answer at once, by kind of node, alternately in one run.

`python -m benchmarks.flower` from the repository's root, where safegnn[flower] is installed. Kinds: `shipped` is
Flower's own way, a new process for every message, which runs the app that the coordinator ships; `installed` is
`safegnn flower node`. Each is asked as `GridSites` asks, and by Flower's own `Grid.send_and_receive`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.flower.federation import Federation, worker

_SERVER = """
import json
import time
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import ServerApp

from orchestrator.flower.grid_sites import GridSites
from orchestrator.flower.parcel import packed
from orchestrator.flower.post import FlowerPost

app = ServerApp()
KINDS = {kind: [f"{kind}-0", f"{kind}-1"] for kind in ("shipped", "installed")}


@app.main()
def main(grid, context):
    everybody = sum(KINDS.values(), [])
    sites, seconds = GridSites(FlowerPost(grid), everybody), {}
    assert sites.gather(everybody, 120) == []
    content = bytes(int(context.run_config["bytes"]))

    def asked(members):
        for _, reply in sites.ask(dict.fromkeys(members, content), 120):
            assert reply == content, reply

    def sent_and_received(members):
        letters = [Message(packed(content), sites._node[site], "query", ttl=120) for site in members]
        assert not any(letter.has_error() for letter in grid.send_and_receive(letters))

    for _ in range(int(context.run_config["rounds"])):
        for kind, members in KINDS.items():
            for ask in (asked, sent_and_received):
                began = time.perf_counter()
                ask(members)
                seconds.setdefault(f"{kind} {ask.__name__}", []).append(time.perf_counter() - began)
    Path(context.run_config["result"]).write_text(json.dumps(seconds))
"""

_CLIENT = """
from orchestrator.flower import client_app

app = client_app.app
"""

_PROJECT = """
[project]
name = "empty-rounds"
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
rounds = 1
bytes = 0
result = ""
"""


def measure(rounds: int, size: int) -> dict[str, list[float]]:
    """Seconds of each round, by kind of node and way to ask."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        app, result = Path(folder, "app"), Path(folder, "result.json")
        app.mkdir()
        for name, text in {"pyproject.toml": _PROJECT, "server.py": _SERVER, "client.py": _CLIENT}.items():
            (app / name).write_text(text)
        federation = held.enter_context(Federation(Path(folder, "f")))
        federation.start_link()
        for kind in ("shipped", "installed"):
            for k in (0, 1):
                site = f"{kind}-{k}"
                held.enter_context(worker(federation.socket(site)))
                federation.register(site)
                federation.start_node(site, resident=kind == "installed")
        told = f"rounds={rounds} bytes={size} result='{result}'"
        federation.run(app, told, timeout_sec=300 + 60 * rounds)
        return json.loads(result.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=1000, help="of each request and reply")
    options = parser.parse_args()
    for way, seconds in measure(options.rounds, options.bytes).items():
        print(f"{way:32} median {median(seconds):5.2f} s, {min(seconds):5.2f} to {max(seconds):5.2f} s")


if __name__ == "__main__":
    main()
