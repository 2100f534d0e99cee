from __future__ import annotations

import pytest

from tests.agreement.participants import make_consortium


@pytest.fixture(scope="session")
def consortium(tmp_path_factory):
    """Two aggregators, a coordinator and two sites; nothing in it is changed."""
    return make_consortium(tmp_path_factory.mktemp("consortium"))
