"""Writes the test vectors of the current wire format: `python -m tests.vectors.generate`.

A change of the format gets a new version number and a new file; the old file stays until no one reads that format.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from orchestrator.mpc.offline import correlations as preprocessing
from orchestrator.mpc.offline.correlations import Batch, Demand, deal
from orchestrator.wire import upload
from orchestrator.wire.message import HEADER_BYTES, Header, pack
from orchestrator.wire.upload import Layout, share_update, unpack_upload

FOLDER = Path(__file__).parent
UPDATE = [0, 1, -1, 2**40, -(2**62)]
SCORES = [0.0, 0.75, 2.0]


def seeds():
    """Fixed seeds in place of fresh ones: 00..., 01..., 02...."""
    values = iter(bytes([k] * 16) for k in range(256))
    return lambda: next(values)


def header(server: int) -> Header:
    return Header(bytes(range(16)), 7, 1, 12, server)


def packed(program: str) -> tuple[bytes, bytes]:
    with patch.object(upload, "fresh_seed", seeds()), patch.object(upload.secrets, "token_bytes", bytes):
        layout = Layout(program, len(UPDATE), len(SCORES))
        return share_update(np.array(UPDATE).view(np.uint64), SCORES, [header(0), header(1)], layout)


def uploads(program: str) -> dict:
    both, layout = packed(program), Layout(program, len(UPDATE), len(SCORES))
    digests = {unpack_upload(both[server], header(server), layout).digest.hex() for server in (0, 1)}
    return {"program": program, "packed": [part.hex() for part in both], "digest": digests.pop()}


def refused() -> list[dict]:
    """Uploads to server 1 that must be refused, with words of the reason."""
    first, good = packed("assisted")
    body = good[HEADER_BYTES:]
    changes = {
        "bad_run": ({"run": bytes(16)}, "another run"),
        "bad_round": ({"round": 8}, "another round 8 instead of 7"),
        "bad_slot": ({"slot": 0}, "another slot 0 instead of 1"),
        "bad_client": ({"client": 13}, "another client 13 instead of 12"),
        "bad_server": ({"server": 0}, "another server 0 instead of 1"),
    }
    cases = {
        name: (pack(replace(header(1), **change), {"all": body}, "upload"), reason)
        for name, (change, reason) in changes.items()
    }
    expected = f"expected {len(good)}"
    cases |= {
        "bad_format": (b"SGNN-U 2" + good[8:], "another format than 'SGNN-U 3'"),
        "an_answer": (pack(header(1), {"all": body}, "answer"), "another format than 'SGNN-U 3'"),
        "empty": (b"", f"the upload has 0 bytes, {expected}"),
        "truncated": (good[:-1], f"the upload has {len(good) - 1} bytes, {expected}"),
        "extended": (good + bytes(1), f"the upload has {len(good) + 1} bytes, {expected}"),
        "other_half": (first, f"the upload has {len(first)} bytes, {expected}"),
    }
    return [{"name": name, "packed": data.hex(), "reason": reason} for name, (data, reason) in cases.items()]


def batch() -> dict:
    demand = Demand(2, 9, 3, 1, 4)
    with patch.object(preprocessing, "fresh_seed", seeds()):
        messages = deal(demand)
    Batch.from_dealer(demand, 1, messages[1])
    return {"demand": [2, 9, 3, 1, 4], "messages": [message.hex() for message in messages]}


def main() -> None:
    content = {
        "version": 3,
        "update": UPDATE,
        "scores": SCORES,
        "uploads": [uploads(program) for program in ("assisted", "scalar-first", "faithful")],
        "refused": refused(),
        "batch": batch(),
    }
    (FOLDER / "wire-3.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
