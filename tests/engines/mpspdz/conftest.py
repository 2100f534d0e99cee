"""The real installation, if there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.engines.mpspdz.installation import find
from orchestrator.errors import ConfigError


@pytest.fixture(scope="session")
def installation():
    """The real one; the tests that need it are skipped, with the reason, where there is none."""
    try:
        return find()
    except ConfigError as error:
        pytest.skip(f"needs an installation of MP-SPDZ: {error}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return Path(os.environ.get("SAFEGNN_TEST_CACHE") or tmp_path_factory.mktemp("bytecode"))
