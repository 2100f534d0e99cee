"""Writes the test vectors of the current wire format: `python -m tests.vectors.generate`.

A change of the format gets a new version number and a new file; the old file stays until no one reads that format.
"""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import msgpack
import numpy as np

from orchestrator.mpc.offline import correlations as preprocessing
from orchestrator.mpc.offline.correlations import Batch, Demand, deal
from orchestrator.wire import upload
from orchestrator.wire.message import Header
from orchestrator.wire.upload import share_update, unpack_upload

FOLDER = Path(__file__).parent
UPDATE = [0, 1, -1, 2**40, -(2**62)]
SCORES = [0.0, 0.75, 2.0]


def seeds():
    """Fixed seeds in place of fresh ones: 00..., 01..., 02...."""
    values = iter(bytes([k] * 16) for k in range(256))
    return lambda: next(values)


def header(server: int) -> Header:
    return Header(bytes(range(16)), 7, 1, 12, server)


def uploads(program: str) -> dict:
    with patch.object(upload, "fresh_seed", seeds()):
        packed = share_update(np.array(UPDATE).view(np.uint64), SCORES, [header(0), header(1)], program)
    return {"program": program, "packed": [part.hex() for part in packed]}


def refused() -> list[dict]:
    """Uploads to server 1 that must be refused, with words of the reason."""
    with patch.object(upload, "fresh_seed", seeds()):
        good = msgpack.unpackb(share_update(np.array(UPDATE).view(np.uint64), SCORES, [header(0), header(1)])[1])
    changes = {
        "bad_run": ({"run": bytes(16)}, "another run"),
        "bad_round": ({"round": 8}, "another round 8"),
        "bad_slot": ({"slot": 0}, "another slot 0"),
        "bad_client": ({"client": 13}, "another client 13"),
        "bad_server": ({"server": 0}, "another server 0"),
        "bad_version": ({"version": 2}, "format 2"),
        "bad_seed": ({"seed": bytes(15)}, "format"),
        "short_masked": ({"masked": good["masked"][:-1]}, "'masked' has 39 bytes"),
        "short_product": ({"product": b""}, "'product' has 0 bytes"),
        "long_scalars": ({"scalars": good["scalars"] + b"\0"}, "'scalars' has 49 bytes"),
    }
    cases = [
        {"name": name, "packed": msgpack.packb(good | change).hex(), "reason": reason}
        for name, (change, reason) in changes.items()
    ]
    whole = msgpack.packb(good)
    cases.append({"name": "truncated", "packed": whole[:-5].hex(), "reason": "format"})
    cases.append({"name": "no_map", "packed": msgpack.packb([1, 2]).hex(), "reason": "format"})
    return cases


def batch() -> dict:
    demand = Demand(2, 9, 3, 1, 4)
    with patch.object(preprocessing, "fresh_seed", seeds()):
        messages = deal(demand)
    Batch.from_dealer(demand, 1, messages[1])
    return {"demand": [2, 9, 3, 1, 4], "messages": [message.hex() for message in messages]}


def main() -> None:
    for program in ("assisted", "scalar-first", "faithful"):
        made = uploads(program)
        for server in (0, 1):
            unpack_upload(bytes.fromhex(made["packed"][server]), header(server), len(UPDATE), len(SCORES), program)
    content = {
        "version": 1,
        "update": UPDATE,
        "scores": SCORES,
        "uploads": [uploads(program) for program in ("assisted", "scalar-first", "faithful")],
        "refused": refused(),
        "batch": batch(),
    }
    (FOLDER / "wire-1.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
