"""The page of faults that others reported names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "development" / "public-reports.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(test_\w+))?(?:\[[^`]*\])?`", PAGE)


def test_it_names_many():
    assert len(NAMED) > 70 and len({file for file, _ in NAMED}) > 20


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_what_it_names_exists(file):
    text = (TESTS / file).read_text(encoding="utf-8")
    for named, test in NAMED:
        if named == file and test and not test.endswith("_"):  # cut off with dots
            assert f"def {test}(" in text, test
