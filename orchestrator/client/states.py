"""Training states of several clients in one file, as a checkpoint names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.files import read_arrays, write_atomically

__all__ = ["read_states", "write_states"]


def write_states(path: Path, states: Mapping[int, Mapping[str, Any]]) -> None:
    """The states of several clients as one .npz: for each name and shape the values, stacked, and whose they are."""
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for c, state in states.items():
        for name, value in state.items():
            groups.setdefault((name, np.shape(value)), []).append(c)
    arrays: dict[str, Any] = {}
    for (name, shape), owners in groups.items():
        key = f"{name}/{'x'.join(map(str, shape))}"
        arrays[f"{key}/clients"] = np.array(owners)
        arrays[f"{key}/values"] = np.stack([states[c][name] for c in owners])
    write_atomically(path, lambda file: np.savez(file, **arrays))


def read_states(path: Path, members: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What `write_states` wrote of these clients. Raises RunError for a file that cannot be read."""
    arrays, states = read_arrays(path), dict[int, dict[str, Any]]({c: {} for c in members})
    for key, owners in arrays.items():
        group, _, what = key.rpartition("/")
        if what == "clients":
            for c, value in zip(owners.tolist(), arrays.get(f"{group}/values", ()), strict=False):
                if c in states:
                    states[c][group.rpartition("/")[0]] = value if value.ndim else value.item()
    return states
