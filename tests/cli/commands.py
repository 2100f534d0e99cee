"""What tests of the commands share."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import TINY

SETTINGS = [argument for setting in TINY for argument in ("--set", setting)]


def assert_refused(result, status: int, *parts: str) -> None:
    code, out, err = result
    assert out == ""
    assert err.startswith("safegnn: ") and err.endswith("\n") and err.count("\n") == 1
    assert all(part in err for part in parts), err
    assert code == status


def assert_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000
