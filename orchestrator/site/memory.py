"""What a site keeps of a run in its own folder: what it answered, its training state, and the sums that it heard.

    runs/<run>/progress.json     by session, the last round that was answered; and of which rounds there is a state
    runs/<run>/state-7.npz       after round 7
    runs/<run>/totals.npz        in the order in which they were heard

It is written before an answer leaves, so that no crash makes a site answer one round twice. States of two rounds are
kept: a coordinator whose round was not completed repeats it in a new session, and the site trains from where it stood
before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.client.states import read_states, write_states
from orchestrator.errors import RunError
from orchestrator.files import read_arrays, write_atomically

__all__ = ["Memory"]

_STATES = 2
_SESSIONS = 256
"""Of a run that are remembered: the older ones' keys have gone with the aggregators' sessions."""


class Memory:
    """Of one run."""

    def __init__(self, folder: Path, client: int) -> None:
        """Args: folder: of the run, made where it is missing; client: the site's number.

        Raises:
            RunError: it cannot be made, or its files are damaged.
        """
        self._folder, self._client = folder, client
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            text = self._progress.read_text(encoding="utf-8") if self._progress.exists() else "{}"
        except (OSError, ValueError) as error:
            raise RunError(f"{folder}: cannot be used: {getattr(error, 'strerror', None) or error}") from None
        try:
            kept = json.loads(text)
            self._answered = {str(name): int(round) for name, round in kept.get("answered", {}).items()}
            self._states = sorted(int(round) for round in kept.get("states", []))
        except (ValueError, TypeError, AttributeError) as error:
            raise RunError(f"{self._progress}: is damaged: {error}") from None

    def answered(self, session: str) -> int:
        """The last round of a session that was answered; 0: none."""
        return self._answered.get(session, 0)

    def answer(self, session: str, round: int, state: Mapping[str, Any] | None = None) -> None:
        """A round is about to be answered. Args: state: after it; None: it is as before.

        Raises:
            RunError: this cannot be written. Nothing may be answered.
        """
        states = self._states
        if state is not None:
            write_states(self._state(round), {self._client: state})
            states = [*(kept for kept in states if kept < round), round][-_STATES:]
        others = [(name, last) for name, last in self._answered.items() if name != session]
        answered = dict([*others, (session, round)][-_SESSIONS:])
        text = json.dumps({"answered": answered, "states": states})
        write_atomically(self._progress, lambda file: file.write(text.encode()))
        self._answered, self._states = answered, states
        for path in self._folder.glob("state-*.npz"):
            if path not in {self._state(kept) for kept in states}:
                path.unlink(missing_ok=True)

    def before(self, round: int) -> tuple[int, dict[str, Any] | None]:
        """The newest state of an earlier round, and which round that was; 0 and None: there is none.

        Raises:
            RunError: the file is damaged.
        """
        earlier = [kept for kept in self._states if kept < round]
        if not earlier:
            return 0, None
        return earlier[-1], read_states(self._state(earlier[-1]), [self._client])[self._client]

    def totals(self) -> dict[str, np.ndarray]:
        """What sums came to, by name. Raises RunError for a damaged file."""
        return read_arrays(self._totals) if self._totals.exists() else {}

    def hear(self, name: str, total: np.ndarray) -> None:
        """Keep what a sum came to. Raises RunError where it cannot be written."""
        fields: dict[str, Any] = {**self.totals(), name: total}
        write_atomically(self._totals, lambda file: np.savez(file, **fields))

    @property
    def _progress(self) -> Path:
        return self._folder / "progress.json"

    @property
    def _totals(self) -> Path:
        return self._folder / "totals.npz"

    def _state(self, round: int) -> Path:
        return self._folder / f"state-{round}.npz"
