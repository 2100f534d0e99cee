"""Pokec-z at full size: synthetic and from files in its format, thirty large clients and ten thousand small ones.

Each within its bound of memory, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

NODES, FEATURES, EDGES = 67_796, 276, 882_765
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")

SCRIPT = """
import json, sys
from pathlib import Path
from orchestrator.config import load_config
from orchestrator.graphs import client_graphs, load_graph
config = load_config([sys.argv[1]], overrides=sys.argv[2:])
graph = load_graph(config.data, config.seed)
clients = client_graphs(graph, config.clients, config.seed)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
peak = int(status["VmHWM"].removesuffix("kB"))  # getrusage would count what the process that forked this one held
print(json.dumps([*graph.features.shape, graph.num_edges, len(clients), peak]))
"""


def _load(*overrides: str, preset: str = "synthetic-pokec-z-full", gib: float = 4) -> tuple[int, ...]:
    command = [sys.executable, "-c", SCRIPT, preset, *overrides]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    *sizes, peak = json.loads(done.stdout)
    assert peak * 1024 < gib * 2**30
    return tuple(sizes)


def test_synthetic():
    assert _load() == (NODES, FEATURES, EDGES, 30)


def test_ten_thousand_clients():
    assert _load(preset="dp-large", gib=1) == (NODES, FEATURES, EDGES, 10_000)


def test_files(tmp_path):
    rng = np.random.default_rng(0)
    answers = np.full((NODES, 2 * FEATURES), ord(","), np.uint8)
    answers[:, 1::2] = rng.integers(ord("0"), ord("2"), (NODES, FEATURES))
    labels, regions = rng.choice([-1, 0, 1, 3], NODES, p=[0.87, 0.07, 0.03, 0.03]), rng.integers(0, 2, NODES)
    with (tmp_path / "region_job.csv").open("wb") as table:
        columns = ["user_id", "region", "I_am_working_in_field", *(f"odpoved {i} (a)" for i in range(FEATURES))]
        table.write((",".join(columns) + "\n").encode())
        for node in range(NODES):
            table.write(b"%d,%d,%d" % (2**55 + node, regions[node], labels[node]) + answers[node].tobytes() + b"\n")
    pairs = 2**55 + rng.integers(0, NODES, (EDGES, 2))
    lines = "\n".join(f"{u}\t{v}" for u, v in pairs.tolist())
    (tmp_path / "region_job_relationship.txt").write_text(lines)
    nodes, features, edges, clients = _load("data.name=pokec-z", f"data.dir={tmp_path}")
    assert (nodes, features, clients) == (NODES, FEATURES, 30)
    assert 0.99 * EDGES < edges <= EDGES  # a few are repeated or join a node to itself
