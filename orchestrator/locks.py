"""One writer a folder: a lock that names its holder and ends with the process that holds it.

The lock is the operating system's, taken by `filelock` on ``.lock``: a holder that was killed leaves none, however it
ended. Where a file system has no locks, the library leaves a marker there and removes that of a process that has gone.
Who holds it stands beside it, in ``.lock-holder``. Locks of a network file system count on every machine only where it
is mounted with them (NFS: not ``nolock``), so a holder also looks, before what must not happen twice, whether another
one has taken its place.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import BusyError, RunError
from orchestrator.files import write_atomically

__all__ = ["FolderLock"]


class FolderLock:
    """The right to write to a folder; a context manager, which its holder may enter again.

    Files of the lock stay in the folder, empty of meaning when nobody holds it.
    """

    def __init__(self, folder: Path, mode: int = 0o600) -> None:
        """Args: mode: of ``.lock``; another user can take the lock of a shared folder only where it may write this."""
        self._folder, self._mode = folder, mode
        self._lock: Any = None
        self._depth, self._holder = 0, ""

    def __enter__(self) -> Self:
        """Take the lock at once or not at all.

        Raises:
            BusyError: somebody else holds it, who is named.
            RunError: the folder cannot be written.
        """
        if self._depth == 0:
            self._take()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            if self._written() == self._holder:
                self._note.unlink(missing_ok=True)
            self._lock.release()

    def confirm(self) -> None:
        """Raises BusyError where the lock is no longer this holder's, whatever the file system's locks are worth."""
        if (written := self._written()) != self._holder:
            raise BusyError(f"{self._folder}: {_described(written)} has taken its place; this process stops writing")

    @property
    def _note(self) -> Path:
        return self._folder / ".lock-holder"

    def _take(self) -> None:
        from filelock import FileLock, Timeout  # a tenth of a second, which commands that write nothing do without

        if not self._folder.is_dir():  # the library would make one
            raise RunError(f"{self._folder}: cannot be locked for writing: there is no such folder")
        self._lock = FileLock(self._folder / ".lock", timeout=0, mode=self._mode)
        try:
            self._lock.acquire()
        except Timeout:
            holder = _described(self._written())
            raise BusyError(f"{self._folder}: {holder} is writing to it; wait until it has ended, or stop it") from None
        except OSError as error:
            raise RunError(f"{self._folder}: cannot be locked for writing: {error.strerror or error}") from error
        now = datetime.now().astimezone().isoformat()
        self._holder = json.dumps({"pid": os.getpid(), "host": platform.node(), "since": now})
        try:
            write_atomically(self._note, lambda file: file.write(self._holder.encode()))
        except BaseException:
            self._lock.release()
            raise

    def _written(self) -> str:
        """Who holds the lock, or held it last and did not end in order; empty where nobody says so."""
        try:
            return self._note.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""


def _described(holder: str) -> str:
    try:
        said = json.loads(holder)
        since = datetime.fromisoformat(said["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {said['pid']} on {said['host']}, since {since},"
    except (ValueError, TypeError, KeyError):
        return "another process"
