"""Where the parties' share files lie: a folder that only this user can read, in memory where there is room.

A server's shares are secret from the other server and from every other user. A file on a disk may outlive its removal;
one in /dev/shm does not. Without /dev/shm, or where the files would not fit, it is the system's temporary folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["private_folder"]

_MEMORY = Path("/dev/shm")
_SPARE = 4
"""How many times the files' size must be free: the other party's, the results, and room for others."""


def private_folder(needed_bytes: int) -> Path:
    """A new folder with mode 0700 for files of about this size. Raises OSError where it cannot be made."""
    return Path(tempfile.mkdtemp(prefix="safegnn-", dir=_memory(needed_bytes)))


def _memory(needed_bytes: int) -> Path | None:
    """/dev/shm if it serves, else None."""
    try:
        fits = shutil.disk_usage(_MEMORY).free >= _SPARE * needed_bytes
    except OSError:
        return None
    return _MEMORY if fits and os.access(_MEMORY, os.W_OK | os.X_OK) else None
