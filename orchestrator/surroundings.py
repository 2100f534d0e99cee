"""What the program asks of the machine and of the process that it runs in; what it can do without, it does without."""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
import tempfile
from multiprocessing import util

from orchestrator.errors import ConfigError

__all__ = ["check_platform", "check_process", "memory_bytes", "shorten_socket_paths"]

_MACHINES = ("x86_64", "amd64", "aarch64", "arm64")
_SYSTEMS = {"linux": "Linux", "darwin": "macOS"}

_LONGEST_FOLDER = 71
"""Bytes. A socket's path has 103 on macOS, 107 on Linux; ``/pymp-12345678/listener-12345678`` are 32 of them."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def check_platform() -> None:
    """Raises ConfigError, with the platform's name, where SafeGNN does not run."""
    system, machine = _SYSTEMS.get(sys.platform), platform.machine()
    if system is None:
        name = {"win32": "Windows", "cygwin": "Cygwin"}.get(sys.platform, sys.platform)
        raise ConfigError(f"{name}: SafeGNN runs on Linux and macOS; on Windows use WSL 2 or a container")
    if machine.lower() not in _MACHINES:
        raise ConfigError(f"{system} on {machine}: SafeGNN runs on x86-64 and arm64 processors")


def check_process() -> None:
    """Raises ConfigError in a process that may not start the client processes."""
    process = multiprocessing.current_process()
    if process.daemon:
        raise ConfigError(
            f"{process.name}: training starts processes, which a daemonic one may not, such as a worker of "
            "multiprocessing.Pool; use concurrent.futures.ProcessPoolExecutor, or Process(daemon=False)"
        )


def shorten_socket_paths() -> None:
    """See to it that multiprocessing makes its sockets where their paths are short enough, however long TMPDIR is.

    Raises:
        ConfigError: there is no such folder.
    """
    before = tempfile.tempdir
    try:
        if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER:
            tempfile.tempdir = next(filter(_usable, _SHORT_FOLDERS), None)
            if tempfile.tempdir is None:
                raise ConfigError(
                    f"TMPDIR: {before or tempfile.gettempdir()} is too long for the path of a socket; name a folder of "
                    f"at most {_LONGEST_FOLDER} bytes"
                )
        util.get_temp_dir()  # from here on it is this process's, and goes with it
    except OSError as error:
        raise ConfigError(f"TMPDIR: no temporary folder can be made: {error.strerror or error}") from None
    finally:
        tempfile.tempdir = before


def _usable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def memory_bytes() -> int | None:
    """Of this machine, or as much of it as a container may have; None where the system does not tell."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                whole = min(whole, int(file.read()))
        except (OSError, ValueError):  # "max": as much as there is
            continue
    return whole if whole > 0 else None
