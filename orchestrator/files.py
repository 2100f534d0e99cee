"""Files that are written whole or not at all, and arrays that are read without running anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from orchestrator.errors import ConfigError, RunError

__all__ = ["private", "read_arrays", "write_atomically", "write_new_file", "write_new_folder"]


def private(path: str | Path, flags: int) -> int:
    """As an opener: a new file is readable by its owner only."""
    return os.open(path, flags, 0o600)


def write_new_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Make a folder of mode 0700 with files of mode 0600.

    Raises:
        ConfigError: it exists, or cannot be written. Nothing is overwritten.
    """
    with _new(folder):
        folder.mkdir(mode=0o700, parents=True)
    for name, content in contents.items():
        write_new_file(folder / name, content)


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read from its first byte on, which a later chmod would not give.

    Raises:
        ConfigError: it exists, or cannot be written. Nothing is overwritten.
    """
    with _new(path), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


@contextmanager
def _new(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise ConfigError(f"{path} exists already; nothing is overwritten, name another one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, of mode 0600, whole or not at all; when this returns, no power failure undoes it.

    Raises:
        RunError: with one line, e.g. on a full disk.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with open(temporary, "wb", opener=private) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_names(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise RunError(f"{path}: cannot be written: {error.strerror or error}; the previous version stands") from error


def _flush_names(folder: Path) -> None:
    """Write a folder's list of names to the disk, as a file's flush does not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what file systems say on which folders need none
            raise
    finally:
        os.close(descriptor)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; nothing in it can run code. Raises RunError for a file that cannot be read whole."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged file makes the readers of zip and npy raise whatever they like
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"{path}: cannot be read, it is missing or damaged: {reason}") from error
