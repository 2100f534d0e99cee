"""One digest of the sources that a server computes with: servers that hold others refuse each other.

This is for honest mistakes, a machine whose version is older or whose files were edited: such servers would agree on
all terms and compute garbage. A malicious server says what it likes. That the interpreter and libraries are alike it
does not show.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

__all__ = ["source_digest"]

_FOLDERS = (
    "mpc_programs",
    "orchestrator/mpc",
    "orchestrator/mpc/offline",
    "orchestrator/privacy",
    "orchestrator/server",
    "orchestrator/transport",
    "orchestrator/wire",
)


@cache
def source_digest(*further: str) -> bytes:
    """SHA-256 over names and contents of all .py and .mpc files of the folders above and of further ones.

    Args:
        further: what an engine's servers run besides, as package/folder/folder.
    """
    digest = hashlib.sha256()
    for folder in (*_FOLDERS, *further):
        package, _, inside = folder.partition("/")
        for file in sorted(resources.files(package).joinpath(inside).iterdir(), key=lambda file: file.name):
            if file.name.endswith((".py", ".mpc")):
                for part in (f"{folder}/{file.name}".encode(), file.read_bytes()):
                    digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
